//! Items as others left them.

use super::world::{Replica, good_item, key, names, only_item, put};
use crate::service::registration;
use aws_sdk_dynamodb::types::AttributeValue;
use mcs_runtime::dynamodb::Item;
use mcs_runtime::dynamodb::double::{Double, TABLE};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn with(mut item: Item, name: &str, value: AttributeValue) -> Item {
    item.insert(name.to_owned(), value);
    item
}

fn without(mut item: Item, name: &str) -> Item {
    item.remove(name).unwrap();
    item
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(text: &str) -> AttributeValue {
    AttributeValue::N(text.to_owned())
}

/// Case O61: what was put by hand or by another release is left out, and keeps nothing else from being listed.
#[tokio::test]
async fn items_that_cannot_be_read_are_left_out_and_counted() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.register("good").await;
    let bad = |dgd: &str| good_item(dgd, 0);
    let items = [
        without(bad("a"), "registration"),
        with(bad("b"), "registration", number("1")),
        with(bad("c"), "registration", text("nonsense")),
        with(bad("d"), "registration", text(&registration("other").to_string())),
        without(bad("e"), "renewed_at"),
        with(bad("f"), "renewed_at", text("yesterday")),
        with(bad("g"), "renewed_at", number("1e40")),
        without(bad("h"), "lease_ms"),
        with(bad("i"), "lease_ms", number("-1")),
        with(bad("j"), "lease_ms", number("0")),
        with(bad("k"), "lease_ms", number("86400001")),
        without(bad("l"), "written_in"),
        with(bad("m"), "written_in", text("Mars!")),
        with(bad("n"), "sk", text("http://a")),
        with(bad("o"), "sk", text("a%2Fb")),
    ];
    let count = items.len();
    for item in items {
        put(&double, item).await;
    }
    put(&double, bad("after")).await;
    replica.poll().await;
    assert_eq!(replica.listed().await, names(&["after", "good"], false));
    let unreadable = replica.metric("global_discovery_table_unreadable_items").await;
    assert_eq!(unreadable, count as f64);
}

/// Case O62: what a later release adds is ignored, and a renewal leaves it there.
#[tokio::test]
async fn attributes_of_a_later_release_are_ignored_and_kept() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    let mut newer = registration("chat");
    newer["weight"] = json!(5);
    let item = with(good_item("chat", -5), "registration", text(&newer.to_string()));
    put(&double, with(item, "new_attr", text("kept"))).await;
    replica.poll().await;
    assert_eq!(replica.listed().await.0, ["chat"]);
    replica.register("chat").await;
    let item = only_item(&double).await;
    assert_eq!((&item["new_attr"]["S"], &item["renewed_at"]["N"]), (&json!("kept"), &json!("2000")));
}

#[tokio::test]
async fn an_item_expires_seven_days_after_its_last_renewal_which_decides_nothing() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.register("chat").await;
    let first = only_item(&double).await["expires_at"]["N"].clone();
    clock.pass(Duration::from_secs(3));
    replica.register("chat").await;
    let renewed = only_item(&double).await["expires_at"]["N"].clone();
    assert_eq!((first, renewed), (json!("604800"), json!("604803")));

    // The test's clock is at 1970, so to the table the item is decades old.
    super::start::enable_time_to_live(&double).await;
    assert_eq!(double.sweep_expired(), 1);
    replica.poll().await;
    assert_eq!(replica.listed().await.0, ["chat"]);
    clock.pass(Duration::from_secs(3));
    replica.register("chat").await;
    only_item(&double).await;
}

#[tokio::test]
async fn an_item_whose_time_to_live_is_over_and_whose_lease_is_not_is_listed() {
    let (double, clock) = (Double::start().await, Arc::default());
    put(&double, with(good_item("chat", 0), "expires_at", number("1"))).await;
    let replica = Replica::start(&double, &clock).await;
    assert_eq!(replica.listed().await.0, ["chat"]);
}

/// Case O51: more than one page of each partition.
#[tokio::test]
async fn all_pages_of_all_partitions_are_read() {
    let (double, clock) = (Double::start().await, Arc::default());
    let mut partitions: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    let capabilities: Vec<String> = (0..6).map(|_| "c".repeat(10_000)).collect();
    for pool in 0..100 {
        let dgd = format!("pool-{pool}");
        let mut large = registration(&dgd);
        large["capabilities"] = json!(capabilities);
        put(&double, with(good_item(&dgd, 0), "registration", text(&large.to_string()))).await;
        *partitions.entry(key(&dgd).0).or_default() += 60_000;
    }
    // An answer has a megabyte at most.
    assert!(partitions.len() == 4 && partitions.values().all(|bytes| *bytes > 1_050_000), "{partitions:?}");
    let replica = Replica::start(&double, &clock).await;
    assert_eq!(replica.listed().await.0.len(), 100);
}

#[tokio::test]
async fn the_item_of_a_pool_has_what_any_replica_needs() {
    let (double, clock) = (Double::start().await, Arc::default());
    let replica = Replica::start(&double, &clock).await;
    replica.register("chat").await;
    let items = double.items(TABLE).await;
    let body = concat!(
        r#"{"key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"},"#,
        r#""location":{"region":null,"availability_zone":"us-east-2a","datacenter":null},"model":"llama","#,
        r#""capabilities":["chat"],"capacity":[{"workers":4}],"frontends":["http://10.0.0.9:8000/"]}"#,
    );
    let expected = json!([{
        "pk": {"S": key("chat").0},
        "sk": {"S": "east/ml/chat"},
        "registration": {"S": body},
        "renewed_at": {"N": "0"},
        "lease_ms": {"N": "15000"},
        "written_in": {"S": "eu-test-1"},
        "expires_at": {"N": "604800"},
    }]);
    assert_eq!(json!(items), expected);
}
