//! Short forms of requests, for the tests of this module.

#![cfg(feature = "dynamodb-double")]

use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure::AllOld;

use super::{Action, Class, Client, Condition, Failed, Item};

/// A text as a value.
pub(super) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// An item with one attribute besides its keys.
pub(super) fn item(sk: &str, text: &str) -> Item {
    [("pk", "p"), ("sk", sk), ("text", text)].map(|(name, text)| (name.to_owned(), s(text))).into()
}

/// A request to put it.
pub(super) fn put_request(client: &Client, sk: &str, text: &str) -> PutItemFluentBuilder {
    client.sdk().put_item().table_name(client.table()).set_item(Some(item(sk, text)))
}

/// Puts it.
pub(super) async fn put(client: &Client, class: Class, sk: &str, text: &str) -> Result<(), Failed> {
    let request = put_request(client, sk, text);
    client.call(class, Action::PutItem, || request.clone().send()).await.map(drop)
}

/// Puts it where nothing is.
pub(super) async fn put_new(client: &Client, sk: &str, text: &str) -> Result<Condition<()>, Failed> {
    let request = put_request(client, sk, text)
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(AllOld);
    match client.write(Class::Bulk, Action::PutItem, || request.clone().send()).await? {
        Condition::Held(_) => Ok(Condition::Held(())),
        Condition::Failed(standing) => Ok(Condition::Failed(standing)),
    }
}

/// Deletes it.
pub(super) async fn delete(client: &Client, sk: &str) -> Result<(), Failed> {
    let request = client.sdk().delete_item().table_name(client.table()).key("pk", s("p")).key("sk", s(sk));
    client.call(Class::Bulk, Action::DeleteItem, || request.clone().send()).await.map(drop)
}

/// Its attribute, where it is there.
pub(super) async fn get(client: &Client, sk: &str, consistent: bool) -> Result<Option<String>, Failed> {
    let request = client.sdk().get_item().table_name(client.table()).key("pk", s("p")).key("sk", s(sk));
    let request = request.consistent_read(consistent);
    let got = client.call(Class::Urgent, Action::GetItem, || request.clone().send()).await?;
    Ok(got.item.map(|item| item["text"].as_s().cloned().unwrap_or_default()))
}

/// The sort keys of all items of the partition.
pub(super) async fn sort_keys(client: &Client) -> Result<Vec<String>, Failed> {
    let request = client.sdk().query().table_name(client.table()).key_condition_expression("pk = :pk");
    let items = client.query(Class::Bulk, request.expression_attribute_values(":pk", s("p"))).await?;
    Ok(items.iter().map(|item| item["sk"].as_s().cloned().unwrap_or_default()).collect())
}
