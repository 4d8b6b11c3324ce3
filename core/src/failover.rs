//! Which of several registries a controller talks to.
//!
//! URLs are in order: the first healthy one is used. The machine is told how calls end
//! and what probes find, and says which registry is next, which to probe, and which to go to while the one in use still
//! works. It guarantees that
//!
//! - a registry that fails has one more try, over a new connection, before the next one is asked; no other is tried
//!   twice before all were tried once, those that the last probe found well first;
//! - one that takes the cluster but none of its exports counts as failed: only one that works begins the round and its
//!   waits anew;
//! - a controller goes back to an earlier URL only when every probe of it has been well for
//!   [`Timing::return_after`], and twice as long each time that it failed soon after such a return, so that one that
//!   comes and goes is not followed;
//! - a registry whose store has been away for [`Timing::degraded_after`] is left for another whose store is not;
//! - the registry in use is left for a better one only when that one has taken the cluster: until then nothing changes.
//!
//! Rejected: going back at once (a registry that restarts in a loop would take all clusters along each time); a probe by
//! opening a watch (it costs a snapshot each time); a random choice (an operator wants to know where clusters are).

use crate::time::Timestamp;
use crate::timing::Timing;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often the time before a return is doubled at most: to 16 times of it.
const MOST_DOUBLINGS: u32 = 4;

/// What is known of one registry.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Whether the last that was heard of it was a failure.
    sick: bool,
    /// Since when every probe has been well.
    well_since: Option<Timestamp>,
    probe_at: Timestamp,
    probing: bool,
    /// How often in a row it failed soon after a return to it.
    short_returns: u32,
}

/// A registry that is to be gone to, while the one in use still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    url: usize,
    /// Whether its watch has told all.
    watched: bool,
}

/// How a call failed, as far as where to call next depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not answer, or not usefully.
    Unavailable,
    /// It cannot be used by this cluster; a new connection would not help.
    Unusable,
    /// It takes no more now; another one would have no reason to take more.
    Busy,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// When the next try is due.
    pub at: Timestamp,
    /// Whether all registries have failed now, since one last worked.
    pub all_failed: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Failover {
    known: Vec<Known>,
    current: usize,
    /// Counts the moves and failures: a call that began before the last of them says nothing any more.
    attempt: u64,
    /// Since when the current registry has this cluster; none while it has not.
    in_use_since: Option<Timestamp>,
    /// Whether it was returned to.
    returned: bool,
    /// The registries that failed since one last worked.
    tried: BTreeSet<usize>,
    /// How many calls failed since one last worked.
    failures: u32,
    /// Whether the current registry has had its one more try since it last worked.
    had_second_try: bool,
    degraded_since: Option<Timestamp>,
    watch_failed: bool,
    candidate: Option<Candidate>,
}

impl Failover {
    /// A controller that may talk to `urls` registries, in this order; at least one.
    pub fn new(urls: usize) -> Self {
        Self {
            known: vec![Known::default(); urls.max(1)],
            current: 0,
            attempt: 0,
            in_use_since: None,
            returned: false,
            tried: BTreeSet::new(),
            failures: 0,
            had_second_try: false,
            degraded_since: None,
            watch_failed: false,
            candidate: None,
        }
    }

    /// The registry to call.
    pub const fn current(&self) -> usize {
        self.current
    }

    /// Which try a call belongs to that begins now. The failure of a call of an earlier one is not to be told.
    pub const fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The current registry has taken this cluster, which says not yet that it takes its exports.
    pub fn taken(&mut self, now: Timestamp) {
        if self.in_use_since.is_none() {
            self.returned = false;
            self.begin_use(now);
        }
    }

    fn begin_use(&mut self, now: Timestamp) {
        self.in_use_since = Some(now);
        self.degraded_since = None;
        self.watch_failed = false;
        self.candidate = None;
        self.known[self.current].sick = false;
        self.known[self.current].well_since = None;
        for known in &mut self.known {
            known.probe_at = now;
        }
    }

    /// The current registry has this cluster and all that it is to hold.
    pub fn works(&mut self) {
        self.tried.clear();
        self.failures = 0;
        self.had_second_try = false;
    }

    /// A call to the current registry failed. `jitter`, from 0 to 1, spreads the next try.
    pub fn failed(&mut self, fault: Fault, timing: Timing, now: Timestamp, jitter: f64) -> Retry {
        let urls = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let at = now + timing.backoff(self.failures / urls).mul_f64(jitter.clamp(0.0, 1.0));
        self.failures = self.failures.saturating_add(1);
        self.attempt += 1;
        self.candidate = None;
        if fault == Fault::Busy {
            return Retry { at, all_failed: false };
        }
        let was_used = self.in_use_since.take();
        if let Some(since) = was_used {
            self.note_use(since, timing, now);
        }
        if was_used.is_some() && fault == Fault::Unavailable && urls > 1 && !self.had_second_try {
            self.had_second_try = true;
            return Retry { at, all_failed: false };
        }
        self.go_to_next(at)
    }

    /// A registry that has been used for as long as it was waited for is trusted again.
    fn note_use(&mut self, since: Timestamp, timing: Timing, now: Timestamp) {
        let long = (since + self.return_after(self.current, timing)).has_passed(now);
        let known = &mut self.known[self.current];
        known.short_returns = match (long, self.returned) {
            (true, _) => 0,
            (false, true) => (known.short_returns + 1).min(MOST_DOUBLINGS),
            (false, false) => known.short_returns,
        };
    }

    fn go_to_next(&mut self, at: Timestamp) -> Retry {
        self.known[self.current].sick = true;
        self.known[self.current].well_since = None;
        self.tried.insert(self.current);
        let all_failed = self.tried.len() >= self.known.len();
        if all_failed {
            self.tried.clear();
        }
        let others = (0..self.known.len()).filter(|url| *url != self.current && !self.tried.contains(url));
        self.current = others.min_by_key(|url| (self.known[*url].sick, *url)).unwrap_or(self.current);
        self.had_second_try = false;
        self.degraded_since = None;
        self.watch_failed = false;
        Retry { at, all_failed }
    }

    /// The watch of the current registry failed; the second time without a word of it counts as a failed call, where
    /// there is another registry.
    pub const fn watch_failed(&mut self) -> bool {
        let again = std::mem::replace(&mut self.watch_failed, true);
        again && self.in_use_since.is_some() && self.known.len() > 1
    }

    /// The watch of the current registry has told something.
    pub const fn watch_told(&mut self) {
        self.watch_failed = false;
    }

    /// The current registry says whether its store is away.
    pub fn degraded(&mut self, degraded: bool, now: Timestamp) {
        self.degraded_since = match (degraded, self.degraded_since) {
            (true, since) => Some(since.unwrap_or(now)),
            (false, _) => None,
        };
    }

    /// A registry to probe now.
    pub fn next_probe(&mut self, timing: Timing, now: Timestamp) -> Option<usize> {
        let due = |url: &usize| self.probe_due(*url, timing).is_some_and(|at| at.has_passed(now));
        let url = (0..self.known.len()).find(due)?;
        let known = &mut self.known[url];
        known.probing = true;
        known.probe_at = now + timing.probe();
        Some(url)
    }

    /// A probe found a registry well: it answers, takes this cluster's word, and knows all that its store holds; or not.
    pub fn probed(&mut self, url: usize, well: bool, timing: Timing, now: Timestamp, jitter: f64) {
        let Some(known) = self.known.get_mut(url) else { return };
        known.probing = false;
        // Controllers that began together do not probe together for ever.
        known.probe_at = known.probe_at + (timing.probe() / 2).mul_f64(jitter.clamp(0.0, 1.0));
        known.sick = !well;
        known.well_since = match (well, known.well_since) {
            (true, since) => Some(since.unwrap_or(now)),
            (false, _) => None,
        };
        match self.candidate {
            Some(candidate) if candidate.url == url && !well => self.candidate = None,
            None if well
                && self.in_use_since.is_some()
                && url != self.current
                && self.is_better(url, timing, now) =>
            {
                self.candidate = Some(Candidate { url, watched: false });
            }
            Some(_) | None => {}
        }
    }

    /// Whether a registry that a probe found well is to be gone to.
    fn is_better(&self, url: usize, timing: Timing, now: Timestamp) -> bool {
        let is_back = |since: Timestamp| (since + self.return_after(url, timing)).has_passed(now);
        let returns = url < self.current && self.known[url].well_since.is_some_and(is_back);
        returns || self.is_long_degraded(timing).is_some_and(|at| at.has_passed(now))
    }

    fn is_long_degraded(&self, timing: Timing) -> Option<Timestamp> {
        self.degraded_since.map(|since| since + timing.degraded_after())
    }

    fn return_after(&self, url: usize, timing: Timing) -> Duration {
        timing.return_after() * 2_u32.pow(self.known[url].short_returns.min(MOST_DOUBLINGS))
    }

    /// When a registry is to be probed; none while there is no reason to.
    fn probe_due(&self, url: usize, timing: Timing) -> Option<Timestamp> {
        let known = &self.known[url];
        if self.in_use_since.is_none() || url == self.current || known.probing {
            return None;
        }
        match self.is_long_degraded(timing) {
            _ if url < self.current => Some(known.probe_at),
            Some(at) => Some(at.max(known.probe_at)),
            None => None,
        }
    }

    /// When [`Failover::next_probe`] has something to do without a further event.
    pub fn poll_timeout(&self, timing: Timing) -> Option<Timestamp> {
        (0..self.known.len()).filter_map(|url| self.probe_due(url, timing)).min()
    }

    /// A better registry, whose watch is to be opened and read to its end.
    pub fn candidate(&self) -> Option<usize> {
        self.candidate.map(|candidate| candidate.url)
    }

    /// The watch of the candidate has told all: it is to be asked to take this cluster.
    pub fn candidate_watched(&mut self, url: usize) {
        if let Some(candidate) = self.candidate.as_mut().filter(|candidate| candidate.url == url) {
            candidate.watched = true;
        }
    }

    /// The registry that is to be asked to take this cluster, while the current one has it.
    pub fn to_ask(&self) -> Option<usize> {
        self.candidate.filter(|candidate| candidate.watched).map(|candidate| candidate.url)
    }

    /// The candidate's watch broke, or it does not take this cluster: it has to be well for as long again.
    pub fn candidate_failed(&mut self, url: usize) {
        if self.candidate() == Some(url) {
            self.candidate = None;
            self.known[url].sick = true;
            self.known[url].well_since = None;
        }
    }

    /// The candidate has taken this cluster.
    pub fn moved(&mut self, timing: Timing, now: Timestamp) {
        let Some(candidate) = self.candidate.take() else { return };
        if let Some(since) = self.in_use_since {
            self.note_use(since, timing, now);
        }
        self.returned = candidate.url < self.current;
        self.current = candidate.url;
        self.had_second_try = false;
        self.attempt += 1;
        self.begin_use(now);
    }
}
