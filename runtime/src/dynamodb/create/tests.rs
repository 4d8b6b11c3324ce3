#![cfg(feature = "dynamodb-double")]

use super::*;
use crate::dynamodb::Why;
use crate::dynamodb::check;
use crate::dynamodb::double::{Double, Fault, Rule, TABLE};

const LIMIT: Duration = Duration::from_secs(60);

/// Has items expire by another attribute than ours, or no more.
async fn set_time_to_live(client: &Client, attribute: &str, enabled: bool) {
    let specification = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(enabled);
    let request = client.sdk().update_time_to_live().table_name(TABLE);
    request.time_to_live_specification(specification.build().unwrap()).send().await.unwrap();
}

#[tokio::test]
async fn a_table_is_made_once_and_can_be_used_when_it_is_ready() {
    let double = Double::empty(Default::default()).await;
    double.set_making(1);
    let client = double.client().await;
    let made = prepare(&client, LIMIT).await.unwrap();
    assert_eq!(made, Prepared { table: Created::Made, time_to_live: Ok(TimeToLive::Enabled) });
    check(&client, &[Action::UpdateItem]).await.unwrap();

    let again = prepare(&client, LIMIT).await.unwrap();
    assert_eq!(again, Prepared { table: Created::WasThere, time_to_live: Ok(TimeToLive::WasEnabled) });
    assert_eq!(double.calls(Action::UpdateTimeToLive), 1);
    let described = client.sdk().describe_table().table_name(TABLE).send().await.unwrap().table.unwrap();
    let billing = described.billing_mode_summary.and_then(|summary| summary.billing_mode);
    assert_eq!(billing, Some(BillingMode::PayPerRequest));
}

#[tokio::test]
async fn a_table_that_is_not_ready_in_time_is_told_with_its_status() {
    let double = Double::empty(Default::default()).await;
    double.set_making(u32::MAX);
    let client = double.client().await;
    create_table(&client).await.unwrap();
    let unusable = until_active(&client, Duration::from_secs(2)).await.unwrap_err();
    let status = "CREATING".to_owned();
    assert_eq!(unusable, Unusable::NotActive { place: Arc::clone(client.place()), status });
}

#[tokio::test]
async fn a_table_whose_answers_were_lost_is_made_and_set_up_all_the_same() {
    let double = Double::empty(Default::default()).await;
    for action in [Action::CreateTable, Action::UpdateTimeToLive] {
        double.faults().add(Rule::new(Fault::LostAnswer).of(&[action]).times(1));
    }
    let made = prepare(&double.client().await, LIMIT).await.unwrap();
    assert_eq!(made, Prepared { table: Created::WasThere, time_to_live: Ok(TimeToLive::WasEnabled) });
}

#[tokio::test]
async fn a_table_without_the_permissions_of_its_time_to_live_is_made_all_the_same() {
    for denied in [Action::DescribeTimeToLive, Action::UpdateTimeToLive] {
        let double = Double::empty(Default::default()).await;
        double.faults().deny(denied);
        let made = prepare(&double.client().await, LIMIT).await.unwrap();
        assert_eq!(made.table, Created::Made);
        let failed = match made.time_to_live {
            Err(NoTimeToLive::Failed(failed)) => failed,
            other => panic!("{other:?}"),
        };
        assert!(matches!(failed.why, Why::AccessDenied { action, .. } if action == denied), "{failed}");
    }
}

#[tokio::test]
async fn a_time_to_live_by_another_attribute_stays_and_is_told() {
    let double = Double::start().await;
    let client = double.client().await;
    set_time_to_live(&client, "ttl", true).await;
    let refused = TimeToLive::enable(&client).await.unwrap_err().to_string();
    assert_eq!(
        refused.replace(&format!(" at {}", double.endpoint()), ""),
        "table global-discovery-test in eu-test-1 has its time to live on ttl: turn that off, then on for expires_at"
    );
    set_time_to_live(&client, "ttl", false).await;
    assert_eq!(TimeToLive::enable(&client).await, Ok(TimeToLive::Enabled));
}
