//! Writes and syncs: what members say of their exports, and how it is told on.

use super::member::{Member, OpenSync, PutEffect};
use super::services::{Merged, Services};
use super::{Op, OpOutcome, Refused, Registry, unknown};
use crate::ids::{ClusterId, ClusterUid, ServiceKey};
use crate::model::{Export, Object, ObjectKey};
use crate::rate::Rate;
use crate::time::Timestamp;
use crate::validate::Refusal;
use crate::version::{Leaf, Version};
use std::collections::{BTreeMap, BTreeSet};

/// What one call changed of a member's exports, as far as it is told on. Nothing is of a member whose exports are not in
/// the log: they enter it together, when all of them are known.
#[derive(Debug, Default)]
pub(super) struct Act {
    /// Services whose part changed, and whether one was told before.
    parts: BTreeMap<ServiceKey, bool>,
    /// Services to merge anew.
    merges: BTreeSet<ServiceKey>,
}

impl Act {
    /// The exports of `member` enter the merge, if it is whole, and the log, if they are not in it.
    pub(super) fn enter(&mut self, member: &mut Member) {
        if !std::mem::replace(&mut member.in_log, true) {
            self.parts = member.exports.keys().map(|key| (key.clone(), false)).collect();
        }
        self.merges.extend(member.exports.keys().cloned());
    }

    pub(super) fn changed(&mut self, member: &Member, key: &ServiceKey, existed: bool) {
        if member.in_log {
            self.parts.entry(key.clone()).or_insert(existed);
        }
    }
}

impl Registry {
    /// Counts a write that a member is about to send, before anything of it is looked at. Syncs and renewals are not
    /// counted: they repair what is wrong.
    ///
    /// # Errors
    /// The cluster is not registered, the id is another cluster's, or it writes too often.
    pub fn count_write(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        now: Timestamp,
    ) -> Result<(), Refused> {
        self.tick(now);
        self.check_holder(cluster, uid)?;
        let Some(member) = self.members.get_mut(cluster) else { return Err(unknown(cluster)) };
        let per_second = self.policy.max_writes_per_second;
        member.writes.take(Rate::per_second(per_second), 1, now).map_err(|retry_after| {
            Refused::TooManyWrites { cluster: cluster.clone(), per_second, retry_after }
        })
    }

    /// Takes the operations of one act, each by itself: one outcome an operation. Deletes are taken first, so that
    /// what they free counts for the limit of exports. An act that is older than the newest one seen is answered as if
    /// it had been taken, since what came after it stands. Within a sync, `version` is that of the sync.
    ///
    /// # Errors
    /// The cluster is not registered, the id is another cluster's, or the term is below the highest seen.
    pub fn write(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        ops: Vec<Op>,
        now: Timestamp,
    ) -> Result<Vec<OpOutcome>, Refused> {
        self.tick(now);
        self.admit(cluster, uid, version)?;
        let limit = self.policy.max_exports;
        let Some(member) = self.members.get_mut(cluster) else { return Err(unknown(cluster)) };
        let in_sync = member.is_open(version);
        if !in_sync && version < member.mark {
            self.counts.stale_acts += 1;
            return Ok(ops.iter().map(|_| Ok(())).collect());
        }
        let mut act = Act::default();
        let mut outcomes: Vec<OpOutcome> = ops.iter().map(|_| Ok(())).collect();
        let (deletes, puts): (Vec<_>, Vec<_>) =
            ops.into_iter().enumerate().partition(|(_, op)| matches!(op, Op::Delete { .. }));
        for (place, op) in deletes.into_iter().chain(puts) {
            let key = op.key().clone();
            if in_sync && member.has_touched(&key) {
                continue;
            }
            let outcome = apply(member, &mut self.services, cluster, version, op, limit, &mut act);
            if let (Ok(()), false, Some(sync)) = (&outcome, in_sync, &mut member.sync) {
                sync.going.remove(&key);
                sync.touched.insert(key);
            }
            outcomes[place] = outcome;
        }
        if !in_sync {
            // An act that does not follow the newest one seen may follow acts that another registry took.
            member.behind |= !follows(member.mark, version);
            member.mark = version;
        }
        if !member.behind {
            member.as_of = member.mark;
            member.elsewhere.deleted.clear();
        }
        self.finish(cluster, act);
        Ok(outcomes)
    }

    /// Begins a sync. What is told within it carries its `version`. A sync that began before is given up.
    ///
    /// # Errors
    /// The cluster is not registered, the id is another cluster's, or the term is below the highest seen.
    pub fn begin_sync(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        now: Timestamp,
    ) -> Result<(), Refused> {
        self.tick(now);
        self.admit(cluster, uid, version)?;
        let Some(member) = self.members.get_mut(cluster) else { return Err(unknown(cluster)) };
        if version < member.mark {
            self.counts.stale_acts += 1;
            return Ok(());
        }
        member.mark = version;
        member.behind = true;
        let going = member.exports.keys().cloned().collect();
        member.sync = Some(OpenSync { version, touched: BTreeSet::new(), going });
        Ok(())
    }

    /// Takes names of an open sync, and says which of these exports are held with another hash, or not at all. None is
    /// wanted of a sync that is not open any more.
    ///
    /// # Errors
    /// The cluster is not registered, or the id is another cluster's.
    pub fn wanted(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        names: &[(ServiceKey, Leaf)],
    ) -> Result<Vec<ServiceKey>, Refused> {
        self.check_holder(cluster, uid)?;
        let Some(member) = self.members.get_mut(cluster).filter(|member| member.is_open(version)) else {
            return Ok(Vec::new());
        };
        if let Some(sync) = &mut member.sync {
            for (key, _) in names {
                sync.going.remove(key);
            }
        }
        let differs =
            |key: &ServiceKey, leaf: Leaf| member.exports.get(key).is_none_or(|held| held.leaf != leaf);
        let wanted = names.iter().filter(|(key, leaf)| differs(key, *leaf) && !member.has_touched(key));
        Ok(wanted.map(|(key, _)| key.clone()).collect())
    }

    /// Ends a sync: deletes what it did not name, except what newer acts put, and says how many went. From now on the
    /// member is whole.
    ///
    /// # Errors
    /// The cluster is not registered, the id is another cluster's, the term is below the highest seen, or the sync
    /// has not begun.
    pub fn end_sync(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        named: &BTreeSet<ServiceKey>,
        now: Timestamp,
    ) -> Result<usize, Refused> {
        self.tick(now);
        self.admit(cluster, uid, version)?;
        let Some(member) = self.members.get_mut(cluster) else { return Err(unknown(cluster)) };
        let Some(sync) = member.sync.take_if(|sync| sync.version == version) else {
            if version < member.mark {
                self.counts.stale_acts += 1;
                return Ok(0);
            }
            return Err(Refused::NoSync { cluster: cluster.clone(), version });
        };
        let mut act = Act::default();
        let goes = |key: &&ServiceKey| !named.contains(*key) && !sync.touched.contains(*key);
        let gone: Vec<ServiceKey> = member.exports.keys().filter(goes).cloned().collect();
        for key in &gone {
            delete(member, &mut self.services, cluster, key, &mut act);
        }
        if member.prove() {
            act.enter(member);
            // Most came in order, which leaves the nodes of the tree half empty; built anew they are full.
            member.exports = std::mem::take(&mut member.exports).into_iter().collect();
        }
        self.finish(cluster, act);
        Ok(gone.len())
    }

    /// Tells what an act changed: parts, headers, what went, and the section last, so that who was told its version was
    /// told all that it stands for, whatever states in between were superseded.
    pub(super) fn finish(&mut self, cluster: &ClusterId, act: Act) {
        let Some(member) = self.members.get_mut(cluster) else { return };
        let mut gone = Vec::new();
        for (key, existed) in act.parts {
            match member.part(&key) {
                Some(part) => {
                    self.journal.tell(ObjectKey::Part(key, cluster.clone()), Some(Object::Part(part)));
                }
                None if existed => gone.push(ObjectKey::Part(key, cluster.clone())),
                None => {}
            }
        }
        for key in act.merges {
            gone.extend(self.merge(&key));
        }
        for key in gone {
            self.journal.tell(key, None);
        }
        if let Some(member) = self.members.get_mut(cluster) {
            self.journal.tell_section(cluster, member);
        }
        self.note_joined(cluster);
    }

    /// Merges a Service anew and tells its header. One that is gone is left for the caller to tell.
    pub(super) fn merge(&mut self, key: &ServiceKey) -> Option<ObjectKey> {
        let members = &self.members;
        let whole = |cluster: &ClusterId| members.get(cluster).is_some_and(|member| member.whole);
        match self.services.merge(key, whole) {
            Merged::Same => None,
            Merged::Header(header) => {
                self.journal.tell(ObjectKey::Header(key.clone()), Some(Object::Header(header)));
                None
            }
            Merged::Gone => Some(ObjectKey::Header(key.clone())),
        }
    }
}

/// Whether a leader made `act` right after `mark`, or they are one.
fn follows(mark: Version, act: Version) -> bool {
    act.term == mark.term && act.seq <= mark.seq.saturating_add(1)
}

fn apply(
    member: &mut Member,
    services: &mut Services,
    cluster: &ClusterId,
    version: Version,
    op: Op,
    limit: usize,
    act: &mut Act,
) -> OpOutcome {
    let (key, export) = match op {
        Op::Put { key, leaf, spec, endpoints, changed_at } => {
            if !member.exports.contains_key(&key)
                && let Some(full) = member.is_full(limit)
            {
                return Err(full);
            }
            (key, Export { version, leaf, spec, endpoints, changed_at })
        }
        Op::PutEndpoints { key, leaf, replaces, endpoints, changed_at } => {
            let refused = |held: &str| {
                Refusal::new("spec", format!("{held} export {key} is held here: put it with its definition"))
            };
            let Some(known) = member.exports.get(&key) else { return Err(refused("no")) };
            if replaces.is_some_and(|replaces| ![replaces, leaf].contains(&known.leaf)) {
                return Err(refused("another state of"));
            }
            let spec = known.spec.clone();
            (key, Export { version, leaf, spec, endpoints, changed_at })
        }
        Op::Delete { key } => {
            delete(member, services, cluster, &key, act);
            member.elsewhere.note_deleted(key, version, limit);
            return Ok(());
        }
    };
    member.elsewhere.deleted.remove(&key);
    put(member, services, cluster, &key, export, act);
    Ok(())
}

/// Takes an export into a member and the merge.
pub(super) fn put(
    member: &mut Member,
    services: &mut Services,
    cluster: &ClusterId,
    key: &ServiceKey,
    export: Export,
    act: &mut Act,
) {
    let existed = member.exports.contains_key(key);
    let (spec, version) = (export.spec.clone(), export.version);
    let effect = member.put(key, export);
    if effect == PutEffect::Definition {
        services.put(key, cluster, &member.uid, version, spec);
        act.merges.insert(key.clone());
    }
    if effect != PutEffect::Nothing {
        act.changed(member, key, existed);
    }
}

/// Drops an export of a member, if it is held.
pub(super) fn delete(
    member: &mut Member,
    services: &mut Services,
    cluster: &ClusterId,
    key: &ServiceKey,
    act: &mut Act,
) {
    if member.delete(key) {
        services.delete(key, cluster);
        act.changed(member, key, true);
        act.merges.insert(key.clone());
    }
}
