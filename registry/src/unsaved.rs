//! What of a clusterset its store does not hold yet.
//!
//! It is read off the changes that watchers are told, and noted by key: what is written is what is held at the time of
//! the write. A note goes when a write that came after it was answered, so a write that is given up loses none. What was
//! read from the store is no note: who changed it stored it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, ServiceKey};
use mcs_core::model::{Change, MemberState, Object, ObjectKey, Section};
use mcs_core::registry::{self, Registry};
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use tokio::sync::Mutex;

use crate::store::{MemberRecord, Write};

/// Notes of all members.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    members: BTreeMap<ClusterId, Notes>,
    /// The number of the newest note.
    newest: u64,
}

/// Notes of the clusters that had one id, each with its number.
#[derive(Debug, Default)]
struct Notes {
    /// Who has the id.
    uid: Option<ClusterUid>,
    /// The newest version of anything that it has.
    version: Version,
    /// Whether it spoke to this process.
    spoke_here: bool,
    /// Who had it, and is to go, with the version of what it had.
    gone: BTreeMap<ClusterUid, (u64, Version)>,
    /// That its record changed.
    record: Option<u64>,
    /// Which of its exports changed.
    exports: BTreeMap<ServiceKey, Changed>,
    /// Exports that were written, while the record that goes with them was not.
    written: BTreeSet<ServiceKey>,
    /// Held while it is saved, so that no older write comes after a newer one.
    turn: Arc<Mutex<()>>,
}

/// That an export changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    note: u64,
    /// If it is gone, then as of this version: what is newer in the store is another replica's.
    as_of: Version,
}

impl Notes {
    fn changed(&mut self, key: ServiceKey, note: u64, as_of: Version) {
        let known = self.exports.get(&key).map_or(as_of, |known| known.as_of.max(as_of));
        self.exports.insert(key, Changed { note, as_of: known });
    }

    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.record.is_none() && self.exports.is_empty()
    }

    /// Nothing of who has the id is to be written any more.
    fn forget(&mut self) -> Option<ClusterUid> {
        self.record = None;
        self.exports.clear();
        self.written.clear();
        self.spoke_here = false;
        self.uid.take()
    }

    fn leave(&mut self, note: u64) {
        let version = self.version;
        if let Some(uid) = self.forget() {
            self.gone.insert(uid, (note, version));
        }
    }

    fn is_now(&mut self, section: &Section) {
        if self.uid.as_ref() != Some(&section.uid) {
            self.version = Version::default();
        }
        self.uid = Some(section.uid.clone());
        self.version = self.version.max(section.version);
    }
}

/// What is to be written for one cluster id.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Whose records are to go, before the others are written: a cluster that was removed may be back.
    pub(crate) gone: Vec<(Member, Version)>,
    /// Whose are to be written, with its own record last.
    pub(crate) writes: Option<(Member, Vec<Write>)>,
    /// It stands for all notes up to this one.
    newest: u64,
}

/// What the store holds anew of the clusters of one id.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Whose records are gone, and the version of what each had.
    pub(crate) gone: Vec<(ClusterUid, Version)>,
    /// Whose record was written, with these exports.
    pub(crate) changed: Option<(ClusterUid, BTreeSet<ServiceKey>)>,
}

impl Unsaved {
    /// Takes notice of a change that was made here, by a call of the cluster or an administrator or by the time. `act` is the
    /// newest act that is known of the cluster.
    pub(crate) fn note(&mut self, change: &Change, by_call: bool, act: Version) {
        let note = self.next();
        match (&change.key, &change.object) {
            (ObjectKey::Part(key, cluster), object) => {
                let notes = self.members.entry(cluster.clone()).or_default();
                if let Some(Object::Part(part)) = object {
                    notes.version = notes.version.max(part.version);
                }
                notes.spoke_here |= by_call;
                notes.changed(key.clone(), note, act);
            }
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                let notes = self.members.entry(cluster.clone()).or_default();
                if notes.uid.as_ref().is_some_and(|uid| *uid != section.uid) {
                    notes.leave(note);
                }
                notes.is_now(section);
                notes.spoke_here |= by_call;
                notes.record = Some(note);
            }
            (ObjectKey::Section(cluster), _) => {
                self.members.entry(cluster.clone()).or_default().leave(note);
            }
            (ObjectKey::Header(_), _) => {}
        }
    }

    /// Takes notice of a change that follows from what other replicas say. A verdict is written by each of them, so that
    /// it stands though one of them ends; nothing else is.
    pub(crate) fn heard(&mut self, change: &Change) {
        match &change.object {
            Some(Object::Section(section)) if section.state == MemberState::Expired => {
                self.note(change, false, Version::default());
            }
            _ => self.learned(change),
        }
    }

    /// Takes notice of a change that follows from what other replicas wrote.
    pub(crate) fn learned(&mut self, change: &Change) {
        let ObjectKey::Section(cluster) = &change.key else { return };
        let note = self.next();
        match &change.object {
            Some(Object::Section(section)) => {
                let notes = self.members.entry(cluster.clone()).or_default();
                if notes.uid.as_ref().is_some_and(|uid| *uid != section.uid) {
                    // Of two that took one id, that which was let in here gave way: its records serve nobody.
                    if notes.spoke_here {
                        notes.leave(note);
                    } else {
                        notes.forget();
                    }
                }
                notes.is_now(section);
            }
            _ => {
                if let Some(notes) = self.members.get_mut(cluster) {
                    notes.forget();
                }
                self.members.retain(|_, notes| notes.uid.is_some() || !notes.is_empty());
            }
        }
    }

    const fn next(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// The record of a member is to be written again, and these exports of it; those that are not held are deleted as of
    /// `as_of`.
    pub(crate) fn again(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        as_of: Version,
        keys: impl IntoIterator<Item = ServiceKey>,
    ) {
        let note = self.next();
        let Some(notes) = self.members.get_mut(cluster).filter(|notes| notes.uid.as_ref() == Some(uid))
        else {
            return;
        };
        notes.record = Some(note);
        keys.into_iter().for_each(|key| notes.changed(key, note, as_of));
    }

    /// A cluster that is no member was removed as of a version, and is to be removed again.
    pub(crate) fn remove_again(&mut self, cluster: &ClusterId, uid: ClusterUid, as_of: Version) {
        let note = self.next();
        let notes = self.members.entry(cluster.clone()).or_default();
        if notes.uid.as_ref() != Some(&uid) {
            notes.gone.insert(uid, (note, as_of));
        }
    }

    /// What is held is what the store holds.
    pub(crate) fn all_is_saved(&mut self) {
        for notes in self.members.values_mut() {
            notes.gone.clear();
            notes.record = None;
            notes.exports.clear();
            notes.written.clear();
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.values().all(Notes::is_empty)
    }

    /// How many records are to be written.
    pub(crate) fn records(&self) -> usize {
        let of = |notes: &Notes| notes.exports.len() + usize::from(notes.record.is_some());
        self.members.values().map(of).sum()
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
        let gone = notes.gone.iter().map(|(uid, (_, version))| (named(uid), *version)).collect();
        let held = registry.member(cluster).filter(|held| notes.uid.as_ref() == Some(held.uid()));
        let writes = held.filter(|_| notes.record.is_some() || !notes.exports.is_empty()).map(|held| {
            let export = |(key, changed): (&ServiceKey, &Changed)| match held.exports().get(key) {
                Some(export) => Write::Put(key.clone(), export.clone()),
                None => Write::Delete(key.clone(), changed.as_of),
            };
            let exports = notes.exports.iter().map(export);
            (named(held.uid()), exports.chain([Write::Member(record(held))]).collect())
        });
        Some(Batch { gone, writes, newest: self.newest })
    }

    /// These exports of a batch were written; the others, and the record, were not yet.
    pub(crate) fn wrote(&mut self, cluster: &ClusterId, batch: &Batch, keys: Vec<ServiceKey>) {
        let Some(notes) = self.members.get_mut(cluster) else { return };
        for key in keys {
            if notes.exports.get(&key).is_some_and(|changed| changed.note <= batch.newest) {
                notes.exports.remove(&key);
            }
            notes.written.insert(key);
        }
    }

    /// A batch was written.
    pub(crate) fn saved(&mut self, cluster: &ClusterId, batch: &Batch) -> Stored {
        let Some(notes) = self.members.get_mut(cluster) else { return Stored::default() };
        let later = |note: u64| note > batch.newest;
        let gone = batch.gone.iter().map(|(member, version)| (member.uid.clone(), *version)).collect();
        notes.gone.retain(|_, (note, _)| later(*note));
        notes.record = notes.record.filter(|note| later(*note));
        notes.exports.retain(|_, changed| later(changed.note));
        let keys = std::mem::take(&mut notes.written);
        let changed = batch.writes.as_ref().map(|(member, _)| (member.uid.clone(), keys));
        if notes.uid.is_none() && notes.is_empty() {
            self.members.remove(cluster);
        }
        Stored { gone, changed }
    }
}

/// A member's record as it is to be stored.
fn record(held: &registry::Member) -> MemberRecord {
    MemberRecord {
        region: held.region().cloned(),
        version: held.version(),
        sum: held.sum(),
        state: held.recorded_state(),
        claimed_at: held.claimed_at(),
    }
}
