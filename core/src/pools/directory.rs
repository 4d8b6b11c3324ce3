//! One process's directory of pools and router replicas: the machines of [`super`], wired up.
//!
//! The list as it was, and the changes drained since, give the list as it is. A view is there once the first
//! complete list of slices is; what comes before that is not told.

use super::completeness::SourceHealth;
use super::index::{Index, IndexChange, SliceEvent};
use super::join::{Join, JoinChange, JoinEvent};
use super::naming::{Naming, Part, Services};
use super::registrations::RegistrationChange;
use super::storage::Storage;
use super::stored::{TableNews, WallMoment};
use super::{Completeness, Notice, PoolKey, PoolListing, PoolRegistration, ReplicaId, RouterReplica};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Where pools and router replicas come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Pools are those that registered; the router replicas are given.
    Registrations(Vec<RouterReplica>),
    /// Pools are registered and imported; router replicas are imported.
    Slices(Naming, Services),
}

/// What happened at the watch of EndpointSlices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNews {
    /// It told of slices.
    Event(SliceEvent),
    /// It was accepted, or a bookmark came: the view is current.
    Alive,
    /// A list or watch failed.
    Failed,
}

/// A step of the two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pool is listed, or listed otherwise than before.
    PoolUpserted(PoolListing),
    /// A pool is not listed any more.
    PoolRemoved(PoolKey),
    /// A router replica is listed, or listed otherwise than before.
    ReplicaUpserted(RouterReplica),
    /// A router replica is not listed any more.
    ReplicaRemoved(ReplicaId),
    /// The lists are now so complete.
    Completeness(ListsCompleteness),
    /// For the log.
    Notice(Notice),
}

/// How complete the two lists are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListsCompleteness {
    /// The list of pools.
    pub pools: Completeness,
    /// The list of router replicas.
    pub routers: Completeness,
}

/// The directory of one process.
#[derive(Debug)]
pub struct Directory {
    registrations: Storage,
    imports: Option<Imports>,
    /// The most pools that may be registered.
    most_pools: usize,
    /// Whether the first view was there, since when registrations are taken.
    is_open: bool,
    told: ListsCompleteness,
    changes: VecDeque<Change>,
}

#[derive(Debug)]
struct Imports {
    naming: Naming,
    services: Services,
    index: Index,
    join: Join,
    health: SourceHealth,
}

/// There are as many pools as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{most} pools are registered, the most that there may be")]
pub struct Full {
    /// So many.
    pub most: usize,
}

/// How large the parts of a directory are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Registered pools.
    pub registrations: usize,
    /// Pools with a Ready relay among the imported slices.
    pub live: usize,
    /// Imported slices of pools and of the router.
    pub slices: usize,
}

impl Directory {
    /// An empty directory; only given router replicas are in it.
    pub fn new(registrations: Storage, source: Source, now: Timestamp) -> Self {
        let lease = registrations.lease();
        let told = ListsCompleteness {
            pools: registrations.completeness(now),
            routers: Completeness::exact_if(matches!(source, Source::Registrations(_))),
        };
        let mut changes = VecDeque::new();
        let imports = match source {
            Source::Registrations(replicas) => {
                changes.extend(replicas.into_iter().map(Change::ReplicaUpserted));
                None
            }
            Source::Slices(naming, services) => {
                changes.extend(services.too_long(naming, [Part::Router]).into_iter().map(Change::Notice));
                let (index, join) = (Index::new(services.clone()), Join::new(lease.duration));
                let health = SourceHealth::default();
                Some(Imports { naming, services, index, join, health })
            }
        };
        let is_open = imports.is_none() && registrations.has_view();
        Self { registrations, imports, most_pools: usize::MAX, is_open, told, changes }
    }

    /// The same with a bound on its pools.
    #[must_use]
    pub fn with_most_pools(mut self, most: usize) -> Self {
        self.most_pools = most;
        self
    }

    /// Whether the pool may register: one that is registered always may.
    ///
    /// # Errors
    /// There are as many others as there may be.
    pub fn admit(&self, key: &PoolKey) -> Result<(), Full> {
        let Self { registrations, most_pools: most, .. } = self;
        if registrations.len() < *most || registrations.has(key) { Ok(()) } else { Err(Full { most: *most }) }
    }

    /// Registers a pool in memory or renews its lease; without effect on a table. Whether it may is for
    /// [`Directory::admit`] to say.
    pub fn register(&mut self, registration: PoolRegistration, now: Timestamp) {
        self.registrations.register(registration, now);
        self.settle(now);
    }

    /// Takes in what happened between this process and the table, at `wall` on its wall clock; without effect on memory.
    pub fn handle_table(&mut self, news: TableNews, now: Timestamp, wall: WallMoment) {
        self.registrations.handle_table(news, now, wall);
        self.settle(now);
    }

    /// Whether the table has this registration, renewed so lately that it need not be written.
    pub fn is_renewed(&self, registration: &PoolRegistration, now: Timestamp, wall: WallMoment) -> bool {
        self.registrations.is_renewed(registration, now, wall)
    }

    /// Takes in what happened at the watch; without effect where none is kept.
    pub fn handle_watch(&mut self, news: WatchNews, now: Timestamp) {
        let Some(imports) = &mut self.imports else { return };
        match news {
            WatchNews::Event(event) => {
                let is_listing = matches!(event, SliceEvent::Init | SliceEvent::InitApply(..));
                imports.index.handle_event(event);
                if !is_listing {
                    imports.health.alive();
                }
            }
            WatchNews::Alive => imports.health.alive(),
            WatchNews::Failed => imports.health.failed(now),
        }
        self.settle(now);
    }

    /// Does what is due: leases, the count of one-sided pools, completeness.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.registrations.handle_timeout(now);
        if let Some(imports) = &mut self.imports {
            imports.join.handle_timeout(now);
            imports.health.handle_timeout(now);
        }
        self.settle(now);
    }

    /// When to call [`Directory::handle_timeout`] next, at the latest; `now` when something is due.
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        // The edges of completeness that have passed are no deadlines any more.
        if self.completeness(now) != self.told {
            return Some(now);
        }
        let imports = self.imports.as_ref();
        let join = imports.and_then(|imports| imports.join.poll_timeout());
        let health = imports.and_then(|imports| imports.health.poll_timeout(now));
        [self.registrations.poll_timeout(now), join, health].into_iter().flatten().min()
    }

    /// The next step of the lists; ask until there is none.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Whether the first view is there of all that it needs; before that, the lists must not be read.
    pub fn has_view(&self) -> bool {
        self.has_slices() && self.registrations.has_view()
    }

    /// Whether the first view of EndpointSlices is there, where it needs one.
    pub fn has_slices(&self) -> bool {
        self.imports.as_ref().is_none_or(|imports| imports.index.is_synced())
    }

    /// How old the view of the table is; none of memory, nor before the first view.
    pub fn table_age(&self, now: Timestamp) -> Option<Duration> {
        self.registrations.age(now)
    }

    /// How complete the lists are.
    pub fn completeness(&self, now: Timestamp) -> ListsCompleteness {
        let routers = self.imports.as_ref().map_or(Completeness::Exact, |imports| {
            Completeness::exact_if(imports.index.is_synced()).and(imports.health.completeness(now))
        });
        ListsCompleteness { pools: self.registrations.completeness(now).and(routers), routers }
    }

    /// How large its parts are.
    pub fn sizes(&self) -> Sizes {
        let index = self.imports.as_ref().map(|imports| &imports.index);
        Sizes {
            registrations: self.registrations.len(),
            live: index.map_or(0, |index| index.pools().len()),
            slices: index.map_or(0, Index::slices),
        }
    }

    /// Passes the steps of each machine on to the next.
    fn settle(&mut self, now: Timestamp) {
        if !self.is_open && self.has_view() {
            self.is_open = true;
            self.registrations.opened(now);
        }
        // What is removed while the list is not exact comes after that was said, and before it is exact again.
        let completeness = self.completeness(now);
        if completeness.pools > self.told.pools || completeness.routers > self.told.routers {
            self.tell(completeness);
        }
        while let Some(change) = self.registrations.next_change() {
            match &mut self.imports {
                Some(imports) => imports.registered(change, now, &mut self.changes),
                None => self.changes.push_back(match change {
                    RegistrationChange::Upserted(registration) => {
                        Change::PoolUpserted(PoolListing { registration, facts: None })
                    }
                    RegistrationChange::Removed(key) => Change::PoolRemoved(key),
                    RegistrationChange::Notice(notice) => Change::Notice(notice),
                }),
            }
        }
        if let Some(imports) = &mut self.imports {
            imports.settle(now, &mut self.changes);
        }
        self.tell(completeness);
    }

    fn tell(&mut self, completeness: ListsCompleteness) {
        if completeness != self.told {
            self.told = completeness;
            self.changes.push_back(Change::Completeness(completeness));
        }
    }
}

impl Imports {
    fn registered(&mut self, change: RegistrationChange, now: Timestamp, changes: &mut VecDeque<Change>) {
        let event = match change {
            RegistrationChange::Upserted(registration) => {
                let key = registration.key();
                let parts = [Part::Relay(key.clone()), Part::Frontend(key.clone())];
                changes.extend(self.services.too_long(self.naming, parts).into_iter().map(Change::Notice));
                JoinEvent::Registered(registration)
            }
            RegistrationChange::Removed(key) => JoinEvent::Lapsed(key),
            RegistrationChange::Notice(notice) => {
                changes.push_back(Change::Notice(notice));
                return;
            }
        };
        self.join.handle_event(event, now);
    }

    fn settle(&mut self, now: Timestamp, changes: &mut VecDeque<Change>) {
        while let Some(change) = self.index.next_change() {
            let event = match change {
                IndexChange::Live(key, facts) => JoinEvent::Live(key, facts),
                IndexChange::Gone(key) => JoinEvent::Gone(key),
                IndexChange::Relisted => JoinEvent::Relisted,
                IndexChange::Replica(replica) => {
                    changes.push_back(Change::ReplicaUpserted(replica));
                    continue;
                }
                IndexChange::ReplicaGone(id) => {
                    changes.push_back(Change::ReplicaRemoved(id));
                    continue;
                }
                IndexChange::Notice(notice) => {
                    changes.push_back(Change::Notice(notice));
                    continue;
                }
            };
            self.join.handle_event(event, now);
        }
        while let Some(change) = self.join.next_change() {
            changes.push_back(match change {
                JoinChange::Upserted(listing) => Change::PoolUpserted(listing),
                JoinChange::Removed(key) => Change::PoolRemoved(key),
                JoinChange::Notice(notice) => Change::Notice(notice),
            });
        }
    }
}
