//! A Global Table: replicas in two regions, with lag, cuts and writes that lose.

use super::world::{Replica, config, lease, names, poll_all};
use crate::service::registration;
use mcs_core::time::ManualClock;
use mcs_runtime::dynamodb::Action;
use mcs_runtime::dynamodb::double::{Global, TABLE};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const US: &str = "us-east-2";
const EU: &str = "eu-west-1";

/// A replica in each region.
async fn start() -> (Global, Arc<ManualClock>, Replica, Replica) {
    let clock: Arc<ManualClock> = Arc::default();
    let global = Global::with(&[US, EU], 0, clock.clone()).await;
    let mut replicas = Vec::new();
    for region in [US, EU] {
        let config = config(global.region(region)).await;
        let replica = Replica::start_with(config, lease(15, 5), &clock).await;
        replica.until_ready().await;
        replicas.push(replica);
    }
    let eu = replicas.pop().unwrap();
    (global, clock, replicas.pop().unwrap(), eu)
}

#[tokio::test]
async fn what_one_region_takes_the_other_lists_when_it_arrives() {
    let (global, clock, us, eu) = start().await;
    global.set_lag(Duration::from_secs(3)..Duration::from_secs(3));
    us.register("chat").await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        poll_all(&clock, &[&us, &eu]).await;
        seen.push(eu.listed().await.0);
    }
    assert_eq!(seen, [vec![], vec!["chat".to_owned()]]);
}

/// Fault 7: the regions are cut off from each other for ten minutes.
#[tokio::test]
async fn a_pool_of_a_region_that_is_cut_off_is_kept_for_the_grace_and_the_list_is_incomplete_meanwhile() {
    let (global, clock, us, eu) = start().await;
    us.register("chat").await;
    for _ in 0..8 {
        poll_all(&clock, &[&us, &eu]).await;
        us.register("chat").await;
    }
    poll_all(&clock, &[&us, &eu]).await;
    assert_eq!(eu.listed().await, names(&["chat"], true));

    // Both know the renewal of 16 s.
    global.cut();
    let mut seen = Vec::new();
    for second in (20..=100_u64).step_by(2) {
        us.register("chat").await;
        eu.register("local").await;
        poll_all(&clock, &[&us, &eu]).await;
        if [32, 34, 92, 94].contains(&second) {
            seen.push((second, us.listed().await, eu.listed().await));
        }
    }
    let both = |complete| names(&["chat", "local"], complete);
    // The renewal holds until 33 s, and the grace until 93 s.
    let expected = [
        (32, names(&["chat"], true), both(true)),
        (34, names(&["chat"], true), both(false)),
        (92, names(&["chat"], true), both(false)),
        (94, names(&["chat"], true), names(&["local"], true)),
    ];
    assert_eq!(seen, expected);

    global.heal();
    poll_all(&clock, &[&us, &eu]).await;
    assert_eq!((us.listed().await, eu.listed().await), (both(true), both(true)));
}

/// A pool that both regions' relays register is renewed by either.
#[tokio::test]
async fn a_pool_whose_relays_register_in_both_regions_is_one_pool_and_outlives_either() {
    let (global, clock, us, eu) = start().await;
    us.register("chat").await;
    clock.pass(Duration::from_millis(100));
    eu.register("chat").await;
    assert_eq!(global.region(US).items(TABLE).await, global.region(EU).items(TABLE).await);
    for _ in 0..12 {
        poll_all(&clock, &[&us, &eu]).await;
        eu.register("chat").await;
    }
    assert_eq!((us.listed().await, eu.listed().await), (names(&["chat"], true), names(&["chat"], true)));
}

/// Fault 8: a write that is dated later elsewhere wins, and the next heartbeat repairs it.
#[tokio::test]
async fn a_renewal_that_is_lost_to_an_older_write_of_another_region_is_written_again() {
    let (global, clock, us, eu) = start().await;
    global.set_ahead(EU, 3_600_000).await;
    let mut old = registration("chat");
    old["model"] = json!("old");
    assert_eq!(eu.post(&old.to_string()).await.0, 200);
    clock.pass(Duration::from_secs(1));
    // What is written here is dated an hour earlier than what comes.
    global.cut();
    us.register("chat").await;
    global.heal();
    poll_all(&clock, &[&us, &eu]).await;
    let item =
        |items: Vec<serde_json::Value>| items[0]["registration"]["S"].as_str().unwrap().contains("old");
    assert!(item(global.region(US).items(TABLE).await), "the later date wins");
    assert_eq!(us.list("/pools").await["pools"][0]["model"], "llama", "the view does not go back");
    let before = global.region(US).calls(Action::UpdateItem);
    us.register("chat").await;
    assert_eq!(global.region(US).calls(Action::UpdateItem), before + 1, "it is not taken for renewed");
}

#[tokio::test]
async fn a_renewal_that_another_region_wrote_is_written_through_the_own_one_too() {
    let (global, clock, us, eu) = start().await;
    us.register("chat").await;
    poll_all(&clock, &[&us, &eu]).await;
    assert_eq!(eu.listed().await.0, ["chat"]);
    eu.register("chat").await;
    let items = global.region(EU).items(TABLE).await;
    assert_eq!(items[0]["written_in"]["S"], EU);
}
