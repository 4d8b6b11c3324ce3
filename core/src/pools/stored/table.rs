//! What the table has, and what happens between it and a replica.

use crate::ids::Region;
use crate::pools::PackedRegistration;
use crate::time::Timestamp;
use std::time::Duration;

/// A moment on somebody's wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallMoment(i64);

impl WallMoment {
    /// The moment `millis` milliseconds after 1970.
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The millisecond in which so many nanoseconds have passed since 1970; the nearest that can be counted.
    pub fn from_unix_nanos(nanos: i128) -> Self {
        let millis = nanos.div_euclid(1_000_000);
        Self(i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Milliseconds since 1970.
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; none when it is before it.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let passed = i128::from(self.0) - i128::from(earlier.0);
        u64::try_from(passed).ok().map(Duration::from_millis)
    }
}

/// An item of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// What was registered.
    pub registration: PackedRegistration,
    /// When that was, by its writer's clock.
    pub renewed_at: WallMoment,
    /// The lease that its writer granted.
    pub lease: Duration,
    /// The region that it was written through.
    pub region: Region,
}

impl StoredItem {
    pub(super) fn is_same_renewal(&self, other: &Self) -> bool {
        let Self { registration, renewed_at, lease, region } = self;
        (*renewed_at, *lease, region) == (other.renewed_at, other.lease, &other.region)
            && registration.says_the_same(&other.registration)
    }
}

/// An item that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its key, for people.
    pub item: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The table, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRead {
    /// When the read began.
    pub began: Timestamp,
    /// What could be decoded.
    pub items: Vec<StoredItem>,
    /// What could not.
    pub unreadable: Vec<Unreadable>,
}

/// What happened between this replica and the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableNews {
    /// It was read.
    Read(TableRead),
    /// A part of it was not read. What was, counts: a renewal is one, wherever the rest is.
    ReadInPart(TableRead),
    /// This replica wrote a registration.
    Written {
        /// Which.
        registration: PackedRegistration,
        /// What it wrote as `renewed_at`.
        renewed_at: WallMoment,
        /// When the write began.
        began: Timestamp,
    },
    /// A registration was not written, though its relay lives.
    NotWritten,
}
