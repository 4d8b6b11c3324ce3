//! How long a renewal holds: the one place where wall clocks are compared.

use super::{Settings, StoredItem, WallMoment};
use crate::time::Timestamp;
use std::time::Duration;

/// When and how an item was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) now: Timestamp,
    pub(super) wall: WallMoment,
    /// It was made after this, where that is known.
    pub(super) after: Option<Timestamp>,
}

/// How long a renewal holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) live: Timestamp,
    pub(super) listed: Timestamp,
}

/// How far a pool is on its way off the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// Its lease has run out in another region, and a renewal may be on its way.
    Grace,
    /// It is in the table and not listed.
    Lapsed,
}

impl Sight {
    /// By how much more than the skew the clock of who wrote `item` is at least off, where that shows.
    pub(super) fn apart(self, item: &StoredItem, settings: &Settings) -> Option<Duration> {
        let Self { now, wall, after } = self;
        let behind = || {
            let after = after.filter(|_| item.region == settings.region)?;
            wall.since(item.renewed_at)?.checked_sub(now.since(after))
        };
        item.renewed_at.since(wall).or_else(behind).filter(|apart| *apart > settings.skew)
    }
}

impl Ends {
    /// Those of a renewal that is seen so.
    pub(super) fn of(item: &StoredItem, sight: Sight, settings: &Settings) -> Self {
        let Sight { now, wall, after } = sight;
        let (holds, is_own) = (item.lease + settings.skew, item.region == settings.region);
        // Of the future: it was made at this moment at the latest.
        let age = wall.since(item.renewed_at).unwrap_or_default();
        let by_wall = |allowed: Duration| now + allowed.saturating_sub(age);
        let at_least = after.filter(|_| is_own).map_or(Timestamp::ZERO, |after| after + item.lease);
        let live = by_wall(holds).max(at_least);
        let grace = if is_own { Duration::ZERO } else { settings.grace };
        Self { live, listed: by_wall(holds + grace).max(live) }
    }

    /// What a pool is in then.
    pub(super) const fn phase(self, now: Timestamp) -> Phase {
        if !self.live.has_passed(now) {
            Phase::Live
        } else if !self.listed.has_passed(now) {
            Phase::Grace
        } else {
            Phase::Lapsed
        }
    }
}
