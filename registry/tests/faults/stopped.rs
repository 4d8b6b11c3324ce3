//! Programs over one table that is replicated: stopped, killed and ended under clusters that renew.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Since};
use mcs_core::version::{Sum, Version};
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_proto::pb::LeaseState;
use mcs_runtime::dynamodb::double::{Double, Global, TABLE};
use tokio::task::JoinHandle;

use crate::program::Program;
use crate::started::{LIMIT, client, id, leaf, member, prod, put, registration};

const LEASE: Duration = Duration::from_secs(3);

/// A program in the region of a table.
async fn start(table: &Double) -> Program {
    let flags = [
        "--store=dynamodb".to_owned(),
        format!("--dynamodb-table={TABLE}"),
        format!("--dynamodb-endpoint={}", table.endpoint()),
        format!("--region={}", table.region()),
        "--lease-duration=3s".to_owned(),
        "--refresh-interval=200ms".to_owned(),
        "--replication-grace=6s".to_owned(),
    ];
    Program::start_in(&flags.each_ref().map(String::as_str), table.environment().into()).await
}

/// A cluster that exports one Service, renews every third of a lease, and goes to the next registry when one fails.
struct Cluster {
    task: JoinHandle<()>,
    /// What it was told that it did not expect.
    told: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    fn begin(name: &str, homes: Vec<RegistryClient>) -> Self {
        let member = member(name, &format!("uid-of-{name}"));
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&told);
        let task = tokio::spawn(async move {
            let mut homes = homes.into_iter().cycle();
            let first = homes.next().unwrap();
            let register = registration(&member, Version::new(1, 1), Sum::EMPTY);
            while first.register(&member, &register).await.is_err() {}
            let op = put("web", 2);
            let sum: Sum = [leaf(&op)].into_iter().collect();
            first.write(&member, Version::new(1, 2), &[op]).await.unwrap();
            let mut home = first;
            loop {
                tokio::time::sleep(LEASE / 3).await;
                if let Some(problem) = renew(&home, &member, sum).await {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
                    home = homes.next().unwrap();
                    let again = registration(&member, Version::new(1, 2), sum);
                    if home.register(&member, &again).await.is_ok_and(|registered| registered.differs) {
                        let differs = "it differs".to_owned();
                        noted.lock().unwrap_or_else(PoisonError::into_inner).push(differs);
                    }
                }
            }
        });
        Self { task, told }
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews at a registry within a third of a lease; says what was wrong.
async fn renew(home: &RegistryClient, member: &Member, sum: Sum) -> Option<String> {
    match tokio::time::timeout(LEASE / 3, home.renew(member, Version::new(1, 2), sum)).await {
        Ok(Ok(renewed)) => renewed.differs.then(|| "it differs".to_owned()),
        Ok(Err(error)) => Some(error.to_string()),
        Err(late) => Some(late.to_string()),
    }
}

/// What a watcher is told of clusters that go.
fn watch(registry: RegistryClient) -> (Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&lost);
    let task = tokio::spawn(async move {
        let mut watch = registry.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
        while let Ok(frame) = watch.next().await {
            let Frame::Change(change) = frame else { continue };
            let gone = match (&change.key, &change.object) {
                (ObjectKey::Section(of), Some(Object::Section(section))) => {
                    (section.state == MemberState::Expired).then_some(of)
                }
                (ObjectKey::Section(of) | ObjectKey::Part(_, of), None) => Some(of),
                _ => None,
            };
            noted.lock().unwrap_or_else(PoisonError::into_inner).extend(gone.map(ToString::to_string));
        }
    });
    (lost, task)
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, found).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// Waits until a registry thinks so of a cluster and shows its endpoints, or does not.
async fn until_seen(registry: &RegistryClient, cluster: &str, state: LeaseState, endpoints: u32) {
    until(&format!("{cluster} is {state:?} with {endpoints} endpoints"), async || {
        let (clusters, _) = registry.list_clusters(&prod()).await.ok()?;
        let found = clusters.into_iter().find(|found| found.cluster == cluster)?;
        let (imports, _) = registry.list_imports(&prod(), false).await.ok()?;
        let parts = imports.iter().flat_map(|import| &import.parts);
        let shown: u32 = parts.filter(|part| part.cluster == cluster).map(|part| part.endpoint_count).sum();
        (found.lease?.state() == state && shown == endpoints).then_some(())
    })
    .await;
}

/// Faults 2, 3 and 13: of two replicas of a region one is stopped and goes on, then killed, with a cluster that dies then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_over_one_table_that_are_stopped_and_killed_lose_no_live_cluster() {
    let tables = Global::of(&["eu-west-1", "us-east-1"]).await;
    tables.set_lag(Duration::ZERO..LEASE / 10);
    let (eu, us) = (tables.region("eu-west-1"), tables.region("us-east-1"));
    let (first, second, far) = (start(eu).await, start(eu).await, start(us).await);
    let [to_first, to_second, to_far] = [&first, &second, &far].map(|program| client(program.grpc));
    let east = Cluster::begin("east", vec![to_first.clone(), to_second.clone()]);
    let west = Cluster::begin("west", vec![to_first.clone(), to_second.clone()]);
    for registry in [&to_second, &to_far] {
        until_seen(registry, "east", LeaseState::Active, 2).await;
        until_seen(registry, "west", LeaseState::Active, 2).await;
    }
    let ((lost, _watch), (lost_far, _watch_far)) = (watch(to_second.clone()), watch(to_far.clone()));

    // It does not answer, as in a pause: its clusters go to the other one. Afterwards it judges nobody by that time.
    first.signal("-STOP");
    until("the clusters have left", async || {
        (!east.told().is_empty() && !west.told().is_empty()).then_some(())
    })
    .await;
    // So long does the pause last, after which it has seen nothing of what the others heard.
    tokio::time::sleep(LEASE * 2).await;
    first.signal("-CONT");
    until_seen(&to_first, "east", LeaseState::Active, 2).await;

    drop(first);
    west.task.abort();
    for registry in [&to_second, &to_far] {
        until_seen(registry, "west", LeaseState::Expired, 0).await;
        until_seen(registry, "east", LeaseState::Active, 2).await;
    }
    assert!(!east.told().iter().any(|told| told == "it differs"), "{:?}", east.told());
    for lost in [lost, lost_far] {
        let lost = lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(!lost.contains(&"east".to_owned()), "{lost:?}");
    }
    // Of those that live, the one in the other region is ended by a signal and the cluster is served on.
    far.signal("-TERM");
    far.logged("registry ends").await;
    until_seen(&to_second, "east", LeaseState::Active, 2).await;
}
