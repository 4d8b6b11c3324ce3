//! How often a store is asked, where time is virtual: it passes when there is nothing else to do, so what is counted
//! within a time does not hang on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mcs_core::ids::{ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{EndpointSet, Export, ExportSpec, IpFamily, MemberState, Port, Report};
use mcs_core::registry::{Op, Policy, Registration};
use mcs_core::time::{Clock, ManualClock};
use mcs_core::timing::DEFAULT_LEASE;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::ReadOp;
use mcs_runtime::ready::Ready;

use super::*;
use crate::caller::{Caller, Writer};
use crate::service::Service;
use crate::store::{Erased, Exports, Found, Held, Known, Members, Memory, Store, Write, Wrote};
use crate::{Parts, with_policy};

/// Time goes on so much at once.
const TICK: Duration = Duration::from_millis(250);

/// So many heartbeats are counted: some thousand requests, of which jitter moves no share by a hundredth.
const HEARTBEATS: u64 = 200;

/// Fault 4. What is to be written is written again, and looked for more seldom.
#[tokio::test(start_paused = true)]
async fn a_store_that_throttles_half_of_the_calls_is_asked_for_at_most_1_2_times_as_much() {
    let world = World::start(&[("east", 0), ("west", 1)]).await;
    world.heartbeats(HEARTBEATS).await;
    let begun = world.store.asked();
    world.heartbeats(HEARTBEATS).await;
    let (without, throttled) = world.store.asked() - begun;
    assert_eq!(throttled, 0);

    world.store.throttles.store(true, Ordering::Relaxed);
    let begun = world.store.asked();
    world.heartbeats(HEARTBEATS).await;
    let (with, throttled) = world.store.asked() - begun;
    assert!((0.45..0.55).contains(&(throttled as f64 / with as f64)), "{throttled} of {with}");
    assert!(with as f64 <= 1.2 * without as f64, "{with} requests, {without} without");
    world.until_all_know().await;
}

/// The store is not met by all at once, and has all within a heartbeat. Pauses are random: nine of them are below a
/// twentieth of a heartbeat together once in a hundred million times.
#[tokio::test(start_paused = true)]
async fn what_waited_for_a_store_is_written_one_after_the_other_within_a_heartbeat() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let world = World::start(&names.map(|name| (name, 0))).await;
    world.store.away.store(true, Ordering::Relaxed);
    world.heartbeats(7).await;
    world.store.written.lock().unwrap().clear();
    world.store.away.store(false, Ordering::Relaxed);
    let written = || world.store.written.lock().unwrap().clone();
    while written().len() < names.len() {
        tokio::time::sleep(TICK).await;
    }
    let written = written();
    let (first, last) = (written[0], written[names.len() - 1]);
    let heartbeat = DEFAULT_LEASE / 3;
    assert!(last.since(first) <= heartbeat, "{written:?}");
    assert!(last.since(first) >= heartbeat / 20, "{written:?}");
    world.until_all_know().await;
}

/// A refresh of the longest interval that is allowed included: two reads that fail in turn are no pause of the registry.
#[test]
fn a_throttled_read_is_made_again_after_one_to_three_intervals_within_a_third_of_a_pause() {
    let timing = Timing::default();
    let spared = |interval: u64, random| spared(timing, Duration::from_secs(interval), random);
    assert_eq!(
        [0.0, 0.5, 0.75, 0.999].map(|random| spared(2, random)),
        [2, 4, 5, 5].map(Duration::from_secs)
    );
    assert_eq!([0.0, 0.999].map(|random| spared(5, random)), [5, 5].map(Duration::from_secs));
    assert_eq!(spared(1, 1.0), Duration::from_secs(3));
}

/// How often a store was asked, and how often it said that this was too often.
#[derive(Clone, Copy)]
struct Asked(u64, u64);

impl std::ops::Sub for Asked {
    type Output = (u64, u64);

    fn sub(self, before: Self) -> (u64, u64) {
        (self.0 - before.0, self.1 - before.1)
    }
}

/// A cluster that renews and changes its only export.
struct Cluster {
    home: usize,
    writer: Writer,
    version: Version,
    sum: Sum,
    port: u16,
}

impl Cluster {
    fn op(&self) -> (ReadOp, Sum) {
        let key = ServiceKey::new("shop", "web").unwrap();
        let spec = Arc::new(ExportSpec {
            ports: vec![Port { name: "http".to_owned(), port: self.port, ..Port::default() }],
            ip_families: vec![IpFamily::V4],
            ..ExportSpec::default()
        });
        let endpoints = Arc::new(EndpointSet::default());
        let leaf = Leaf::of(&key, &spec, &endpoints);
        let op = Op::Put { key: key.clone(), leaf, spec, endpoints, changed_at: None };
        (ReadOp { key: (&key).into(), read: Ok((op, Vec::new())) }, [leaf].into_iter().collect())
    }
}

/// Replicas over one store, each of which serves some clusters.
struct World {
    store: Arc<Throttling>,
    clock: Arc<ManualClock>,
    replicas: Vec<Arc<Service>>,
    clusters: Mutex<Vec<Cluster>>,
}

impl World {
    /// Clusters, and the replicas that they renew at.
    async fn start(clusters: &[(&str, usize)]) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(Throttling { clock: Arc::clone(&clock), ..Throttling::default() });
        let ticking = Arc::clone(&clock);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                ticking.pass(TICK);
            }
        });
        let config = with_policy(Policy::of_lease(DEFAULT_LEASE));
        let mut world = Self { store, clock, replicas: Vec::new(), clusters: Mutex::default() };
        for home in 0..=clusters.iter().map(|(_, home)| *home).max().unwrap() {
            let (clock, store): (Arc<dyn Clock>, Arc<dyn Store>) = (world.clock.clone(), world.store.clone());
            let epoch = Epoch(u128::try_from(home).unwrap() + 1);
            let service = Parts::new(&config, epoch, clock, store, Drain::default()).unwrap().service;
            tokio::spawn(Arc::clone(&service).judge());
            tokio::spawn(Arc::clone(&service).keep(Ready::new(Drain::default()).wait_for("the store")));
            tokio::spawn(Arc::clone(&service).follow());
            world.replicas.push(service);
        }
        for (name, home) in clusters {
            let member = Member {
                clusterset: ClustersetId::new("prod").unwrap(),
                cluster: ClusterId::new(*name).unwrap(),
                uid: ClusterUid::new(*name).unwrap(),
            };
            let writer = Writer::called_by(&Caller::Anyone, member).unwrap();
            let version = Version::new(1, 1);
            let registration = Registration {
                uid: writer.member().uid.clone(),
                region: None,
                instance: "mcs-controller-0".parse().unwrap(),
                build: "0.1.0".parse().unwrap(),
                version,
                sum: Sum::EMPTY,
            };
            world.replicas[*home].register(&writer, registration).await.unwrap();
            let cluster = Cluster { home: *home, writer, version, sum: Sum::EMPTY, port: 0 };
            world.clusters.lock().unwrap().push(cluster);
        }
        world.heartbeats(1).await;
        world.until_all_know().await;
        world
    }

    /// Each cluster renews so often, and changes with every seventh heartbeat.
    async fn heartbeats(&self, count: u64) {
        let mut clusters = std::mem::take(&mut *self.clusters.lock().unwrap());
        for beat in 0..count {
            for cluster in &mut clusters {
                let service = &self.replicas[cluster.home];
                if beat % 7 == 0 {
                    cluster.port += 1;
                    cluster.version.seq += 1;
                    let (op, sum) = cluster.op();
                    cluster.sum = sum;
                    service.write(&cluster.writer, cluster.version, vec![op]).await.unwrap();
                }
                let renewed =
                    service.renew(&cluster.writer, cluster.version, cluster.sum, Report::default()).unwrap();
                assert_eq!((renewed.state, renewed.differs), (MemberState::Active, false));
            }
            tokio::time::sleep(DEFAULT_LEASE / 3).await;
            self.are_active(&clusters);
        }
        *self.clusters.lock().unwrap() = clusters;
    }

    /// What a replica holds of a cluster.
    fn held(&self, replica: usize, cluster: &Cluster) -> Option<(MemberState, Version, Sum)> {
        let [clusterset] = &self.replicas[replica].clustersets()[..] else { return None };
        clusterset.unsaved(|_, registry| {
            let held = registry.member(&cluster.writer.member().cluster)?;
            Some((held.state(), held.version(), held.sum()))
        })
    }

    /// No lease is lost at any replica.
    fn are_active(&self, clusters: &[Cluster]) {
        for (replica, cluster) in
            (0..self.replicas.len()).flat_map(|of| clusters.iter().map(move |one| (of, one)))
        {
            if let Some((state, ..)) = self.held(replica, cluster) {
                assert_eq!(state, MemberState::Active, "{:?} at replica {replica}", cluster.writer);
            }
        }
    }

    /// Waits until all replicas hold what the clusters said last.
    async fn until_all_know(&self) {
        let knows = |replica, cluster: &Cluster| {
            self.held(replica, cluster) == Some((MemberState::Active, cluster.version, cluster.sum))
        };
        let all_know = || {
            let clusters = self.clusters.lock().unwrap();
            (0..self.replicas.len()).all(|replica| clusters.iter().all(|cluster| knows(replica, cluster)))
        };
        while !all_know() {
            self.heartbeats_without_change().await;
        }
    }

    async fn heartbeats_without_change(&self) {
        let renew = |cluster: &Cluster| {
            let service = &self.replicas[cluster.home];
            service.renew(&cluster.writer, cluster.version, cluster.sum, Report::default()).map(drop)
        };
        self.clusters.lock().unwrap().iter().try_for_each(renew).unwrap();
        tokio::time::sleep(DEFAULT_LEASE / 3).await;
    }
}

/// What one replica says.
type Said = (Option<Beat>, Option<News>);

/// A store that is shared, and throttles half of the calls in an order that is the same in each run.
#[derive(Default)]
struct Throttling {
    records: Memory,
    said: Mutex<BTreeMap<(ClustersetId, Epoch), Said>>,
    clock: Arc<ManualClock>,
    away: AtomicBool,
    /// When records of members were written.
    written: Mutex<Vec<Timestamp>>,
    throttles: AtomicBool,
    random: AtomicU64,
    asked: AtomicU64,
    throttled: AtomicU64,
}

impl Throttling {
    fn asked(&self) -> Asked {
        Asked(self.asked.load(Ordering::Relaxed), self.throttled.load(Ordering::Relaxed))
    }

    fn ask(&self) -> Result<(), Failed> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Err(Failed::Away { reason: "connection refused".to_owned() });
        }
        if !self.throttles.load(Ordering::Relaxed) {
            return Ok(());
        }
        let next = |random: u64| {
            Some(random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        };
        let (Ok(random) | Err(random)) = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if random >> 63 == 0 {
            return Ok(());
        }
        self.throttled.fetch_add(1, Ordering::Relaxed);
        Err(Failed::Throttled { reason: "rate exceeded".to_owned() })
    }

    fn say(&self, clusterset: &ClustersetId, epoch: Epoch, say: impl FnOnce(&mut Said)) {
        say(self.said.lock().unwrap().entry((clusterset.clone(), epoch)).or_default());
    }
}

#[tonic::async_trait]
impl Store for Throttling {
    fn is_shared(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), Failed> {
        self.ask()
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.ask()?;
        if let Ok(mut written) = self.written.lock() {
            written.push(self.clock.elapsed());
        }
        Store::write(&self.records, member, writes).await
    }

    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        self.ask()?;
        self.records.remove(member, as_of).await
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        self.ask()?;
        self.records.members(clusterset).await
    }

    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        self.ask()?;
        self.records.member(member).await
    }

    async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed> {
        self.ask()?;
        self.records.exports(member, known).await
    }

    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        known: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        self.ask()?;
        self.records.export(member, key, known).await
    }

    async fn fading(&self, member: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        self.ask()?;
        self.records.fading(member).await
    }

    async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        self.ask()?;
        let said = self.said.lock().unwrap();
        let said = said.iter().filter(|((of, _), _)| of == clusterset);
        Ok(said
            .filter_map(|(_, (beat, news))| Some(Replica { beat: beat.clone()?, news: news.clone() }))
            .collect())
    }

    async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed> {
        self.ask()?;
        self.say(clusterset, beat.epoch, |said| said.0 = Some(beat.clone()));
        Ok(())
    }

    async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed> {
        self.ask()?;
        self.say(clusterset, news.epoch, |said| said.1 = Some(news.clone()));
        Ok(())
    }

    async fn retire(&self, clusterset: &ClustersetId, replica: Epoch) -> Result<(), Failed> {
        self.ask()?;
        self.said.lock().unwrap().remove(&(clusterset.clone(), replica));
        Ok(())
    }
}
