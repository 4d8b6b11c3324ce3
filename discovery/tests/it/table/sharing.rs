//! What replicas over one table tell each other.

use super::world::{Replica, config, good_item, lease, names, poll_all, put};
use crate::service::{PATIENCE, registration};
use mcs_core::time::{Clock, ManualClock};
use mcs_runtime::dynamodb::double::Double;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn what_one_replica_takes_all_list_after_a_poll() {
    let (double, clock) = (Double::start().await, Arc::default());
    let (one, other) = (Replica::start(&double, &clock).await, Replica::start(&double, &clock).await);
    let answer = one.post(&registration("chat").to_string()).await;
    assert_eq!(answer, (200, r#"{"lease_duration_secs":15,"heartbeat_interval_secs":5}"#.to_owned()));
    assert_eq!((one.listed().await, other.listed().await), (names(&["chat"], false), names(&[], false)));

    other.register("code").await;
    poll_all(&clock, &[&one, &other]).await;
    let expected = names(&["chat", "code"], false);
    assert_eq!((one.listed().await, other.listed().await), (expected.clone(), expected));
    let list = one.get("/pools").await;
    assert_eq!(list, other.get("/pools").await);
    let pool = concat!(
        r#"{"key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"},"#,
        r#""location":{"region":null,"availability_zone":"us-east-2a","datacenter":null},"#,
        r#""model":"llama","capabilities":["chat"],"frontends":["http://10.0.0.9:8000/"],"#,
        r#""capacity":[{"workers":4}],"relay_identities":[]}"#,
    );
    assert!(list.1.contains(pool), "{}", list.1);
}

#[tokio::test]
async fn a_pool_is_listed_until_lease_and_skew_are_over_and_stays_in_the_table() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.register("chat").await;
    replica.pass(8).await;
    clock.pass(Duration::from_millis(999));
    let before = replica.listed().await;
    clock.pass(Duration::from_millis(1));
    assert_eq!((before, replica.listed().await), (names(&["chat"], true), names(&[], true)));
    replica.pass(2).await;
    assert_eq!(replica.listed().await, names(&[], true));
    super::world::only_item(&double).await;
}

#[tokio::test]
async fn the_list_is_not_complete_for_one_lease_after_the_start() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.pass(7).await;
    clock.pass(Duration::from_millis(999));
    let before = replica.listed().await;
    clock.pass(Duration::from_millis(1));
    assert_eq!((before, replica.listed().await), (names(&[], false), names(&[], true)));
}

#[tokio::test]
async fn a_replica_that_starts_lists_what_others_took() {
    let (double, clock) = (Double::start().await, Arc::default());
    let one = Replica::start(&double, &clock).await;
    one.register("chat").await;
    let other = Replica::start(&double, &clock).await;
    assert_eq!(other.listed().await, names(&["chat"], false));
}

#[tokio::test]
async fn replicas_with_different_leases_judge_each_pool_by_the_one_it_was_granted() {
    let (double, clock) = (Double::start().await, Arc::default());
    let short = Replica::start(&double, &clock).await;
    let long = Replica::start_with(config(&double).await, lease(60, 20), &clock).await;
    long.until_ready().await;
    long.register("long").await;
    short.register("short").await;
    let mut seen = Vec::new();
    // At 16 s, 18 s, 60 s and 62 s.
    for polls in [8, 1, 21, 1] {
        for _ in 0..polls {
            poll_all(&clock, &[&short, &long]).await;
        }
        seen.push((short.listed().await.0, long.listed().await.0));
    }
    let both = || vec!["long".to_owned(), "short".to_owned()];
    let only = || vec!["long".to_owned()];
    let expected = [(both(), both()), (only(), only()), (only(), only()), (vec![], vec![])];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_later_registration_replaces_an_earlier_one_at_all_replicas() {
    let (double, clock) = (Double::start().await, Arc::default());
    let (one, other) = (Replica::start(&double, &clock).await, Replica::start(&double, &clock).await);
    let mut changed = registration("chat");
    changed["capacity"] = json!([{"workers": 1}, {"workers": 2}]);
    one.register("chat").await;
    clock.pass(Duration::from_millis(1));
    assert_eq!(other.post(&changed.to_string()).await.0, 200);
    poll_all(&clock, &[&one, &other]).await;
    for replica in [&one, &other] {
        let list = replica.list("/pools").await;
        assert_eq!(list["pools"][0]["capacity"], changed["capacity"], "{list}");
    }
}

/// Fault 14: the clocks of two replicas are half a minute apart.
#[tokio::test]
async fn a_pool_is_kept_whose_writer_has_a_clock_that_is_far_behind() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    for second in [0, 5, 10, 15, 20, 25, 30] {
        put(&double, good_item("chat", second - 30)).await;
        replica.pass(3).await;
    }
    // The first of them looked like a lease that is over.
    assert_eq!(replica.listed().await, names(&["chat"], true));
}

/// Fault 14: the wall clock of one replica jumps by an hour, forth and back.
#[tokio::test]
async fn a_wall_clock_that_is_set_takes_no_pool_from_the_list() {
    let (double, clock, other_clock) = (Double::start().await, Arc::default(), Arc::<ManualClock>::default());
    let one = Replica::start(&double, &clock).await;
    let other = Replica::start(&double, &other_clock).await;
    let step = async |second: u64| {
        one.register("chat").await;
        one.poll().await;
        other.poll().await;
        // The other one's own clock goes on from wherever it was set to.
        assert_eq!(other.listed().await, names(&["chat"], second >= 16), "after {second} s");
    };
    for second in (2..=18).step_by(2) {
        step(second).await;
    }
    for jump in [3_600, -3_600] {
        let now = other_clock.wall().unix_secs();
        other_clock.set_wall(mcs_core::time::WallTime::from_unix_secs(now + jump));
        for second in (20..=60).step_by(2) {
            step(second).await;
        }
    }
}

/// Fault 2: each replica is replaced by a new one, one after the other.
#[tokio::test]
async fn a_rolling_restart_takes_no_pool_from_any_list() {
    let (double, clock) = (Double::start().await, Arc::default());
    let mut replicas = vec![Replica::start(&double, &clock).await, Replica::start(&double, &clock).await];
    replicas[0].register("chat").await;
    for _ in 0..8 {
        poll_all(&clock, &[&replicas[0], &replicas[1]]).await;
        replicas[1].register("chat").await;
    }
    assert_eq!(replicas[0].listed().await, names(&["chat"], true));
    for _ in 0..2 {
        let old = replicas.remove(0);
        old.shutdown.drain();
        // The drain delay, and the relay goes on with the other one.
        poll_all(&clock, &[&replicas[0]]).await;
        replicas[0].register("chat").await;
        poll_all(&clock, &[&replicas[0]]).await;
        replicas[0].register("chat").await;
        poll_all(&clock, &[&replicas[0]]).await;
        tokio::time::timeout(PATIENCE, old.into_task()).await.unwrap().unwrap().unwrap();
        let new = Replica::start(&double, &clock).await;
        assert_eq!(new.listed().await, names(&["chat"], false), "it has just started");
        assert_eq!(replicas[0].listed().await.0, ["chat"]);
        replicas.push(new);
    }
    for _ in 0..8 {
        replicas[0].register("chat").await;
        poll_all(&clock, &[&replicas[0], &replicas[1]]).await;
        assert_eq!((replicas[0].listed().await.0.len(), replicas[1].listed().await.0.len()), (1, 1));
    }
    assert_eq!(replicas[1].listed().await, names(&["chat"], true));
}
