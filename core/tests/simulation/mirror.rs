//! What a controller was told by its watch, kept without any judgement.

use mcs_core::ids::{ClusterId, Epoch, ServiceKey};
use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Part, PartSet, Section};
use mcs_core::time::Timestamp;
use mcs_core::version::{Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Mirror {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) ended: bool,
    pub(crate) revision: u64,
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    /// The parts of each cluster as the last snapshot that told any of them left them.
    before: BTreeMap<ClusterId, BTreeMap<ServiceKey, Part>>,
    /// The clusters whose parts this snapshot left out, and the version as of which they stand.
    pub(crate) kept: BTreeMap<ClusterId, Version>,
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
            Frame::Begin { epoch, absent_grace, .. } => {
                let mut before = std::mem::take(&mut self.before);
                let mut parts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
                for (key, object) in std::mem::take(&mut self.objects) {
                    if let (ObjectKey::Part(key, cluster), Object::Part(part)) = (key, object) {
                        parts.entry(cluster).or_default().insert(key, part);
                    }
                }
                before.extend(parts);
                *self = Self { epoch: Some(*epoch), grace: *absent_grace, before, ..Self::default() };
            }
            Frame::Kept { cluster, set, version } => self.keep(cluster, set, *version),
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

    /// What the watcher is said to have is what it had.
    fn keep(&mut self, cluster: &ClusterId, set: &PartSet, version: Version) {
        let told = self.objects.keys().any(|key| matches!(key, ObjectKey::Part(_, of) if of == cluster));
        assert!(!told, "invariant 6: parts of {cluster} were told, and are kept");
        let parts = self.before.remove(cluster).unwrap_or_default();
        let sum: Sum = parts.values().map(|part| part.leaf).collect();
        assert!(
            parts.values().all(|part| part.uid == set.uid) && sum == set.sum,
            "invariant 6: {cluster} is kept"
        );
        self.kept.insert(cluster.clone(), version);
        for (key, part) in parts {
            let part = Part { version, ..part };
            self.objects.insert(ObjectKey::Part(key, cluster.clone()), Object::Part(part));
        }
    }

    /// `part` as it is here, if its cluster's parts were left out: the log has the version of its last change, which is
    /// not above that of the whole set.
    pub(crate) fn as_kept(&self, key: &ServiceKey, cluster: &ClusterId, mut part: Part) -> Part {
        if let Some(version) = self.kept.get(cluster)
            && let Some(Object::Part(here)) = self.objects.get(&ObjectKey::Part(key.clone(), cluster.clone()))
            && here.version == *version
            && part.version <= *version
        {
            part.version = *version;
        }
        part
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
