//! What this replica changed lately, for the others to read: the ring behind its [`News`] item.
//!
//! What is told is already stored. Changes that wait for the next write of the item are told together, and those of one
//! member in one entry where they are many: who reads it compares the member as a whole. An entry is there for as long
//! as a reader may need that refreshes seldom; one that reads less often sees that it missed some, and looks at
//! everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mcs_core::ids::{ClusterUid, Epoch, ServiceKey};
use mcs_core::replicas::{KeyTag, News, NewsEntry, UidTag};
use mcs_core::time::Timestamp;
use mcs_core::version::Version;

use crate::store::NEWS_ENTRIES;

/// An entry is told for so long, whatever the lease: 30 refreshes by default.
const KEPT: Duration = Duration::from_secs(60);

/// Exports are named while there is room for all that was told within this time, two refreshes by default: a reader that
/// keeps up finds no entry missing. Where more has changed, each member is told as a whole.
const RECENT: Duration = Duration::from_secs(4);

/// The item is written at most this often: what changes meanwhile is told together, four writes a second at most.
pub(crate) const APART: Duration = Duration::from_millis(250);

/// What of a member changed.
#[derive(Debug, Default)]
struct Changed {
    /// Its newest act that is stored.
    version: Version,
    /// Its exports.
    keys: BTreeSet<KeyTag>,
}

/// What was told, and what is to be told.
#[derive(Debug)]
pub(crate) struct Ring {
    epoch: Epoch,
    /// The number of the first entry.
    first: u64,
    entries: VecDeque<(Timestamp, NewsEntry)>,
    untold: BTreeMap<UidTag, Changed>,
    /// Whether the item as it was written last lacks an entry.
    is_behind: bool,
}

impl Ring {
    /// Nothing was changed by the process `epoch`.
    pub(crate) const fn new(epoch: Epoch) -> Self {
        Self { epoch, first: 0, entries: VecDeque::new(), untold: BTreeMap::new(), is_behind: false }
    }

    /// The store holds new records of a member, up to this act of it: its own, and these of its exports.
    pub(crate) fn tell<'a>(
        &mut self,
        uid: &ClusterUid,
        version: Version,
        keys: impl IntoIterator<Item = &'a ServiceKey>,
    ) {
        let changed = self.untold.entry(UidTag::of(uid)).or_default();
        changed.version = changed.version.max(version);
        changed.keys.extend(keys.into_iter().map(KeyTag::of));
        self.is_behind = true;
    }

    /// This is to be told, too.
    pub(crate) fn append(&mut self, NewsEntry { member, key, version }: NewsEntry) {
        let changed = self.untold.entry(member).or_default();
        changed.version = changed.version.max(version);
        changed.keys.extend(key);
        self.is_behind = true;
    }

    /// Whether the item is to be written.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The item as it is to be at `now`.
    pub(crate) fn item(&mut self, now: Timestamp) -> News {
        let named: usize = self.untold.values().map(|changed| changed.keys.len().max(1)).sum();
        let is_recent = |(told, _): &&(Timestamp, _)| !(*told + RECENT).has_passed(now);
        let recent = self.entries.iter().rev().take_while(is_recent).count();
        for (member, Changed { version, keys }) in std::mem::take(&mut self.untold) {
            let mut tell = |key| self.entries.push_back((now, NewsEntry { member, key, version }));
            if keys.is_empty() || recent + named > NEWS_ENTRIES {
                tell(None);
            } else {
                keys.into_iter().for_each(|key| tell(Some(key)));
            }
        }
        while self.entries.len() > NEWS_ENTRIES
            || self.entries.front().is_some_and(|(told, _)| (*told + KEPT).has_passed(now))
        {
            self.entries.pop_front();
            self.first += 1;
        }
        let entries = self.entries.iter().map(|(_, entry)| *entry).collect();
        News { epoch: self.epoch, first: self.first, entries }
    }

    /// The item was written as it was given last.
    pub(crate) fn written(&mut self) {
        self.is_behind = !self.untold.is_empty();
    }
}

#[cfg(test)]
mod tests;
