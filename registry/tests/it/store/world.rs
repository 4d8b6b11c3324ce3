//! Several registries over one store, clusters that renew and fail over as controllers do, and witnesses of what
//! watchers are told. Time passes as it does outside, ten times as fast as by default, and never faster than all that
//! is here gets to run: one thread does everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcs_core::ids::{Region, ServiceKey};
use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Since};
use mcs_core::registry::Op;
use mcs_core::time::{Clock, ManualClock, Timestamp, WallTime};
use mcs_core::timing::Timing;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_registry::Replication;
use mcs_registry::store::{DynamoDb, Store};
use mcs_runtime::dynamodb::double::Global;
use mcs_runtime::dynamodb::{Limits, Settings};
use tokio::task::JoinHandle;

use super::shared::{Reader, Shared};
use crate::started::{LIMIT, STARTED_AT, Started, id, leaf, member, prod, put, registration};

/// The lease.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// How often a replica refreshes.
pub(super) const REFRESH: Duration = Duration::from_millis(200);

/// How long clusters of a silent region are kept after their lease.
pub(super) const GRACE: Duration = Duration::from_secs(6);

/// Time goes on so much at once.
const TICK: Duration = Duration::from_millis(10);

/// The names of regions.
pub(super) const REGIONS: [&str; 2] = ["eu-west-1", "us-east-1"];

fn count(regions: &[usize]) -> usize {
    regions.iter().max().map_or(0, |last| last + 1)
}

/// Registries over one store.
pub(super) struct World {
    /// The store, if it is the one in memory.
    pub(super) store: Arc<Shared>,
    pub(super) replicas: Vec<One>,
    clocks: Arc<Mutex<Vec<Arc<ManualClock>>>>,
    time: JoinHandle<()>,
}

/// One registry.
pub(super) struct One {
    pub(super) started: Started,
    /// What it reads of the store in memory, if it is over that.
    reader: Option<Arc<Reader>>,
}

impl One {
    /// What it reads of the store in memory.
    pub(super) fn store(&self) -> &Reader {
        self.reader.as_ref().unwrap()
    }
}

impl World {
    fn new(regions: usize) -> Self {
        let clock = Arc::new(ManualClock::at(STARTED_AT));
        let store = Shared::of_regions(regions, &clock);
        let clocks = Arc::new(Mutex::new(vec![clock]));
        let known = Arc::clone(&clocks);
        let time = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let clocks = known.lock().unwrap_or_else(PoisonError::into_inner);
                clocks.iter().for_each(|clock| clock.pass(TICK));
            }
        });
        Self { store, replicas: Vec::new(), clocks, time }
    }

    /// A registry in each of these regions, by number.
    pub(super) async fn of(regions: &[usize]) -> Self {
        let mut world = Self::new(count(regions));
        for region in regions {
            world.start(*region, STARTED_AT).await;
        }
        world
    }

    /// The same over tables that are replicated.
    pub(super) async fn of_tables(regions: &[usize]) -> (Self, Global) {
        let mut world = Self::new(1);
        let tables = Global::with(&REGIONS[..count(regions)], 1, world.clock()).await;
        for region in regions {
            world.start_over(&tables, *region).await;
        }
        (world, tables)
    }

    /// Starts one more registry over the table of a region.
    pub(super) async fn start_over(&mut self, tables: &Global, region: usize) -> usize {
        let table = tables.region(REGIONS[region]);
        let limits = Limits::within(Timing::of_lease(LEASE).store_limit());
        let client = table.client_of(Settings { limits, ..table.settings() }).await;
        let store = Arc::new(DynamoDb::new(client, self.clock()));
        self.add(region, STARTED_AT, store, None).await
    }

    /// Starts one more registry in a region, with a wall clock of its own.
    pub(super) async fn start(&mut self, region: usize, wall: WallTime) -> usize {
        let reader = Reader::of(&self.store, region);
        self.start_with(reader, region, wall).await
    }

    /// Starts one more registry that reads so.
    pub(super) async fn start_with(&mut self, reader: Arc<Reader>, region: usize, wall: WallTime) -> usize {
        self.add(region, wall, Arc::clone(&reader) as Arc<dyn Store>, Some(reader)).await
    }

    async fn add(
        &mut self,
        region: usize,
        wall: WallTime,
        store: Arc<dyn Store>,
        reader: Option<Arc<Reader>>,
    ) -> usize {
        let clock = Arc::new(ManualClock::at(wall));
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&clock));
        let started = Started::on(clock, store, None, |config| {
            config.policy.timing = Timing::of_lease(LEASE);
            config.policy.mass_expiry_hold = LEASE;
            config.replication = Replication {
                region: Some(Region::new(REGIONS[region]).unwrap()),
                refresh_interval: REFRESH,
                grace: GRACE,
            };
        });
        self.replicas.push(One { started: started.await, reader });
        self.replicas.len() - 1
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clocks.lock().unwrap_or_else(PoisonError::into_inner)[0])
    }

    /// Ends a registry as a crash does: nothing of it is written any more.
    pub(super) fn kill(&self, replica: usize) {
        self.replicas[replica].started.program.abort();
    }

    /// The time of the world.
    pub(super) fn now(&self) -> Timestamp {
        self.clock().elapsed()
    }

    /// Lets so much time pass.
    pub(super) async fn pass(&self, time: Duration) {
        let until = self.now() + time;
        self.until("time passes", async || until.has_passed(self.now()).then_some(())).await;
    }

    /// Waits until there is something.
    pub(super) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let found = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(TICK).await;
            }
        };
        match tokio::time::timeout(LIMIT, found).await {
            Ok(found) => found,
            Err(_) => panic!("not within {LIMIT:?}: {what}"),
        }
    }

    /// A cluster that speaks to these registries, in this order.
    pub(super) fn cluster(&self, name: &str, homes: &[usize]) -> Cluster {
        self.cluster_of(name, &format!("uid-of-{name}"), homes)
    }

    /// A cluster with an id and a UID.
    pub(super) fn cluster_of(&self, name: &str, uid: &str, homes: &[usize]) -> Cluster {
        let homes = homes.iter().map(|home| self.replicas[*home].started.client.clone()).collect();
        Cluster::begin(member(name, uid), homes, self.clock())
    }

    /// What watchers of a registry are told.
    pub(super) fn witness(&self, replica: usize) -> Witness {
        Witness::of(self.replicas[replica].started.client.clone())
    }

    /// The state of a cluster at a registry.
    pub(super) async fn state(&self, replica: usize, cluster: &str) -> Option<pb::LeaseState> {
        let (clusters, _) = self.replicas[replica].started.client.list_clusters(&prod()).await.ok()?;
        let found = clusters.into_iter().find(|found| found.cluster == cluster)?;
        Some(found.lease?.state())
    }

    /// Whether a registry says that it knows all clusters.
    pub(super) async fn is_complete(&self, replica: usize) -> bool {
        self.replicas[replica].started.client.list_clusters(&prod()).await.is_ok_and(|(_, complete)| complete)
    }

    /// How many endpoints each export of a cluster has, as a registry shows them.
    pub(super) async fn shown(&self, replica: usize, cluster: &str) -> Option<BTreeMap<String, u32>> {
        let (imports, _) = self.replicas[replica].started.client.list_imports(&prod(), false).await.ok()?;
        let of = |import: &pb::Import| {
            let part = import.parts.iter().find(|part| part.cluster == cluster)?;
            Some((import.key.as_ref()?.name.clone(), part.endpoint_count))
        };
        Some(imports.iter().filter_map(of).collect())
    }

    /// Waits until a registry shows these exports of a cluster, and no others.
    pub(super) async fn until_shown<const N: usize>(
        &self,
        replica: usize,
        cluster: &str,
        exports: [(&str, u32); N],
    ) {
        let wanted: BTreeMap<String, u32> =
            exports.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let what = format!("replica {replica} shows {wanted:?} of {cluster}");
        self.until(&what, async || {
            (self.shown(replica, cluster).await.as_ref() == Some(&wanted)).then_some(())
        })
        .await;
    }

    /// Waits until the table of a region has these exports of a cluster, with the sum that goes with them.
    pub(super) async fn until_stored<const N: usize>(
        &self,
        region: usize,
        cluster: &Cluster,
        names: [&str; N],
    ) {
        let wanted: BTreeSet<String> = names.into_iter().map(ToOwned::to_owned).collect();
        let what = format!("region {region} holds {wanted:?} of {:?}", cluster.member);
        self.until(&what, async || {
            let (record, exports) = self.store.held(region, &cluster.member);
            let sum: Sum = exports.values().map(|export| export.leaf).collect();
            let held: BTreeSet<String> = exports.keys().map(|key| key.name.to_string()).collect();
            (held == wanted && record.is_some_and(|record| record.sum == sum)).then_some(())
        })
        .await;
    }

    /// Waits until a registry thinks so of a cluster.
    pub(super) async fn until_state(&self, replica: usize, cluster: &str, state: Option<pb::LeaseState>) {
        let what = format!("{cluster} is {state:?} at replica {replica}");
        self.until(&what, async || (self.state(replica, cluster).await == state).then_some(())).await;
    }

    /// Waits until a registry knows all clusters, or does not.
    pub(super) async fn until_complete(&self, replica: usize, complete: bool) {
        let what = format!("replica {replica} is complete: {complete}");
        self.until(&what, async || (self.is_complete(replica).await == complete).then_some(())).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.time.abort();
    }
}

/// What a cluster has, and whom it speaks to.
#[derive(Debug)]
struct Leading {
    seq: u64,
    exports: BTreeMap<ServiceKey, Op>,
    home: usize,
    is_registered: bool,
    is_alive: bool,
    /// What was said to it last that it did not expect.
    refused: Option<String>,
    renewals: usize,
    /// When the last renewal that was taken was sent, and when it was answered.
    renewed: (Timestamp, Timestamp),
    degraded: bool,
}

/// The controller of a cluster: it renews every third of a lease, goes to the next registry when one does not serve it,
/// and says all that it has where that differs.
pub(super) struct Cluster {
    pub(super) member: Member,
    leading: Arc<Mutex<Leading>>,
    turn: Arc<tokio::sync::Mutex<()>>,
    homes: Arc<Vec<RegistryClient>>,
    clock: Arc<ManualClock>,
    task: JoinHandle<()>,
}

impl Cluster {
    fn begin(member: Member, homes: Vec<RegistryClient>, clock: Arc<ManualClock>) -> Self {
        let leading = Leading {
            seq: 1,
            exports: BTreeMap::new(),
            home: 0,
            is_registered: false,
            is_alive: true,
            refused: None,
            renewals: 0,
            renewed: (Timestamp::ZERO, Timestamp::ZERO),
            degraded: false,
        };
        let leading = Arc::new(Mutex::new(leading));
        let (turn, homes) = (Arc::new(tokio::sync::Mutex::new(())), Arc::new(homes));
        let beating = Self {
            member: member.clone(),
            leading: leading.clone(),
            turn: turn.clone(),
            homes: homes.clone(),
            clock: Arc::clone(&clock),
            task: tokio::spawn(async {}),
        };
        let time = Arc::clone(&clock);
        let task = tokio::spawn(async move {
            let mut due = Timestamp::ZERO;
            loop {
                if due.has_passed(time.elapsed()) {
                    beating.beat().await;
                    due = time.elapsed() + LEASE / 3;
                }
                tokio::time::sleep(TICK).await;
            }
        });
        Self { member, leading, turn, homes, clock, task }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Leading) -> T) -> T {
        act(&mut self.leading.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Falls silent, or comes back.
    pub(super) fn is_alive(&self, alive: bool) {
        self.with(|leading| leading.is_alive = alive);
    }

    /// Goes to another of its registries.
    pub(super) fn goes_to(&self, home: usize) {
        self.with(|leading| (leading.home, leading.is_registered) = (home, false));
    }

    /// Which of its registries it speaks to.
    pub(super) fn home(&self) -> usize {
        self.with(|leading| leading.home)
    }

    /// What it was refused for last.
    pub(super) fn refused(&self) -> Option<String> {
        self.with(|leading| leading.refused.clone())
    }

    /// How many of its renewals were taken.
    pub(super) fn renewals(&self) -> usize {
        self.with(|leading| leading.renewals)
    }

    /// When its lease was renewed last: not before the first of the two, and not after the other.
    pub(super) fn renewed(&self) -> (Timestamp, Timestamp) {
        self.with(|leading| leading.renewed)
    }

    /// Whether its registry said last that it holds something in memory only.
    pub(super) fn is_degraded(&self) -> bool {
        self.with(|leading| leading.degraded)
    }

    /// Exports a Service with so many endpoints, also to a registry that does not answer.
    pub(super) async fn put(&self, name: &str, count: u32) {
        self.change(put(name, count)).await;
    }

    /// Ends an export.
    pub(super) async fn delete(&self, name: &str) {
        self.change(Op::Delete { key: crate::started::key(name) }).await;
    }

    async fn change(&self, op: Op) {
        let _turn = self.turn.lock().await;
        let (version, client) = self.with(|leading| {
            leading.seq += 1;
            match &op {
                Op::Delete { key } => drop(leading.exports.remove(key)),
                op => drop(leading.exports.insert(op.key().clone(), op.clone())),
            }
            (Version::new(1, leading.seq), leading.is_registered.then(|| self.homes[leading.home].clone()))
        });
        // What is not taken is said by the next sync.
        if let Some(client) = client {
            let written = client.write(&self.member, version, &[op]).await;
            self.with(|leading| match written {
                Ok(written) => leading.degraded = written.degraded,
                Err(error) => leading.refused = Some(error.to_string()),
            });
        }
    }

    fn said(&self) -> (Version, Sum, Vec<(ServiceKey, Leaf)>) {
        self.with(|leading| {
            let names: Vec<_> = leading.exports.iter().map(|(key, op)| (key.clone(), leaf(op))).collect();
            (Version::new(1, leading.seq), names.iter().map(|(_, leaf)| *leaf).collect(), names)
        })
    }

    async fn beat(&self) {
        let _turn = self.turn.lock().await;
        let (is_alive, is_registered, client) =
            self.with(|leading| (leading.is_alive, leading.is_registered, self.homes[leading.home].clone()));
        if !is_alive {
            return;
        }
        let (version, sum, _) = self.said();
        let sent = self.clock.elapsed();
        let differs = if is_registered {
            match client.renew(&self.member, version, sum).await {
                Ok(renewed) => {
                    self.with(|leading| {
                        leading.renewals += 1;
                        leading.renewed = (sent, self.clock.elapsed());
                        leading.degraded = renewed.degraded;
                    });
                    Ok(renewed.differs)
                }
                Err(error) => Err(error),
            }
        } else {
            let registration = registration(&self.member, version, sum);
            client.register(&self.member, &registration).await.map(|registered| {
                self.with(|leading| leading.is_registered = true);
                registered.differs
            })
        };
        let done = match differs {
            Ok(true) => self.sync(&client).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            self.with(|leading| {
                leading.refused = Some(error.to_string());
                leading.is_registered = false;
                leading.home = (leading.home + 1) % self.homes.len();
            });
        }
    }

    async fn sync(&self, client: &RegistryClient) -> Result<(), mcs_proto::status::CallFailed> {
        self.with(|leading| leading.seq += 1);
        let (version, _, names) = self.said();
        let (wanted, sync) = client.begin_sync(&self.member, version, &names).await?;
        let ops: Vec<Op> =
            self.with(|leading| wanted.iter().filter_map(|key| leading.exports.get(key).cloned()).collect());
        sync.finish(&ops).await.map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Something that a watcher was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// What a registry thinks of a cluster.
    State(String, MemberState),
    /// A cluster is not listed any more.
    Gone(String),
    /// An export of a cluster is there with so many endpoints.
    Part(String, String, usize),
    /// An export of a cluster ended.
    PartGone(String, String),
    /// Whether all clusters are known.
    Complete(bool),
    /// A new snapshot begins.
    Begin,
}

/// A watcher that notes all that it is told, and watches again when it is cut off.
pub(super) struct Witness {
    told: Arc<Mutex<Vec<Told>>>,
    task: JoinHandle<()>,
}

impl Witness {
    /// What is told to a watcher by this client.
    pub(super) fn of(client: RegistryClient) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let task = tokio::spawn(async move {
            loop {
                if let Ok(mut watch) = client.watch(&prod(), &id("importer"), None, Since::default()).await {
                    while let Ok(frame) = watch.next().await {
                        noted.lock().unwrap_or_else(PoisonError::into_inner).extend(note(frame));
                    }
                }
                tokio::time::sleep(TICK).await;
            }
        });
        Self { told, task }
    }

    /// What it was told so far.
    pub(super) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it was told that something of a cluster is not to be shown.
    pub(super) fn lost(&self, cluster: &str) -> Vec<Told> {
        let lost = |told: &Told| match told {
            Told::State(of, state) => of == cluster && *state == MemberState::Expired,
            Told::Gone(of) | Told::PartGone(of, _) => of == cluster,
            Told::Part(..) | Told::Complete(_) | Told::Begin => false,
        };
        self.told().into_iter().filter(lost).collect()
    }

    /// The counts of endpoints that it was told of an export, in order, each once.
    pub(super) fn counts(&self, cluster: &str, name: &str) -> Vec<usize> {
        let count = |told: Told| match told {
            Told::Part(of, key, count) if of == cluster && key == name => Some(count),
            _ => None,
        };
        let mut counts: Vec<usize> = self.told().into_iter().filter_map(count).collect();
        counts.dedup();
        counts
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(frame: Frame) -> Option<Told> {
    match frame {
        Frame::Change(change) => match (change.key, change.object) {
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                Some(Told::State(cluster.to_string(), section.state))
            }
            (ObjectKey::Section(cluster), _) => Some(Told::Gone(cluster.to_string())),
            (ObjectKey::Part(key, cluster), Some(Object::Part(part))) => {
                Some(Told::Part(cluster.to_string(), key.name.to_string(), part.endpoints.len()))
            }
            (ObjectKey::Part(key, cluster), _) => {
                Some(Told::PartGone(cluster.to_string(), key.name.to_string()))
            }
            (ObjectKey::Header(_), _) => None,
        },
        Frame::End { complete, .. } | Frame::Progress { complete, .. } => Some(Told::Complete(complete)),
        Frame::Begin { .. } => Some(Told::Begin),
        Frame::Kept { .. } => None,
    }
}
