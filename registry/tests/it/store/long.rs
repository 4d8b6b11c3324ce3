//! What takes hours and days: registries over one table, on a clock that goes on in large steps as soon as all that is due
//! was done. No step is as long as half a lease, which would be a pause of the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use mcs_core::ids::Region;
use mcs_core::time::{Clock, ManualClock, Timestamp};
use mcs_core::timing::{MAX_LEASE, Timing};
use mcs_core::version::{Sum, Version};
use mcs_proto::pb::LeaseState;
use mcs_registry::Replication;
use mcs_registry::store::DynamoDb;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::dynamodb::double::{Door, Double, Options, TABLE};
use mcs_runtime::dynamodb::{Limits, Settings};
use serde_json::Value;

use super::world::Witness;
use crate::started::{Exporter, LIMIT, STARTED_AT, Started, leaf, member, prod, put, registration};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// More endpoints than lie in the item of an export.
const MANY: u32 = 2_000;

/// The loops of registries do in this time what they do between two steps.
const REST: Duration = Duration::from_millis(2);

/// Registries over one table, and a cluster for each place in them.
struct Long {
    double: Double,
    clock: Arc<ManualClock>,
    timing: Timing,
    replicas: Vec<Started>,
    clusters: Vec<Exporter>,
    /// When all renew next.
    due: Timestamp,
}

impl Long {
    async fn start(lease: Duration, replicas: usize, clusters: usize) -> Self {
        let clock = Arc::new(ManualClock::at(STARTED_AT));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let double = Double::start_with(options).await;
        let timing = Timing::of_lease(lease);
        let due = clock.elapsed();
        let mut long = Self { double, clock, timing, replicas: Vec::new(), clusters: Vec::new(), due };
        for _ in 0..replicas {
            long.replicas.push(long.replica().await);
        }
        for number in 0..clusters {
            let name = format!("c{number:02}");
            let (client, member) =
                (long.replicas[number % replicas].client.clone(), member(&name, &format!("uid-of-{name}")));
            let registration = registration(&member, Version::new(1, 1), Sum::EMPTY);
            let registered = long.meanwhile(client.register(&member, &registration)).await;
            assert!(!registered.unwrap().differs);
            long.clusters.push(Exporter { client, member, seq: 1, sum: Sum::EMPTY });
        }
        long
    }

    /// One more registry.
    async fn replica(&self) -> Started {
        // A call that is refused is so at once; the limit of one that is not has nothing to do with the lease here.
        let limits = Limits::within(Duration::from_secs(10));
        let client = self.double.client_of(Settings { limits, ..self.double.settings() }).await;
        let store = Arc::new(DynamoDb::new(client, self.clock.clone()));
        let timing = self.timing;
        Started::on(self.clock.clone(), store, None, |config| {
            config.policy.timing = timing;
            config.policy.max_clusters = 100;
            config.replication = Replication {
                region: Some(Region::new("eu-west-1").unwrap()),
                refresh_interval: timing.lease() / 15,
                grace: timing.lease(),
            };
        })
        .await
    }

    /// Does something while time passes slowly.
    async fn meanwhile<T>(&self, what: impl Future<Output = T>) -> T {
        tokio::pin!(what);
        let done = async {
            loop {
                tokio::select! {
                    done = &mut what => return done,
                    () = tokio::time::sleep(REST) => self.clock.pass(self.timing.lease() / 300),
                }
            }
        };
        tokio::time::timeout(LIMIT, done).await.unwrap()
    }

    /// Lets time pass, with the heartbeats that fall into it; says whether all were told that what they said may be in
    /// memory only, or none was.
    async fn step(&mut self, by: Duration) -> Option<bool> {
        self.clock.pass(by);
        if !self.due.has_passed(self.clock.elapsed()) {
            tokio::time::sleep(REST).await;
            return None;
        }
        self.due = self.clock.elapsed() + self.timing.heartbeat();
        let renewals = self.clusters.iter().map(|cluster| async {
            let renewed = cluster.client.renew(&cluster.member, cluster.version(), cluster.sum).await;
            let renewed = renewed.unwrap_or_else(|error| panic!("{:?}: {error}", cluster.member));
            assert!(!renewed.differs, "{:?}", cluster.member);
            renewed.degraded
        });
        let degraded: BTreeSet<bool> = join_all(renewals).await.into_iter().collect();
        degraded.first().copied().filter(|_| degraded.len() == 1)
    }

    /// Lets time pass in such steps until it is so.
    async fn until(&mut self, by: Duration, what: &str, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        let reached = async {
            while !is_so(self).await {
                self.step(by).await;
            }
        };
        let reached = tokio::time::timeout(LIMIT, reached).await;
        assert!(reached.is_ok(), "not within {LIMIT:?}: {what}");
    }

    /// A cluster has so many endpoints of a Service from now on.
    /// It is told whether that may be in memory only.
    async fn puts(&mut self, cluster: usize, name: &str, before: u32, count: u32) -> bool {
        let cluster = &mut self.clusters[cluster];
        if before > 0 {
            cluster.sum.remove(leaf(&put(name, before)));
        }
        cluster.write(&[put(name, count)]).await.degraded
    }

    /// Whether all registries show so many endpoints of each cluster, whose leases all run.
    async fn all_show(&self, name: &str, counts: &[u32]) -> bool {
        for replica in &self.replicas {
            let Ok((clusters, _)) = replica.client.list_clusters(&prod()).await else { return false };
            let run = |cluster: &mcs_proto::pb::Cluster| {
                cluster.lease.as_ref().is_some_and(|lease| lease.state() == LeaseState::Active)
            };
            if clusters.len() != counts.len() || !clusters.iter().all(run) {
                return false;
            }
            let Ok((imports, _)) = replica.client.list_imports(&prod(), false).await else { return false };
            let import =
                imports.iter().find(|import| import.key.as_ref().is_some_and(|key| key.name == name));
            let shown: Option<Vec<u32>> =
                import.map(|import| import.parts.iter().map(|part| part.endpoint_count).collect());
            if shown.as_deref() != Some(counts) {
                return false;
            }
        }
        true
    }

    async fn are_complete(&self, complete: bool) -> bool {
        for replica in &self.replicas {
            let listed = replica.client.list_clusters(&prod()).await;
            if listed.is_ok_and(|(_, so)| so != complete) {
                return false;
            }
        }
        true
    }

    /// The records of all clusters, with what the table says of their versions.
    async fn records(&self) -> BTreeSet<(String, String)> {
        let items = self.double.items(TABLE).await;
        let records = items.iter().filter(|item| sort_key(item).starts_with('c'));
        records.map(|item| (sort_key(item).to_owned(), item["v"].to_string())).collect()
    }

    /// The pieces that the table has, by sort key.
    async fn pieces(&self) -> BTreeSet<String> {
        let items = self.double.items(TABLE).await;
        items.iter().map(sort_key).filter(|sk| sk.starts_with("K#")).map(ToOwned::to_owned).collect()
    }
}

/// Fault 5, for hours: every heartbeat is taken and told that the store is away, no lease is judged; afterwards all is stored
/// within a heartbeat or so, one cluster after the other.
async fn an_outage(lasts: Duration, clusters: usize) {
    let lease = Duration::from_secs(30);
    let mut long = Long::start(lease, 2, clusters).await;
    let witnesses = [0, 1].map(|replica| Witness::of(long.replicas[replica].client.clone()));
    let tick = lease / 300;
    // Until each replica knows of the other.
    let known = async { while long.step(tick).await != Some(false) {} };
    tokio::time::timeout(LIMIT, known).await.unwrap();
    for cluster in 0..clusters {
        assert!(!long.puts(cluster, "web", 0, 2).await, "{cluster}");
    }
    let records = long.records().await;
    assert_eq!(records.len(), clusters);
    let before = vec![2; clusters];
    long.until(tick, "all is shown", async |long| {
        long.all_show("web", &before).await && long.are_complete(true).await
    })
    .await;

    long.double.faults().door(Door::Refusing);
    long.until(tick, "the outage is seen", async |long| long.are_complete(false).await).await;
    // All are answered so from the next heartbeat on.
    while long.step(tick).await != Some(true) {}
    let until = long.clock.elapsed() + lasts;
    while !until.has_passed(long.clock.elapsed()) {
        assert_eq!(long.step(long.timing.heartbeat()).await, Some(true), "the store is away");
    }
    for cluster in 0..clusters {
        assert!(long.puts(cluster, "web", 2, 3).await, "{cluster}");
    }
    assert!(long.are_complete(false).await);
    for (replica, started) in long.replicas.iter().enumerate() {
        let (listed, _) = started.client.list_clusters(&prod()).await.unwrap();
        let states: BTreeSet<_> = listed.iter().map(|cluster| cluster.lease.unwrap().state()).collect();
        assert_eq!((listed.len(), states), (clusters, [LeaseState::Active].into()), "replica {replica}");
    }
    // What nobody could write for so long may be gone by then.
    long.double.sweep_expired_at(TABLE, long.clock.wall());

    assert_eq!(long.records().await, records, "the table is away");
    long.double.faults().door(Door::Open);
    // The pauses between two writes are real ones.
    let (after, mut seen) = (vec![3; clusters], BTreeSet::new());
    let mut before = SystemClock.elapsed();
    let all_is_stored = async {
        while seen.last() != Some(&clusters) {
            let now = SystemClock.elapsed();
            long.step(now.since(std::mem::replace(&mut before, now))).await;
            seen.insert(long.records().await.difference(&records).count());
        }
    };
    assert!(tokio::time::timeout(LIMIT, all_is_stored).await.is_ok(), "{seen:?} of {clusters} are stored");
    long.until(tick, "all is as before", async |long| {
        long.are_complete(true).await && long.all_show("web", &after).await
    })
    .await;
    while long.step(tick).await != Some(false) {}
    let until = long.clock.elapsed() + lease * 2;
    while !until.has_passed(long.clock.elapsed()) {
        long.step(tick).await;
    }
    assert!(long.are_complete(true).await && long.all_show("web", &after).await);
    for (replica, witness) in witnesses.iter().enumerate() {
        for cluster in &long.clusters {
            assert_eq!(witness.lost(cluster.member.cluster.as_str()), [], "replica {replica}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_away_for_three_hours_costs_no_lease_and_no_endpoint() {
    an_outage(Duration::from_secs(3 * 60 * 60), 12).await;
}

/// Longer than a beat lives.
#[tokio::test]
async fn a_store_that_is_away_for_a_day_costs_no_lease_and_no_endpoint() {
    an_outage(DAY, 2).await;
}

/// Seconds since 1970 at which an item goes.
fn expires_at(item: &Value) -> i64 {
    item["expires_at"]["N"].as_str().unwrap().parse().unwrap()
}

fn sort_key(item: &Value) -> &str {
    item["sk"]["S"].as_str().unwrap()
}

/// Records are written again daily and exports weekly, so that nothing of what is served comes nearer to its end than a
/// week; pieces that no export names any more go, and nothing else does. The longest lease that there is makes days short.
#[tokio::test]
async fn what_is_served_is_written_again_before_the_table_collects_it_and_what_is_not_goes() {
    let mut long = Long::start(MAX_LEASE, 1, 1).await;
    long.puts(0, "web", 0, MANY).await;
    long.puts(0, "api", 0, 2).await;
    let first = long.pieces().await;
    long.puts(0, "web", MANY, MANY + 500).await;
    let both = long.pieces().await;
    let named: BTreeSet<_> = both.difference(&first).cloned().collect();
    assert!(both.is_superset(&first) && !named.is_empty());

    // When each item was written, as its end tells.
    let mut written: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    let begun = long.clock.elapsed();
    while long.clock.elapsed().since(begun) < DAY * 24 {
        long.step(MAX_LEASE / 6).await;
        let soon = long.clock.wall().unix_secs() + 7 * 24 * 60 * 60;
        let mut ends_soon = BTreeSet::new();
        let all_last = async {
            loop {
                let items = long.double.items(TABLE).await;
                let is_served = |sk: &str| match sk.split_once('#') {
                    Some(("K", _)) => named.contains(sk),
                    Some(("R" | "N", _)) => false,
                    _ => true,
                };
                let served: Vec<_> = items.iter().filter(|item| is_served(sort_key(item))).collect();
                assert_eq!(served.len(), 3 + named.len(), "something is gone");
                let soon = served.iter().filter(|item| expires_at(item) < soon);
                ends_soon = soon.map(|item| sort_key(item).to_owned()).collect();
                if ends_soon.is_empty() {
                    return served
                        .into_iter()
                        .map(|item| (sort_key(item).to_owned(), expires_at(item)))
                        .collect();
                }
                // What is due by now is written within moments.
                tokio::time::sleep(REST).await;
                long.clock.pass(Duration::from_millis(100));
            }
        };
        let all: Result<Vec<_>, _> = tokio::time::timeout(LIMIT, all_last).await;
        let passed = long.clock.elapsed().since(begun).as_secs() / 3_600;
        let all = all.unwrap_or_else(|_| panic!("after {passed} hours not written again: {ends_soon:?}"));
        for (sk, end) in all {
            written.entry(sk).or_default().insert(end);
        }
        if long.clock.elapsed().since(begun) < DAY * 14 {
            assert_eq!(long.pieces().await, both, "a slow reader may still need them");
        }
        long.double.sweep_expired_at(TABLE, long.clock.wall());
    }
    let times = |sk: &str| written[sk].len();
    let record = written.keys().find(|sk| sk.starts_with("c00#")).unwrap();
    assert!(times(record) <= 25, "no more than daily: {}", times(record));
    assert!(times("E#shop/api") <= 5, "no more than weekly: {}", times("E#shop/api"));
    let left = long.pieces().await;
    assert!(left.is_superset(&named) && !left.is_superset(&first), "what is not named any more is gone");

    // All of what is named is there: a registry that starts now reads it.
    long.replicas = vec![long.replica().await];
    long.until(MAX_LEASE / 300, "all is read", async |long| {
        long.all_show("web", &[MANY + 500]).await && long.all_show("api", &[2]).await
    })
    .await;
}
