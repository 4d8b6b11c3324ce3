//! The one lock around the directory: everything that happens goes through it, and both lists are kept ready to send.
//!
//! Every call first does what has become due, so a list never shows a pool past its lease, however late a timer is.

use crate::{notices, sheet::Sheet, wire};
use bytes::Bytes;
use mcs_core::pools::directory::{Change, Directory, Sizes, WatchNews};
use mcs_core::pools::stored::{TableNews, WallMoment};
use mcs_core::pools::{Completeness, PoolKey, PoolRegistration, ReplicaId};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::sleep_until;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::info;

/// Leases are looked through at least this often.
const SWEEP: Duration = Duration::from_secs(1);

/// The directory of this process.
pub struct Driver {
    clock: Arc<dyn Clock>,
    view: mcs_runtime::ready::Handle,
    has_slices: AtomicBool,
    has_view: AtomicBool,
    state: Mutex<State>,
}

struct State {
    directory: Directory,
    pools: Sheet<PoolKey>,
    replicas: Sheet<ReplicaId>,
}

/// A list as it is sent.
#[derive(Debug)]
pub struct List {
    /// Its entries with commas between them, in pieces.
    pub entries: Vec<Bytes>,
    /// Whether what it lacks is gone.
    pub completeness: Completeness,
}

/// How large the lists and what they are made of are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measures {
    /// Listed pools.
    pub pools: usize,
    /// Listed router replicas.
    pub routers: usize,
    /// Whether the list of pools is exact.
    pub pools_completeness: Completeness,
    /// Whether the list of router replicas is exact.
    pub routers_completeness: Completeness,
    /// What the lists are made of.
    pub sizes: Sizes,
    /// How old the view of the table is, where one is kept and was read.
    pub table_age: Option<Duration>,
}

impl Driver {
    /// The driver of `directory`; `view` is told when it has seen all EndpointSlices once, where it looks at them.
    pub fn new(directory: Directory, clock: Arc<dyn Clock>, view: mcs_runtime::ready::Handle) -> Self {
        let state = State { directory, pools: Sheet::default(), replicas: Sheet::default() };
        let (has_slices, has_view) = (AtomicBool::new(false), AtomicBool::new(false));
        let driver = Self { clock, view, has_slices, has_view, state: Mutex::new(state) };
        driver.with(|_, _| ());
        driver
    }

    /// Registers a pool in memory or renews its lease.
    pub fn register(&self, registration: PoolRegistration) {
        self.with(|state, now| state.directory.register(registration, now));
    }

    /// Takes in what happened between this process and the table.
    pub fn handle_table(&self, news: TableNews) {
        self.with(|state, now| state.directory.handle_table(news, now, self.wall()));
    }

    /// Whether the table has this registration, renewed so lately that it need not be written.
    pub fn is_renewed(&self, registration: &PoolRegistration) -> bool {
        self.with(|state, _| state.directory.is_renewed(registration, self.wall()))
    }

    /// Now, on the wall clock that renewals are compared by.
    pub fn wall(&self) -> WallMoment {
        WallMoment::from_unix_nanos(self.clock.wall_nanos())
    }

    /// Takes in what happened at the watch of EndpointSlices.
    pub fn handle_watch(&self, news: WatchNews) {
        self.with(|state, now| state.directory.handle_watch(news, now));
    }

    /// The list of pools; none before the first view.
    pub fn pools(&self) -> Option<List> {
        self.with(|state, now| {
            let completeness = state.directory.completeness(now).pools;
            let list = || List { entries: state.pools.pieces().collect(), completeness };
            state.directory.has_view().then(list)
        })
    }

    /// The list of router replicas; none before the first view.
    pub fn routers(&self) -> Option<List> {
        self.with(|state, now| {
            let completeness = state.directory.completeness(now).routers;
            let list = || List { entries: state.replicas.pieces().collect(), completeness };
            state.directory.has_view().then(list)
        })
    }

    /// Whether the lists can be read.
    pub fn has_view(&self) -> bool {
        self.has_view.load(Ordering::Acquire)
    }

    /// How large everything is.
    pub fn measures(&self) -> Measures {
        self.with(|state, now| {
            let completeness = state.directory.completeness(now);
            Measures {
                pools: state.pools.len(),
                routers: state.replicas.len(),
                pools_completeness: completeness.pools,
                routers_completeness: completeness.routers,
                sizes: state.directory.sizes(),
                table_age: state.directory.table_age(now),
            }
        })
    }

    /// Does for ever what becomes due.
    pub async fn run_timers(self: Arc<Self>) {
        loop {
            let now = self.clock.elapsed();
            let next = self.lock().directory.poll_timeout(now);
            let sweep = now + SWEEP;
            sleep_until(&*self.clock, Some(next.map_or(sweep, |next| next.min(sweep)))).await;
            self.with(|_, _| ());
        }
    }

    /// Does what is due, then `act`, then what comes of it.
    fn with<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.lock();
        let now = self.clock.elapsed();
        state.directory.handle_timeout(now);
        state.settle();
        let result = act(&mut state, now);
        state.settle();
        if state.directory.has_slices() && !self.has_slices.swap(true, Ordering::AcqRel) {
            self.view.ready();
        }
        if state.directory.has_view() {
            self.has_view.store(true, Ordering::Release);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn settle(&mut self) {
        while let Some(change) = self.directory.next_change() {
            match change {
                Change::PoolUpserted(listing) => self.pools.put(listing.key(), &wire::pool(&listing)),
                Change::PoolRemoved(key) => {
                    info!(pool = %key, "pool is not listed any more");
                    self.pools.remove(&key);
                }
                Change::ReplicaUpserted(replica) => self.replicas.put(&replica.id, &wire::replica(&replica)),
                Change::ReplicaRemoved(id) => {
                    info!(replica = %id, "router replica is not listed any more");
                    self.replicas.remove(&id);
                }
                Change::Completeness(lists) => {
                    info!(pools = ?lists.pools, routers = ?lists.routers, "completeness of the lists changed");
                }
                Change::Notice(notice) => notices::log(&notice),
            }
        }
    }
}
