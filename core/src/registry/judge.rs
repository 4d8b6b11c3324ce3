//! Members that come, renew, fall silent and go: what time does to them.

use super::acts::Act;
use super::hear::Who;
use super::member::Standing;
use super::past::Left;
use super::{Member, Refused, Registered, Registration, Registry, Removed, Renewed, unknown};
use crate::ids::{ClusterId, ClusterUid};
use crate::lease::{Census, Lease, Tick};
use crate::model::{Export, ObjectKey, Report};
use crate::time::{Timestamp, WallMillis};
use crate::version::{Sum, Version};
use std::collections::BTreeMap;
use std::time::Duration;

impl Registry {
    /// Takes a cluster in, or a new leader of a member. Another cluster that had the id, and whose lease has run out,
    /// goes with its exports.
    ///
    /// # Errors
    /// The id is another cluster's, the term is below the highest seen, or the clusterset is full. A registration that
    /// is older than an act of its own term is refused like an old term: two leaders had that term, as after the
    /// controller's Lease was restored, and what the second one says would be taken for old.
    pub fn register(
        &mut self,
        cluster: &ClusterId,
        registration: Registration,
        now: Timestamp,
    ) -> Result<Registered, Refused> {
        self.tick(now);
        let Registration { uid, region, instance, build, version, sum } = registration;
        match self.check_holder(cluster, &uid) {
            Ok(()) => {}
            Err(Refused::Unknown { .. }) => {
                let limit = self.policy.max_clusters;
                if !self.members.contains_key(cluster) && self.members.len() >= limit {
                    return Err(Refused::TooManyClusters { limit });
                }
            }
            Err(refused) => return Err(refused),
        }
        self.check_term(cluster, &uid, version)?;
        let who = Who { cluster: cluster.clone(), uid: uid.clone() };
        let member = self.members.get(cluster).filter(|member| member.uid == uid);
        // Of one that was removed the store takes nothing that is older than the removal.
        let removed = self.sharing.as_ref().and_then(|sharing| sharing.removed.get(&who));
        let mark = member.map(|member| member.mark).or_else(|| removed.map(|left| left.mark));
        if let Some(mark) = mark.filter(|mark| version < *mark) {
            let floor = mark.term;
            return Err(Refused::OldTerm { cluster: cluster.clone(), term: version.term, floor });
        }
        // With the id it takes over the claim: who had it, and was silent for a lease, does not win it back by it.
        let taken_over = self.members.get(cluster).filter(|member| member.uid != uid);
        let claim = taken_over.and_then(|member| member.claimed_at).map(WallMillis::before);
        if taken_over.is_some() {
            self.drop_member(cluster);
        }
        let judged = self.clock.now();
        self.terms.came(cluster, &uid);
        if let Some(sharing) = &mut self.sharing {
            sharing.came(&who);
        }
        let member = self.members.entry(cluster.clone()).or_insert_with(|| Member::new(uid, judged, now));
        member.claimed_at = member.claimed_at.or(claim);
        member.region = region;
        member.instance = instance;
        member.build = build;
        if version > member.mark {
            member.mark = version;
            member.sync = None;
        }
        let differs = self.heard(cluster, version, sum, now);
        Ok(Registered { differs })
    }

    /// Renews a lease, and compares what is held with what the member has. `version` is that of the last act that
    /// ended for the caller; while a newer act is under way or was lost, there is nothing to compare.
    ///
    /// A member whose lease had run out is back at once, as it was, if that is what it has. Otherwise it stays hidden until
    /// a sync has ended: what it had before is not shown again.
    ///
    /// # Errors
    /// The cluster is not registered, the id is another cluster's, or the term is below the highest seen.
    pub fn renew(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        sum: Sum,
        now: Timestamp,
    ) -> Result<Renewed, Refused> {
        self.tick(now);
        self.admit(cluster, uid, version)?;
        let differs = self.heard(cluster, version, sum, now);
        self.counts.differing += u64::from(differs);
        let member = self.members.get(cluster).ok_or_else(|| unknown(cluster))?;
        Ok(Renewed { state: member.state(), differs })
    }

    /// Takes what `cluster` said of itself with a renewal that was taken. Watchers are not told, and no store keeps it.
    pub fn note_report(&mut self, cluster: &ClusterId, report: Report) {
        if let Some(member) = self.members.get_mut(cluster) {
            member.report = report;
        }
    }

    /// Removes a cluster with its exports: `uid` is that of a cluster that leaves; an administrator names none. A
    /// cluster may leave at any time; an administrator has to force the removal while the lease is active.
    ///
    /// # Errors
    /// There is no such cluster, the id is another cluster's, or the lease is active.
    pub fn remove(
        &mut self,
        cluster: &ClusterId,
        uid: Option<&ClusterUid>,
        force: bool,
        now: Timestamp,
    ) -> Result<Removed, Refused> {
        self.tick(now);
        if let Some(uid) = uid {
            self.check_holder(cluster, uid)?;
        }
        let member = self.members.get(cluster).ok_or_else(|| unknown(cluster))?;
        if uid.is_none() && !force && member.holds_its_id() {
            return Err(Refused::Active { cluster: cluster.clone() });
        }
        let removed = Removed { exports: member.exports.len(), endpoints: member.endpoints };
        self.drop_member(cluster);
        self.journal.tell(ObjectKey::Section(cluster.clone()), None);
        Ok(removed)
    }

    /// Judges what is due. Calls that arrived before are to be handled before, so that a renewal that waits counts.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.tick(now);
        let judged = self.clock.now();
        if self.complete_at.is_some_and(|at| at.has_passed(judged)) {
            self.complete_at = None;
        }
        let mut hold = self.hold.clone();
        hold.update(judged, || self.census_at(judged));
        self.hold = hold;
        while let Some((_, cluster)) = self.due.first().filter(|(at, _)| at.has_passed(judged)).cloned() {
            self.decide(&cluster, judged);
        }
    }

    /// When to call [`Registry::handle_timeout`] at the latest; none while there is nothing to judge.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = self.due.first().map(|(at, _)| *at);
        // The clock is looked at while there are others, too: whether they stand still is judged by it.
        let shared = self.sharing.as_ref().map(|_| Timestamp::MAX);
        let next = [due, self.complete_at, shared].into_iter().flatten().min()?;
        Some(self.clock.wake_at(next))
    }

    pub(super) fn tick(&mut self, now: Timestamp) {
        let nothing_to_judge = self.members.is_empty() && self.complete_at.is_none();
        if let Tick::Paused(_) = self.clock.tick(now, self.unread_since.is_none())
            && (!nothing_to_judge || self.is_shared())
        {
            self.counts.pauses += 1;
            self.count_anew();
        }
    }

    /// After a pause of the registry, or an outage of a store that others share: nobody could renew, or be heard, so every
    /// lease that was not judged begins anew.
    pub(super) fn count_anew(&mut self) {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        if let Some(at) = &mut self.complete_at {
            *at = judged + timing.lease();
        }
        if let Some(sharing) = &mut self.sharing {
            sharing.count_anew(judged);
        }
        for (cluster, member) in &mut self.members {
            if member.holds_its_id() {
                member.elsewhere.asked = None;
                member.lease = Lease::renewed_at(judged);
                if member.standing == Standing::Held {
                    member.standing = Standing::Running;
                }
                reschedule(&mut self.due, cluster, member, member.lease.deadline(timing));
                self.journal.tell_section(cluster, member);
            }
        }
    }

    /// Takes a sign of life, and compares sums. Says whether they differ.
    fn heard(&mut self, cluster: &ClusterId, version: Version, sum: Sum, now: Timestamp) -> bool {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        // Who renewed elsewhere until now was not late by what that replica has not told yet.
        let known_until = self.members.get(cluster).map_or(judged, |member| self.known_until(member, judged));
        self.note_renewed_here(cluster, now);
        let Some(member) = self.members.get_mut(cluster) else { return true };
        member.last_renewed = now;
        member.lease = member.lease.renewed(timing, known_until, judged);
        reschedule(&mut self.due, cluster, member, member.lease.deadline(timing));
        let mut act = Act::default();
        let comparable = version >= member.mark;
        let differs = comparable && sum != member.sum;
        member.renewed(comparable && !differs);
        if version > member.mark {
            // It went on elsewhere: what it began before is over here.
            member.mark = version;
            member.sync = None;
        }
        if differs {
            member.behind = true;
        } else if comparable && member.prove() {
            act.enter(member);
        }
        self.finish(cluster, act);
        differs
    }

    fn decide(&mut self, cluster: &ClusterId, judged: Timestamp) {
        let timing = self.policy.timing;
        let Some(member) = self.members.get_mut(cluster) else { return };
        match member.standing {
            Standing::Expired { renews: false, .. } => {
                self.counts.collected += 1;
                self.drop_member(cluster);
                self.journal.tell(ObjectKey::Section(cluster.clone()), None);
                return;
            }
            // It is hidden already: no hold would keep anything.
            Standing::Expired { at, renews: true } => {
                member.standing = Standing::Expired { at, renews: false };
                reschedule(&mut self.due, cluster, member, member.lease.collected_at(timing));
                return;
            }
            Standing::Running | Standing::Held => {}
        }
        if self.sharing.is_some() {
            // Whoever was asked before was asked about an earlier lease.
            member.elsewhere.asked = None;
            self.wait(cluster);
        } else {
            self.pass_verdict(cluster, judged);
        }
    }

    /// Expires a member whose lease has run out, unless most are silent.
    pub(super) fn pass_verdict(&mut self, cluster: &ClusterId, judged: Timestamp) {
        let timing = self.policy.timing;
        let held_before = self.hold.until().is_some();
        let mut hold = self.hold.clone();
        let wait = hold.wait_until(judged, || self.census_at(judged));
        self.hold = hold;
        if wait.is_some() && !held_before {
            self.counts.holds += 1;
        }
        let Some(member) = self.members.get_mut(cluster) else { return };
        if let Some(until) = wait {
            self.counts.held += u64::from(member.standing != Standing::Held);
            member.standing = Standing::Held;
            // After the hold others are asked anew: it may have been heard meanwhile.
            member.elsewhere.asked = None;
            reschedule(&mut self.due, cluster, member, until);
            self.journal.tell_section(cluster, member);
            return;
        }
        if member.elsewhere.missing_since.is_some() {
            // Somebody removed it. A verdict would write its record again.
            self.drop_member(cluster);
            self.journal.tell(ObjectKey::Section(cluster.clone()), None);
            return;
        }
        self.counts.expired += 1;
        // Where others share the store, somebody may know all of a member that is not whole here.
        if member.whole || self.sharing.is_some() {
            member.standing = Standing::Expired { at: judged, renews: false };
            reschedule(&mut self.due, cluster, member, member.lease.collected_at(timing));
            self.journal.tell_section(cluster, member);
        } else {
            // Nothing is known for certain of it but that it is silent: it is as if it had not come.
            self.drop_member(cluster);
            self.journal.tell(ObjectKey::Section(cluster.clone()), None);
        }
    }

    /// Up to when, on the judging clock, the renewals of a member are known at `judged`: of one that another replica hears,
    /// the time until that one's next beat was read says nothing.
    fn known_until(&self, member: &Member, judged: Timestamp) -> Timestamp {
        let allowed = self.sharing.as_ref().map_or(Duration::ZERO, |sharing| {
            sharing.allowance(member.elsewhere.told_by, judged, self.policy.timing)
        });
        judged.ago(allowed)
    }

    /// How many members there are to judge at `judged`, and how many are silent.
    pub(super) fn census_at(&self, judged: Timestamp) -> Census {
        let timing = self.policy.timing;
        let mut census = Census::default();
        for member in self.members.values() {
            let (counts, silent) = match member.standing {
                Standing::Expired { at, renews } => {
                    let recent = !renews && !(at + timing.lease()).has_passed(judged);
                    (recent, recent)
                }
                Standing::Running | Standing::Held => {
                    (true, member.lease.is_late(timing, self.known_until(member, judged)))
                }
            };
            census.active += usize::from(counts);
            census.silent += usize::from(silent);
        }
        census
    }

    /// Takes a member out, with its exports; its section is left to the caller.
    pub(super) fn drop_member(&mut self, cluster: &ClusterId) {
        let Some(member) = self.members.remove(cluster) else { return };
        self.due.remove(&(member.due, cluster.clone()));
        let judged = self.clock.now();
        if let Some(sharing) = &mut self.sharing {
            let who = Who { cluster: cluster.clone(), uid: member.uid.clone() };
            sharing.remember(who, Left { mark: member.mark, at: judged }, member.tag);
        }
        let forget_at = judged + self.policy.timing.collection();
        self.terms.left(cluster, &member.uid, forget_at, judged);
        let exports: BTreeMap<_, Export> = member.exports;
        for key in exports.keys() {
            if member.in_log {
                self.journal.tell(ObjectKey::Part(key.clone(), cluster.clone()), None);
            }
            self.services.delete(key, cluster);
        }
        for key in exports.keys() {
            if let Some(gone) = self.merge(key) {
                self.journal.tell(gone, None);
            }
        }
    }
}

pub(super) fn reschedule(
    due: &mut std::collections::BTreeSet<(Timestamp, ClusterId)>,
    cluster: &ClusterId,
    member: &mut Member,
    at: Timestamp,
) {
    due.remove(&(member.due, cluster.clone()));
    member.due = at;
    due.insert((at, cluster.clone()));
}
