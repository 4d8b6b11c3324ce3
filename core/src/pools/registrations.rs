//! Registrations with leases, as the memory store keeps them.
//!
//! With a lease of 15 s a pool is listed 14.999 s after its last registration and gone at 15.000 s. The list is exact
//! once one whole lease has passed since the start, and since registrations are taken: until then a relay may not have
//! registered yet.
//!
//! The queue holds one deadline a pool, not one a renewal: a deadline that turns out to be an old one is put back
//! with the pool's current one. So a renewal costs one lookup, and memory does not grow with the heartbeat's rate.

use super::{Completeness, Lease, Notice, PoolKey, PoolRegistration};
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

/// A step of the list of registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationChange {
    /// A pool registered, or registered something else.
    Upserted(Arc<PoolRegistration>),
    /// A pool's lease ran out.
    Removed(PoolKey),
    /// For the log.
    Notice(Notice),
}

/// The registrations of one process.
#[derive(Debug)]
pub struct Registrations {
    lease: Lease,
    exact_at: Timestamp,
    entries: BTreeMap<PoolKey, Registered>,
    deadlines: BinaryHeap<Reverse<(Timestamp, PoolKey)>>,
    changes: VecDeque<RegistrationChange>,
}

#[derive(Debug)]
struct Registered {
    registration: Arc<PoolRegistration>,
    expires_at: Timestamp,
}

impl Registrations {
    /// An empty store that grants `lease`.
    pub fn new(lease: Lease, now: Timestamp) -> Self {
        Self {
            lease,
            exact_at: now + lease.duration,
            entries: BTreeMap::new(),
            deadlines: BinaryHeap::new(),
            changes: VecDeque::new(),
        }
    }

    /// What it grants.
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// Registrations are taken from now on: until one lease later a relay may not have registered yet.
    pub fn opened(&mut self, now: Timestamp) {
        self.exact_at = self.exact_at.max(now + self.lease.duration);
    }

    /// Registers a pool or renews its lease. The same payload again is no change.
    pub fn register(&mut self, registration: PoolRegistration, now: Timestamp) -> Lease {
        self.handle_timeout(now);
        let expires_at = now + self.lease.duration;
        match self.entries.entry(registration.key.clone()) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.expires_at = expires_at;
                if *known.registration != registration {
                    known.registration = Arc::new(registration);
                    self.changes.push_back(RegistrationChange::Upserted(known.registration.clone()));
                }
            }
            Entry::Vacant(free) => {
                self.deadlines.push(Reverse((expires_at, registration.key.clone())));
                let registration = Arc::new(registration);
                self.changes.push_back(RegistrationChange::Upserted(registration.clone()));
                free.insert(Registered { registration, expires_at });
            }
        }
        self.lease
    }

    /// Removes what has run out.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(Reverse((deadline, _))) = self.deadlines.peek()
            && deadline.has_passed(now)
        {
            let Some(Reverse((_, key))) = self.deadlines.pop() else { break };
            match self.entries.get(&key).map(|known| known.expires_at) {
                Some(expires_at) if !expires_at.has_passed(now) => {
                    self.deadlines.push(Reverse((expires_at, key)));
                }
                Some(_) => {
                    self.entries.remove(&key);
                    self.changes.push_back(RegistrationChange::Removed(key));
                }
                None => {}
            }
        }
    }

    /// When to call [`Registrations::handle_timeout`] next, at the latest.
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let lease = self.deadlines.peek().map(|Reverse((deadline, _))| *deadline);
        let exact = Some(self.exact_at).filter(|at| !at.has_passed(now));
        lease.into_iter().chain(exact).min()
    }

    /// The next step of the list; ask until there is none.
    pub fn next_change(&mut self) -> Option<RegistrationChange> {
        self.changes.pop_front()
    }

    /// What is registered, by key.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<PoolRegistration>> {
        self.entries.values().map(|known| &known.registration)
    }

    /// How many pools are registered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether every live pool has had the time to register.
    pub const fn completeness(&self, now: Timestamp) -> Completeness {
        Completeness::exact_if(self.exact_at.has_passed(now))
    }
}
