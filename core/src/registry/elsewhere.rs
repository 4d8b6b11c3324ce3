//! What a member is to replicas of a shared store: who heard it, what was said of it elsewhere and is not read yet.

use super::hear::Keys;
use crate::ids::{Epoch, ServiceKey};
use crate::time::Timestamp;
use crate::version::Version;
use std::collections::BTreeMap;

/// Of a registry that shares its store with nobody all of it stays empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Elsewhere {
    /// When the last renewal was that was taken here, on the process's clock.
    pub(super) here: Option<Timestamp>,
    /// The first item that told that.
    pub(super) told_in: Option<u64>,
    /// Who told of the newest renewal; none: it was taken here, or none was since the member is known.
    pub(super) told_by: Option<Epoch>,
    /// When a renewal was last heard of, here or elsewhere, on the process's clock.
    pub(super) heard_at: Timestamp,
    /// The beat that says that its verdict is due.
    pub(super) asked: Option<u64>,
    /// When that was made, on the process's clock.
    pub(super) asked_at: Timestamp,
    /// The newest version that anybody named.
    pub(super) awaited: Version,
    /// What is to be read of it.
    pub(super) unread: Option<Unread>,
    /// Since when its record is missing, on the process's clock.
    pub(super) missing_since: Option<Timestamp>,
    /// What was deleted here after the version as of which the set is known. It tells a record that is old from a new one.
    pub(super) deleted: BTreeMap<ServiceKey, Version>,
}

impl Elsewhere {
    /// Takes a renewal that was taken here.
    pub(super) fn renewed_here(&mut self, now: Timestamp) {
        self.here = Some(now);
        self.told_in = None;
        self.told_by = None;
        self.heard_at = now;
        self.asked = None;
    }

    /// Notes a delete; of so many exports as a member may have, and no more.
    pub(super) fn note_deleted(&mut self, key: ServiceKey, version: Version, limit: usize) {
        if self.deleted.len() < limit.saturating_mul(2) {
            self.deleted.insert(key, version);
        }
    }
}

/// What is to be read of a member, and when.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    /// What.
    pub(super) keys: Keys,
    /// Not before then, on the process's clock.
    pub(super) at: Timestamp,
    /// How often it was read since it was to be, and did not fit.
    pub(super) tries: u32,
    /// Whether what was read last fitted together, and is only older than what was named: no export is missing.
    pub(super) fits: bool,
}
