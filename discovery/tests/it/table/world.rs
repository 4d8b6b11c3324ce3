//! Replicas over a table, with a clock that the test moves.

use crate::service::{PATIENCE, Service, registration};
use aws_sdk_dynamodb::types::AttributeValue;
use global_discovery_service::Discovery;
use global_discovery_service::registrations::Storage;
use global_discovery_service::registrations::dynamodb::{Config, item};
use mcs_core::ids::Region;
use mcs_core::pools::{Lease, PoolKey};
use mcs_core::time::ManualClock;
use mcs_runtime::dynamodb::double::Double;
use mcs_runtime::dynamodb::{Action, Class, Item, Limits};
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const POLL: Duration = Duration::from_secs(2);

/// A call that nobody answers ends soon, and those that a busy machine answers do not end before it.
pub(crate) const ENOUGH: Duration = Duration::from_secs(12);

/// A replica that keeps its registrations in a table.
pub(crate) struct Replica(Service);

impl Deref for Replica {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

pub(crate) const fn lease(duration: u64, heartbeat: u64) -> Lease {
    Lease { duration: Duration::from_secs(duration), heartbeat_interval: Duration::from_secs(heartbeat) }
}

/// As a program has it by its defaults, but for the limits of calls.
pub(crate) async fn config(double: &Double) -> Config {
    config_within(double, PATIENCE).await
}

pub(crate) async fn config_within(double: &Double, limit: Duration) -> Config {
    let settings = mcs_runtime::dynamodb::Settings { limits: Limits::within(limit), ..double.settings() };
    Config {
        client: double.client_of(settings).await,
        region: Region::new(double.region()).unwrap(),
        ensure_table: false,
        poll_interval: POLL,
        grace: Duration::from_secs(60),
        skew: Duration::from_secs(2),
    }
}

impl Replica {
    /// One that has read the table once.
    pub(crate) async fn start(double: &Double, clock: &Arc<ManualClock>) -> Self {
        let replica = Self::start_with(config(double).await, lease(15, 5), clock).await;
        replica.until_ready().await;
        replica
    }

    pub(crate) async fn start_with(config: Config, lease: Lease, clock: &Arc<ManualClock>) -> Self {
        let (discovery, storage) = (Discovery::Registrations(Vec::new()), Storage::DynamoDb(config));
        Self(Service::start_over(discovery, storage, lease, clock.clone()).await)
    }

    pub(crate) async fn start_in(discovery: Discovery, config: Config, clock: &Arc<ManualClock>) -> Self {
        Self(Service::start_over(discovery, Storage::DynamoDb(config), lease(15, 5), clock.clone()).await)
    }

    /// Its task, which ends when it was told to drain.
    pub(crate) fn into_task(self) -> tokio::task::JoinHandle<Result<(), global_discovery_service::Failed>> {
        self.0.task
    }

    pub(crate) async fn until_ready(&self) {
        let ready = async { while self.get("/healthz").await.0 != 200 {} };
        tokio::time::timeout(PATIENCE, ready).await.expect("never ready");
    }

    /// A metric of the service, as it is shown.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }

    /// How many reads are over, whatever became of them.
    async fn reads(&self) -> f64 {
        let of = |result| format!("global_discovery_table_reads_total{{result=\"{result}\"}}");
        self.metric(&of("ok")).await + self.metric(&of("failed")).await
    }

    /// Waits until one more read is over; the clock is moved for it.
    pub(crate) async fn poll(&self) {
        poll_all(&self.clock, &[self]).await;
    }

    /// Lets time pass, a poll interval at a time.
    pub(crate) async fn pass(&self, polls: usize) {
        for _ in 0..polls {
            self.poll().await;
        }
    }

    /// The names of the listed pools, and whether that is all.
    pub(crate) async fn listed(&self) -> (Vec<String>, bool) {
        let list = self.list("/pools").await;
        let pools = list["pools"].as_array().unwrap().iter();
        let names = pools.map(|pool| pool["key"]["dgd_name"].as_str().unwrap().to_owned());
        (names.collect(), list["complete"].as_bool().unwrap())
    }
}

/// Moves the clock by a poll interval, and waits until each replica has read once more.
pub(crate) async fn poll_all(clock: &ManualClock, replicas: &[&Replica]) {
    let mut before = Vec::new();
    for replica in replicas {
        before.push(replica.reads().await);
    }
    clock.pass(POLL);
    for (replica, before) in replicas.iter().zip(before) {
        let read = async { while replica.reads().await <= before {} };
        tokio::time::timeout(PATIENCE, read).await.expect("the table is not read");
    }
}

pub(crate) fn names(names: &[&str], complete: bool) -> (Vec<String>, bool) {
    (names.iter().map(|name| (*name).to_owned()).collect(), complete)
}

/// The partition key and the sort key of `east/ml/<dgd>`.
pub(crate) fn key(dgd: &str) -> (String, String) {
    item::key(&PoolKey::new("east", "ml", dgd).unwrap())
}

/// An item of `east/ml/<dgd>` that is as it should be, renewed at that second.
pub(crate) fn good_item(dgd: &str, renewed_secs: i64) -> Item {
    let (pk, sk) = key(dgd);
    let number = |number: i64| AttributeValue::N(number.to_string());
    let text = |text: String| AttributeValue::S(text);
    Item::from(
        [
            ("pk", text(pk)),
            ("sk", text(sk)),
            ("registration", text(registration(dgd).to_string())),
            ("renewed_at", number(renewed_secs * 1000)),
            ("lease_ms", number(15_000)),
            ("written_in", text("eu-test-1".to_owned())),
            ("expires_at", number(renewed_secs + 604_800)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

/// Puts an item as somebody else.
pub(crate) async fn put(double: &Double, item: Item) {
    let client = double.client().await;
    let request = client.sdk().put_item().table_name(client.table()).set_item(Some(item));
    client.call(Class::Bulk, Action::PutItem, || request.clone().send()).await.unwrap();
}

/// Some attributes of the only item of the table, in the JSON of DynamoDB.
pub(crate) async fn only_item(double: &Double) -> Value {
    let items = double.items(mcs_runtime::dynamodb::double::TABLE).await;
    assert_eq!(items.len(), 1, "{}", json!(items));
    items.into_iter().next().unwrap()
}
