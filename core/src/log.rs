//! The state log: the last state of each object, in the order of the last changes.
//!
//! A watcher is a cursor, the revision up to which it was told; what it still has to be told is what lies behind its
//! cursor. An object that changes moves to the end, so a slow watcher skips states that were superseded, never the
//! last one, and the log needs no more memory than the state, besides a bounded number of removals.
//!
//! Guarantees: replaying [`StateLog::since`] any cursor over what the watcher had at that cursor gives
//! [`StateLog::snapshot`]; a cursor from before a forgotten removal is refused, never answered with a gap.
//!
//! Rejected: a ring of all changes (its memory follows the rate of changes, and one busy Service would push out what
//! others did) and a queue for each watcher (memory for each slow one).

use crate::model::ObjectKey;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// How many removals are kept.
pub const KEPT_REMOVALS: usize = 100_000;

/// A cursor that this log cannot continue from: the watcher needs a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {cursor} is not between {oldest} and {newest}, the revisions that a watch can resume from")]
pub struct TooOld {
    /// The refused cursor.
    pub cursor: u64,
    /// The oldest cursor that would be accepted.
    pub oldest: u64,
    /// The newest.
    pub newest: u64,
}

/// The log, with a payload `V` for each object: what is told of it.
#[derive(Clone, Debug)]
pub struct StateLog<V> {
    entries: BTreeMap<u64, Arc<Entry<V>>>,
    newest_of: BTreeSet<ByKey<V>>,
    removals: BTreeSet<u64>,
    kept_removals: usize,
    oldest: u64,
    newest: u64,
}

/// It is in both orders, of revisions and of keys.
#[derive(Debug)]
struct Entry<V> {
    key: ObjectKey,
    revision: u64,
    /// None is a removal.
    state: Option<V>,
}

/// An entry under its key, of which no two have one.
#[derive(Debug)]
struct ByKey<V>(Arc<Entry<V>>);

impl<V> Clone for ByKey<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Borrow<ObjectKey> for ByKey<V> {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl<V> Ord for ByKey<V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl<V> PartialOrd for ByKey<V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<V> PartialEq for ByKey<V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl<V> Eq for ByKey<V> {}

impl<V> Default for StateLog<V> {
    fn default() -> Self {
        Self::keeping(KEPT_REMOVALS)
    }
}

impl<V> StateLog<V> {
    /// An empty log that keeps the last `kept_removals` removals.
    pub const fn keeping(kept_removals: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            newest_of: BTreeSet::new(),
            removals: BTreeSet::new(),
            kept_removals,
            oldest: 0,
            newest: 0,
        }
    }

    /// Takes the state of `key` as of `revision`, which is above all earlier ones; none removes it. A revision that
    /// does not rise is ignored, since the log has gone past it.
    pub fn append(&mut self, key: ObjectKey, revision: u64, state: Option<V>) {
        if revision <= self.newest {
            return;
        }
        self.newest = revision;
        if state.is_none() {
            self.removals.insert(revision);
        }
        let entry = Arc::new(Entry { key, revision, state });
        if let Some(ByKey(superseded)) = self.newest_of.replace(ByKey(Arc::clone(&entry))) {
            self.entries.remove(&superseded.revision);
            self.removals.remove(&superseded.revision);
        }
        self.entries.insert(revision, entry);
        while self.removals.len() > self.kept_removals {
            self.forget_oldest_removal();
        }
    }

    fn forget_oldest_removal(&mut self) {
        let Some(revision) = self.removals.pop_first() else { return };
        self.oldest = revision;
        if let Some(entry) = self.entries.remove(&revision) {
            self.newest_of.remove(&entry.key);
        }
    }

    /// What a watcher that was told everything up to `cursor` has still to be told, in order; none is a removal.
    ///
    /// # Errors
    /// A removal after `cursor` was forgotten, or the log never came as far: a snapshot is needed.
    pub fn since(&self, cursor: u64) -> Result<impl Iterator<Item = (u64, &ObjectKey, Option<&V>)>, TooOld> {
        if cursor < self.oldest || cursor > self.newest {
            return Err(TooOld { cursor, oldest: self.oldest, newest: self.newest });
        }
        let after = (Bound::Excluded(cursor), Bound::Unbounded);
        Ok(self.entries.range(after).map(|(revision, entry)| (*revision, &entry.key, entry.state.as_ref())))
    }

    /// All objects that there are, with the revision of each: first sections, then headers, then parts.
    pub fn snapshot(&self) -> impl Iterator<Item = (u64, &ObjectKey, &V)> {
        self.snapshot_after(None)
    }

    /// The objects of [`StateLog::snapshot`] that come after `key`, so that a snapshot can be told in batches. What
    /// changes between two batches is what [`StateLog::since`] says of the revision at the first.
    pub fn snapshot_after(&self, key: Option<&ObjectKey>) -> impl Iterator<Item = (u64, &ObjectKey, &V)> {
        let after = (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.newest_of
            .range::<ObjectKey, _>(after)
            .filter_map(|ByKey(entry)| Some((entry.revision, &entry.key, entry.state.as_ref()?)))
    }

    /// The last state of `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<&V> {
        self.newest_of.get(key)?.0.state.as_ref()
    }

    /// The revision reached.
    pub const fn revision(&self) -> u64 {
        self.newest
    }

    /// How many entries there are, removals included.
    #[cfg(any(test, feature = "test-util"))]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[cfg(any(test, feature = "test-util"))]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
