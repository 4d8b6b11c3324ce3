//! Who has an id that two clusters claim, and which records make a cluster a member.
//!
//! Two replicas may each let a cluster take one id, for no record of the two is the same. When both are seen, the one that
//! took it earlier by the wall clock keeps it, then that with the smaller UID: everywhere the same one. A claim counts only
//! while a replica that lives hears the claimant: a record that is left over takes nothing from anybody.

use super::hear::Who;
use super::judge::reschedule;
use super::learn::Recorded;
use super::member::Standing;
use super::{Member, Registry};
use crate::ids::{ClusterId, ClusterUid};
use crate::lease::Lease;
use crate::model::MemberState;
use crate::replicas::UidTag;
use crate::time::{Timestamp, WallMillis};

impl Registry {
    /// Sets when a cluster took its id, by the wall clock, if that is not known: the earlier of two keeps it.
    pub fn note_claim(&mut self, cluster: &ClusterId, uid: &ClusterUid, at: Option<WallMillis>) {
        if let Some(member) = self.members.get_mut(cluster).filter(|member| member.uid == *uid) {
            member.claimed_at = member.claimed_at.or(at);
        }
    }

    /// Whether a cluster that is no member becomes one by this record. It does not while another one rightly has the id,
    /// nor when the record is one of before its removal.
    pub(super) fn takes(&mut self, who: &Who, record: &Recorded, judged: Timestamp) -> bool {
        let timing = self.policy.timing;
        let Some(sharing) = &mut self.sharing else { return false };
        if let Some(removed) = sharing.removed.get(who).filter(|removed| record.version <= removed.mark) {
            // It lives on elsewhere: it was heard there long enough after.
            let since = removed.at + timing.heartbeat();
            let tag = UidTag::of(&who.uid);
            if sharing.heard_elsewhere(tag).is_none_or(|at| at <= since) {
                return false;
            }
        }
        if !self.members.contains_key(&who.cluster) {
            return true;
        }
        // Whether it lives says who hears it, not its record, which a verdict that was written late may have turned.
        sharing.rivals.insert(who.clone(), record.claimed_at);
        self.would_take(who, judged)
    }

    /// Whether a cluster that claims the id of a member has more right to it, or the member's lease has run out; and the
    /// claimant is known to live.
    pub(super) fn would_take(&self, who: &Who, judged: Timestamp) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        let Some(claimed_at) = sharing.rivals.get(who) else { return false };
        let tag = UidTag::of(&who.uid);
        let Some(member) = self.members.get(&who.cluster) else { return true };
        let rank = |claimed_at: Option<WallMillis>, uid: &ClusterUid| {
            (claimed_at.is_none(), claimed_at, uid.clone())
        };
        sharing.runs_elsewhere(tag, judged, self.policy.timing)
            && (!member.holds_its_id() || rank(*claimed_at, &who.uid) < rank(member.claimed_at, &member.uid))
    }

    /// Makes a cluster a member; another one that had its id goes. Its lease counts from now, since nobody here knows when
    /// it was renewed last, unless it had run out.
    pub(super) fn take_in(&mut self, cluster: &ClusterId, record: &Recorded, now: Timestamp) {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        if let Some(before) = self.members.get(cluster) {
            let (who, claimed_at) =
                (Who { cluster: cluster.clone(), uid: before.uid.clone() }, before.claimed_at);
            self.drop_member(cluster);
            self.sharing.iter_mut().for_each(|sharing| {
                sharing.rivals.insert(who.clone(), claimed_at);
            });
        }
        let mut member = Member::new(record.uid.clone(), judged, now);
        let lease = Lease::renewed_at(judged);
        let mut due = lease.deadline(timing);
        if let Some(sharing) = &mut self.sharing {
            sharing.came(&Who { cluster: cluster.clone(), uid: record.uid.clone() });
            // Before others were heard, nobody knows whether it is back.
            if record.state == MemberState::Expired && sharing.heard {
                let renews = sharing.runs_elsewhere(member.tag, judged, timing);
                member.standing = Standing::Expired { at: judged, renews };
                due = if renews { due } else { lease.collected_at(timing) };
            }
        }
        member.claimed_at = record.claimed_at;
        reschedule(&mut self.due, cluster, &mut member, due);
        self.members.insert(cluster.clone(), member);
        self.terms.came(cluster, &record.uid);
    }
}
