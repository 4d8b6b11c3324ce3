//! What a replica does before it uses its table.

use super::world::{Replica, config, lease, names};
use crate::lists::OK;
use crate::service::{PATIENCE, registration};
use global_discovery_service::registrations::dynamodb::Config;
use mcs_runtime::dynamodb::double::{Door, Double, Fault, Options, Rule, TABLE};
use mcs_runtime::dynamodb::{Action, TimeToLive};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn enable_time_to_live(double: &Double) {
    assert_eq!(TimeToLive::enable(&double.client().await).await, Ok(TimeToLive::Enabled));
}

async fn ensuring(double: &Double) -> Config {
    Config { ensure_table: true, ..config(double).await }
}

/// What the service answers while it cannot use its table.
async fn assert_waits(replica: &Replica) {
    assert_eq!(replica.get("/livez").await, (200, OK.to_owned()));
    let not_ready = (503, r#"{"error":"not ready: first view of the table of registrations"}"#.to_owned());
    assert_eq!([replica.get("/healthz").await, replica.get("/readyz").await], [not_ready.clone(), not_ready]);
    for path in ["/pools", "/routers", "/metrics"] {
        assert_eq!(replica.get(path).await.0, 503, "{path}");
    }
    assert_eq!(replica.post(&registration("chat").to_string()).await.0, 503);
}

#[tokio::test]
async fn a_table_that_is_away_at_the_start_is_waited_for() {
    let (double, clock) = (Double::start().await, Arc::default());
    double.faults().door(Door::Refusing);
    let replica = Replica::start_with(config(&double).await, lease(15, 5), &clock).await;
    assert_waits(&replica).await;
    double.faults().door(Door::Open);
    replica.until_ready().await;
    replica.register("chat").await;
    assert_eq!(replica.listed().await, names(&["chat"], false));
}

#[tokio::test]
async fn the_three_calls_of_the_start_are_each_waited_for() {
    for action in [Action::DescribeTable, Action::Query, Action::UpdateItem] {
        for fault in [Fault::Denied, Fault::Throttled, Fault::InternalError] {
            let (double, clock) = (Double::start().await, Arc::default());
            double.faults().add(Rule::new(fault).of(&[action]));
            let replica = Replica::start_with(config(&double).await, lease(15, 5), &clock).await;
            double.until_called(action, 2).await;
            assert_waits(&replica).await;
            double.faults().clear();
            replica.until_ready().await;
        }
    }
}

#[tokio::test]
async fn the_start_writes_nothing_and_needs_three_actions() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    let called: Vec<_> = double.units_by_action().into_keys().collect();
    assert_eq!(called, ["DescribeTable", "Query", "UpdateItem"]);
    // One of the check, and one a partition.
    assert_eq!(
        [Action::DescribeTable, Action::Query, Action::UpdateItem].map(|one| double.calls(one)),
        [1, 5, 1]
    );
    assert_eq!(double.items(TABLE).await, Vec::<serde_json::Value>::new());
    // Nothing else calls anybody.
    for path in ["/healthz", "/readyz", "/livez", "/pools", "/routers", "/metrics"] {
        assert_eq!(replica.get(path).await.0, 200, "{path}");
    }
    assert_eq!(double.units().calls, 7);
}

#[tokio::test]
async fn a_table_that_is_not_there_is_waited_for_and_made_by_nobody() {
    let (double, clock) = (Double::empty(Options::default()).await, Arc::default());
    let replica = Replica::start_with(config(&double).await, lease(15, 5), &clock).await;
    double.until_called(Action::DescribeTable, 2).await;
    assert_waits(&replica).await;
    assert_eq!(double.units_by_action().into_keys().collect::<Vec<_>>(), ["DescribeTable"]);
    double.create_table(TABLE);
    replica.until_ready().await;
}

#[tokio::test]
async fn with_ensure_table_it_is_made_with_its_time_to_live_at_every_start() {
    let (double, clock) = (Double::empty(Options::default()).await, Arc::default());
    double.set_making(2);
    for _ in 0..2 {
        let replica = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
        replica.until_ready().await;
        replica.register("chat").await;
        clock.pass(Duration::from_secs(3));
    }
    // The second start asks, and does not turn on what is on: AWS refuses that.
    assert_eq!(double.calls(Action::UpdateTimeToLive), 1);
    let called: Vec<_> = double.units_by_action().into_keys().collect();
    let expected =
        ["CreateTable", "DescribeTable", "DescribeTimeToLive", "Query", "UpdateItem", "UpdateTimeToLive"];
    assert_eq!(called, expected);
    assert_eq!(double.sweep_expired(), 1, "the test's clock is at 1970");
}

#[tokio::test]
async fn with_ensure_table_a_table_without_time_to_live_gets_it() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
    replica.until_ready().await;
    assert_eq!(TimeToLive::enable(&double.client().await).await, Ok(TimeToLive::WasEnabled));
}

#[tokio::test]
async fn ensure_table_goes_on_without_the_permissions_of_the_time_to_live() {
    for action in [Action::DescribeTimeToLive, Action::UpdateTimeToLive] {
        let (double, clock) = (Double::empty(Options::default()).await, Arc::default());
        double.faults().deny(action);
        let replica = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
        replica.until_ready().await;
        replica.register("chat").await;
    }
}

#[tokio::test]
async fn ensure_table_waits_for_the_permission_to_make_the_table() {
    let (double, clock) = (Double::empty(Options::default()).await, Arc::default());
    double.faults().deny(Action::CreateTable);
    let replica = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
    double.until_called(Action::CreateTable, 2).await;
    assert_waits(&replica).await;
    double.faults().clear();
    replica.until_ready().await;
}

/// Two replicas that start at once make one table.
#[tokio::test]
async fn replicas_may_make_the_table_side_by_side() {
    let (double, clock) = (Double::empty(Options::default()).await, Arc::default());
    double.set_making(3);
    let one = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
    let other = Replica::start_with(ensuring(&double).await, lease(15, 5), &clock).await;
    one.until_ready().await;
    other.until_ready().await;
    tokio::time::timeout(PATIENCE, one.register("chat")).await.unwrap();
}
