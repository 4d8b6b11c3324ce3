//! A table that is away, throttles, or does not answer.

use super::world::{ENOUGH, Replica, config, config_within, good_item, lease, names, only_item, put};
use crate::objects::{frontend, relay};
use crate::service::{PATIENCE, registration};
use crate::slices::services;
use aws_sdk_dynamodb::types::AttributeValue;
use global_discovery_service::driver::Driver;
use global_discovery_service::registrations::NotKept;
use global_discovery_service::registrations::dynamodb::Table;
use global_discovery_service::{Discovery, wire};
use mcs_core::pools::PoolRegistration;
use mcs_core::pools::directory::{Directory, Full, Source};
use mcs_core::pools::naming::Naming;
use mcs_core::pools::storage::Storage;
use mcs_core::time::{Clock, ManualClock};
use mcs_runtime::dynamodb::Action;
use mcs_runtime::dynamodb::double::{Door, Double, Fault, Rule};
use mcs_runtime::kube::testing::api_server;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Fault 5: registrations are refused, the last view is listed, and pools lapse by their leases.
#[tokio::test]
async fn while_the_table_is_away_the_last_view_is_listed_and_is_not_complete() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.pass(8).await;
    replica.register("chat").await;
    assert_eq!(replica.listed().await, names(&["chat"], true));

    double.faults().door(Door::Refusing);
    replica.poll().await;
    let (status, answer) = replica.post(&registration("code").to_string()).await;
    assert!(
        status == 503 && answer.contains("register again") && answer.contains("cannot be reached"),
        "{answer}"
    );
    assert_eq!(replica.listed().await, names(&["chat"], false));
    assert_eq!(replica.get("/healthz").await.0, 200);

    // Its lease and the skew are over 17 s after it registered.
    replica.pass(7).await;
    clock.pass(Duration::from_millis(999));
    let before = replica.listed().await;
    clock.pass(Duration::from_millis(1));
    assert_eq!((before, replica.listed().await), (names(&["chat"], false), names(&[], false)));

    double.faults().door(Door::Open);
    replica.poll().await;
    replica.register("code").await;
    replica.pass(7).await;
    clock.pass(Duration::from_millis(999));
    let before = replica.listed().await;
    clock.pass(Duration::from_millis(1));
    assert_eq!((before, replica.listed().await), (names(&["code"], false), names(&["code"], true)));
}

/// What throttles or forbids writes alone: the pools lapse, and nobody may take them for gone.
#[tokio::test]
async fn while_the_table_is_read_and_takes_no_writes_the_list_is_not_complete() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.pass(8).await;
    replica.register("chat").await;
    assert_eq!(replica.listed().await, names(&["chat"], true));

    double.faults().deny(Action::UpdateItem);
    replica.pass(2).await;
    assert_eq!(replica.post(&registration("chat").to_string()).await.0, 503);
    assert_eq!(replica.listed().await, names(&["chat"], false));
    replica.pass(6).await;
    assert_eq!(replica.post(&registration("chat").to_string()).await.0, 503);
    replica.pass(1).await;
    assert_eq!(replica.listed().await, names(&[], false));

    double.faults().clear();
    replica.register("chat").await;
    assert_eq!(replica.listed().await, names(&["chat"], false));
    replica.pass(6).await;
    assert_eq!(replica.listed().await, names(&["chat"], false));
    replica.pass(1).await;
    assert_eq!(replica.listed().await, names(&["chat"], true));
}

#[tokio::test]
async fn one_partition_that_is_not_read_makes_the_list_incomplete_and_takes_no_pool_from_it() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.pass(8).await;
    let pools = ["chat", "embed", "rank", "vision"];
    for pool in pools {
        replica.register(pool).await;
    }
    double.faults().add(Rule::new(Fault::Throttled).partition(&super::world::key("chat").0));
    replica.poll().await;
    assert_eq!(replica.listed().await, names(&pools, false));
}

/// Case O52: above what a partition takes. No pool is dropped from a complete list for a read or a write that was throttled.
#[tokio::test]
async fn while_the_table_throttles_a_third_of_the_calls_registrations_are_taken_or_refused_and_none_is_lost()
{
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    let pools: Vec<_> = (0..20).map(|number| format!("pool-{number:02}")).collect();
    for pool in &pools {
        replica.register(pool).await;
    }
    double.faults().add(Rule::new(Fault::ThroughputExceeded).share(0.15));
    double.faults().add(Rule::new(Fault::Throttled).share(0.18));
    let (mut taken, mut refused) = (0, 0);
    // More than two leases, in which one that is never taken lapses.
    for _ in 0..8 {
        replica.poll().await;
        clock.pass(Duration::from_secs(1));
        replica.poll().await;
        for pool in &pools {
            match replica.post(&registration(pool).to_string()).await {
                (200, _) => taken += 1,
                (503, answer) => {
                    assert!(answer.contains("register again"), "{answer}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
            let (listed, is_complete) = replica.listed().await;
            assert!(listed == pools || !is_complete, "{listed:?}");
        }
    }
    assert!(taken >= 80 && refused >= 1, "{taken} of 160 are taken, {refused} refused");
    double.faults().clear();
    for _ in 0..5 {
        for pool in &pools {
            replica.register(pool).await;
        }
        replica.pass(2).await;
    }
    assert_eq!(replica.listed().await, (pools, true));
}

/// Nothing that was read is lost for a page that was not, and the list is not complete.
#[tokio::test]
async fn pages_that_were_read_before_one_that_was_not_renew_their_pools() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    let partition = super::world::key("pool-0").0;
    let mut pools: Vec<_> = (0..40).map(|number| format!("pool-{number}")).collect();
    pools.retain(|pool| super::world::key(pool).0 == partition);
    pools.sort();
    pools.truncate(5);
    assert_eq!(pools.len(), 5);
    // Three of them fill a page.
    let renewed = async |secs| {
        for pool in &pools {
            let mut item = good_item(pool, secs);
            let mut large = registration(pool);
            large["model"] = json!("m".repeat(300_000));
            item.insert("registration".to_owned(), AttributeValue::S(large.to_string()));
            put(&double, item).await;
        }
    };
    renewed(0).await;
    replica.poll().await;
    assert_eq!(replica.listed().await, (pools.clone(), false));
    replica.pass(6).await;
    renewed(14).await;
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::Query]).partition(&partition).after(1));
    replica.pass(2).await;
    assert_eq!(replica.listed().await, (pools[..3].to_vec(), false));
}

/// Fault 6, case O55: calls that are never answered end, and the reads go on when they are again.
#[tokio::test]
async fn a_table_that_takes_calls_and_answers_none_is_given_up_and_read_again_later() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start_with(config_within(&double, ENOUGH).await, lease(15, 5), &clock).await;
    replica.until_ready().await;
    replica.pass(8).await;
    assert_eq!(replica.listed().await, names(&[], true));
    double.faults().door(Door::Silent);
    replica.poll().await;
    assert_eq!(replica.listed().await, names(&[], false));
    assert_eq!(replica.metric("global_discovery_table_reads_total{result=\"failed\"}").await, 1.0);
    assert_eq!(replica.post(&registration("chat").to_string()).await.0, 503);
    assert_eq!([replica.get("/healthz").await.0, replica.get("/pools").await.0], [200, 200]);
    double.faults().door(Door::Open);
    let taken = async { while replica.post(&registration("chat").to_string()).await.0 != 200 {} };
    tokio::time::timeout(PATIENCE, taken).await.expect("the table is not used again");
    let before = replica.metric("global_discovery_table_reads_total{result=\"ok\"}").await;
    let read = async {
        while replica.metric("global_discovery_table_reads_total{result=\"ok\"}").await <= before {
            replica.poll().await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the table is not read again");
    // For one more lease, in which relays register again.
    replica.pass(6).await;
    replica.register("chat").await;
    let before = replica.listed().await;
    replica.pass(2).await;
    assert_eq!((before, replica.listed().await), (names(&["chat"], false), names(&["chat"], true)));
}

/// Case O53: the write was made, and only its answer is lost.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_made_again() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    double.faults().add(Rule::new(Fault::LostAnswer).of(&[Action::UpdateItem]).times(1));
    replica.register("chat").await;
    only_item(&double).await;
    assert_eq!(double.calls(Action::UpdateItem), 3, "the check, the write, and the write again");
}

/// A table that takes so many pools.
async fn table_of(double: &Double, clock: &Arc<ManualClock>, most: usize) -> Arc<Table> {
    let (config, lease) = (config(double).await, lease(15, 5));
    let machine = Storage::table(config.settings(lease));
    let directory = Directory::new(machine, Source::Registrations(Vec::new()), clock.elapsed());
    let view = Ready::new(Drain::default()).wait_for("view");
    let driver = Arc::new(Driver::new(directory.with_most_pools(most), clock.clone(), view));
    Arc::new(Table::new(config, lease, driver, clock.clone(), &prometheus::Registry::new()).unwrap())
}

fn read(dgd: &str) -> PoolRegistration {
    wire::registration(registration(dgd).to_string().as_bytes()).unwrap()
}

/// Fault 18: items have 400 KB at most.
#[tokio::test]
async fn a_registration_that_no_item_holds_is_refused_with_the_limit() {
    let (double, clock) = (Double::start().await, Arc::<ManualClock>::default());
    let table = table_of(&double, &clock, 100).await;
    let large = |bytes: usize| {
        let mut large = registration("chat");
        large["model"] = json!("m".repeat(bytes));
        wire::registration(large.to_string().as_bytes()).unwrap()
    };
    assert_eq!(table.register(large(398_000)).await, Ok(()));
    let Err(NotKept::TooLarge { bytes, most }) = table.register(large(400_000)).await else {
        panic!("it is kept")
    };
    assert!(bytes > most && most == 390 * 1024, "{bytes} {most}");
    assert_eq!(double.calls(Action::UpdateItem), 1);
}

#[tokio::test]
async fn a_new_pool_is_refused_above_the_most_and_is_not_written() {
    let (double, clock) = (Double::start().await, Arc::<ManualClock>::default());
    let table = table_of(&double, &clock, 1).await;
    assert_eq!(table.register(read("chat")).await, Ok(()));
    assert_eq!(table.register(read("code")).await, Err(NotKept::Full(Full { most: 1 })));
    clock.advance(Duration::from_secs(5));
    assert_eq!(table.register(read("chat")).await, Ok(()));
    assert_eq!(double.calls(Action::UpdateItem), 2);
}

/// Case O66: the join over a table. Each side has outages, and comes back by itself.
#[tokio::test]
async fn with_slices_pools_are_listed_while_the_table_has_them_and_a_relay_is_ready() {
    let (double, clock) = (Double::start().await, Arc::default());
    let (mut api, client) = api_server();
    let discovery = Discovery::Slices { naming: Naming::Mcs, services: Box::new(services()), client };
    double.faults().door(Door::Refusing);
    let replica = Replica::start_in(discovery, config(&double).await, &clock).await;
    let missing =
        r#"{"error":"not ready: first view of EndpointSlices, first view of the table of registrations"}"#;
    assert_eq!(replica.get("/healthz").await, (503, missing.to_owned()));

    let items = json!([relay(&["10.43.1.2"]), frontend(&["10.43.1.9"])]);
    api.list().await.listed("70", items);
    let watch = api.watch("70").await;
    let half = (503, r#"{"error":"not ready: first view of the table of registrations"}"#.to_owned());
    let seen = async { while replica.get("/healthz").await != half {} };
    tokio::time::timeout(PATIENCE, seen).await.expect("the slices are not seen");
    assert_eq!(replica.get("/pools").await.0, 503);

    double.faults().door(Door::Open);
    replica.until_ready().await;
    replica.register("chat").await;
    let list = replica.list("/pools").await;
    assert_eq!(list["pools"][0]["relay_identities"], json!(["ip:10.43.1.2"]), "{list}");
    replica.pass(8).await;
    assert_eq!(replica.listed().await, names(&["chat"], true));

    replica.register("chat").await;
    double.faults().door(Door::Refusing);
    replica.poll().await;
    let away = replica.listed().await;
    replica.pass(8).await;
    assert_eq!((away, replica.listed().await), (names(&["chat"], false), names(&[], false)));

    double.faults().door(Door::Open);
    replica.poll().await;
    replica.register("chat").await;
    replica.pass(7).await;
    replica.register("chat").await;
    replica.poll().await;
    assert_eq!(replica.listed().await, names(&["chat"], true));
    drop(watch);
}
