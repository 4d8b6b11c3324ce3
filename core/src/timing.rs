//! Every duration of the protocol between controller and registry, as a fraction of the lease.
//!
//! So `--lease-duration=3s` gives leases, heartbeats and what follows from them ten times as fast, which is what tests
//! use; how long a silent connection and a call are waited for has bounds of its own. The figures in brackets are for
//! the default lease of 30 s.

use crate::time::WallTime;
use std::time::Duration;

/// How long a cluster's endpoints are shown after its last renewal, by default.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The shortest lease that is accepted: below it, scheduling delays of a busy machine look like deaths.
pub const MIN_LEASE: Duration = Duration::from_secs(1);

/// The longest lease that is granted or believed: a dead cluster would be shown for as long.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest pause between two messages of a watch.
pub const MAX_PROGRESS: Duration = Duration::from_secs(10);

/// The shortest time that is given to an answer: below it, a busy machine looks like a dead one.
pub const MIN_ANSWER: Duration = Duration::from_secs(1);

/// The durations that follow from one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self::of_lease(DEFAULT_LEASE)
    }
}

impl Timing {
    /// The table for a lease of `lease`.
    pub const fn of_lease(lease: Duration) -> Self {
        Self { lease }
    }

    /// How long a renewal holds (30 s).
    pub const fn lease(self) -> Duration {
        self.lease
    }

    /// How often a controller renews (10 s).
    pub fn heartbeat(self) -> Duration {
        self.lease / 3
    }

    /// At most this long between two messages of a watch (10 s), whatever the lease: watchers count on it
    /// (docs/registry.md, Watches).
    pub fn progress(self) -> Duration {
        (self.lease / 3).min(MAX_PROGRESS)
    }

    /// A watch without a message for this long is given up (15 s): half as long again as the longest pause between
    /// two, for a registry of any lease.
    pub fn dead_stream(self) -> Duration {
        MAX_PROGRESS * 3 / 2
    }

    /// How often a controller probes a connection on which it hears nothing (5 s).
    pub fn keep_alive(self) -> Duration {
        self.lease / 6
    }

    /// How often a registry does so (15 s), at most [`Timing::dead_stream`]. Longer than a heartbeat: who renews over a
    /// connection is heard on it, and costs no probe; the lease of who falls silent outlasts its connection all the same.
    pub fn keep_alive_of_registry(self) -> Duration {
        (self.lease / 2).min(self.dead_stream())
    }

    /// How long the answer to a probe may take (3 s), at least [`MIN_ANSWER`].
    pub fn keep_alive_answer(self) -> Duration {
        (self.lease / 10).max(MIN_ANSWER)
    }

    /// How long one call may take (3 s), at least [`MIN_ANSWER`].
    pub fn call_limit(self) -> Duration {
        (self.lease / 10).max(MIN_ANSWER)
    }

    /// How long one call of a registry to its store may take (1.5 s): a caller that waits for it is to be answered within
    /// [`Timing::call_limit`].
    pub fn store_limit(self) -> Duration {
        self.call_limit() / 2
    }

    /// How long the read of what all replicas say may take (1 s), at least half of [`MIN_ANSWER`]: with the pause before
    /// it, a store that takes calls and answers none is noticed within 3 s.
    pub fn refresh_limit(self) -> Duration {
        (self.lease / 30).max(MIN_ANSWER / 2)
    }

    /// How long a call may take that reads page after page (30 s): it goes on beside the reads
    /// by which a store that does not answer is noticed.
    pub fn store_read_limit(self) -> Duration {
        self.lease.max(self.call_limit())
    }

    /// How often the records of all members are compared with what is held (2 min), whatever was told of them: a write
    /// that was overwritten by one of another region, which arrived later than the news of it, is found by nothing else.
    /// It costs one unit for eight clusters.
    pub fn compare(self) -> Duration {
        self.lease * 4
    }

    /// A gap between two looks at the clock above this is a pause of the registry, and is not judged (15 s).
    pub fn pause(self) -> Duration {
        self.lease / 2
    }

    /// A member silent for this long counts as late when a mass expiry is looked for (15 s). More than a heartbeat and
    /// the longest call, after which a healthy one is heard; less than the lease without them, so that of members that
    /// fell silent together the last one heard is late when the lease of the first ends.
    pub fn late(self) -> Duration {
        self.lease / 2
    }

    /// The first wait after a failed call; doubled with full jitter up to [`Timing::max_backoff`] (300 ms).
    pub fn first_backoff(self) -> Duration {
        self.lease / 100
    }

    /// The longest wait between two tries (2 s). A registry that comes back is to have heard of all its clusters within
    /// 3 s, whatever the time that it was away: what it cannot hold without them is not whole until then. One that is
    /// away is met by a try or two a second of each cluster, which is nothing to anyone.
    pub fn max_backoff(self) -> Duration {
        self.lease / 15
    }

    /// The longest wait after so many failures: [`Timing::first_backoff`], doubled with each of them up to
    /// [`Timing::max_backoff`].
    pub fn backoff(self, failures: u32) -> Duration {
        (self.first_backoff() * 2_u32.saturating_pow(failures.min(16))).min(self.max_backoff())
    }

    /// An earlier registry URL must have been healthy for this long before a controller returns to it (60 s).
    pub fn return_after(self) -> Duration {
        self.lease * 2
    }

    /// How often an earlier registry is probed (5 s), with at most half of it of jitter. So the members of a clusterset go
    /// back to it within half a lease of each other: what one of them misses there is kept for a lease.
    pub fn probe(self) -> Duration {
        self.lease / 6
    }

    /// How often a replica writes its own item of a shared store (10 s): as often as its members renew.
    pub fn beat(self) -> Duration {
        self.heartbeat()
    }

    /// Two beats of one replica are at least this far apart (200 ms), whatever happens between them.
    pub fn beat_gap(self) -> Duration {
        self.lease / 150
    }

    /// A beat that was not written is made anew after this long (2 s).
    pub fn beat_retry(self) -> Duration {
        self.lease / 15
    }

    /// How long to wait before a member of a shared store is read again after so many readings that did not fit
    /// together: 200 ms, doubled with each up to [`Timing::compare`], which would find the same.
    pub fn reread(self, tries: u32) -> Duration {
        self.reread_unfit(tries).min(self.compare())
    }

    /// The same for what did not fit for long, and is one and the same (25 s): doubled on, up to 3.6 hours. Its last chance is an
    /// export that travels for longer; until then nobody pays for reading all of a large cluster every two minutes.
    pub fn reread_unfit(self, tries: u32) -> Duration {
        self.lease / 150 * 2_u32.saturating_pow(tries.min(16))
    }

    /// A record that another replica removed is believed to be gone after it was missing for this long (15 s): more than
    /// a heartbeat and the longest call, after which who still uses it is heard. The lease of its member runs on.
    pub fn missing(self) -> Duration {
        self.late()
    }

    /// A registry whose store has been away for this long is left for another one (15 s): longer than a store takes to
    /// fail over by itself, and a cluster still renews in time elsewhere.
    pub fn degraded_after(self) -> Duration {
        self.lease / 2
    }

    /// Records of a cluster are collected this long after its lease ended (7 days, whatever the lease).
    pub const fn collection(self) -> Duration {
        Duration::from_secs(7 * 24 * 60 * 60)
    }
}

/// The judging clock adds at most this much at once, so that a stall is not judged.
pub const MAX_TICK: Duration = Duration::from_millis(500);

/// Changes of one export are sent, and slices of one import written, at most this often; the last state always is. Each
/// write of a slice is told to every node of a cluster: ten a second are as many as a Service that flaps may cost.
pub const COALESCE: Duration = Duration::from_millis(100);

/// The finalizer of a ServiceExport goes this long after the deletion, whatever the lease and whatever a registry says:
/// a namespace must not hang on one that is away.
pub const FINALIZER_LIMIT: Duration = Duration::from_secs(60);

/// What people are told of a problem is told again this often while it lasts: Kubernetes drops Events after an hour.
pub const EVENT_REPEAT: Duration = Duration::from_secs(30 * 60);

/// How much longer a finalizer waits at `now` whose object was deleted at `deleted`. The wall clock is all that the
/// leaders who may follow each other have in common; where it is wrong, the wait ends within [`FINALIZER_LIMIT`] of
/// this look, and early only costs that the next sync ends the export. Both times are cut to seconds, so that one more
/// may have been counted than has passed: it is waited for again.
pub fn finalizer_wait(deleted: WallTime, now: WallTime) -> Duration {
    let counted = now.unix_secs().saturating_sub(deleted.unix_secs()).saturating_sub(1);
    FINALIZER_LIMIT.saturating_sub(Duration::from_secs(u64::try_from(counted).unwrap_or_default()))
}
