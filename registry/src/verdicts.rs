//! What the registry judged, for its log: leases that ran out, holds, pauses, and what became of members.
//!
//! It is read off the changes of sections and the counts, after the judgement and after the call that followed it, so
//! that a log line never differs from what watchers are told. What a call itself does (a registration, a removal) is
//! logged where the call is served.

use std::collections::BTreeMap;
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId};
use mcs_core::lease::Census;
use mcs_core::model::{MemberState, Section};
use mcs_core::registry::{Counts, Registry};
use mcs_core::time::Timestamp;
use tracing::{info, warn};

/// Why the registry changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Time passed.
    Time,
    /// A caller said something.
    Call,
    /// Other replicas said something, without which leases are not judged.
    Heard,
    /// Other replicas wrote something.
    Read,
}

/// Something that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The registry was away; leases are counted anew.
    Paused(Duration),
    /// Most members are silent, so that no lease is judged.
    HoldBegan(Census),
    /// Leases are judged again.
    HoldEnded(Census),
    /// A lease ran out, and its verdict waits.
    Held {
        /// Whose.
        cluster: ClusterId,
        /// Since its last renewal.
        silent: Duration,
    },
    /// A lease ran out.
    Expired {
        /// Whose.
        cluster: ClusterId,
        /// Since its last renewal.
        silent: Duration,
        /// What it exports, which stays in the merge.
        exports: usize,
    },
    /// A member whose whole set was never known fell silent, and was dropped.
    Dropped(ClusterId),
    /// A member is gone, long after its lease ran out.
    Collected(ClusterId),
    /// A member was removed through another replica.
    Removed(ClusterId),
    /// A member whose lease had run out renewed it.
    Back(ClusterId),
    /// What a member exports is known whole for the first time.
    Whole {
        /// Which.
        cluster: ClusterId,
        /// How many exports.
        exports: usize,
    },
    /// Another cluster has the id now.
    TakenOver {
        /// The id.
        cluster: ClusterId,
        /// Who had it.
        before: ClusterUid,
        /// Who has it.
        now: ClusterUid,
    },
}

impl Verdict {
    /// Logs it.
    pub(crate) fn log(&self, clusterset: &ClustersetId) {
        match self {
            Self::Paused(away) => {
                warn!(%clusterset, ?away, "registry was away: leases are counted anew");
            }
            Self::HoldBegan(Census { active, silent }) => {
                warn!(%clusterset, active, silent, "hold begins: too many silent clusters to judge leases");
            }
            Self::HoldEnded(Census { active, silent }) => {
                info!(%clusterset, active, silent, "hold ends: leases are judged again");
            }
            Self::Held { cluster, silent } => {
                warn!(%clusterset, %cluster, ?silent, "lease ran out: its verdict waits for the end of the hold");
            }
            Self::Expired { cluster, silent, exports } => {
                warn!(%clusterset, %cluster, ?silent, exports, "lease ran out: endpoints are not shown any more");
            }
            Self::Dropped(cluster) => {
                warn!(%clusterset, %cluster, "lease ran out before the cluster had said all: cluster dropped");
            }
            Self::Collected(cluster) => {
                info!(%clusterset, %cluster, "cluster collected: its lease ran out long ago");
            }
            Self::Removed(cluster) => {
                info!(%clusterset, %cluster, "cluster removed through another replica");
            }
            Self::Back(cluster) => info!(%clusterset, %cluster, "cluster is back"),
            Self::Whole { cluster, exports } => {
                info!(%clusterset, %cluster, exports, "cluster is whole: its exports are shown");
            }
            Self::TakenOver { cluster, before, now } => {
                warn!(%clusterset, %cluster, %before, %now, "cluster id taken over: what was exported is gone");
            }
        }
    }
}

/// What was seen of one clusterset at the last look.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    members: BTreeMap<ClusterId, (ClusterUid, MemberState)>,
    counts: Counts,
    holding: bool,
    seen: Option<Timestamp>,
}

impl Verdicts {
    /// What was judged of all members since the last look.
    pub(crate) fn of_all(&mut self, registry: &Registry, now: Timestamp) -> Vec<Verdict> {
        let (counts, holding) = (registry.counts(), registry.is_holding());
        let before = self.seen.replace(now).unwrap_or(now);
        let mut judged = Vec::new();
        if counts.pauses > self.counts.pauses {
            judged.push(Verdict::Paused(now.since(before)));
        }
        if counts.holds > self.counts.holds {
            judged.push(Verdict::HoldBegan(registry.census()));
        }
        if self.holding && !holding {
            judged.push(Verdict::HoldEnded(registry.census()));
        }
        (self.counts, self.holding) = (counts, holding);
        judged
    }

    /// What was judged of one member whose section is now this one.
    pub(crate) fn of_one(
        &mut self,
        cluster: &ClusterId,
        section: Option<&Section>,
        cause: Cause,
        registry: &Registry,
        now: Timestamp,
    ) -> Option<Verdict> {
        let Some(section) = section else {
            let (_, state) = self.members.remove(cluster)?;
            return match (cause, state) {
                (Cause::Call, _) => None,
                (Cause::Time | Cause::Heard, MemberState::Expired) => {
                    Some(Verdict::Collected(cluster.clone()))
                }
                // Its lease ran out, and its record was missing already.
                (Cause::Read | Cause::Heard, _) => Some(Verdict::Removed(cluster.clone())),
                (Cause::Time, _) => Some(Verdict::Dropped(cluster.clone())),
            };
        };
        let before = self.members.insert(cluster.clone(), (section.uid.clone(), section.state));
        let cluster = cluster.clone();
        let silent =
            || registry.member(&cluster).map_or(Duration::ZERO, |member| now.since(member.last_renewed()));
        let exports = || registry.member(&cluster).map_or(0, |member| member.exports().len());
        match (before, section.state) {
            (Some((before, _)), _) if before != section.uid => {
                Some(Verdict::TakenOver { cluster, before, now: section.uid.clone() })
            }
            (Some((_, before)), state) if before == state => None,
            (_, MemberState::Held) => Some(Verdict::Held { silent: silent(), cluster }),
            (_, MemberState::Expired) => {
                Some(Verdict::Expired { silent: silent(), exports: exports(), cluster })
            }
            (Some((_, MemberState::Held | MemberState::Expired)), MemberState::Active) => {
                Some(Verdict::Back(cluster))
            }
            (_, MemberState::Active) => Some(Verdict::Whole { exports: exports(), cluster }),
            (_, MemberState::Syncing) => None,
        }
    }
}

#[cfg(test)]
mod tests;
