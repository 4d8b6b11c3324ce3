//! The one lock around the directory: everything that happens goes through it, and both lists are kept ready to send.
//!
//! Every call first does what has become due, so a list never shows a pool past its lease, however late a timer is.

use crate::shown::{Edit, Shown};
use crate::{notices, wire};
use mcs_core::pools::directory::{Change, Directory, Full, Sizes, WatchNews};
use mcs_core::pools::stored::{TableNews, WallMoment};
use mcs_core::pools::{Completeness, PoolKey, PoolListing, PoolRegistration, RouterReplica};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::sleep_until;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::info;

/// Leases are looked through at least this often.
const SWEEP: Duration = Duration::from_secs(1);

/// Of pools that are removed at once so many are named in the log, and the others counted: nobody is answered until they are
/// written.
const NAMED: usize = 20;

/// The directory of this process.
pub struct Driver {
    clock: Arc<dyn Clock>,
    view: mcs_runtime::ready::Handle,
    has_slices: AtomicBool,
    has_view: AtomicBool,
    directory: Mutex<Directory>,
    pools: Arc<Shown<PoolListing>>,
    replicas: Arc<Shown<RouterReplica>>,
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
        let completeness = directory.completeness(clock.elapsed());
        let driver = Self {
            clock,
            view,
            has_slices: AtomicBool::new(false),
            has_view: AtomicBool::new(false),
            directory: Mutex::new(directory),
            pools: Arc::new(Shown::new("pools", completeness.pools)),
            replicas: Arc::new(Shown::new("routers", completeness.routers)),
        };
        driver.with(|_, _| ());
        driver
    }

    /// Registers a pool in memory or renews its lease.
    ///
    /// # Errors
    /// It is new, and there are as many as there may be.
    pub fn register(&self, registration: PoolRegistration) -> Result<(), Full> {
        self.with(|directory, now| {
            directory.admit(&registration.key)?;
            directory.register(registration, now);
            Ok(())
        })
    }

    /// Whether the pool may register.
    ///
    /// # Errors
    /// It is new, and there are as many as there may be.
    pub fn admit(&self, key: &PoolKey) -> Result<(), Full> {
        self.with(|directory, _| directory.admit(key))
    }

    /// Takes in what happened between this process and the table.
    pub fn handle_table(&self, news: TableNews) {
        self.with(|directory, now| directory.handle_table(news, now, self.wall()));
    }

    /// Whether the table has this registration, renewed so lately that it need not be written.
    pub fn is_renewed(&self, registration: &PoolRegistration) -> bool {
        self.with(|directory, now| directory.is_renewed(registration, now, self.wall()))
    }

    /// Now, on the wall clock that renewals are compared by.
    pub fn wall(&self) -> WallMoment {
        WallMoment::from_unix_nanos(self.clock.wall_nanos())
    }

    /// Takes in what happened at the watch of EndpointSlices.
    pub fn handle_watch(&self, news: WatchNews) {
        self.with(|directory, now| directory.handle_watch(news, now));
    }

    /// The list of pools as of now; none before the first view.
    pub fn pools(&self) -> Option<&Arc<Shown<PoolListing>>> {
        self.has_view_now().then_some(&self.pools)
    }

    /// The list of router replicas as of now; none before the first view.
    pub fn routers(&self) -> Option<&Arc<Shown<RouterReplica>>> {
        self.has_view_now().then_some(&self.replicas)
    }

    /// Whether the lists can be read.
    pub fn has_view(&self) -> bool {
        self.has_view.load(Ordering::Acquire)
    }

    /// The same, and what is due is done.
    fn has_view_now(&self) -> bool {
        self.with(|directory, _| directory.has_view())
    }

    /// How large everything is.
    pub fn measures(&self) -> Measures {
        let (sizes, table_age) = self.with(|directory, now| (directory.sizes(), directory.table_age(now)));
        let (pools, pools_completeness) = self.pools.size();
        let (routers, routers_completeness) = self.replicas.size();
        Measures { pools, routers, pools_completeness, routers_completeness, sizes, table_age }
    }

    /// Does for ever what becomes due.
    pub async fn run_timers(self: Arc<Self>) {
        loop {
            let now = self.clock.elapsed();
            let next = self.lock().poll_timeout(now);
            let sweep = now + SWEEP;
            sleep_until(&*self.clock, Some(next.map_or(sweep, |next| next.min(sweep)))).await;
            self.with(|_, _| ());
        }
    }

    /// Does what is due, then `act`, then what comes of it.
    fn with<T>(&self, act: impl FnOnce(&mut Directory, Timestamp) -> T) -> T {
        let mut directory = self.lock();
        let now = self.clock.elapsed();
        directory.handle_timeout(now);
        self.settle(&mut directory);
        let result = act(&mut directory, now);
        self.settle(&mut directory);
        if directory.has_slices() && !self.has_slices.swap(true, Ordering::AcqRel) {
            self.view.ready();
        }
        if directory.has_view() {
            self.has_view.store(true, Ordering::Release);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what changed, all at once: no reader sees a list without an entry and not yet the completeness with it.
    fn settle(&self, directory: &mut Directory) {
        let Some(first) = directory.next_change() else { return };
        let (mut pools, mut replicas) = (self.pools.edit(), self.replicas.edit());
        let mut removed = 0;
        show(first, &mut pools, &mut replicas, &mut removed);
        while let Some(change) = directory.next_change() {
            show(change, &mut pools, &mut replicas, &mut removed);
        }
        if removed > NAMED {
            info!(pools = removed - NAMED, "more pools are not listed any more");
        }
    }
}

fn show(
    change: Change,
    pools: &mut Edit<'_, PoolListing>,
    replicas: &mut Edit<'_, RouterReplica>,
    removed: &mut usize,
) {
    match change {
        Change::PoolUpserted(listing) => pools.put(listing),
        Change::PoolRemoved(key) => {
            *removed += 1;
            if *removed <= NAMED {
                info!(pool = %key, "pool is not listed any more");
            }
            pools.remove(&key, &wire::pool_removed(&key));
        }
        Change::ReplicaUpserted(replica) => replicas.put(replica),
        Change::ReplicaRemoved(id) => {
            info!(replica = %id, "router replica is not listed any more");
            replicas.remove(&id, &wire::replica_removed(&id));
        }
        Change::Completeness(lists) => {
            info!(pools = ?lists.pools, routers = ?lists.routers, "completeness of the lists changed");
            pools.complete(lists.pools);
            replicas.complete(lists.routers);
        }
        Change::Notice(notice) => notices::log(&notice),
    }
}
