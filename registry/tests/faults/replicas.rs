//! The program as it is shipped, twice in each of two regions over one Global Table: whatever dies, stalls or is cut
//! off, no importer deletes an endpoint of a cluster that lives.

mod players;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_core::timing::Timing;
use mcs_proto::client::RegistryClient;
use mcs_proto::pb::LeaseState;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::dynamodb::double::{Door, Fault, Global, Rule, TABLE};
use tokio::sync::{Mutex, MutexGuard};

use self::players::{Cluster, Importer, Wrong};
use crate::program::Program;
use crate::started::{LIMIT, http, id, key, prod};

/// The lease.
const LEASE: Duration = Duration::from_secs(3);

/// Heartbeats of one cluster in a lease.
const HEARTBEATS: usize = 3;

/// How long items travel between the regions.
const LAG: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_millis(300);

const REGIONS: [&str; 2] = ["eu-west-1", "us-east-1"];

/// Registries in each region.
const REPLICAS: usize = 2;

const POLL: Duration = Duration::from_millis(50);

/// One world at a time: leases are short, and their owners must be heard.
static ONE: Mutex<()> = Mutex::const_new(());

/// Registries 0 and 1 in the first region, 2 and 3 in the second; an importer in each, and a
/// cluster at each, of which the second has one more.
struct World {
    global: Global,
    replicas: Vec<Program>,
    /// For those who ask what registries show.
    people: Vec<RegistryClient>,
    clusters: BTreeMap<&'static str, Cluster>,
    importers: Vec<Importer>,
    /// The endpoints that each cluster has last said.
    said: BTreeMap<&'static str, u32>,
    _one: MutexGuard<'static, ()>,
}

impl World {
    /// Waits until all of it is shown everywhere.
    async fn start() -> Self {
        let one = ONE.lock().await;
        let global = Global::of(&REGIONS).await;
        global.set_lag(LAG);
        let start = |index: usize| {
            let double = global.region(REGIONS[index / REPLICAS]);
            let flags = [
                format!("--lease-duration={}s", LEASE.as_secs()),
                "--refresh-interval=200ms".to_owned(),
                "--store=dynamodb".to_owned(),
                format!("--dynamodb-table={TABLE}"),
                format!("--dynamodb-endpoint={}", double.endpoint()),
                format!("--region={}", double.region()),
            ];
            let environment = Vec::from(double.environment());
            async move { Program::start_in(&flags.each_ref().map(String::as_str), environment).await }
        };
        let replicas = join_all((0..REGIONS.len() * REPLICAS).map(start)).await;
        let people = replicas.iter().map(client).collect();
        let mut world = Self {
            global,
            replicas,
            people,
            clusters: BTreeMap::new(),
            importers: Vec::new(),
            said: BTreeMap::new(),
            _one: one,
        };
        for replica in 0..world.replicas.len() {
            world.until_ready(replica).await;
        }
        world.importers = [("eu-reader", 0), ("us-reader", 2)]
            .map(|(name, home)| Importer::new(name, world.homes(home)))
            .into();
        let clusters = [("eu-0", 0), ("eu-1", 1), ("eu-2", 1), ("us-0", 2), ("us-1", 3)];
        for (name, home) in clusters {
            world.clusters.insert(name, Cluster::new(name, world.homes(home)));
        }
        for (name, _) in clusters {
            world.says(name, 2).await;
        }
        world.until_shown().await;
        world.until_complete(true).await;
        let all = || world.clusters.keys().copied().chain(["eu-reader", "us-reader"]).map(id);
        world.importers.iter().for_each(|importer| importer.expects(all()));
        world
    }

    /// All registries, this one first and then the other one of its region, with the limits of a controller by default.
    fn homes(&self, first: usize) -> Vec<(usize, RegistryClient)> {
        let other = first ^ 1;
        let far = (0..self.replicas.len()).filter(|index| *index != first && *index != other);
        [first, other].into_iter().chain(far).map(|index| (index, client(&self.replicas[index]))).collect()
    }

    async fn until<T>(&self, what: impl Fn() -> String, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let found = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(LIMIT, found).await {
            Ok(found) => found,
            Err(_) => panic!("not within {LIMIT:?}: {}", what()),
        }
    }

    async fn until_ready(&self, replica: usize) {
        let is_ready = async || {
            let (status, _) = http(self.replicas[replica].admin, "GET", "/readyz").await;
            (status == "200 OK").then_some(())
        };
        self.until(|| format!("registry {replica} is ready"), is_ready).await;
    }

    /// A cluster has so many endpoints now.
    async fn says(&mut self, name: &'static str, count: u32) {
        self.said.insert(name, count);
        self.clusters[name].put("web", count).await;
    }

    /// Each cluster that is not dead has one endpoint more: what was told before is shown when this is.
    async fn all_say_more(&mut self) {
        for (name, count) in self.said.clone() {
            self.says(name, count + 1).await;
        }
    }

    /// Waits until both importers show what each cluster said last.
    async fn until_shown(&self) {
        for (name, count) in &self.said {
            for reader in 0..self.importers.len() {
                self.until_imported(reader, name, Some(*count)).await;
            }
        }
    }

    async fn until_imported(&self, reader: usize, name: &str, count: Option<u32>) {
        let shows = || self.importers[reader].shows("web", name);
        let wanted = count.map(|count| usize::try_from(count).unwrap());
        let what = || format!("importer {reader} shows {wanted:?} endpoints of {name}: {:?}", shows());
        self.until(what, async || (shows() == wanted).then_some(())).await;
    }

    /// Waits until both importers, and whoever asks any registry, are told that all clusters are known, or that not.
    async fn until_complete(&self, complete: bool) {
        for (index, importer) in self.importers.iter().enumerate() {
            let is_so = async || (importer.is_complete() == complete).then_some(());
            self.until(|| format!("importer {index} is told complete: {complete}"), is_so).await;
        }
        for (index, client) in self.people.iter().enumerate() {
            let is_so = async || match client.list_clusters(&prod()).await {
                Ok((_, so)) => (so == complete).then_some(()),
                Err(_) => None,
            };
            self.until(|| format!("registry {index} says complete: {complete}"), is_so).await;
        }
    }

    /// Waits until a registry thinks so of a cluster.
    async fn until_state(&self, replica: usize, cluster: &str, state: LeaseState) {
        let is_so = async || {
            let (clusters, _) = self.people[replica].list_clusters(&prod()).await.ok()?;
            let found = clusters.into_iter().find(|found| found.cluster == cluster)?;
            (found.lease?.state() == state).then_some(())
        };
        self.until(|| format!("{cluster} is {state:?} at registry {replica}"), is_so).await;
    }

    /// Waits until each of the clusters, readers among them, had so many more heartbeats answered.
    async fn heartbeats(&self, more: usize) {
        let all = || self.clusters.values().chain(self.importers.iter().map(|importer| &importer.own));
        let before: Vec<usize> = all().map(|cluster| cluster.answered() + more).collect();
        let so_far = || all().map(Cluster::answered).collect::<Vec<_>>();
        let what = || format!("{before:?} heartbeats are answered, {:?} are", so_far());
        let are_answered =
            async || so_far().iter().zip(&before).all(|(now, wanted)| now >= wanted).then_some(());
        self.until(what, are_answered).await;
    }

    /// Whatever was said reaches everybody, all heartbeats were taken by some registry, and nothing was wrong on the way.
    async fn is_whole(&mut self) {
        self.all_say_more().await;
        self.until_shown().await;
        self.until_complete(true).await;
        self.heartbeats(HEARTBEATS).await;
        let readers = self.importers.iter().map(|importer| &importer.own);
        for cluster in self.clusters.values().chain(readers) {
            let failed = cluster.failed();
            assert_eq!(cluster.unanswered(), 0, "{:?}: {failed:#?}", cluster.member);
        }
        for (index, importer) in self.importers.iter().enumerate() {
            assert_eq!(importer.wrong(), [], "importer {index}");
        }
    }

    /// What was said to calls that one registry did not take, of all clusters.
    fn failed(&self) -> Vec<String> {
        self.clusters.values().flat_map(Cluster::failed).collect()
    }

    /// A cluster that is dead need not be shown nor heard any more; what was wrong of it, and nothing else.
    fn bury(&mut self, name: &'static str) -> Cluster {
        let left: Vec<_> = self.clusters.keys().copied().filter(|other| *other != name).collect();
        let left = || left.iter().copied().chain(["eu-reader", "us-reader"]).map(id);
        self.importers.iter().for_each(|importer| importer.expects(left()));
        self.said.remove(name);
        self.clusters.remove(name).unwrap()
    }
}

/// For people who look at a failure.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (index, importer) in self.importers.iter().enumerate() {
                eprintln!("importer {index}: {:#?}", importer.wrong());
            }
            for (index, replica) in self.replicas.iter().enumerate() {
                eprintln!("registry {index}: {:#?}", replica.log());
            }
        }
    }
}

/// With the limits of a controller by default: 3 s for a call.
fn client(replica: &Program) -> RegistryClient {
    RegistryClient::new(&format!("http://{}", replica.grpc).parse().unwrap(), Timing::default()).unwrap()
}

/// Fault 2, and a kill besides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registries_that_are_restarted_one_after_the_other_cost_no_endpoint_and_no_heartbeat() {
    let mut world = World::start().await;
    for index in 0..world.replicas.len() {
        let replica = world.replicas.remove(index);
        world.replicas.insert(index, replica.roll().await);
        world.until_ready(index).await;
        world.all_say_more().await;
    }
    world.is_whole().await;
    let index = world.clusters["us-1"].served_by();
    let replica = world.replicas.remove(index);
    world.replicas.insert(index, replica.restart().await);
    world.until_ready(index).await;
    world.is_whole().await;
    let watches: Vec<_> = world.importers.iter().map(Importer::watches).collect();
    assert!(watches.iter().all(|watches| *watches > 1), "{watches:?}");
}

/// Fault 13, and the replica of the dead cluster with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_falls_silent_is_gone_everywhere_and_no_other_is() {
    let mut world = World::start().await;
    let mut alive: Vec<usize> = (0..world.replicas.len()).collect();
    for (name, goes_with_its_replica) in [("us-1", false), ("eu-1", true)] {
        let dead = world.bury(name);
        dead.falls_silent();
        if goes_with_its_replica {
            world.replicas[dead.served_by()].kill();
            alive.retain(|replica| *replica != dead.served_by());
        }
        for reader in 0..world.importers.len() {
            world.until_imported(reader, name, None).await;
        }
        for replica in &alive {
            world.until_state(*replica, name, LeaseState::Expired).await;
        }
        // How soon after that is for tests whose clock waits for everybody (`tests/it/store/replicas.rs`).
        let lasted = SystemClock.elapsed().since(dead.renewed_at());
        assert!(lasted >= LEASE, "{name} is gone {lasted:?} after its last renewal was sent");
    }
    world.all_say_more().await;
    world.until_shown().await;
    world.heartbeats(2 * HEARTBEATS).await;
    for cluster in world.clusters.values() {
        let lives = async || alive.contains(&cluster.served_by()).then_some(());
        world.until(|| format!("{} is served by one of {alive:?}", cluster.served_by()), lives).await;
    }
    for importer in &world.importers {
        let (dead, others): (Vec<_>, Vec<_>) =
            importer.wrong().into_iter().partition(|(cluster, _)| ["us-1", "eu-1"].map(id).contains(cluster));
        assert_eq!(others, []);
        for name in ["us-1", "eu-1"] {
            assert!(dead.contains(&(id(name), Wrong::Deleted(key("web")))), "{dead:#?}");
        }
    }
    for cluster in world.clusters.values() {
        assert_eq!(cluster.unanswered(), 0, "{:#?}", cluster.failed());
    }
}

/// Fault 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn a_store_that_takes_calls_and_answers_none_holds_up_nobody_and_deletes_nothing() {
    let mut world = World::start().await;
    let failed = world.failed();
    for region in REGIONS {
        world.global.region(region).faults().door(Door::Silent);
    }
    world.until_complete(false).await;
    for name in ["eu-0", "eu-1", "us-0", "us-1"] {
        world.says(name, 3).await;
        let is_degraded = async || world.clusters[name].is_degraded().then_some(());
        world.until(|| format!("{name} is told that the store is away"), is_degraded).await;
    }
    // Who watches the registry to which it was said is told.
    world.until_imported(0, "eu-0", Some(3)).await;
    world.until_imported(1, "us-0", Some(3)).await;
    for _ in 0..4 {
        world.heartbeats(HEARTBEATS).await;
        for replica in &world.replicas {
            assert_eq!(http(replica.admin, "GET", "/healthz").await.0, "200 OK");
        }
        assert!(world.importers.iter().all(|importer| !importer.is_complete()));
    }
    assert!(world.clusters.values().all(Cluster::is_degraded));
    assert_eq!(world.importers[0].shows("web", "us-0"), Some(2));
    // Each was answered within the limit of a call, by the registry that was asked first.
    assert_eq!(world.failed(), failed);

    for region in REGIONS {
        world.global.region(region).faults().door(Door::Open);
    }
    world.is_whole().await;
    for (name, cluster) in &world.clusters {
        let is_well = async || (!cluster.is_degraded()).then_some(());
        world.until(|| format!("{name} is told that the store is back"), is_well).await;
    }
}

/// Fault 7, for less than the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn regions_that_are_cut_from_each_other_keep_what_the_other_had_and_heal_without_a_delete() {
    let mut world = World::start().await;
    world.global.cut();
    world.says("eu-0", 3).await;
    world.until_imported(0, "eu-0", Some(3)).await;
    for (replica, cluster) in [(0, "us-0"), (1, "us-1"), (2, "eu-0"), (3, "eu-1")] {
        world.until_state(replica, cluster, LeaseState::Held).await;
    }
    world.heartbeats(4 * HEARTBEATS).await;
    for (reader, cluster) in [(0, "us-0"), (0, "us-1"), (1, "eu-0"), (1, "eu-1")] {
        assert_eq!(world.importers[reader].shows("web", cluster), Some(2), "{cluster}");
    }
    world.global.heal();
    world.until_imported(1, "eu-0", Some(3)).await;
    for (replica, cluster) in [(0, "us-0"), (1, "us-1"), (2, "eu-0"), (3, "eu-1")] {
        world.until_state(replica, cluster, LeaseState::Active).await;
    }
    world.is_whole().await;
}

/// Fault 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn no_lease_and_no_change_is_lost_while_half_of_the_calls_are_throttled() {
    let mut world = World::start().await;
    let mut requests = BTreeMap::new();
    for region in REGIONS {
        let table = world.global.region(region);
        requests.insert(region, table.requests());
        table.faults().add(Rule::new(Fault::Throttled).share(0.5));
    }
    for _ in 0..4 {
        world.all_say_more().await;
        world.heartbeats(HEARTBEATS).await;
    }
    world.until_shown().await;
    for region in REGIONS {
        let table = world.global.region(region);
        let (requests, throttled) = (table.requests() - requests[region], table.faults().befallen());
        assert!(throttled > requests / 3, "{throttled} of {requests} requests were throttled in {region}");
        table.faults().clear();
    }
    world.is_whole().await;
}
