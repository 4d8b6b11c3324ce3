#![cfg(feature = "dynamodb-double")]

use crate::dynamodb::double::{Double, Fault, Rule, TABLE};
use crate::dynamodb::testing::{get, put};
use crate::dynamodb::{Action, Class, Client};

/// What somebody reads of a call that fails, with `PORT` for the port of the double.
async fn told(double: &Double, client: &Client) -> String {
    let failed = put(client, Class::Bulk, "a", "text").await.unwrap_err().to_string();
    failed.replace(&double.endpoint(), "http://HOST:PORT")
}

#[tokio::test]
async fn a_failure_says_in_one_line_what_failed_where_and_what_to_do() {
    let double = Double::start().await;
    let client = double.client().await;
    let cases = [
        (
            Fault::Throttled,
            "DynamoDB is asked for too much: ThrottlingException: Throughput exceeds the current capacity of your table \
             or index. DynamoDB is automatically scaling your table or index so please try again shortly.",
        ),
        (
            Fault::ThroughputExceeded,
            "DynamoDB is asked for too much: ProvisionedThroughputExceededException: The level of configured provisioned \
             throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API.",
        ),
        (Fault::InternalError, "DynamoDB cannot be used now: InternalServerError: Internal server error"),
        (Fault::Unavailable, "DynamoDB cannot be used now: HTTP 503: no reason given"),
        (
            Fault::Denied,
            "not allowed: let a policy grant dynamodb:PutItem on the table (User: arn:aws:iam::123456789012:user/test is \
             not authorized to perform: dynamodb:PutItem on resource: \
             arn:aws:dynamodb:eu-test-1:123456789012:table/global-discovery-test because no identity-based policy allows the \
             dynamodb:PutItem action)",
        ),
        (
            Fault::ExpiredToken,
            "no AWS credentials that are taken: ExpiredTokenException: The security token included in the request is expired",
        ),
    ];
    for (fault, why) in cases {
        double.faults().add(Rule::new(fault));
        let place = format!("table {TABLE} in eu-test-1 at http://HOST:PORT");
        assert_eq!(told(&double, &client).await, format!("PutItem on {place}: {why}"));
        double.faults().clear();
    }
}

#[tokio::test]
async fn a_table_that_is_not_there_is_told_with_the_flag_of_its_name() {
    let double = Double::empty(Default::default()).await;
    let client = double.client().await;
    assert_eq!(
        told(&double, &client).await,
        "PutItem on table global-discovery-test in eu-test-1 at http://HOST:PORT: there is no such table: create it, or \
         name another one with --dynamodb-table"
    );
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_told_with_its_cause() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().door(crate::dynamodb::double::Door::Refusing);
    let told = told(&double, &client).await;
    assert!(told.contains("DynamoDB cannot be used now: dispatch failure"), "{told}");
    assert!(told.ends_with("Connection refused (os error 111)"), "{told}");
    double.faults().door(crate::dynamodb::double::Door::Open);
    assert_eq!(get(&client, "a", false).await.unwrap(), None);
    assert_eq!(double.calls(Action::PutItem), 0);
}
