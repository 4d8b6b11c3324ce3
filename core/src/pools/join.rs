//! Registered pools ⋈ imported pools → listed pools.
//!
//! A pool is listed while EndpointSlices show a Ready relay of it *and* its registration holds. Slices give
//! addresses; the registration gives the model, capabilities, capacity and location.
//!
//! Guarantees: the list depends on the last state of both sides only, not on the order in which they came; a change
//! that no reader can see is not told; a pool that one side alone has had for two leases is told once, and again only
//! after it was on both sides or neither, or after a relist, which may have changed everything.
//!
//! Rejected: joining when the list is read (a reader would pay for every pool on every read, and a watch could not
//! tell what changed); a third map of joined pools (it can only disagree with the two it is made of).

use super::{Notice, PackedRegistration, PoolFacts, PoolKey, PoolListing};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What one of the sides tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEvent {
    /// A pool registered, or registered something else.
    Registered(PackedRegistration),
    /// A registration ran out.
    Lapsed(PoolKey),
    /// A pool has a Ready relay, or other addresses than before.
    Live(PoolKey, Arc<PoolFacts>),
    /// A pool has no Ready relay any more.
    Gone(PoolKey),
    /// The slices were listed anew, and what that changed was told.
    Relisted,
}

/// A step of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinChange {
    /// A pool is listed, or listed otherwise than before.
    Upserted(PoolListing),
    /// A pool is not listed any more.
    Removed(PoolKey),
    /// For the log.
    Notice(Notice),
}

/// The join of one process.
#[derive(Debug)]
pub struct Join {
    patience: Duration,
    /// Before the first list of slices every pool looks one-sided.
    is_synced: bool,
    registered: BTreeMap<PoolKey, PackedRegistration>,
    live: BTreeMap<PoolKey, Arc<PoolFacts>>,
    /// When a pool that one side alone has is to be told; none once it was.
    one_sided: BTreeMap<PoolKey, Option<Timestamp>>,
    deadlines: BTreeSet<(Timestamp, PoolKey)>,
    changes: VecDeque<JoinChange>,
}

impl Join {
    /// An empty join that tells of a one-sided pool after two leases of `lease`.
    pub fn new(lease: Duration) -> Self {
        Self {
            patience: lease.saturating_mul(2),
            is_synced: false,
            registered: BTreeMap::new(),
            live: BTreeMap::new(),
            one_sided: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            changes: VecDeque::new(),
        }
    }

    /// Takes in what a side tells.
    pub fn handle_event(&mut self, event: JoinEvent, now: Timestamp) {
        self.handle_timeout(now);
        let key = match &event {
            JoinEvent::Registered(registration) => registration.key().clone(),
            JoinEvent::Live(key, _) | JoinEvent::Lapsed(key) | JoinEvent::Gone(key) => key.clone(),
            JoinEvent::Relisted => return self.relisted(now),
        };
        let before = self.listing(&key);
        match event {
            JoinEvent::Registered(registration) => {
                // Its key too, which keeps in memory what it lies in.
                self.registered.remove(&key);
                self.registered.insert(registration.key().clone(), registration);
            }
            JoinEvent::Lapsed(_) => drop(self.registered.remove(&key)),
            JoinEvent::Live(_, facts) => drop(self.live.insert(key.clone(), facts)),
            JoinEvent::Gone(_) => drop(self.live.remove(&key)),
            JoinEvent::Relisted => {}
        }
        let after = self.listing(&key);
        self.watch_sides(&key, now);
        match (before, after) {
            (before, Some(after)) if before.as_ref() != Some(&after) => {
                self.changes.push_back(JoinChange::Upserted(after));
            }
            (Some(_), None) => self.changes.push_back(JoinChange::Removed(key)),
            _ => {}
        }
    }

    /// Tells of pools that were one-sided for too long.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some((deadline, key)) = self.deadlines.pop_first() {
            if !deadline.has_passed(now) {
                self.deadlines.insert((deadline, key));
                return;
            }
            self.one_sided.insert(key.clone(), None);
            let notice = if self.live.contains_key(&key) {
                Notice::NotRegistered(key)
            } else {
                Notice::NotImported(key)
            };
            self.changes.push_back(JoinChange::Notice(notice));
        }
    }

    /// When to call [`Join::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The next step of the list; ask until there is none.
    pub fn next_change(&mut self) -> Option<JoinChange> {
        self.changes.pop_front()
    }

    fn listing(&self, key: &PoolKey) -> Option<PoolListing> {
        let registration = self.registered.get(key)?.clone();
        Some(PoolListing { registration, facts: Some(self.live.get(key)?.clone()) })
    }

    /// Starts or stops the count of a pool whose sides may have changed.
    fn watch_sides(&mut self, key: &PoolKey, now: Timestamp) {
        let is_one_sided = self.registered.contains_key(key) != self.live.contains_key(key);
        if is_one_sided && self.is_synced && !self.one_sided.contains_key(key) {
            let deadline = now + self.patience;
            self.one_sided.insert(key.clone(), Some(deadline));
            self.deadlines.insert((deadline, key.clone()));
        } else if !is_one_sided && let Some(Some(deadline)) = self.one_sided.remove(key) {
            self.deadlines.remove(&(deadline, key.clone()));
        }
    }

    fn relisted(&mut self, now: Timestamp) {
        self.is_synced = true;
        self.one_sided.clear();
        self.deadlines.clear();
        let keys: BTreeSet<PoolKey> = self.registered.keys().chain(self.live.keys()).cloned().collect();
        for key in &keys {
            self.watch_sides(key, now);
        }
    }
}
