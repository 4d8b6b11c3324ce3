//! Where writes go besides the emulator: to what stale reads see, and to other regions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mcs_core::time::Timestamp;
use serde_json::Value;

use super::Shared;
use super::emulator::Emulator;
use super::global::Link;

/// What reads see that are not consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// Everything.
    None,
    /// What was written so long ago.
    For(Duration),
    /// What was written until they were told to catch up ([`super::Double::catch_up`]).
    Held,
}

/// An item that was written whole, or is gone.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) table: String,
    pub(super) key: Value,
    pub(super) item: Option<Value>,
    pub(super) stamp: Stamp,
}

/// When an item was written, by the clock of the region where that was; nobody sees it. Of two writes of one item, the
/// later one stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    nanos: i128,
    region: String,
}

impl Change {
    /// A write that has no stamp yet.
    pub(super) fn new(table: String, key: Value, item: Option<Value>) -> Self {
        Self { table, key, item, stamp: Stamp::default() }
    }

    fn name(&self) -> (String, String) {
        (self.table.clone(), self.key.to_string())
    }
}

/// What is known of writes besides the items.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) follower: Option<Follower>,
    /// To other regions.
    pub(super) outward: Vec<Arc<Link>>,
    /// From other regions.
    pub(super) inward: Vec<Arc<Link>>,
    /// How much the clock of this region is ahead, in nanoseconds.
    pub(super) ahead: i128,
    /// The last writes of items, by table and key; kept for those that are gone.
    stamps: BTreeMap<(String, String), Stamp>,
}

impl Copies {
    /// An item was written here.
    pub(super) fn note(&mut self, shared: &Shared, mut change: Change) {
        let now = shared.clock.elapsed();
        // Two writes of one moment have an order, as the writes of a partition have.
        let before = self.stamps.get(&change.name()).map_or(i128::MIN, |stamp| stamp.nanos.saturating_add(1));
        let nanos = (i128::from(now.as_nanos()) + self.ahead).max(before);
        change.stamp = Stamp { nanos, region: shared.region.clone() };
        self.outward.iter().for_each(|link| link.send(&change, now));
        self.keep(change, now);
    }

    /// An item comes from another region: it is what it was there, unless it was written here after that.
    fn receive(&mut self, shared: &Shared, change: Change, now: Timestamp) {
        if self.stamps.get(&change.name()).is_some_and(|known| *known >= change.stamp) {
            return;
        }
        let Change { table, key, item, .. } = &change;
        if !shared.emulator.has_table(table) {
            shared.emulator.create_table(table);
        }
        shared.emulator.set(table, key, item.as_ref());
        shared.counts.replicated(item.as_ref());
        self.keep(change, now);
    }

    fn keep(&mut self, change: Change, now: Timestamp) {
        if !self.outward.is_empty() || !self.inward.is_empty() {
            self.stamps.insert(change.name(), change.stamp.clone());
        }
        if let Some(follower) = &mut self.follower {
            follower.note(change, now);
        }
    }

    /// What stale reads see now, where they do.
    pub(super) fn stale(&mut self, now: Timestamp) -> Option<Arc<Emulator>> {
        let follower = self.follower.as_mut()?;
        follower.follow(now);
        Some(Arc::clone(&follower.emulator))
    }
}

impl Shared {
    /// Takes what has come from other regions by now.
    pub(super) async fn arrive(&self) {
        self.arrive_by(self.clock.elapsed()).await;
    }

    /// Takes what comes from other regions until then.
    pub(super) async fn arrive_by(&self, then: Timestamp) {
        let mut copies = self.copies.lock().await;
        let now = self.clock.elapsed();
        for link in copies.inward.clone() {
            for change in link.arrived(then) {
                copies.receive(self, change, now);
            }
        }
    }
}

/// A second emulator, which is behind the first.
pub(super) struct Follower {
    emulator: Arc<Emulator>,
    staleness: Staleness,
    behind: VecDeque<(Timestamp, Change)>,
}

impl Follower {
    /// One that has all that was written until now.
    pub(super) async fn of(shared: &Shared, staleness: Staleness) -> Self {
        let emulator = Emulator::start(shared.stop.clone()).await;
        for table in shared.emulator.tables() {
            emulator.create_table(&table);
            for item in shared.emulator.items(&table) {
                emulator.set(&table, &Value::Null, Some(&item));
            }
        }
        Self { emulator: Arc::new(emulator), staleness, behind: VecDeque::new() }
    }

    /// The same, with another lag of what is written from now on.
    pub(super) fn with(self, staleness: Staleness) -> Self {
        Self { staleness, ..self }
    }

    fn note(&mut self, change: Change, now: Timestamp) {
        let due = match self.staleness {
            Staleness::None => now,
            Staleness::For(lag) => now + lag,
            Staleness::Held => Timestamp::MAX,
        };
        self.behind.push_back((due, change));
    }

    fn follow(&mut self, now: Timestamp) {
        while self.behind.front().is_some_and(|(due, _)| due.has_passed(now)) {
            self.next();
        }
    }

    pub(super) fn catch_up(&mut self) {
        while self.next() {}
    }

    fn next(&mut self) -> bool {
        let Some((_, Change { table, key, item, .. })) = self.behind.pop_front() else { return false };
        if !self.emulator.has_table(&table) {
            self.emulator.create_table(&table);
        }
        self.emulator.set(&table, &key, item.as_ref());
        true
    }
}
