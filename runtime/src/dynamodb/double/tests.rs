use serde_json::json;

use super::asked::Asked;
use super::*;
use crate::dynamodb::testing::{delete, get, put, put_new, sort_keys};
use crate::dynamodb::{Class, Condition, Why};

mod imitations;
mod regions;
mod units;

#[tokio::test]
async fn what_is_put_is_got_and_queried_and_a_condition_that_fails_shows_what_stands() {
    let double = Double::start().await;
    let client = double.client().await;
    assert_eq!(put_new(&client, "b", "1").await.unwrap(), Condition::Held(()));
    assert_eq!(get(&client, "b", false).await.unwrap().as_deref(), Some("1"));
    assert_eq!(sort_keys(&client).await.unwrap(), ["b"]);
    let standing = Some(crate::dynamodb::testing::item("b", "1"));
    assert_eq!(put_new(&client, "b", "2").await.unwrap(), Condition::Failed(standing));
    let item = json!({"pk": {"S": "p"}, "sk": {"S": "b"}, "text": {"S": "1"}});
    assert_eq!(double.items(TABLE).await, [item]);
}

fn asked(action: &str, body: &Value) -> Asked {
    let target = format!("DynamoDB_20120810.{action}").parse().unwrap();
    Asked::read(
        [(http::HeaderName::from_static("x-amz-target"), target)].into_iter().collect(),
        body.to_string().into(),
    )
}

#[test]
fn a_share_of_calls_is_that_of_the_seed() {
    let of_seed = |seed| {
        let faults = Faults::new(seed);
        faults.add(Rule::new(Fault::Throttled).share(0.5));
        (0..1_000).map(|_| faults.befall(&asked("Query", &json!({}))).1.is_some()).collect::<Vec<_>>()
    };
    let befallen = of_seed(1);
    assert_eq!(befallen, of_seed(1));
    assert_ne!(befallen, of_seed(2));
    let share = befallen.iter().filter(|one| **one).count();
    assert!((450..550).contains(&share), "{share} of 1,000");
}

#[test]
fn a_rule_befalls_the_actions_that_it_names_as_often_as_it_says_and_delays_add_up() {
    let faults = Faults::new(0);
    let late = |millis| Rule::new(Fault::Late(Duration::from_millis(millis)));
    faults.add(late(5));
    faults.add(Rule::new(Fault::Denied).of(&[Action::Query]).after(1).times(2));
    faults.add(late(2).of(&[Action::Query]));
    faults.add(Rule::new(Fault::Throttled).of(&[Action::Query]).after(3));
    let seven = Duration::from_millis(7);
    let befallen: Vec<_> = (0..5).map(|_| faults.befall(&asked("Query", &json!({})))).collect();
    assert_eq!(
        befallen,
        [
            (seven, None),
            (seven, Some(Fault::Denied)),
            (seven, Some(Fault::Denied)),
            (seven, Some(Fault::Throttled)),
            (seven, Some(Fault::Throttled)),
        ]
    );
    assert_eq!(faults.befall(&asked("GetItem", &json!({}))), (Duration::from_millis(5), None));
    faults.clear();
    assert_eq!(faults.befall(&asked("Query", &json!({}))), (Duration::ZERO, None));
}

#[test]
fn a_rule_of_a_partition_befalls_what_names_it() {
    let faults = Faults::new(0);
    faults.add(Rule::new(Fault::Throttled).partition("p"));
    let of = |pk: &str| json!({"pk": {"S": pk}, "sk": {"S": "a"}});
    let all = |pk: &str| {
        [
            asked("GetItem", &json!({"TableName": TABLE, "Key": of(pk)})),
            asked("PutItem", &json!({"TableName": TABLE, "Item": of(pk)})),
            asked("Query", &json!({"TableName": TABLE, "ExpressionAttributeValues": {":pk": {"S": pk}}})),
            asked("BatchWriteItem", &json!({"RequestItems": {TABLE: [{"DeleteRequest": {"Key": of(pk)}}]}})),
            asked("BatchGetItem", &json!({"RequestItems": {TABLE: {"Keys": [of(pk)]}}})),
        ]
    };
    assert_eq!(all("p").map(|one| faults.befall(&one).1), [Some(Fault::Throttled); 5]);
    assert_eq!(all("q").map(|one| faults.befall(&one).1), [None; 5]);
}

#[tokio::test]
async fn a_call_that_is_late_is_done_later() {
    let double = Double::start().await;
    double.faults().add(Rule::new(Fault::Late(Duration::from_secs(60))).of(&[Action::PutItem]));
    let client = double.client().await.with_total(Duration::from_millis(500));
    let why = put(&client, Class::Bulk, "a", "late").await.unwrap_err().why;
    assert!(matches!(why, Why::TimedOut { .. }), "{why}");
    assert_eq!(get(&client.with_total(PATIENCE), "a", true).await.unwrap(), None);
}

#[tokio::test]
async fn a_call_that_is_held_is_done_when_it_is_let_go() {
    let double = Double::start().await;
    double.faults().add(Rule::new(Fault::Held).of(&[Action::PutItem]));
    let client = double.client().await;
    let held = client.clone();
    let putting = tokio::spawn(async move { put(&held, Class::Bulk, "a", "held").await });
    double.until_called(Action::PutItem, 1).await;
    assert_eq!(get(&client, "a", true).await.unwrap(), None);
    double.faults().clear();
    putting.await.unwrap().unwrap();
    assert_eq!(get(&client, "a", true).await.unwrap().as_deref(), Some("held"));
}

#[tokio::test]
async fn of_a_batch_every_second_item_may_be_left() {
    use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
    let double = Double::start().await;
    let client = double.client().await;
    let request = |sk: &str| {
        let put = PutRequest::builder().set_item(Some(crate::dynamodb::testing::item(sk, "text")));
        WriteRequest::builder().put_request(put.build().unwrap()).build()
    };
    double.faults().add(Rule::new(Fault::Unprocessed).times(1));
    let batch = client.sdk().batch_write_item();
    let answer = batch.request_items(TABLE, ["a", "b", "c", "d"].map(request).to_vec()).send().await.unwrap();
    let left = answer.unprocessed_items.unwrap().remove(TABLE);
    assert_eq!(left, Some(["b", "d"].map(request).to_vec()));
    assert_eq!(sort_keys(&client).await.unwrap(), ["a", "c"]);
}

#[tokio::test]
async fn stale_reads_see_what_was_before_until_they_catch_up() {
    let double = Double::start().await;
    let client = double.client().await;
    put(&client, Class::Bulk, "a", "1").await.unwrap();
    double.read_stale(Staleness::Held).await;
    put(&client, Class::Bulk, "a", "2").await.unwrap();
    put(&client, Class::Bulk, "b", "2").await.unwrap();
    assert_eq!(get(&client, "a", false).await.unwrap().as_deref(), Some("1"));
    assert_eq!(get(&client, "a", true).await.unwrap().as_deref(), Some("2"));
    assert_eq!(sort_keys(&client).await.unwrap(), ["a"]);

    double.catch_up().await;
    assert_eq!(get(&client, "a", false).await.unwrap().as_deref(), Some("2"));
    delete(&client, "b").await.unwrap();
    assert_eq!(sort_keys(&client).await.unwrap(), ["a", "b"]);
    double.read_stale(Staleness::None).await;
    assert_eq!(sort_keys(&client).await.unwrap(), ["a"]);
}

#[tokio::test]
async fn a_program_of_its_own_reaches_it_by_endpoint_and_environment() {
    let double = Double::start().await;
    let variables: Vec<_> = double.environment().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        variables,
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_EC2_METADATA_DISABLED"]
    );
    assert!(double.endpoint().starts_with("http://127.0.0.1:"));
}
