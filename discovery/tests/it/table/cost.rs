//! What a pool costs, in requests and in units of DynamoDB.

use super::world::{Replica, poll_all};
use crate::service::{ask, registration};
use mcs_runtime::dynamodb::Action;
use mcs_runtime::dynamodb::double::{Double, Fault, Rule};
use std::sync::Arc;
use std::time::Duration;

/// Goal G11: at most two writes a pool and heartbeat interval, however many relays.
#[tokio::test]
async fn a_pool_costs_a_replica_two_writes_a_heartbeat_interval_at_most_however_many_relays_it_has() {
    for relays in [1, 2, 10] {
        let (double, clock) = (Double::start().await, Arc::default());
        let replica = Replica::start(&double, &clock).await;
        double.reset_units();
        let (pools, intervals) = (3, 4);
        for _ in 0..intervals * relays {
            for pool in 0..pools {
                replica.register(&format!("pool-{pool}")).await;
            }
            clock.pass(Duration::from_secs(5) / relays);
        }
        let used = double.units_by_action()["UpdateItem"];
        let writes = f64::from(pools * intervals * if relays == 1 { 1 } else { 2 });
        // An item of up to a kilobyte is one unit.
        assert!(used.write <= writes && used.calls as f64 == used.write, "{relays} relays: {used:?}");
        let counted = |result| format!("global_discovery_table_writes_total{{result=\"{result}\"}}");
        let [written, skipped] = [counted("written"), counted("skipped")];
        let all = f64::from(pools * intervals * relays);
        assert_eq!(replica.metric(&written).await, used.write);
        assert_eq!(replica.metric(&skipped).await, all - used.write);
    }
}

#[tokio::test]
async fn relays_that_register_at_the_same_moment_share_one_write() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    double.reset_units();
    double.faults().add(Rule::new(Fault::Held).of(&[Action::UpdateItem]));
    let body = registration("chat").to_string();
    let relays: Vec<_> = (0..20)
        .map(|_| {
            let (address, body) = (replica.address, body.clone());
            tokio::spawn(async move { ask(address, "POST", "/pools", &body).await.0 })
        })
        .collect();
    let skipped = "global_discovery_table_writes_total{result=\"skipped\"}";
    while replica.metric(skipped).await < 19.0 {}
    double.faults().clear();
    for relay in relays {
        assert_eq!(relay.await.unwrap(), 200);
    }
    assert_eq!(double.calls(Action::UpdateItem), 1);
}

/// Each partition costs half a read unit, and each further 4 KB of it as much.
#[tokio::test]
async fn reads_cost_two_units_a_poll_and_what_pools_there_are() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    let mut costs = Vec::new();
    for pools in [0, 200] {
        for pool in 0..pools {
            replica.register(&format!("pool-{pool}")).await;
        }
        double.reset_units();
        replica.pass(3).await;
        let used = double.units();
        assert_eq!((used.calls, used.write), (12, 0.0), "an idle service writes nothing");
        costs.push(used.read / 3.0);
    }
    // 200 items of 0.4 to 0.5 KB.
    assert!(costs[0] == 2.0 && (10.0..=14.0).contains(&costs[1]), "{costs:?}");
}

#[tokio::test]
async fn pools_that_are_gone_for_good_cost_reads_until_they_expire_and_nothing_else() {
    let (double, clock) = (Double::start().await, Arc::default());
    let (one, other) = (Replica::start(&double, &clock).await, Replica::start(&double, &clock).await);
    one.register("chat").await;
    for _ in 0..9 {
        poll_all(&clock, &[&one, &other]).await;
    }
    double.reset_units();
    poll_all(&clock, &[&one, &other]).await;
    assert_eq!((double.units().calls, double.units().read), (8, 4.0));
    assert_eq!((one.listed().await.0.len(), other.listed().await.0.len()), (0, 0));
}

#[tokio::test]
async fn requests_are_counted_by_what_was_asked_and_what_became_of_it() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::UpdateItem]).times(1));
    replica.register("chat").await;
    let name = |action, outcome| {
        format!("global_discovery_table_requests_total{{action=\"{action}\",outcome=\"{outcome}\"}}")
    };
    let mut seen = Vec::new();
    for (action, outcome) in [
        ("Query", "ok"),
        ("UpdateItem", "ok"),
        ("UpdateItem", "throttled"),
        ("UpdateItem", "refused"),
        ("DescribeTable", "ok"),
        ("CreateTable", "ok"),
    ] {
        seen.push(replica.metric(&name(action, outcome)).await);
    }
    // The write of the check is refused by its condition.
    assert_eq!(seen, [5.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    clock.advance(Duration::from_millis(1_500));
    assert_eq!(replica.metric("global_discovery_table_view_age_seconds").await, 1.5);
}
