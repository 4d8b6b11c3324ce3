//! How much there is, and what happened: for metrics and logs.
//!
//! Nothing here walks exports or endpoints: who looks holds up every call meanwhile.

use super::Registry;
use crate::model::MemberState;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Leases that were judged to have run out.
    pub expired: u64,
    /// Leases that ran out and whose verdict waited for the end of a hold.
    pub held: u64,
    /// Holds that began.
    pub holds: u64,
    /// Pauses of the registry after which leases were counted anew.
    pub pauses: u64,
    /// Members that were collected long after their lease.
    pub collected: u64,
    /// Acts that were ignored, since a newer one had been seen.
    pub stale_acts: u64,
    /// Renewals by a member that had something else than what is held.
    pub differing: u64,
}

/// How much there is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Members by their state; a state that none is in is left out.
    pub members: BTreeMap<MemberState, usize>,
    /// Exports of all members, whatever their states.
    pub exports: usize,
    /// Endpoints of these exports.
    pub endpoints: usize,
    /// Merged Services.
    pub imports: usize,
    /// Merged Services on whose fields exports differ.
    pub conflicts: usize,
}

impl Registry {
    /// What happened since the start.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How much there is now; costs in proportion to the members alone.
    pub fn sizes(&self) -> Sizes {
        let (imports, conflicts) = (self.services.imports(), self.services.conflicts());
        let mut sizes = Sizes { imports, conflicts, ..Sizes::default() };
        for member in self.members.values() {
            *sizes.members.entry(member.state()).or_default() += 1;
            sizes.exports += member.exports.len();
            sizes.endpoints += member.endpoints;
        }
        sizes
    }

    /// For how long the store has not answered, so that what is shown may lack what others were told; nothing while it
    /// answers.
    pub fn view_age(&self, now: Timestamp) -> Duration {
        self.unread_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}
