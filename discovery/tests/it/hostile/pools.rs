//! Registrations and EndpointSlices, whatever they are, played to the directory of the service: what is listed is valid,
//! each pool once, and what is taken reads back equal.

use super::texts::is_plain;
use global_discovery_service::driver::Driver;
use global_discovery_service::shown::{Entry, List};
use global_discovery_service::{watch, wire};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use mcs_core::pools::directory::{Directory, Source, WatchNews};
use mcs_core::pools::index::SliceEvent;
use mcs_core::pools::naming::{Naming, Services};
use mcs_core::pools::slices::SliceId;
use mcs_core::pools::storage::Storage;
use mcs_core::pools::{Lease, PoolKey, PoolListing, RouterReplica};
use mcs_core::time::{Clock, ManualClock};
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Shutdown;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// At most so many lines are played.
const LINES: usize = 64;

/// Plays lines: `POST` with a registration, `APPLY` and `DELETE` with an EndpointSlice, `LIST` with an array of them,
/// `PASS` with a number of seconds.
///
/// # Panics
/// What must hold does not.
pub fn play(text: &str) {
    for naming in [Naming::Mcs, Naming::Karmada] {
        let shutdown = Shutdown::manual();
        let clock = Arc::new(ManualClock::default());
        let view = Ready::new(shutdown.watch()).wait_for("view");
        let lease = Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
        let directory = Directory::new(
            Storage::memory(lease, clock.elapsed()),
            Source::Slices(naming, services()),
            clock.elapsed(),
        );
        let driver = Driver::new(directory, clock.clone(), view);
        let tell = |event| driver.handle_watch(WatchNews::Event(event));
        assert!(driver.pools().is_none() && driver.routers().is_none());
        tell(SliceEvent::Init);
        tell(SliceEvent::InitDone);
        for line in text.lines().take(LINES) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            match verb {
                "POST" => register(&driver, rest),
                "APPLY" => {
                    if let Some((id, facts)) = read(naming, rest) {
                        let gone = SliceEvent::Delete(id.clone());
                        tell(facts.map_or(gone, |facts| SliceEvent::Apply(id, facts)));
                    }
                }
                "DELETE" => {
                    if let Some((id, _)) = read(naming, rest) {
                        tell(SliceEvent::Delete(id));
                    }
                }
                "LIST" => {
                    tell(SliceEvent::Init);
                    for slice in serde_json::from_str::<Vec<Value>>(rest).unwrap_or_default() {
                        if let Some((id, Some(facts))) = read(naming, &slice.to_string()) {
                            tell(SliceEvent::InitApply(id, facts));
                        }
                    }
                    tell(SliceEvent::InitDone);
                }
                "PASS" => clock.advance(Duration::from_secs(rest.parse().unwrap_or(1).min(86_400))),
                _ => {}
            }
            look_at_pools(driver.pools().map(|pools| pools.list()));
            look_at_routers(driver.routers().map(|routers| routers.list()));
        }
    }
}

fn services() -> Services {
    Services {
        pool_suffix: "-pool-relay".into(),
        frontend_suffix: "-frontend".into(),
        frontend_port: "http".into(),
        router_namespace: "routing".into(),
        router_service: "global-router".into(),
        router_port: "relay".into(),
    }
}

fn register(driver: &Driver, body: &str) {
    match wire::registration(body.as_bytes()) {
        Ok(registration) => {
            let mut listed = Vec::new();
            let packed = (&registration).into();
            wire::pool(&PoolListing { registration: packed, facts: None }, &mut listed);
            assert_eq!(wire::registration(&listed).unwrap(), registration);
            driver.register(registration).unwrap();
        }
        Err(refused) => assert!(is_plain(&refused.to_string()), "{refused}"),
    }
}

/// A slice, and what it says where it can be used.
fn read(naming: Naming, text: &str) -> Option<(SliceId, Option<mcs_core::pools::slices::SliceFacts>)> {
    let guard: DeserializeGuard<EndpointSlice> = serde_json::from_str(text).ok()?;
    let Ok(slice) = guard.0 else { return None };
    let id = SliceId::new(&slice.namespace()?, slice.metadata.name.as_deref()?);
    Some((id, watch::facts(naming, &slice).unwrap_or_default()))
}

fn entries<E: Entry>(list: Option<List<E>>, name: &str) -> Vec<Value> {
    let List { entries, completeness, .. } = list.unwrap();
    let (begin, end) = wire::list_frame(name, completeness);
    let text = [begin.as_bytes(), &entries.collect::<Vec<_>>().concat(), end.as_bytes()].concat();
    let mut list: Value = serde_json::from_slice(&text).unwrap();
    let Value::Array(entries) = list[name].take() else { panic!("{list}") };
    entries
}

fn look_at_pools(list: Option<List<PoolListing>>) {
    let mut keys = BTreeSet::new();
    for pool in entries(list, "pools") {
        let part = |name: &str| pool["key"][name].as_str().unwrap();
        let key = PoolKey::new(part("cluster_id"), part("namespace"), part("dgd_name")).unwrap();
        assert!(keys.insert(key), "{pool}");
        for url in pool["frontends"].as_array().unwrap() {
            assert_url(url.as_str().unwrap());
        }
        // What is listed could be registered.
        wire::registration(pool.to_string().as_bytes()).unwrap();
    }
}

fn look_at_routers(list: Option<List<RouterReplica>>) {
    let mut ids = BTreeSet::new();
    for router in entries(list, "routers") {
        assert!(ids.insert(router["id"].as_str().unwrap().to_owned()), "{router}");
        assert_url(router["url"].as_str().unwrap());
    }
}

/// A URL is written as WHATWG serialises it, by whichever way it came.
fn assert_url(url: &str) {
    assert_eq!(wire::http_url(url).as_deref(), Ok(url));
}
