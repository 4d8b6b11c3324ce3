//! What a member is to replicas of a shared store: who heard it, what was said of it elsewhere and is not read yet.

use super::Member;
use super::hear::{Keys, TELL_AFTER};
use crate::ids::{Epoch, ServiceKey};
use crate::time::Timestamp;
use crate::version::{Sum, Version};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The record that does not fit what is read of exports.
    pub(super) misfit: Option<Misfit>,
    /// Since when its record is missing, on the process's clock.
    pub(super) missing_since: Option<Timestamp>,
    /// Whether all of it was written again since its record was last there.
    pub(super) rewritten: bool,
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

    /// Whether nobody is likely to have what a record stands for: only its exports arriving after a long time, or news of
    /// it, change that.
    pub(super) fn is_given_up(&self) -> bool {
        self.misfit.is_some_and(|misfit| misfit.readings > TELL_AFTER)
    }

    /// Takes notice that what was read did not fit this record. After another one was given up, its tries begin anew.
    pub(super) fn does_not_fit(&mut self, version: Version, sum: Sum) {
        match self.misfit.as_mut().filter(|known| (known.version, known.sum) == (version, sum)) {
            Some(known) => known.readings = known.readings.saturating_add(1),
            None => {
                if self.is_given_up() {
                    self.unread = None;
                }
                self.misfit = Some(Misfit { version, sum, readings: 1 });
            }
        }
    }

    /// Notes a delete; of so many exports as a member may have, and no more.
    pub(super) fn note_deleted(&mut self, key: ServiceKey, version: Version, limit: usize) {
        if self.deleted.len() < limit.saturating_mul(2) {
            self.deleted.insert(key, version);
        }
    }
}

/// A record that does not fit what is read of exports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Misfit {
    pub(super) version: Version,
    sum: Sum,
    /// How often that was read.
    readings: u32,
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

impl Unread {
    /// What is to be read now, if anything, and after how many tries. Until it is settled it is asked for again, after a
    /// `pause` that grows with these.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        pause: impl FnOnce(u32) -> Duration,
    ) -> Option<(Keys, u32)> {
        if !self.at.has_passed(now) {
            return None;
        }
        let tries = self.tries;
        self.at = now + pause(tries);
        self.tries = tries.saturating_add(1);
        Some((std::mem::replace(&mut self.keys, Keys::Record), tries))
    }
}

impl Member {
    /// Something of it is to be read, now.
    pub(super) fn ask_for(&mut self, keys: Keys, now: Timestamp) {
        let unread = self.elsewhere.unread.take();
        let unread = unread.unwrap_or(Unread { keys: Keys::Record, at: now, tries: 0, fits: false });
        self.elsewhere.unread = Some(Unread { keys: unread.keys.and(keys), at: now, ..unread });
    }

    /// This is to be read again, not before `at` if it was not asked for before: what was read did not fit, or `fits` and is
    /// older than what was named.
    pub(super) fn ask_again(&mut self, keys: Keys, fits: bool, at: Timestamp) {
        let unread = self.elsewhere.unread.take();
        let unread = unread.unwrap_or(Unread { keys: Keys::Record, at, tries: 1, fits });
        let (tries, at) = (unread.tries.max(1), unread.at.max(at));
        self.elsewhere.unread = Some(Unread { keys: unread.keys.and(keys), at, tries, fits });
    }
}
