use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use serde_json::json;

use super::*;
use crate::dynamodb::{Action, Class, Condition};

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

#[tokio::test]
async fn what_is_put_is_got_and_queried_and_a_condition_that_fails_shows_what_stands() {
    let double = Double::start().await;
    let client = double.client().await;
    let put =
        client.sdk().put_item().table_name(TABLE).item("pk", s("a")).item("sk", s("b")).item("n", s("1"));
    let taken = put
        .clone()
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    client.call(Class::Bulk, Action::PutItem, || put.clone().send()).await.unwrap();

    let get = client.sdk().get_item().table_name(TABLE).key("pk", s("a")).key("sk", s("b"));
    let got = client.call(Class::Urgent, Action::GetItem, || get.clone().send()).await.unwrap();
    let query = client.sdk().query().table_name(TABLE).key_condition_expression("pk = :pk");
    let read = client.query(Class::Urgent, query.expression_attribute_values(":pk", s("a"))).await.unwrap();
    let item = got.item.unwrap();
    assert_eq!(item["n"], s("1"));
    assert_eq!(read, std::slice::from_ref(&item));
    let refused = client.write(Class::Bulk, Action::PutItem, || taken.clone().send()).await.unwrap();
    assert_eq!(refused, Condition::Failed(Some(item)));
    assert_eq!(double.items(TABLE), [json!({"pk": {"S": "a"}, "sk": {"S": "b"}, "n": {"S": "1"}})]);
}
