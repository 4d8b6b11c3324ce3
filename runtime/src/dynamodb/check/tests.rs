#![cfg(feature = "dynamodb-double")]

use std::time::Duration;

use super::*;
use crate::dynamodb::create_table;
use crate::dynamodb::double::{Double, Fault, Rule, TABLE, Used};

const WRITES: &[Action] = &[Action::UpdateItem, Action::PutItem, Action::DeleteItem];

/// What somebody reads of a check that fails.
async fn told(double: &Double) -> String {
    let told = check(&double.client().await, WRITES).await.unwrap_err().to_string();
    told.replace(&format!(" at {}", double.endpoint()), "")
}

#[tokio::test]
async fn a_check_writes_nothing_and_costs_a_unit_for_each_write_it_tries() {
    let double = Double::start().await;
    check(&double.client().await, WRITES).await.unwrap();
    assert!(double.items(TABLE).await.is_empty());
    assert_eq!(double.units(), Used { calls: 5, read: 0.5, write: 3.0 });
}

#[tokio::test]
async fn each_permission_that_is_missing_is_named() {
    let double = Double::start().await;
    for denied in
        [Action::DescribeTable, Action::Query, Action::UpdateItem, Action::PutItem, Action::DeleteItem]
    {
        double.faults().deny(denied);
        let told = told(&double).await;
        let begin = format!(
            "{denied} on table {TABLE} in eu-test-1: not allowed: let a policy grant dynamodb:{denied} on the table"
        );
        assert!(told.starts_with(&begin), "{told}");
        double.faults().clear();
    }
}

#[tokio::test]
async fn a_table_that_is_not_there_or_not_ready_or_made_for_something_else_cannot_be_used() {
    let double = Double::empty(Default::default()).await;
    assert_eq!(
        told(&double).await,
        "DescribeTable on table global-discovery-test in eu-test-1: there is no such table: create it, or name another \
         one with --dynamodb-table"
    );
    double.set_making(1);
    let client = double.client().await;
    create_table(&client).await.unwrap();
    assert_eq!(
        told(&double).await,
        "table global-discovery-test in eu-test-1 is CREATING: it can be used when it is ACTIVE"
    );
    check(&client, WRITES).await.unwrap();
}

#[tokio::test]
async fn a_table_with_other_keys_cannot_be_used() {
    let double = Double::empty(Default::default()).await;
    let client = double.client().await;
    let number = aws_sdk_dynamodb::types::AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::N);
    let hash =
        aws_sdk_dynamodb::types::KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let request =
        client.sdk().create_table().table_name(TABLE).attribute_definitions(number.build().unwrap());
    let request = request.key_schema(hash.build().unwrap());
    request.billing_mode(aws_sdk_dynamodb::types::BillingMode::PayPerRequest).send().await.unwrap();
    assert_eq!(
        told(&double).await,
        "table global-discovery-test in eu-test-1 has the keys id (N): a table with the string keys pk (partition) and sk \
         (sort) is needed; name another one with --dynamodb-table"
    );
}

#[tokio::test]
async fn who_waits_for_a_table_goes_on_when_it_can_be_used() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().add(Rule::new(Fault::Denied).of(&[Action::UpdateItem]).times(1));
    let waiting = tokio::spawn(async move { until_usable(&client, &[Action::UpdateItem]).await });
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert_eq!(double.calls(Action::UpdateItem), 2);
}
