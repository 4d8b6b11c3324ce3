//! What of a replica its table does not hold yet, noted as a registry does.

use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::model::{Change, MemberState, Object, ObjectKey, Section};
use mcs_core::version::Version;
use std::collections::BTreeMap;

/// Of the clusters that had one id.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    /// Who has the id, and the newest version of anything that it has.
    pub(crate) uid: Option<ClusterUid>,
    version: Version,
    /// Whether it spoke to this replica.
    spoke_here: bool,
    /// Who had it, and is to go, with the version of what it had.
    pub(crate) gone: BTreeMap<ClusterUid, Version>,
    /// Whether its record changed.
    pub(crate) record: bool,
    /// Which of its exports changed; one that is gone is so as of a version.
    pub(crate) exports: BTreeMap<ServiceKey, Version>,
}

impl Notes {
    fn changed(&mut self, key: ServiceKey, as_of: Version) {
        let known = self.exports.entry(key).or_default();
        *known = as_of.max(*known);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gone.is_empty() && !self.record && self.exports.is_empty()
    }

    fn forget(&mut self) -> Option<ClusterUid> {
        self.record = false;
        self.exports.clear();
        self.spoke_here = false;
        self.uid.take()
    }

    fn leave(&mut self) {
        let version = self.version;
        if let Some(uid) = self.forget() {
            self.gone.insert(uid, version);
        }
    }

    fn is_now(&mut self, section: &Section) {
        if self.uid.as_ref() != Some(&section.uid) {
            self.version = Version::default();
        }
        self.uid = Some(section.uid.clone());
        self.version = self.version.max(section.version);
    }

    fn is_another(&self, section: &Section) -> bool {
        self.uid.as_ref().is_some_and(|uid| *uid != section.uid)
    }
}

/// Of all ids.
#[derive(Default, Debug)]
pub(crate) struct Unsaved(pub(crate) BTreeMap<ClusterId, Notes>);

impl Unsaved {
    /// A change that was made here; `act` is the newest of the cluster.
    pub(crate) fn note(&mut self, change: &Change, by_call: bool, act: Version) {
        match (&change.key, &change.object) {
            (ObjectKey::Part(key, cluster), object) => {
                let notes = self.0.entry(cluster.clone()).or_default();
                if let Some(Object::Part(part)) = object {
                    notes.version = notes.version.max(part.version);
                }
                notes.spoke_here |= by_call;
                notes.changed(key.clone(), act);
            }
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                let notes = self.0.entry(cluster.clone()).or_default();
                if notes.is_another(section) {
                    notes.leave();
                }
                notes.is_now(section);
                notes.spoke_here |= by_call;
                notes.record = true;
            }
            (ObjectKey::Section(cluster), _) => self.0.entry(cluster.clone()).or_default().leave(),
            (ObjectKey::Header(_), _) => {}
        }
    }

    /// A change that follows from what other replicas say: a verdict is written by each of them.
    pub(crate) fn heard(&mut self, change: &Change) {
        match &change.object {
            Some(Object::Section(section)) if section.state == MemberState::Expired => {
                self.note(change, false, Version::default());
            }
            _ => self.learned(change),
        }
    }

    /// A change that follows from what other replicas wrote.
    pub(crate) fn learned(&mut self, change: &Change) {
        let ObjectKey::Section(cluster) = &change.key else { return };
        let notes = self.0.entry(cluster.clone()).or_default();
        let Some(Object::Section(section)) = &change.object else {
            notes.forget();
            return;
        };
        if notes.is_another(section) {
            if notes.spoke_here {
                notes.leave();
            } else {
                notes.forget();
            }
        }
        notes.is_now(section);
    }

    /// The record is to be written again, with these exports.
    pub(crate) fn again(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        as_of: Version,
        keys: impl IntoIterator<Item = ServiceKey>,
    ) {
        let notes = self.0.get_mut(cluster).filter(|notes| notes.uid.as_ref() == Some(uid));
        let Some(notes) = notes else { return };
        notes.record = true;
        keys.into_iter().for_each(|key| notes.changed(key, as_of));
    }

    /// A cluster that is no member is to be removed again.
    pub(crate) fn remove_again(&mut self, cluster: &ClusterId, uid: ClusterUid, as_of: Version) {
        let notes = self.0.entry(cluster.clone()).or_default();
        if notes.uid.as_ref() != Some(&uid) {
            notes.gone.insert(uid, as_of);
        }
    }
}
