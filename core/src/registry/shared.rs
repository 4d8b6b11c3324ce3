//! A registry as one of several replicas of a shared store: how it begins, and what is asked of it.

use super::sharing::{Other, Sharing};
use super::{Member, Policy, Registry};
use crate::ids::{ClusterId, Epoch, Region};
use crate::replicas::UidTag;
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// The own item.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The number of the newest that was made, that was written, and that was read back.
    pub(super) made: u64,
    pub(super) written: u64,
    pub(super) read: u64,
    /// When the newest was made, on the process's clock.
    pub(super) made_at: Timestamp,
    /// The members in it.
    pub(super) listed: BTreeSet<UidTag>,
    /// Whether the members that are served are others since.
    pub(super) joined: bool,
}

impl Registry {
    /// A registry that shares its store with others, as one of several replicas over several regions. It is complete when
    /// it has read the whole, and every other replica that lives was heard. Clusters of a region that is silent as a
    /// whole are kept for `grace` after their lease.
    pub fn shared(
        policy: Policy,
        epoch: Epoch,
        region: Option<Region>,
        grace: Duration,
        now: Timestamp,
    ) -> Self {
        let sharing = Some(Box::new(Sharing::new(region, grace)));
        Self { complete_at: None, sharing, ..Self::new(policy, epoch, now) }
    }

    /// Whether others share its store.
    pub const fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Whether every other replica that lived knew of this one at some time. A member that came before might expire elsewhere
    /// unheard. A replica that comes later reads of this one from those that know of it.
    pub fn is_known(&self) -> bool {
        self.sharing.as_ref().is_none_or(|sharing| sharing.known)
    }

    /// Takes notice of whether what others changed can be read, besides what they say. Verdicts rest on what they say
    /// alone; the view is not complete while it lags.
    pub fn lags(&mut self, lags: bool) {
        self.sharing.iter_mut().for_each(|sharing| sharing.lags = lags);
    }

    /// How many verdicts wait for other replicas.
    pub fn waiting(&self) -> usize {
        self.sharing.as_ref().map_or(0, |sharing| sharing.waiting.len())
    }

    /// Replicas of the own region that died so long ago that nobody waits for them any more: what they said can be
    /// removed, as every refresh of every replica reads it.
    pub fn left_behind(&self) -> Vec<Epoch> {
        let (judged, lease) = (self.clock.now(), self.policy.timing.lease());
        let left = |sharing: &Sharing| {
            let is_left = |other: &Other| {
                let since = other.stood_since + lease + sharing.grace;
                other.dead && other.region == sharing.region && since.has_passed(judged)
            };
            sharing.others.iter().filter(|(_, other)| is_left(other)).map(|(epoch, _)| *epoch).collect()
        };
        self.sharing.as_deref().map_or_else(Vec::new, left)
    }

    /// How many other replicas live, and how many are taken for dead.
    pub fn replicas(&self) -> (usize, usize) {
        let others = self.sharing.iter().flat_map(|sharing| sharing.others.values());
        let (dead, live): (Vec<_>, Vec<_>) = others.partition(|other| other.dead);
        (live.len(), dead.len())
    }

    /// Whether this replica took a renewal of a member within a lease.
    pub fn serves(&self, cluster: &ClusterId, now: Timestamp) -> bool {
        self.members.get(cluster).is_some_and(|member| self.is_served(member, now))
    }

    pub(super) fn is_served(&self, member: &Member, now: Timestamp) -> bool {
        let lease = self.policy.timing.lease();
        member.elsewhere.here.is_some_and(|at| now.since(at) < lease)
    }
}
