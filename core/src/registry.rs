//! The members of one clusterset as one registry process knows them: leases, exports, wholeness, and the merge.
//!
//! Calls come in, [`Change`]s go out (drain [`Registry::next_change`] after every call); what watchers and lists show
//! follows from the changes alone. Guarantees:
//!
//! - a statement of a member is never replaced by an older one: terms below the highest seen are refused, acts below
//!   the newest act are ignored;
//! - a member's section names a version only when all that its controller had told up to it is held; while the
//!   member's sum says otherwise, the section's version stands;
//! - an act that does not follow the newest one seen proves nothing: the acts between may have gone to another registry;
//! - nothing but its section is told of a member before it is whole, unless a store told it; then all its exports enter
//!   merge and log together;
//! - a section's version is told after all that changed up to it, removals included, so that a reader that was told
//!   the version knows enough to show and to delete;
//! - only a sync that ended, a delete, a removal, another cluster that takes over an id whose lease ran out, or
//!   collection removes an export; a sync that breaks removes nothing;
//! - renewing one member changes no other, and equal content makes no change;
//! - a call costs in proportion to what it changes, whatever the member exports (the first wholeness of a member, the
//!   begin and the end of a sync, its removal and mass silence excepted).

mod acts;
mod claims;
mod counts;
mod elsewhere;
mod gone;
mod hear;
mod judge;
mod learn;
mod member;
mod past;
mod reads;
mod restore;
mod services;
mod shared;
mod sharing;
mod terms;

pub use counts::{Counts, Sizes};
pub use gone::Forgotten;
pub use hear::{Keys, Reading, Who};
pub use learn::{Differing, Learnt, Read, Recorded, Rewrite};
pub use member::{Member, TOO_MANY};
pub use restore::Restored;

use crate::ids::{Build, ClusterId, ClusterUid, Epoch, Instance, Region, ServiceKey};
use crate::lease::{Census, Hold, JudgingClock};
use crate::model::{Change, EndpointSet, ExportSpec, MemberState, Object, ObjectKey};
use crate::time::{Timestamp, WallMillis};
use crate::timing::Timing;
use crate::validate::Refusal;
use crate::version::{Leaf, Sum, Version};
use services::Services;
use sharing::Sharing;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use terms::Terms;

/// What an operator decides about leases and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The lease, and the durations that follow from it.
    pub timing: Timing,
    /// Verdicts wait when more than this share of the active members is silent, in percent.
    pub mass_expiry_threshold_percent: u8,
    /// Fewer active members than this are never held.
    pub mass_expiry_min_active: usize,
    /// How long verdicts wait, once an incident.
    pub mass_expiry_hold: Duration,
    /// The most members.
    pub max_clusters: usize,
    /// The most exports of one member.
    pub max_exports: usize,
    /// The most writes a second of one member.
    pub max_writes_per_second: u32,
}

#[cfg(any(test, feature = "test-util"))]
impl Policy {
    /// One for tests, with a hold of one lease; a test that is about a limit sets it.
    pub const fn of_lease(lease: Duration) -> Self {
        Self {
            timing: Timing::of_lease(lease),
            mass_expiry_threshold_percent: 50,
            mass_expiry_min_active: 3,
            mass_expiry_hold: lease,
            max_clusters: 10,
            max_exports: 10,
            max_writes_per_second: 10,
        }
    }
}

/// Who registers, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The UID of the cluster's `kube-system` Namespace.
    pub uid: ClusterUid,
    /// The cluster's region, where it has one.
    pub region: Option<Region>,
    /// The controller, for people to read.
    pub instance: Instance,
    /// The controller's version, for people to read.
    pub build: Build,
    /// The version of this act.
    pub version: Version,
    /// The sum of what the controller knows to be accepted.
    pub sum: Sum,
}

/// One operation of a write or a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts an export with its endpoints.
    Put {
        /// The Service.
        key: ServiceKey,
        /// The owner's content hash.
        leaf: Leaf,
        /// The definition.
        spec: Arc<ExportSpec>,
        /// The endpoints.
        endpoints: Arc<EndpointSet>,
        /// When the owner saw the change that this is, where it says so. No part of the content: nothing is told again
        /// because only this is another.
        changed_at: Option<WallMillis>,
    },
    /// Puts the endpoints of an export whose definition stands.
    PutEndpoints {
        /// The Service.
        key: ServiceKey,
        /// The owner's content hash of definition and endpoints.
        leaf: Leaf,
        /// The hash of the state that they change. Where another one is held its definition may be another, so they are
        /// refused; none: whatever is held.
        replaces: Option<Leaf>,
        /// The endpoints.
        endpoints: Arc<EndpointSet>,
        /// As of a put.
        changed_at: Option<WallMillis>,
    },
    /// Deletes an export.
    Delete {
        /// The Service.
        key: ServiceKey,
    },
}

impl Op {
    /// The Service that it is about.
    pub const fn key(&self) -> &ServiceKey {
        match self {
            Self::Put { key, .. } | Self::PutEndpoints { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// What became of one operation; a refused one blocks no other.
pub type OpOutcome = Result<(), Refusal>;

/// The answer to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Whether something else is held than the caller has, so that it is to sync.
    pub differs: bool,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The member's state after it.
    pub state: MemberState,
    /// Whether something else is held than the caller has, so that it is to sync.
    pub differs: bool,
}

/// What was removed with a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many exports.
    pub exports: usize,
    /// How many endpoints.
    pub endpoints: usize,
}

/// The flag of a registry that sets the most clusters of a clusterset, as refusals name it.
pub const MAX_CLUSTERS: &str = "max-clusters";
/// The flag that sets the most exports of a cluster.
pub const MAX_EXPORTS: &str = "max-exports-per-cluster";
/// The flag that sets the most writes of a cluster in a second.
pub const MAX_WRITES: &str = "max-writes-per-second";

/// Why a call was not taken; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A newer leader has spoken: a leader raises its term above the floor and registers again, anyone else stops.
    #[error(
        "term {term} of cluster {cluster} is over or another leader's, {floor} is the highest seen: raise it above that"
    )]
    OldTerm {
        /// The cluster.
        cluster: ClusterId,
        /// The caller's term.
        term: u64,
        /// The highest term seen.
        floor: u64,
    },
    /// Another cluster holds the id, and its lease has not run out.
    #[error(
        "cluster id {cluster} is held by the cluster with UID {holder}, not by that with UID {caller}: give one another id"
    )]
    Claimed {
        /// The id.
        cluster: ClusterId,
        /// The UID of the cluster that holds it.
        holder: ClusterUid,
        /// The UID of the caller.
        caller: ClusterUid,
    },
    /// The caller is to register first.
    #[error("cluster {cluster} is not registered here: register first")]
    Unknown {
        /// The cluster.
        cluster: ClusterId,
    },
    /// A cluster whose lease has not run out is removed by itself or by force only.
    #[error("the lease of cluster {cluster} is active: stop its controller, or force the removal")]
    Active {
        /// The cluster.
        cluster: ClusterId,
    },
    /// The clusterset is full.
    #[error(
        "the clusterset has {limit} clusters, the most that this registry takes (--{flag}): remove one that is \
         not used any more, or raise it", flag = MAX_CLUSTERS
    )]
    TooManyClusters {
        /// The limit.
        limit: usize,
    },
    /// The cluster writes faster than a registry takes it.
    #[error(
        "cluster {cluster} writes more than {per_second} times a second, the most that this registry takes \
         (--{flag}): nothing of this write was taken, send it again after {} ms", .retry_after.as_millis() + 1,
        flag = MAX_WRITES
    )]
    TooManyWrites {
        /// The cluster.
        cluster: ClusterId,
        /// The limit.
        per_second: u32,
        /// When a write is taken again.
        retry_after: Duration,
    },
    /// The end of a sync whose begin was not seen.
    #[error("no sync of version {version} has begun for cluster {cluster}: begin again")]
    NoSync {
        /// The cluster.
        cluster: ClusterId,
        /// The version of the sync.
        version: Version,
    },
}

/// The members of one clusterset.
#[derive(Debug)]
pub struct Registry {
    policy: Policy,
    epoch: Epoch,
    clock: JudgingClock,
    hold: Hold,
    /// Since when the store does not answer. While it does not, no time is judged and the view is not complete.
    unread_since: Option<Timestamp>,
    /// When, on the judging clock, all live clusters have had time to register; none once that is past.
    complete_at: Option<Timestamp>,
    members: BTreeMap<ClusterId, Member>,
    /// Each member under its [`Member::due`].
    due: BTreeSet<(Timestamp, ClusterId)>,
    services: Services,
    terms: Terms,
    journal: Journal,
    counts: Counts,
    /// Of a registry that shares its store with others.
    sharing: Option<Box<Sharing>>,
}

/// Changes that were not drained yet.
#[derive(Debug, Default)]
struct Journal {
    revision: u64,
    queue: VecDeque<Change>,
}

impl Journal {
    fn tell(&mut self, key: ObjectKey, object: Option<Object>) {
        self.revision += 1;
        self.queue.push_back(Change { revision: self.revision, key, object });
    }

    /// Tells a member's section, if it is not as it was told last.
    fn tell_section(&mut self, cluster: &ClusterId, member: &mut Member) {
        let section = member.section();
        if member.told.as_ref() != Some(&section) {
            member.told = Some(section.clone());
            self.tell(ObjectKey::Section(cluster.clone()), Some(Object::Section(section)));
        }
    }
}

impl Registry {
    /// A registry without members. It is not complete until one lease has passed.
    pub fn new(policy: Policy, epoch: Epoch, now: Timestamp) -> Self {
        Self {
            policy,
            epoch,
            clock: JudgingClock::new(policy.timing, now),
            hold: Hold::new(
                policy.mass_expiry_threshold_percent,
                policy.mass_expiry_min_active,
                policy.mass_expiry_hold,
            ),
            unread_since: None,
            complete_at: Some(now + policy.timing.lease()),
            members: BTreeMap::new(),
            due: BTreeSet::new(),
            services: Services::default(),
            terms: Terms::default(),
            journal: Journal::default(),
            counts: Counts::default(),
            sharing: None,
        }
    }

    /// The next change; drain after every call.
    pub fn next_change(&mut self) -> Option<Change> {
        self.journal.queue.pop_front()
    }

    /// Whether a cluster that is not listed was away for a lease, so that its absence means something. While the store
    /// does not answer, nothing is known of what other replicas were told.
    pub fn is_complete(&self, now: Timestamp) -> bool {
        let sharing =
            self.sharing.as_ref().is_none_or(|sharing| sharing.complete && !sharing.torn && !sharing.lags);
        let own = self.complete_at.is_none_or(|at| at.has_passed(self.clock.peek(now)));
        self.unread_since.is_none() && sharing && own
    }

    /// Names this process's state log.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The revision of the newest change.
    pub const fn revision(&self) -> u64 {
        self.journal.revision
    }

    /// How long importers keep a cluster that a complete view does not list: one lease, and where others share the store
    /// also the grace of a region that is silent.
    pub fn absent_grace(&self) -> Duration {
        self.policy.timing.lease() + self.sharing.as_ref().map_or(Duration::ZERO, |sharing| sharing.grace)
    }

    /// Whether verdicts wait since most members are silent.
    pub const fn is_holding(&self) -> bool {
        self.hold.until().is_some()
    }

    /// How many members there are to judge, and how many of them are silent.
    pub fn census(&self) -> Census {
        self.census_at(self.clock.now())
    }

    /// Lets a member speak: its UID holds the id and its term is not below the highest seen, which it may raise.
    fn admit(&mut self, cluster: &ClusterId, uid: &ClusterUid, version: Version) -> Result<(), Refused> {
        self.check_holder(cluster, uid)?;
        self.check_term(cluster, uid, version)
    }

    fn check_holder(&self, cluster: &ClusterId, uid: &ClusterUid) -> Result<(), Refused> {
        match self.members.get(cluster) {
            Some(member) if member.uid == *uid => Ok(()),
            Some(member) if member.holds_its_id() => Err(Refused::Claimed {
                cluster: cluster.clone(),
                holder: member.uid.clone(),
                caller: uid.clone(),
            }),
            _ => Err(unknown(cluster)),
        }
    }

    fn check_term(&mut self, cluster: &ClusterId, uid: &ClusterUid, version: Version) -> Result<(), Refused> {
        let admitted = self.terms.admit(cluster, uid, version.term);
        let old = |floor| Refused::OldTerm { cluster: cluster.clone(), term: version.term, floor };
        admitted.map_err(old)
    }
}

fn unknown(cluster: &ClusterId) -> Refused {
    Refused::Unknown { cluster: cluster.clone() }
}
