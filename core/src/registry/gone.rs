//! Members that go since what the store had of them is gone: what others removed, and what was only lost.

use super::hear::Who;
use super::learn::{Recorded, Rewrite};
use super::member::Standing;
use super::past::Left;
use super::{Member, Registry};
use crate::ids::{ClusterId, ClusterUid};
use crate::model::{MemberState, ObjectKey};
use crate::replicas::UidTag;
use crate::time::Timestamp;
use crate::version::Version;

/// What became of a record that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The member went.
    pub gone: bool,
    /// What is to be written again.
    pub rewrite: Rewrite,
}

impl Registry {
    /// Takes notice that the record of a cluster was read and is not there. A member goes when that lasts, nobody hears it
    /// meanwhile, and its lease has run out: until then its record may have been lost. If it renews here it was, and
    /// is written again.
    pub fn forget(&mut self, cluster: &ClusterId, uid: &ClusterUid, now: Timestamp) -> Forgotten {
        self.tick(now);
        let who = Who { cluster: cluster.clone(), uid: uid.clone() };
        if let Some(sharing) = &mut self.sharing {
            sharing.wanted.remove(&who);
            sharing.unlearnt.remove(&who);
            sharing.rivals.remove(&who);
        }
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        let Some(member) = self.members.get_mut(cluster).filter(|member| member.uid == *uid) else {
            return Forgotten::default();
        };
        member.elsewhere.unread = None;
        let Some(since) = member.elsewhere.missing_since else {
            member.elsewhere.missing_since = Some(now);
            return Forgotten::default();
        };
        if member.elsewhere.here.is_some_and(|at| at > since) {
            member.elsewhere.missing_since = None;
            // Once. If its record is missing on, that was refused, and what else may be is found when it is there.
            let all = !std::mem::replace(&mut member.elsewhere.rewritten, true);
            let keys = member.exports.keys().filter(|_| all).cloned().collect();
            return Forgotten { gone: false, rewrite: Rewrite { record: true, keys } };
        }
        if member.elsewhere.heard_at > since {
            member.elsewhere.missing_since = Some(now);
        } else if (since + timing.missing()).has_passed(now)
            && member.lease.deadline(timing).has_passed(judged)
        {
            self.lose(cluster);
            return Forgotten { gone: true, rewrite: Rewrite::default() };
        }
        Forgotten::default()
    }

    /// Takes notice that the store says that a cluster was removed, as of a version of it, and says whether it went: a member
    /// of which no more is known, and that has expired, goes at once. Any other is [one without a record](Registry::forget). A
    /// cluster that is no member becomes none by a record as old as that, unless it is heard afterwards.
    pub fn was_removed(&mut self, who: &Who, as_of: Version, now: Timestamp) -> bool {
        self.tick(now);
        let left = Left { mark: as_of, at: self.clock.now() };
        let Some(member) = self.members.get(&who.cluster).filter(|member| member.uid == who.uid) else {
            if let Some(sharing) = &mut self.sharing {
                sharing.removed.learn(who.clone(), left);
            }
            return false;
        };
        let is_left = matches!(member.standing, Standing::Expired { renews: false, .. });
        let goes = is_left && member.as_of <= as_of;
        // If it lives on it was installed anew: of a lower term the store takes nothing, and its leader is to know. Whether
        // its own is lower is for its next call to find out.
        let _ = self.terms.admit(&who.cluster, &who.uid, as_of.term);
        if goes {
            self.lose(&who.cluster);
        }
        goes
    }

    /// Whether this replica writes again what the store lost of a member: it serves it, or nobody does. In that case it may
    /// have been removed: not while its record is missing, nor while somebody has told of more than is held.
    pub(super) fn repairs(&self, member: &Member, now: Timestamp) -> bool {
        let is_left = matches!(member.standing, Standing::Expired { renews: false, .. });
        let is_kept = member.elsewhere.missing_since.is_none() && member.elsewhere.awaited <= member.as_of;
        self.is_served(member, now) || (is_left && is_kept)
    }

    /// Whether a record is what a late verdict left of a cluster that was removed, and that nobody hears.
    pub(super) fn is_left_over(&self, who: &Who, record: &Recorded) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        let was_removed = sharing.removed.get(who).is_some_and(|left| record.version <= left.mark);
        let is_heard = sharing.heard_elsewhere(UidTag::of(&who.uid)).is_some();
        was_removed && record.state == MemberState::Expired && !is_heard
    }

    fn lose(&mut self, cluster: &ClusterId) {
        self.drop_member(cluster);
        self.journal.tell(ObjectKey::Section(cluster.clone()), None);
    }
}
