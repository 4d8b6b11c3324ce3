//! The client of the client crate against the service: in this process, and as the program.

use crate::program::Program;
use crate::service::{PATIENCE, Service, registration};
use crate::slices::services;
use global_discovery_client::{
    Client, Followed, How, Known, PoolListing, PoolRegistration, RouterReplica, Settings, State,
};
use global_discovery_service::Discovery;
use mcs_core::pools::naming::Naming;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::kube::testing::api_server;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn client(addresses: &[SocketAddr]) -> Client {
    let urls = addresses.iter().map(|address| format!("http://{address}"));
    Client::new(&Settings::of(urls), Arc::new(SystemClock)).unwrap()
}

fn pool(dgd: &str) -> PoolRegistration {
    serde_json::from_value(registration(dgd)).unwrap()
}

/// Waits until the pools of these DGDs are known, and no other.
async fn until(pools: &mut Followed<PoolListing>, dgds: &[&str], complete: bool) {
    let named = |known: &Known<PoolListing>| -> Vec<String> {
        known.items().map(|pool| pool.key.dgd_name.clone()).collect()
    };
    let is_so = |known: &Known<PoolListing>| named(known) == dgds && known.is_complete() == complete;
    let seen = timeout(PATIENCE, pools.until(is_so)).await.is_ok();
    assert!(seen, "{:?} are known, not {dgds:?} with complete: {complete}", named(&pools.read()));
}

async fn until_registered(client: &Client, dgd: &str) -> global_discovery_client::KeptRegistered {
    let mut kept = client.keep_registered(pool(dgd));
    let registered = kept.until(|standing| matches!(standing.state, State::Registered(_)));
    timeout(PATIENCE, registered).await.expect("it is never registered");
    kept
}

#[tokio::test]
async fn what_relays_register_routers_know_by_either_way_until_the_lease_ends() {
    let service = Service::start(Discovery::Registrations(vec![])).await;
    let client = client(&[service.address]);
    let ways = [How::Watch, How::Poll(Duration::from_millis(20))];
    let mut followed = ways.map(|how| client.follow::<PoolListing>(how));
    let kept = until_registered(&client, "chat").await;
    for pools in &mut followed {
        until(pools, &["chat"], false).await;
    }
    let listed: Vec<PoolListing> = client.list().await.unwrap().items;
    assert!(followed.iter().all(|pools| pools.read().items().eq(&listed)));
    drop(kept);
    service.pass(Duration::from_secs(15)).await;
    for pools in &mut followed {
        until(pools, &[], true).await;
    }
}

#[tokio::test]
async fn a_memory_service_that_starts_anew_costs_no_pool_that_lives() {
    let first = Service::start(Discovery::Registrations(vec![])).await;
    let client = client(&[first.address]);
    let mut pools = client.follow::<PoolListing>(How::Watch);
    let mut polled = client.follow::<PoolListing>(How::Poll(Duration::from_millis(20)));
    for dgd in ["alive", "dead"] {
        first.register(dgd).await;
    }
    until(&mut pools, &["alive", "dead"], false).await;
    first.pass(Duration::from_secs(14)).await;
    first.register("alive").await;
    first.register("dead").await;
    first.pass(Duration::from_secs(1)).await;
    until(&mut pools, &["alive", "dead"], true).await;
    until(&mut polled, &["alive", "dead"], true).await;

    let address = first.address;
    first.kill().await;
    let second = Service::start_at(address, Discovery::Registrations(vec![])).await;
    until(&mut pools, &["alive", "dead"], false).await;
    until(&mut polled, &["alive", "dead"], false).await;
    second.register("alive").await;
    second.pass(Duration::from_secs(14)).await;
    second.register("alive").await;
    second.pass(Duration::from_secs(1)).await;
    until(&mut pools, &["alive"], true).await;
    until(&mut polled, &["alive"], true).await;
}

#[tokio::test]
async fn a_replica_without_a_view_is_passed_over() {
    let (_api, api_client) = api_server();
    let services = Box::new(services());
    let blind = Service::start(Discovery::Slices { naming: Naming::Mcs, services, client: api_client }).await;
    let alone = client(&[blind.address]).list::<PoolListing>().await.unwrap_err().to_string();
    assert!(alone.contains("503 Service Unavailable: the first view is not there yet"), "{alone}");

    let seeing = Service::start(Discovery::Registrations(vec![])).await;
    let client = client(&[blind.address, seeing.address]);
    let _kept = until_registered(&client, "chat").await;
    until(&mut client.follow(How::Watch), &["chat"], false).await;
    until(&mut client.follow(How::Poll(Duration::from_millis(20))), &["chat"], false).await;
}

#[tokio::test]
async fn what_a_relay_may_not_say_is_told_with_the_field() {
    let service = Service::start(Discovery::Registrations(vec![])).await;
    let mut kept = client(&[service.address])
        .keep_registered(PoolRegistration { model: " ".to_owned(), ..pool("chat") });
    let refused = kept.until(|standing| matches!(standing.state, State::Refused(_)));
    let State::Refused(why) = timeout(PATIENCE, refused).await.unwrap().state else { return };
    assert!(why.ends_with("refuses with 422 Unprocessable Entity: model: must not be blank"), "{why}");
    kept.set(pool("chat"));
    timeout(PATIENCE, kept.until(|standing| matches!(standing.state, State::Registered(_)))).await.unwrap();
}

/// More happens than a watcher may be behind, and each change is of one of few pools.
#[tokio::test]
async fn who_watches_a_busy_list_ends_with_what_is_listed() {
    let service = Service::start(Discovery::Registrations(vec![])).await;
    let client = client(&[service.address]);
    let mut followed = [(); 3].map(|()| client.follow::<PoolListing>(How::Watch));
    let mut last = pool("pool-0");
    for number in 0..3_000_u64 {
        last =
            PoolRegistration { model: format!("model-{number}"), ..pool(&format!("pool-{}", number % 40)) };
        client.register(&last).await.unwrap();
    }
    let list = client.list::<PoolListing>().await.unwrap();
    assert_eq!(list.items.len(), 40);
    for pools in &mut followed {
        let is_last =
            |known: &Known<PoolListing>| known.get(&last.key).is_some_and(|pool| pool.model == last.model);
        timeout(PATIENCE, pools.until(is_last)).await.expect("the last change never comes");
        assert!(pools.read().items().eq(&list.items));
    }
}

#[tokio::test]
async fn when_a_replica_is_killed_relays_and_routers_go_on_with_the_next() {
    let start = async |replica: &str| {
        let router = format!("--router=east/{replica}=http://10.0.0.1:50051");
        Program::start(&[&router, "--lease-duration-secs=3", "--heartbeat-interval-secs=1"]).await
    };
    let (first, second) = (start("first").await, start("second").await);
    let client = client(&[first.address, second.address]);
    let mut routers = client.follow::<RouterReplica>(How::Watch);
    let mut polled = client.follow::<RouterReplica>(How::Poll(Duration::from_millis(20)));
    let of = |replica: &str| {
        let id = format!("east/{replica}");
        move |known: &Known<RouterReplica>| known.len() == 1 && known.get(&id).is_some()
    };
    timeout(PATIENCE, routers.until(of("first"))).await.expect("the first is never followed");
    timeout(PATIENCE, polled.until(of("first"))).await.expect("the first is never asked");
    let _kept = until_registered(&client, "chat").await;

    first.signal("-KILL").await;
    timeout(PATIENCE, routers.until(of("second"))).await.expect("the second is never followed");
    timeout(PATIENCE, polled.until(of("second"))).await.expect("the second is never asked");
    let only_second = self::client(&[second.address]);
    let mut pools = only_second.follow::<PoolListing>(How::Poll(Duration::from_millis(20)));
    until(&mut pools, &["chat"], false).await;
    // Two leases later it is still there: somebody keeps it registered.
    until(&mut pools, &["chat"], true).await;
    assert_eq!(first.ended().await.0, None);
}
