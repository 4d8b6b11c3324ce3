use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    CreateReplicationGroupMemberAction, DeleteReplicationGroupMemberAction, PointInTimeRecoverySpecification,
    PointInTimeRecoveryStatus, ReplicationGroupUpdate, StreamSpecification, StreamViewType,
    TimeToLiveSpecification,
};
use mcs_core::time::WallTime;

use crate::dynamodb::double::{Double, REGION, TABLE};
use crate::dynamodb::testing::{get, s};
use crate::dynamodb::{Client, Settings, Why, create_table};

/// A client of the double that signs for another region.
async fn of_region(double: &Double, region: &str) -> Client {
    double.client_of(Settings { region: Some(region.to_owned()), ..double.settings() }).await
}

/// Replicas with their status, then that of the table.
async fn replicas(client: &Client) -> Vec<String> {
    let table = client.sdk().describe_table().table_name(TABLE).send().await.unwrap().table.unwrap();
    let shown = |name: &str, status: &str| format!("{name} {status}");
    let replicas = table
        .replicas()
        .iter()
        .map(|replica| shown(replica.region_name().unwrap(), replica.replica_status().unwrap().as_str()));
    let own = std::iter::once(shown("table", table.table_status().unwrap().as_str()));
    replicas.chain(own).collect()
}

async fn update(client: &Client, update: ReplicationGroupUpdate) -> Result<(), String> {
    let sent = client.sdk().update_table().table_name(TABLE).replica_updates(update).send().await;
    sent.map(drop).map_err(|error| error.code().unwrap_or_default().to_owned())
}

fn create(region: &str) -> ReplicationGroupUpdate {
    let create = CreateReplicationGroupMemberAction::builder().region_name(region).build().unwrap();
    ReplicationGroupUpdate::builder().create(create).build()
}

fn delete(region: &str) -> ReplicationGroupUpdate {
    let delete = DeleteReplicationGroupMemberAction::builder().region_name(region).build().unwrap();
    ReplicationGroupUpdate::builder().delete(delete).build()
}

async fn stream_on(client: &Client) {
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build().unwrap();
    client.sdk().update_table().table_name(TABLE).stream_specification(stream).send().await.unwrap();
}

#[tokio::test]
async fn a_replica_needs_a_stream_and_is_there_after_some_looks() {
    let double = Double::start().await;
    double.set_making(2);
    let client = double.client().await;
    assert_eq!(update(&client, create("us-test-1")).await, Err("ValidationException".to_owned()));
    stream_on(&client).await;
    update(&client, create("us-test-1")).await.unwrap();
    assert_eq!(update(&client, create("ap-test-1")).await, Err("ResourceInUseException".to_owned()));
    assert_eq!(replicas(&client).await, ["us-test-1 CREATING", "table UPDATING"]);
    assert_eq!(replicas(&client).await, ["us-test-1 CREATING", "table UPDATING"]);
    assert_eq!(replicas(&client).await, ["us-test-1 ACTIVE", "table ACTIVE"]);

    let us = of_region(&double, "us-test-1").await;
    assert_eq!(replicas(&us).await, [format!("{REGION} ACTIVE"), "table ACTIVE".to_owned()]);
    for again in ["us-test-1", REGION] {
        assert_eq!(update(&client, create(again)).await, Err("ValidationException".to_owned()));
    }
    update(&client, delete("us-test-1")).await.unwrap();
    assert_eq!(replicas(&client).await, ["table ACTIVE"]);
    assert_eq!(update(&client, delete("us-test-1")).await, Err("ValidationException".to_owned()));
}

async fn recovery(client: &Client) -> Result<PointInTimeRecoveryStatus, String> {
    let sent = client.sdk().describe_continuous_backups().table_name(TABLE).send().await;
    let told = sent.map_err(|error| error.code().unwrap_or_default().to_owned())?;
    let description = told.continuous_backups_description.unwrap().point_in_time_recovery_description;
    Ok(description.unwrap().point_in_time_recovery_status.unwrap())
}

#[tokio::test]
async fn recovery_to_a_point_in_time_is_turned_on_in_each_region_by_itself() {
    let double = Double::start().await;
    let client = double.client().await;
    let us = of_region(&double, "us-test-1").await;
    assert_eq!(recovery(&client).await, Ok(PointInTimeRecoveryStatus::Disabled));
    assert_eq!(recovery(&us).await, Err("TableNotFoundException".to_owned()));
    stream_on(&client).await;
    update(&client, create("us-test-1")).await.unwrap();

    let on =
        PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build().unwrap();
    let request = us.sdk().update_continuous_backups().table_name(TABLE);
    request.point_in_time_recovery_specification(on).send().await.unwrap();
    assert_eq!(recovery(&us).await, Ok(PointInTimeRecoveryStatus::Enabled));
    assert_eq!(recovery(&client).await, Ok(PointInTimeRecoveryStatus::Disabled));
}

#[tokio::test]
async fn a_time_to_live_that_is_on_is_not_turned_on_again() {
    let double = Double::start().await;
    let client = double.client().await;
    let set = |attribute: &str, enabled: bool| {
        let specification = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(enabled);
        let request = client.sdk().update_time_to_live().table_name(TABLE);
        let sent = request.time_to_live_specification(specification.build().unwrap()).send();
        async move { sent.await.map(drop).map_err(|error| error.message().unwrap_or_default().to_owned()) }
    };
    assert_eq!(set("expires_at", false).await, Err("TimeToLive is already disabled".to_owned()));
    assert_eq!(set("expires_at", true).await, Ok(()));
    assert_eq!(set("expires_at", true).await, Err("TimeToLive is already enabled".to_owned()));
    assert_eq!(
        set("other", true).await,
        Err("TimeToLive is active on a different AttributeName: current AttributeName is expires_at"
            .to_owned())
    );
    assert_eq!(set("expires_at", false).await, Ok(()));
}

#[tokio::test]
async fn what_has_expired_goes_when_it_is_swept() {
    let double = Double::start().await;
    let client = double.client().await;
    let specification = TimeToLiveSpecification::builder().attribute_name("expires_at").enabled(true);
    let request = client.sdk().update_time_to_live().table_name(TABLE);
    request.time_to_live_specification(specification.build().unwrap()).send().await.unwrap();
    let expires = aws_sdk_dynamodb::types::AttributeValue::N("1000000000".to_owned());
    let request = client.sdk().put_item().table_name(TABLE).item("pk", s("p")).item("sk", s("a"));
    request.item("text", s("old")).item("expires_at", expires).send().await.unwrap();
    assert_eq!(get(&client, "a", true).await.unwrap().as_deref(), Some("old"));
    let at = |secs| WallTime::from_unix_secs(secs);
    assert_eq!(double.sweep_expired_at(TABLE, at(999_999_999)), 0);
    assert_eq!(get(&client, "a", true).await.unwrap().as_deref(), Some("old"));
    assert_eq!(double.sweep_expired(), 1);
    assert_eq!(get(&client, "a", true).await.unwrap(), None);
}

#[tokio::test]
async fn a_table_that_is_being_made_takes_no_calls() {
    let double = Double::empty(Default::default()).await;
    double.set_making(1);
    let client = double.client().await;
    create_table(&client).await.unwrap();
    let why = get(&client, "a", true).await.unwrap_err().why;
    assert!(matches!(why, Why::NoTable { .. }), "{why}");
    assert_eq!(replicas(&client).await, ["table CREATING"]);
    assert_eq!(replicas(&client).await, ["table ACTIVE"]);
    assert_eq!(get(&client, "a", true).await.unwrap(), None);
}
