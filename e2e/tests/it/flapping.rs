//! Endpoints that change faster than anyone should be told of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Write, stdout},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use mcs_core::{
    names::LABEL_SERVICE_NAME,
    time::{Clock, Timestamp},
    timing::COALESCE,
};
use mcs_e2e::{
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use mcs_runtime::clock::SystemClock;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::support::Place;

const PORTS: [(&str, u16); 1] = [("http", 8080)];
/// A change each hundredth of a second.
const PAUSE: Duration = Duration::from_millis(10);

#[tokio::test]
async fn endpoints_that_flap_are_written_ten_times_a_second_in_both_clusters_and_the_last_state_lands()
-> Result<()> {
    let scene = Scene::start("flapping").await?;
    let cart = Place::new(scene.east.clone(), &scene.namespace, "cart");
    cart.export(&PORTS, &["10.9.0.0"]).await?;
    scene.show("cart", &BTreeSet::from(["10.9.0.0".to_owned()])).await?;

    let writes = [Writes::follow(&scene.east, &cart).await?, Writes::follow(&scene.west, &cart).await?];
    let start = SystemClock.elapsed();
    let mut due = interval(PAUSE);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut last = String::new();
    for number in 1..=500_u16 {
        due.tick().await;
        let [high, low] = number.to_be_bytes();
        last = format!("10.9.{high}.{low}");
        cart.set_addresses(&[&last]).await?;
    }
    let written = SystemClock.elapsed();
    scene.show("cart", &BTreeSet::from([last])).await?;
    let landed = SystemClock.elapsed();
    writeln!(stdout(), "the last state was there {:?} after its write", landed.since(written))?;
    for writes in writes {
        writes.are_few(start, landed)?;
    }
    // How long changes took is told where they came from elsewhere.
    wait_for("import delays in west", async || {
        let delays = scene.delays("west").await?;
        ensure!(delays > 0, "{delays}");
        Ok(())
    })
    .await?;
    assert_eq!(scene.delays("east").await?, 0);
    Ok(())
}

/// As when a Deployment of 1,000 replicas is rolled, a hundredth of them at a time.
#[tokio::test]
async fn a_thousand_replicas_that_are_rolled_cost_each_slice_ten_writes_a_second() -> Result<()> {
    let scene = Scene::start("rolled").await?;
    let cart = Place::new(scene.east.clone(), &scene.namespace, "cart");
    let address =
        |generation: usize, number: usize| format!("10.{generation}.{}.{}", number / 100, number % 100);
    let mut replicas: Vec<_> = (0..1_000).map(|number| address(10, number)).collect();
    cart.export(&PORTS, &[]).await?;
    for (number, chunk) in replicas.chunks(100).enumerate() {
        let chunk: Vec<_> = chunk.iter().map(String::as_str).collect();
        cart.create_slice(&format!("cart-{number}"), &PORTS, &chunk).await?;
    }
    scene.show("cart", &replicas.iter().cloned().collect()).await?;

    let writes = [Writes::follow(&scene.east, &cart).await?, Writes::follow(&scene.west, &cart).await?];
    let start = SystemClock.elapsed();
    let slices = cart.api::<EndpointSlice>();
    let mut due = interval(PAUSE);
    for step in 0..100 {
        due.tick().await;
        for (number, replica) in replicas.iter_mut().enumerate().skip(step * 10).take(10) {
            *replica = address(11, number);
        }
        let slice = step / 10;
        let endpoints: Vec<_> = replicas[slice * 100..(slice + 1) * 100]
            .iter()
            .map(|address| json!({ "addresses": [address] }))
            .collect();
        let patch = Patch::Merge(json!({ "endpoints": endpoints }));
        slices.patch(&format!("cart-{slice}"), &PatchParams::default(), &patch).await?;
    }
    scene.show("cart", &replicas.into_iter().collect()).await?;
    let landed = SystemClock.elapsed();
    for writes in writes {
        writes.are_few(start, landed)?;
    }
    Ok(())
}

struct Scene {
    namespace: String,
    east: Client,
    west: Client,
    stack: Stack,
}

impl Scene {
    async fn start(prefix: &str) -> Result<Self> {
        let pair = pair().await?;
        let namespace = pair.namespace(prefix).await?.name().to_owned();
        let options = StackOptions {
            // Nothing is to expire while the machine is busy.
            lease: Duration::from_secs(30),
            ..StackOptions::for_namespace(&namespace)
        };
        let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
        let [east, west] = pair.clients();
        Ok(Self { namespace, east, west, stack })
    }

    /// How many import delays a controller has observed.
    async fn delays(&self, replica: &str) -> Result<u64> {
        let metrics = get(&format!("http://{}/metrics", self.stack.controller(replica)?.admin)).await?;
        let metrics = String::from_utf8(metrics.to_vec())?;
        let count = "mcs_controller_import_delay_seconds_count ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(count));
        Ok(count.context("no import delays")?.parse()?)
    }

    /// Waits until both clusters import exactly these addresses.
    async fn show(&self, name: &str, wanted: &BTreeSet<String>) -> Result<()> {
        for client in [&self.east, &self.west] {
            let api = Api::<EndpointSlice>::namespaced(client.clone(), &self.namespace);
            let selector = ListParams::default().labels(&format!("{LABEL_SERVICE_NAME}={name}"));
            wait_for(&format!("{} addresses of {name}", wanted.len()), async || {
                let slices = api.list(&selector).await?.items;
                let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
                let found: BTreeSet<_> = endpoints.flat_map(|endpoint| endpoint.addresses.clone()).collect();
                ensure!(
                    found == *wanted,
                    "{} addresses, {} of them",
                    found.len(),
                    found.intersection(wanted).count()
                );
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// Every state of every imported slice of a Service that a watch has told.
struct Writes {
    seen: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    _task: AbortOnDropHandle<()>,
}

impl Writes {
    /// Watches from now on.
    async fn follow(client: &Client, place: &Place) -> Result<Self> {
        let seen: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let config = watcher::Config::default().labels(&format!("{LABEL_SERVICE_NAME}={}", place.name));
        let api = Api::<EndpointSlice>::namespaced(client.clone(), &place.namespace);
        let mut events = watcher(api, config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) = event {
                    let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    let version = slice.resource_version().unwrap_or_default();
                    seen.entry(slice.name_any()).or_default().insert(version);
                }
            }
        });
        let writes = Self { seen, _task: AbortOnDropHandle::new(task) };
        wait_for("the first list", async || !writes.seen().is_empty()).await?;
        Ok(writes)
    }

    fn seen(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No slice was written more often than once each [`COALESCE`] from `start` to `end`, and something was written.
    fn are_few(&self, start: Timestamp, end: Timestamp) -> Result<()> {
        let most = end.since(start).as_millis() / COALESCE.as_millis();
        let mut written = 0;
        for (slice, states) in self.seen() {
            // The first state was there before, and the first write is made at once.
            let writes = states.len() - 1;
            ensure!(writes as u128 <= most + 1, "{writes} writes of {slice} within {:?}", end.since(start));
            written += writes;
        }
        ensure!(written > 0, "nothing was written");
        Ok(())
    }
}
