//! A model of a table of several regions: each has its own, what is written in one arrives in the others later, item by item,
//! and the last writer wins by a time that nobody sees.

use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::model::{Export, MemberState};
use mcs_core::registry::{Recorded, Who};
use mcs_core::replicas::{Beat, News};
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Beat(Epoch),
    News(Epoch),
    Record(Who),
    Export(Who, ServiceKey),
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Beat(Beat),
    News(News),
    Record(Recorded),
    Export(Export),
    /// In place of a record: that it was removed as of this version.
    Removed(Version),
}

impl Value {
    /// What the condition of a write compares.
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Self::Record(record) => Some(record.version),
            Self::Export(export) => Some(export.version),
            Self::Removed(as_of) => Some(*as_of),
            Self::Beat(_) | Self::News(_) => None,
        }
    }
}

/// By whose time one write is later than another.
pub(crate) type Stamp = (u64, u64);

#[derive(Clone, Debug)]
struct Item {
    stamp: Stamp,
    value: Option<Value>,
    /// What a reader may still see for a moment.
    before: Option<Value>,
    changed_at: Timestamp,
}

/// One region's table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    items: BTreeMap<Key, Item>,
    /// Until when it does not answer.
    pub(crate) away: Timestamp,
    /// Until when it refuses half of the calls.
    pub(crate) throttled: Timestamp,
}

impl Table {
    /// Whether what stands is newer than this version.
    pub(crate) fn holds_newer(&self, key: &Key, version: Version) -> bool {
        self.value(key).and_then(Value::version).is_some_and(|held| held > version)
    }

    /// Whether a write is refused: what stands is newer, or says that a member was removed of which the write says that
    /// its lease ran out.
    pub(crate) fn refuses(&self, key: &Key, value: &Value) -> bool {
        let is_verdict = matches!(value, Value::Record(record) if record.state == MemberState::Expired);
        let was_removed = matches!(self.value(key), Some(Value::Removed(_)));
        (is_verdict && was_removed) || value.version().is_some_and(|version| self.holds_newer(key, version))
    }

    /// Whether an export stands as it would be written.
    pub(crate) fn has(&self, key: &Key, export: &Export) -> bool {
        matches!(self.value(key), Some(Value::Export(held))
            if held.version == export.version && held.leaf == export.leaf)
    }

    pub(crate) fn stamp_of(&self, key: &Key) -> u64 {
        self.items.get(key).map_or(0, |item| item.stamp.0)
    }

    /// Takes a write, unless a later one is there.
    pub(crate) fn put(&mut self, key: Key, stamp: Stamp, value: Option<Value>, now: Timestamp) -> bool {
        let known = self.items.get(&key);
        if known.is_some_and(|item| item.stamp >= stamp) {
            return false;
        }
        let before = known.and_then(|item| item.value.clone());
        self.items.insert(key, Item { stamp, value, before, changed_at: now });
        true
    }

    /// What a reader sees of an item at a moment; `lags` says whether it is one that lags.
    pub(crate) fn get(&self, key: &Key, now: Timestamp, lags: bool) -> Option<Value> {
        let item = self.items.get(key)?;
        let old = lags && now.since(item.changed_at).as_millis() < 300;
        if old { item.before.clone() } else { item.value.clone() }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.items.keys()
    }

    /// As it is.
    pub(crate) fn value(&self, key: &Key) -> Option<&Value> {
        self.items.get(key)?.value.as_ref()
    }
}
