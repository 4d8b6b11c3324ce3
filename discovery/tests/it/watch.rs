//! How the watch goes on: where it resumes, when it lists anew, and how it rests. No sockets, so time is paused.

use crate::objects::relay;
use crate::service::registration;
use crate::slices::services;
use global_discovery_service::driver::Driver;
use global_discovery_service::metrics::Metrics;
use global_discovery_service::watch::SliceWatch;
use global_discovery_service::wire;
use mcs_core::pools::directory::{Directory, Source};
use mcs_core::pools::naming::Naming;
use mcs_core::pools::storage::Storage;
use mcs_core::pools::{Completeness, Lease, PoolRegistration};
use mcs_core::time::{Clock, ManualClock};
use mcs_runtime::kube::follow::{FIRST_PAUSE, WATCH_LIMIT};
use mcs_runtime::kube::testing::{ApiServer, api_server, status};
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn start() -> (Arc<Driver>, Arc<ManualClock>, ApiServer) {
    let (api, client) = api_server();
    let clock = Arc::new(ManualClock::default());
    let lease = Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
    let view = Ready::new(Drain::default()).wait_for("view");
    let source = Source::Slices(Naming::Mcs, services());
    let directory = Directory::new(Storage::memory(lease, clock.elapsed()), source, clock.elapsed());
    let driver = Arc::new(Driver::new(directory, clock.clone(), view));
    let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
    let watch = SliceWatch::new(client, Naming::Mcs, driver.clone(), clock.clone(), metrics);
    tokio::spawn(watch.run());
    (driver, clock, api)
}

/// Case O45: a bookmark is no event, but the watch resumes from it.
#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_the_last_event_or_bookmark_without_a_list() {
    let (_, clock, mut api) = start();
    api.list().await.listed("70", json!([]));
    let asked = api.asked().await;
    let query = |name: &str| asked.query.get(name).map(String::as_str);
    assert_eq!(
        (query("watch"), query("resourceVersion"), query("allowWatchBookmarks"), query("timeoutSeconds")),
        (Some("true"), Some("70"), Some("true"), Some("50"))
    );
    let watch = asked.open();
    watch.event("ADDED", &relay(&["10.43.1.2"]));
    clock.advance(Duration::from_secs(50));
    drop(watch);
    let watch = api.watch("90").await;
    watch.bookmark("97");
    clock.advance(Duration::from_secs(50));
    drop(watch);
    api.watch("97").await;
}

/// Case O42: "too old" inside a watch that was accepted leads to a list.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_list() {
    let (driver, _, mut api) = start();
    api.list().await.listed("70", json!([relay(&["10.43.1.2"])]));
    let watch = api.watch("70").await;
    assert_eq!(driver.measures().sizes.live, 1);
    watch.event("ERROR", &status(410, None));
    api.list().await.listed("80", json!([]));
    api.watch("80").await;
    assert_eq!(driver.measures().sizes.live, 0);
}

/// Cases O48 and O66: a server that refuses is asked with growing pauses, and no sooner than it says.
#[tokio::test(start_paused = true)]
async fn the_pauses_grow_to_thirty_seconds_and_start_over_after_an_event() {
    let (driver, _, mut api) = start();
    for bound in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
        api.list().await.refused(403, None);
        api.comes_after(bound, 0.0).await;
    }
    assert!(!driver.has_view());
    // A list does not start the pauses over: a server may answer lists and refuse each watch.
    api.list().await.listed("70", json!([]));
    assert!(driver_sees(&driver).await);
    api.asked().await.refused(403, None);
    api.comes_after(30.0, 0.0).await;
    let watch = api.watch("70").await;
    watch.bookmark("71");
    watch.event("ERROR", &status(500, None));
    api.comes_after(0.8, 0.0).await;
    let watch = api.watch("71").await;
    watch.bookmark("72");
    watch.event("ERROR", &status(429, Some(7)));
    api.comes_after(0.8, 7.0).await;
    // The server's flow control says it in a header alone.
    api.asked().await.throttled(9);
    api.comes_after(1.6, 9.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_watch_at_once_is_asked_with_pauses() {
    let (_, _, mut api) = start();
    api.list().await.listed("70", json!([]));
    for bound in [0.8, 1.6, 3.2] {
        drop(api.watch("70").await);
        api.comes_after(bound, 0.0).await;
    }
}

/// Case O66: a source that cannot be watched at the start is tried again for as long as it takes. What was listed stays
/// listed and is said to be old after a minute; a watch that ends as it is to changes nothing.
#[tokio::test(start_paused = true)]
async fn watches_that_are_refused_for_minutes_are_tried_again_and_then_all_is_exact_without_a_restart() {
    let (driver, clock, mut api) = start();
    api.list().await.listed("70", json!([relay(&["10.43.1.2"])]));
    let mut seen = Vec::new();
    for _ in 0..6 {
        api.asked().await.refused(403, None);
        // It was told when it is tried again.
        api.peek().await;
        pass(&driver, &clock, 30);
        seen.push(state(&driver));
    }
    let (exact, estimated) = ((1, Completeness::Exact), (1, Completeness::Estimated));
    assert_eq!(seen, [exact, estimated, estimated, estimated, estimated, estimated]);

    driver.register(pool()).unwrap();
    let watch = api.watch("70").await;
    becomes(&driver, exact).await;
    pass(&driver, &clock, 20);
    drop(watch);
    let watch = api.watch("70").await;
    assert_eq!(state(&driver), exact);
    // A watch that lasted has started the pauses over.
    watch.event("ERROR", &status(500, None));
    api.comes_after(0.8, 0.0).await;
}

/// Fault 22: whatever fails on the way to a whole list deletes nothing, and one whole list is enough.
#[tokio::test(start_paused = true)]
async fn what_fails_on_the_way_to_a_whole_list_changes_nothing() {
    let (driver, _, mut api) = start();
    api.list().await.listed("70", json!([relay(&["10.43.1.2"])]));
    driver.register(pool()).unwrap();
    api.watch("70").await.event("ERROR", &status(410, None));
    api.list().await.refused(500, None);
    api.list().await.throttled(3);
    // The server is killed: the connection ends without an answer.
    drop(api.list().await);
    let half = api.list().await.open();
    half.text(
        r#"{"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "80"}, "items": ["#
            .to_owned(),
    );
    drop(half);
    let endless = api.list().await.open();
    endless.text(r#"{"kind": "List", "#.to_owned());
    let last = api.next().await.unwrap();
    assert!(!last.is_watch() && endless.is_left(), "two lists at once");
    assert_eq!(state(&driver).0, 1);
    last.listed("80", json!([]));
    api.watch("80").await;
    assert_eq!(state(&driver).0, 0);
}

/// Fault 23: a watch on which nothing comes any more, not even its end, is left before a minute is over.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silently_dead_is_left_and_taken_up_where_it_stood() {
    let (driver, clock, mut api) = start();
    api.list().await.listed("70", json!([relay(&["10.43.1.2"])]));
    driver.register(pool()).unwrap();
    let watch = api.watch("70").await;
    watch.bookmark("75");
    let early = timeout(WATCH_LIMIT - Duration::from_millis(10), api.peek()).await;
    assert!(early.is_err() && !watch.is_left());
    timeout(FIRST_PAUSE + Duration::from_millis(20), api.peek()).await.expect("never left");
    assert!(watch.is_left());
    // The error that this is begins a run.
    pass(&driver, &clock, 60);
    assert_eq!(state(&driver), (1, Completeness::Estimated));
    let _watch = api.watch("75").await;
    becomes(&driver, (1, Completeness::Exact)).await;
}

/// Lets so many seconds pass in which the pool is registered every five: one longer step would be a pause of the process.
fn pass(driver: &Driver, clock: &ManualClock, seconds: u64) {
    for _ in 0..seconds / 5 {
        driver.register(pool()).unwrap();
        clock.advance(Duration::from_secs(5));
    }
    driver.register(pool()).unwrap();
}

fn pool() -> PoolRegistration {
    wire::registration(registration("chat").to_string().as_bytes()).unwrap()
}

/// How many pools are listed, and whether that is exact.
fn state(driver: &Driver) -> (usize, Completeness) {
    let measures = driver.measures();
    (measures.pools, measures.pools_completeness)
}

async fn becomes(driver: &Driver, expected: (usize, Completeness)) {
    let wait = async {
        while state(driver) != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if timeout(Duration::from_secs(10), wait).await.is_err() {
        assert_eq!(state(driver), expected);
    }
}

async fn driver_sees(driver: &Driver) -> bool {
    timeout(Duration::from_secs(60), async {
        while !driver.has_view() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .is_ok()
}
