//! What of a clusterset its store does not hold yet.
//!
//! It is read off the changes that watchers are told, and noted by key: what is written is what is held at the time of
//! the write. A note goes when a write that came after it was answered, so a write that is given up loses none.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, ServiceKey};
use mcs_core::model::{Change, Object, ObjectKey};
use mcs_core::registry::Registry;
use mcs_proto::convert::Member;
use tokio::sync::Mutex;

use crate::store::{MemberRecord, Write};

/// Notes of all members.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    members: BTreeMap<ClusterId, Notes>,
}

/// Notes of the clusters that had one id, each with the revision of the change.
#[derive(Debug, Default)]
struct Notes {
    /// Who has the id.
    uid: Option<ClusterUid>,
    /// Who had it, and is to go.
    gone: BTreeMap<ClusterUid, u64>,
    /// That its record changed.
    record: Option<u64>,
    /// Which of its exports changed.
    exports: BTreeMap<ServiceKey, u64>,
    /// Held while it is saved, so that no older write comes after a newer one.
    turn: Arc<Mutex<()>>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.record.is_none() && self.exports.is_empty()
    }

    fn leave(&mut self, revision: u64) {
        self.gone.extend(self.uid.take().map(|uid| (uid, revision)));
        self.record = None;
        self.exports.clear();
    }
}

/// What is to be written for one cluster id.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Whose records are to go, before the others are written: a cluster that was removed may be back.
    pub(crate) gone: Vec<Member>,
    /// Whose are to be written, with its own record last.
    pub(crate) writes: Option<(Member, Vec<Write>)>,
    /// It stands for all changes up to this revision.
    revision: u64,
}

impl Unsaved {
    /// Takes notice of a change.
    pub(crate) fn note(&mut self, change: &Change) {
        let revision = change.revision;
        match (&change.key, &change.object) {
            (ObjectKey::Part(key, cluster), _) => {
                self.members.entry(cluster.clone()).or_default().exports.insert(key.clone(), revision);
            }
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                let notes = self.members.entry(cluster.clone()).or_default();
                if notes.uid.as_ref().is_some_and(|uid| *uid != section.uid) {
                    notes.leave(revision);
                }
                notes.uid = Some(section.uid.clone());
                notes.record = Some(revision);
            }
            (ObjectKey::Section(cluster), _) => {
                self.members.entry(cluster.clone()).or_default().leave(revision);
            }
            (ObjectKey::Header(_), _) => {}
        }
    }

    /// What is held is what the store holds.
    pub(crate) fn all_is_saved(&mut self) {
        for notes in self.members.values_mut() {
            notes.gone.clear();
            notes.record = None;
            notes.exports.clear();
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.values().all(Notes::is_empty)
    }

    /// The ids of which something is to be written.
    pub(crate) fn clusters(&self) -> Vec<ClusterId> {
        self.members.iter().filter(|(_, notes)| !notes.is_empty()).map(|(id, _)| id.clone()).collect()
    }

    /// Held by who saves this id; none when there is nothing to save.
    pub(crate) fn turn(&self, cluster: &ClusterId) -> Option<Arc<Mutex<()>>> {
        let notes = self.members.get(cluster).filter(|notes| !notes.is_empty())?;
        Some(Arc::clone(&notes.turn))
    }

    /// What is to be written for an id; none when there is nothing.
    pub(crate) fn batch(
        &self,
        clusterset: &ClustersetId,
        cluster: &ClusterId,
        registry: &Registry,
    ) -> Option<Batch> {
        let notes = self.members.get(cluster).filter(|notes| !notes.is_empty())?;
        let named = |uid: &ClusterUid| Member {
            clusterset: clusterset.clone(),
            cluster: cluster.clone(),
            uid: uid.clone(),
        };
        let gone = notes.gone.keys().map(named).collect();
        let held = registry.member(cluster).filter(|held| notes.uid.as_ref() == Some(held.uid()));
        let writes = held.filter(|_| notes.record.is_some() || !notes.exports.is_empty()).map(|held| {
            let export = |key: &ServiceKey| match held.exports().get(key) {
                Some(export) => Write::Put(key.clone(), export.clone()),
                None => Write::Delete(key.clone(), held.newest_act()),
            };
            let record = MemberRecord {
                region: held.region().cloned(),
                version: held.version(),
                sum: held.sum(),
                state: held.state(),
                claimed_at: None,
            };
            let exports = notes.exports.keys().map(export);
            (named(held.uid()), exports.chain([Write::Member(record)]).collect())
        });
        Some(Batch { gone, writes, revision: registry.revision() })
    }

    /// A batch was written.
    pub(crate) fn saved(&mut self, cluster: &ClusterId, batch: &Batch) {
        let Some(notes) = self.members.get_mut(cluster) else { return };
        let later = |revision: u64| revision > batch.revision;
        notes.gone.retain(|_, revision| later(*revision));
        notes.record = notes.record.filter(|revision| later(*revision));
        notes.exports.retain(|_, revision| later(*revision));
        if notes.uid.is_none() && notes.is_empty() {
            self.members.remove(cluster);
        }
    }
}
