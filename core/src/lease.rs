//! When a lease has run out, and when it is not to be judged.
//!
//! Three parts, each with one rule (docs/registry.md, Leases and The brake):
//!
//! - [`JudgingClock`] counts time only while the registry can judge: a stall or a store outage does not count, and
//!   after a pause of more than half a lease all leases are counted anew;
//! - [`Lease`] says when a lease runs out; it has run out when that moment [has passed](Timestamp::has_passed), at the
//!   deadline and not before, and so it is with every deadline here;
//! - [`Hold`] makes verdicts wait, for a bounded time and once an incident, when most members fall silent at once.
//!
//! Moments of the judging clock have the type of those of the process's clock, and begin as its equal; they are never
//! compared with each other.

use crate::time::Timestamp;
use crate::timing::{MAX_TICK, Timing};
use std::time::Duration;

/// What a tick of the judging clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// The clock went on, by no more than [`MAX_TICK`].
    Ran,
    /// The clock stands, since the store could not be read.
    Stood,
    /// The registry itself was away for this long, more than half a lease: all leases are to be counted anew.
    Paused(Duration),
}

/// The clock on which leases are counted.
#[derive(Clone, Debug)]
pub struct JudgingClock {
    timing: Timing,
    judged: Timestamp,
    seen: Timestamp,
}

impl JudgingClock {
    /// A clock that starts at `now`.
    pub const fn new(timing: Timing, now: Timestamp) -> Self {
        Self { timing, judged: now, seen: now }
    }

    /// Takes notice of the time. `store_ok` says whether the last refresh from the store succeeded; a registry that
    /// keeps all in memory has no refresh that fails.
    pub fn tick(&mut self, now: Timestamp, store_ok: bool) -> Tick {
        let gap = now.since(self.seen);
        self.seen = self.seen.max(now);
        if store_ok {
            self.judged = self.judged + gap.min(MAX_TICK);
        }
        match (gap > self.timing.pause(), store_ok) {
            (true, _) => Tick::Paused(gap),
            (false, true) => Tick::Ran,
            (false, false) => Tick::Stood,
        }
    }

    /// The time reached at the last tick.
    pub const fn now(&self) -> Timestamp {
        self.judged
    }

    /// The time that a tick at `now` would reach; after a pause the time reached before it.
    pub fn peek(&self, now: Timestamp) -> Timestamp {
        match now.since(self.seen) {
            gap if gap > self.timing.pause() => self.judged,
            gap => self.judged + gap.min(MAX_TICK),
        }
    }

    /// When, on the process's clock, to tick next so that the deadline `at` of this clock is met: well within
    /// [`MAX_TICK`], for what a late tick loses is lost.
    pub fn wake_at(&self, at: Timestamp) -> Timestamp {
        self.seen + at.since(self.judged).min(MAX_TICK / 2)
    }
}

/// A lease, from its last renewal on the judging clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    renewed: Timestamp,
    /// When its holder was heard again after it had been late.
    returned: Option<Timestamp>,
}

impl Lease {
    /// A lease that was renewed at `now`, of a holder that was never late.
    pub const fn renewed_at(now: Timestamp) -> Self {
        Self { renewed: now, returned: None }
    }

    /// This lease, renewed at `now`. Whether its holder was late is asked as of `as_of`: what it did elsewhere since is not
    /// known yet.
    pub fn renewed(self, timing: Timing, as_of: Timestamp, now: Timestamp) -> Self {
        self.renewed_at_least(timing, now, as_of, now)
    }

    /// When it was renewed last.
    pub const fn renewed_last(self) -> Timestamp {
        self.renewed
    }

    /// This lease, of which is learned at `now` that it was renewed at `at`, which may be a while ago. Whether its holder
    /// was late is asked as of `as_of`: what is learned from others comes late itself.
    pub fn renewed_at_least(self, timing: Timing, at: Timestamp, as_of: Timestamp, now: Timestamp) -> Self {
        if at <= self.renewed {
            return self;
        }
        let was_late = (self.renewed + timing.late()).has_passed(as_of);
        Self { renewed: at, returned: if was_late { Some(now) } else { self.returned } }
    }

    /// When it runs out.
    pub fn deadline(self, timing: Timing) -> Timestamp {
        self.renewed + timing.lease()
    }

    /// Whether its holder has been silent for half a lease, so that it missed a renewal, or was until less than a
    /// heartbeat ago. Members that fell silent together come back one after the other, and the last of them is
    /// not to be judged as if it alone had been away.
    pub fn is_late(self, timing: Timing, now: Timestamp) -> bool {
        let returned = self.returned.is_some_and(|at| !(at + timing.heartbeat()).has_passed(now));
        returned || (self.renewed + timing.late()).has_passed(now)
    }

    /// When the records of its holder are collected.
    pub fn collected_at(self, timing: Timing) -> Timestamp {
        self.deadline(timing) + timing.collection()
    }
}

/// How many members there are to judge, and how many of them are silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Members whose lease is active, or ended within the last lease.
    pub active: usize,
    /// Those of them that are or were just late, or whose lease ended.
    pub silent: usize,
}

/// The hold on verdicts while most members are silent.
#[derive(Clone, Debug)]
pub struct Hold {
    threshold_percent: u8,
    min_active: usize,
    length: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next mass silence is held.
    Ready,
    /// Verdicts wait.
    On { until: Timestamp },
    /// The hold ended, its incident has not: there is no second hold.
    Spent,
}

impl Hold {
    /// A hold of `length` above `threshold_percent` silent members of at least `min_active`.
    pub const fn new(threshold_percent: u8, min_active: usize, length: Duration) -> Self {
        Self { threshold_percent, min_active, length, phase: Phase::Ready }
    }

    /// Ends a hold whose time is over, and an incident whose members are back or were judged a lease ago. `census` is
    /// taken only after a hold.
    pub fn update(&mut self, now: Timestamp, census: impl FnOnce() -> Census) {
        if let Phase::On { until } = self.phase
            && until.has_passed(now)
        {
            self.phase = Phase::Spent;
        }
        if self.phase == Phase::Spent && !self.is_mass(census()) {
            self.phase = Phase::Ready;
        }
    }

    /// Asks before a verdict that is due at `now`. While the answer is a moment, the verdict waits until then; the
    /// first such answer of an incident begins its hold.
    pub fn wait_until(&mut self, now: Timestamp, census: impl FnOnce() -> Census) -> Option<Timestamp> {
        if self.phase == Phase::Ready && self.is_mass(census()) {
            self.phase = Phase::On { until: now + self.length };
        }
        match self.phase {
            Phase::On { until } if !until.has_passed(now) => Some(until),
            Phase::On { .. } | Phase::Ready | Phase::Spent => None,
        }
    }

    /// Until when verdicts wait, if they do.
    pub const fn until(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::On { until } => Some(until),
            Phase::Ready | Phase::Spent => None,
        }
    }

    fn is_mass(&self, census: Census) -> bool {
        census.active >= self.min_active
            && census.silent * 100 > census.active * usize::from(self.threshold_percent)
    }
}
