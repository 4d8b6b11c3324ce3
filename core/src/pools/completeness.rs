//! Whether the view of a watched source may be taken as exact: from errors, signs of life and silence.
//!
//! A *run* of errors begins with an error and ends with a sign of life (a completed relist; an event, bookmark or
//! accepted watch) or with two minutes without an error. While a run has lasted one minute the view is estimated.
//! Both edges are deadlines, so the flag moves by itself and does not wait for the next error. A source that stays
//! silent shows as errors before the two minutes are over ([`ERROR_WITHIN`]), which they rest on.

use super::Completeness;
use crate::time::Timestamp;
use std::time::Duration;

/// A view is estimated once its errors span this long.
pub const STALE_AFTER: Duration = Duration::from_secs(60);
/// A run of errors is over when none came for this long.
pub const QUIET_AFTER: Duration = Duration::from_secs(120);
/// A source that has stopped answering must show as an error within less than this, so that it never passes for a
/// quiet one: half a minute is left for the pause before it is asked.
pub const ERROR_WITHIN: Duration = Duration::from_secs(90);

/// What is known of one watched source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceHealth {
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: Timestamp,
    last: Timestamp,
}

impl Run {
    /// Its edges, in the order of time.
    fn stale_at(self) -> Timestamp {
        self.first + STALE_AFTER
    }

    fn over_at(self) -> Timestamp {
        self.last + QUIET_AFTER
    }
}

impl SourceHealth {
    /// The source answered with an error, or not at all.
    pub fn failed(&mut self, now: Timestamp) {
        self.handle_timeout(now);
        let first = self.run.map_or(now, |run| run.first);
        self.run = Some(Run { first, last: now });
    }

    /// The source showed a sign of life that proves the view to be current. The begin of a relist is none.
    pub const fn alive(&mut self) {
        self.run = None;
    }

    /// Ends a run that has fallen silent.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.run.is_some_and(|run| run.over_at().has_passed(now)) {
            self.run = None;
        }
    }

    /// When [`SourceHealth::completeness`] changes by itself next.
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let run = self.run?;
        [run.stale_at(), run.over_at()].into_iter().filter(|edge| !edge.has_passed(now)).min()
    }

    /// Whether the view is current.
    pub fn completeness(&self, now: Timestamp) -> Completeness {
        let stale = |run: Run| run.stale_at().has_passed(now) && !run.over_at().has_passed(now);
        Completeness::exact_if(!self.run.is_some_and(stale))
    }
}
