//! Who leads the controllers of a cluster, and until when the leader may write.
//!
//! The replicas compete for one Kubernetes Lease. This machine is told what the Lease says and what became of its own
//! writes, and answers with the next write; all writes are bound to the state of the Lease that was observed last, so
//! that of two that compete one fails. It guarantees that
//!
//! - a standby takes over only a released Lease, or one that has not changed for a lease duration *since this replica
//!   saw it change*, on its own monotonic clock. The written times are never compared with a clock: the clocks of two
//!   nodes may be an hour apart;
//! - the leader may write until its renew deadline after the *start* of its last successful renewal, which is before
//!   any standby that saw this renewal can take over;
//! - the term rises with every acquisition, also by the same replica, in the very write that acquires, and is never
//!   lowered; so whoever is told a term can tell a deposed leader from its successor. Each is above the microseconds
//!   since 1970 ([`term_floor`]), so that it is also above the terms of a Lease that was deleted or restored meanwhile;
//! - a Lease that was deleted is made again by its leader, and waited for by a standby that knows of a leader.
//!
//! Rejected: taking over as soon as the written time is old (saves seconds at a start, and trusts two clocks); a term
//! counted by `leaseTransitions` (the same holder acquires without a transition, and others count there as well).

use crate::time::Timestamp;
use std::time::Duration;

/// The durations of an election; the defaults are those of Kubernetes' own controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a Lease must stand still before another replica takes it (15 s).
    pub lease_duration: Duration,
    /// How long a leader may write after the start of its last successful renewal (10 s). Less than `lease_duration`
    /// by more than a call takes.
    pub renew_deadline: Duration,
    /// How often a leader renews, and a standby looks (2 s).
    pub retry_period: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Policy {
    /// How long one call to the API server may take (2.5 s): short enough for several tries within the renew deadline.
    pub fn call_limit(&self) -> Duration {
        self.renew_deadline / 4
    }
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; none when it was released.
    pub holder: Option<String>,
    /// The term of that leadership.
    pub term: u64,
    /// How often the holder has changed.
    pub transitions: u32,
    /// How long the holder asks others to wait.
    pub lease_duration: Duration,
    /// When the holder says to have renewed it: only ever compared for equality.
    pub renewed: String,
}

/// What the term of an acquisition is above where the wall clock says `wall_nanos`, in nanoseconds since 1970: the
/// microseconds since then. A Lease may be lost together with all that registries knew, and importers remember the terms
/// that they have seen. Leaders change less often than once a microsecond, also where a Lease is deleted right after it
/// was acquired. A clock that is behind costs a refusal that names the term that is needed.
pub fn term_floor(wall_nanos: i128) -> u64 {
    u64::try_from(wall_nanos / 1_000).unwrap_or_default()
}

/// A write of the Lease, bound to its state that was observed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it is for.
    pub kind: WriteKind,
    /// The term to write.
    pub term: u64,
    /// The count of transitions to write.
    pub transitions: u32,
    /// Whether the Lease does not exist, and is to be created.
    pub create: bool,
}

/// What a write of the Lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// To become the leader.
    Acquire,
    /// To stay the leader, or to raise the term.
    Renew,
    /// To let the next one lead at once.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Standby,
    Leader { term: u64, fence: Timestamp },
}

#[derive(Clone, Debug)]
struct Observed {
    record: Record,
    changed_at: Timestamp,
}

/// One replica in the election; see the module.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    policy: Policy,
    role: Role,
    /// Whether the Lease exists; none before the first look.
    exists: Option<bool>,
    /// What the Lease said last; it outlives the Lease.
    observed: Option<Observed>,
    highest_term: u64,
    floor: u64,
    next_try: Timestamp,
    stopping: bool,
}

impl Elector {
    /// A standby of this identity, which no other process ever has.
    pub fn new(identity: String, policy: Policy) -> Self {
        Self {
            identity,
            policy,
            role: Role::Standby,
            exists: None,
            observed: None,
            highest_term: 0,
            floor: 0,
            next_try: Timestamp::ZERO,
            stopping: false,
        }
    }

    /// Takes what the Lease says; none when there is no Lease.
    pub fn observe(&mut self, lease: Option<Record>, now: Timestamp) {
        if self.exists == Some(true) && lease.is_none() {
            self.next_try = Timestamp::ZERO;
        }
        self.exists = Some(lease.is_some());
        let Some(record) = lease else { return };
        self.highest_term = self.highest_term.max(record.term);
        if record.holder.as_ref() != Some(&self.identity) {
            self.role = Role::Standby;
        }
        if self.observed.as_ref().is_none_or(|known| known.record != record) {
            self.observed = Some(Observed { record, changed_at: now });
        }
    }

    /// The write to make now, if any; not to be asked while one is under way. `wall_nanos` is what the wall clock says,
    /// in nanoseconds since 1970.
    pub fn next_write(&mut self, now: Timestamp, wall_nanos: i128) -> Option<Write> {
        self.handle_timeout(now);
        let exists = self.exists?;
        if !self.next_try.has_passed(now) {
            return None;
        }
        let transitions = self.observed.as_ref().map_or(0, |known| known.record.transitions);
        match self.role {
            Role::Leader { .. } if self.stopping => {
                let write =
                    Write { kind: WriteKind::Release, term: self.highest_term, transitions, create: false };
                exists.then_some(write)
            }
            Role::Leader { term, .. } => {
                let above_floor = if self.floor >= term { self.floor.saturating_add(1) } else { term };
                // A raise whose answer was lost is in the Lease already: its term is not lowered.
                let term = self.highest_term.max(above_floor);
                Some(Write { kind: WriteKind::Renew, term, transitions, create: !exists })
            }
            Role::Standby if self.stopping => None,
            Role::Standby => {
                let ours = self.observed.as_ref().is_none_or(|known| self.is_own(&known.record));
                let above = self.highest_term.max(self.floor).max(term_floor(wall_nanos));
                let term = above.saturating_add(1);
                let transitions = if ours { transitions } else { transitions.saturating_add(1) };
                let write = Write { kind: WriteKind::Acquire, term, transitions, create: !exists };
                self.free_at().has_passed(now).then_some(write)
            }
        }
    }

    /// The write succeeded: `record` is what the Lease says now, `started` when the call was made.
    pub fn handle_written(&mut self, write: &Write, record: Record, started: Timestamp, now: Timestamp) {
        self.next_try = started + self.policy.retry_period;
        self.role = match write.kind {
            WriteKind::Acquire | WriteKind::Renew => {
                Role::Leader { term: write.term, fence: started + self.policy.renew_deadline }
            }
            WriteKind::Release => Role::Standby,
        };
        self.observe(Some(record), now);
    }

    /// A write failed, or is not known to have succeeded. Not to be called when the Lease was another than the
    /// observed one: then looking at it is all there is to wait for. A release is not tried again: the Lease runs out
    /// by itself, and the process is to end.
    pub fn handle_failed(&mut self, started: Timestamp) {
        self.next_try = started + self.policy.retry_period;
        if self.stopping {
            self.role = Role::Standby;
        }
    }

    /// A leader whose renew deadline has passed leads no more.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.fence().is_some_and(|fence| fence.has_passed(now)) {
            self.role = Role::Standby;
        }
    }

    /// When to ask for the next write, or to call [`Elector::handle_timeout`]; none while only an observation can
    /// change anything.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.role {
            Role::Leader { fence, .. } => Some(fence.min(self.next_try)),
            Role::Standby if self.stopping || self.exists.is_none() => None,
            Role::Standby => Some(self.next_try.max(self.free_at())),
        }
    }

    /// The term in which this replica leads, if it does. Without one it writes nothing but the Lease.
    pub fn term(&self, now: Timestamp) -> Option<u64> {
        match self.role {
            Role::Leader { term, fence } if !self.stopping && !fence.has_passed(now) => Some(term),
            Role::Leader { .. } | Role::Standby => None,
        }
    }

    /// When the right to write ends unless it is renewed; none for a standby.
    pub fn fence(&self) -> Option<Timestamp> {
        match self.role {
            Role::Leader { fence, .. } => Some(fence),
            Role::Standby => None,
        }
    }

    /// A registry knows of a leader with the term `floor`: the own term is raised above it, for the Lease may have
    /// been deleted or restored.
    pub fn raise_term(&mut self, floor: u64) {
        let above = matches!(self.role, Role::Leader { term, .. } if floor >= term && floor > self.floor);
        if above {
            self.next_try = Timestamp::ZERO;
        }
        self.floor = self.floor.max(floor);
    }

    /// Stops leading and competing; what is left is to release the Lease.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.next_try = Timestamp::ZERO;
    }

    /// Whether [`Elector::stop`] was called.
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether nothing is left to do after [`Elector::stop`].
    pub fn is_stopped(&self) -> bool {
        self.stopping && (self.role == Role::Standby || self.exists == Some(false))
    }

    /// When the Lease may be taken by a standby.
    fn free_at(&self) -> Timestamp {
        match &self.observed {
            Some(known) if !self.is_own(&known.record) && known.record.holder.is_some() => {
                known.changed_at + self.policy.lease_duration.max(known.record.lease_duration)
            }
            _ => Timestamp::ZERO,
        }
    }

    fn is_own(&self, record: &Record) -> bool {
        record.holder.as_ref() == Some(&self.identity)
    }
}
