//! What reads of the table say of the completeness of the list.

use super::Settings;
use crate::pools::Completeness;
use crate::time::Timestamp;
use std::time::Duration;

/// A read may take so long before the view counts as late: as long as a call may, after which a table that answers nothing
/// shows as one whose reads fail. One that is only slow is not told, since a change of completeness costs all who watch
/// the whole list, twice.
pub const LATE_AFTER: Duration = Duration::from_secs(3);

/// The reads of one process so far.
#[derive(Debug, Default)]
pub(super) struct Reads {
    succeeded: u64,
    last: Option<Last>,
    is_failing: bool,
    exact_at: Timestamp,
    doubted_until: Timestamp,
}

/// The last read that succeeded.
#[derive(Clone, Copy, Debug)]
struct Last {
    began: Timestamp,
    took: Duration,
}

impl Reads {
    /// A read succeeded; gives its number.
    pub(super) fn succeeded(&mut self, settings: &Settings, began: Timestamp, now: Timestamp) -> u64 {
        let bridged = settings.bridged().unwrap_or_default();
        let is_bridged = |last: Last| began.since(last.began) < bridged;
        if self.is_failing || !self.last.is_some_and(is_bridged) {
            self.exact_at = now + settings.lease.duration;
        }
        self.is_failing = false;
        self.last = Some(Last { began, took: now.since(began) });
        self.succeeded += 1;
        self.succeeded
    }

    /// The number of the last read that succeeded.
    pub(super) const fn number(&self) -> u64 {
        self.succeeded
    }

    /// A read failed, or a part of it.
    pub(super) const fn failed(&mut self) {
        self.is_failing = true;
    }

    /// The list is estimated until then.
    pub(super) fn doubt(&mut self, until: Timestamp) {
        self.doubted_until = self.doubted_until.max(until);
    }

    pub(super) const fn has_view(&self) -> bool {
        self.last.is_some()
    }

    pub(super) fn last_began(&self) -> Option<Timestamp> {
        self.last.map(|last| last.began)
    }

    pub(super) fn age(&self, now: Timestamp) -> Option<Duration> {
        self.last.map(|last| now.since(last.began))
    }

    pub(super) fn completeness(&self, settings: &Settings, now: Timestamp) -> Completeness {
        let is_current = self.last.is_some_and(|last| !last.late_at(settings).has_passed(now));
        let is_exact = is_current
            && !self.is_failing
            && self.exact_at.has_passed(now)
            && self.doubted_until.has_passed(now);
        Completeness::exact_if(is_exact)
    }

    /// When the completeness changes by itself next.
    pub(super) fn poll_timeout(&self, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
        let edges = [self.exact_at, self.doubted_until];
        let late_at = self.last.map(|last| last.late_at(settings));
        edges.into_iter().chain(late_at).filter(|edge| !edge.has_passed(now)).min()
    }
}

impl Last {
    /// When the next read should have succeeded, with room for one that takes twice as long; no later than a renewal that
    /// it has can end.
    fn late_at(self, settings: &Settings) -> Timestamp {
        let expected = settings.poll_interval + LATE_AFTER.max(self.took * 2);
        self.began + expected.min(settings.bridged().unwrap_or_default())
    }
}
