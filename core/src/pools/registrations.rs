//! Registrations with leases, as the memory store keeps them.
//!
//! With a lease of 15 s a pool is listed 14.999 s after its last registration and gone at 15.000 s. The list is exact
//! once one whole lease has passed since the start, since registrations are taken, and since a pause of the process in
//! which leases may have run out whose renewals wait to be read: until then a relay may not have registered yet.
//!
//! The queue holds one deadline a pool, not one a renewal: a deadline that turns out to be an old one is put back
//! with the pool's current one. So a renewal costs one lookup, and memory does not grow with the heartbeat's rate.

use super::{Completeness, Lease, Notice, PackedRegistration, PoolKey, PoolRegistration};
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// While there are pools the machine is asked at least this often, so that a pause of the process shows.
const SWEEP: Duration = Duration::from_secs(1);

/// A step of the list of registrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationChange {
    /// A pool registered, or registered something else.
    Upserted(PackedRegistration),
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
    /// When leases were looked at last.
    swept_at: Timestamp,
    entries: BTreeMap<PoolKey, Registered>,
    deadlines: BinaryHeap<Reverse<(Timestamp, PoolKey)>>,
    changes: VecDeque<RegistrationChange>,
}

#[derive(Debug)]
struct Registered {
    registration: PackedRegistration,
    expires_at: Timestamp,
}

impl Registrations {
    /// An empty store that grants `lease`.
    pub fn new(lease: Lease, now: Timestamp) -> Self {
        Self {
            lease,
            exact_at: now + lease.duration,
            swept_at: now,
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
        let registration = PackedRegistration::from(registration);
        let (key, expires_at) = (registration.key(), now + self.lease.duration);
        let known = self.entries.get_mut(key);
        let is_new = known.is_none();
        if let Some(known) = known
            && known.registration == registration
        {
            known.expires_at = expires_at;
            return self.lease;
        }
        if is_new {
            self.deadlines.push(Reverse((expires_at, key.clone())));
        }
        // Its key too, which keeps in memory what it lies in.
        self.entries.remove(key);
        self.entries.insert(key.clone(), Registered { registration: registration.clone(), expires_at });
        self.changes.push_back(RegistrationChange::Upserted(registration));
        self.lease
    }

    /// Removes what has run out.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.look_for_a_pause(now);
        while let Some(Reverse((deadline, _))) = self.deadlines.peek()
            && deadline.has_passed(now)
        {
            let Some(Reverse((_, key))) = self.deadlines.pop() else { break };
            match self.entries.get_key_value(&key) {
                // Under the key of what is held now: another keeps in memory what it lies in.
                Some((key, known)) if !known.expires_at.has_passed(now) => {
                    self.deadlines.push(Reverse((known.expires_at, key.clone())));
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
        let sweep = SWEEP.min(self.longest_pause() / 2);
        let sweep = (!self.entries.is_empty()).then(|| self.swept_at + sweep);
        lease.into_iter().chain(exact).chain(sweep).min()
    }

    /// The next step of the list; ask until there is none.
    pub fn next_change(&mut self) -> Option<RegistrationChange> {
        self.changes.pop_front()
    }

    /// What is registered, by key.
    pub fn entries(&self) -> impl Iterator<Item = &PackedRegistration> {
        self.entries.values().map(|known| &known.registration)
    }

    /// Whether the pool is registered.
    pub fn has(&self, key: &PoolKey) -> bool {
        self.entries.contains_key(key)
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

    /// A pool whose relay was heard of a heartbeat interval before the process stood still for this long has lapsed,
    /// though its relay may have renewed it.
    const fn longest_pause(&self) -> Duration {
        self.lease.duration.saturating_sub(self.lease.heartbeat_interval)
    }

    fn look_for_a_pause(&mut self, now: Timestamp) {
        if !self.entries.is_empty() && now.since(self.swept_at) >= self.longest_pause() {
            self.exact_at = self.exact_at.max(now + self.lease.duration);
        }
        self.swept_at = self.swept_at.max(now);
    }
}
