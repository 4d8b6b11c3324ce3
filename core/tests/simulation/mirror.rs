//! What a controller was told by its watch, kept without any judgement.

use mcs_core::ids::{ClusterId, Epoch};
use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Section};
use mcs_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Mirror {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) ended: bool,
    pub(crate) revision: u64,
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    /// Clusters whose section was removed since the snapshot.
    pub(crate) left: BTreeSet<ClusterId>,
    /// Since when complete views without a break did not list a cluster.
    pub(crate) complete_since: Option<Timestamp>,
    pub(crate) absent_since: BTreeMap<ClusterId, Timestamp>,
    pub(crate) grace: Duration,
}

impl Mirror {
    pub(crate) fn take(&mut self, frame: &Frame, now: Timestamp) {
        match frame {
            Frame::Begin { epoch, absent_grace } => {
                *self = Self { epoch: Some(*epoch), grace: *absent_grace, ..Self::default() };
            }
            Frame::Change(change) => {
                if self.ended {
                    self.revision = change.revision;
                }
                if let ObjectKey::Section(cluster) = &change.key {
                    self.absent_since.remove(cluster);
                    if change.object.is_none() {
                        self.left.insert(cluster.clone());
                        if self.complete_since.is_some() {
                            self.absent_since.insert(cluster.clone(), now);
                        }
                    } else {
                        self.left.remove(cluster);
                    }
                }
                match &change.object {
                    Some(object) => self.objects.insert(change.key.clone(), object.clone()),
                    None => self.objects.remove(&change.key),
                };
            }
            Frame::End { revision, complete } => {
                self.ended = true;
                self.revision = *revision;
                self.completeness(*complete, now);
            }
            Frame::Progress { revision, complete } => {
                self.revision = *revision;
                self.completeness(*complete, now);
            }
        }
    }

    fn completeness(&mut self, complete: bool, now: Timestamp) {
        if complete && self.ended {
            self.complete_since.get_or_insert(now);
        } else {
            self.complete_since = None;
        }
    }

    pub(crate) fn section(&self, cluster: &ClusterId) -> Option<&Section> {
        match self.objects.get(&ObjectKey::Section(cluster.clone())) {
            Some(Object::Section(section)) => Some(section),
            _ => None,
        }
    }

    /// Whether complete views have not listed `cluster` for the grace: it is not there, or is named as expired.
    pub(crate) fn is_long_absent(&self, cluster: &ClusterId, now: Timestamp) -> bool {
        let over = |since: Timestamp| (since + self.grace).has_passed(now);
        let unlisted = self.section(cluster).is_none_or(|section| section.state == MemberState::Expired);
        unlisted
            && self.complete_since.is_some_and(over)
            && self.absent_since.get(cluster).is_none_or(|since| over(*since))
    }
}
