//! `mcs-admin create-table`: makes the table that registries share, in one region or in several.
//!
//! It may be run again, after a failure or to add a region: what is there already is left as it is and told. Replicas are added
//! one by one, as AWS wants it; each is waited for. Every step is told when it is done, so that who runs it sees what
//! stands when a later one fails.

use crate::store;
use aws_sdk_dynamodb::types::{
    BillingMode, CreateReplicationGroupMemberAction, PointInTimeRecoverySpecification,
    PointInTimeRecoveryStatus, ReplicaStatus, ReplicationGroupUpdate, StreamSpecification, StreamViewType,
    TableDescription,
};
use mcs_runtime::dynamodb::{
    Action, CREATE_LIMIT, Class, Client, Created, Failed, NoClient, NoTimeToLive, RegionName, Settings,
    TimeToLive, Unusable, Why, check, create_table, until_active,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A replica that was added is waited for so long. AWS copies the table into it first, which takes minutes for one that
/// is empty.
const REPLICA_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The table is looked at this often meanwhile.
const LOOK: Duration = Duration::from_secs(2);

/// The flags of the subcommand.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct CreateTable {
    /// Regions that get a replica of the table besides the one that it is made in; may be repeated or comma-separated. None
    /// by default: a table in several regions costs its writes in each of them
    #[arg(long, value_name = "REGION")]
    pub(crate) replica_regions: Vec<RegionName>,
    /// Lets the table be restored to any second of the last 35 days, in every region that has it. Off by default: AWS
    /// charges for it, and controllers bring back what is lost
    #[arg(long)]
    pub(crate) pitr: bool,
}

/// Why the table is not as it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCreated {
    /// There is no client.
    #[error(transparent)]
    NoClient(#[from] NoClient),
    /// A call failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// A table of that name cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// What expired would stay.
    #[error(transparent)]
    NoTimeToLive(#[from] NoTimeToLive),
    /// A replica cannot be made.
    #[error(
        "the replica in {region} is {status}: {message}; see the table in the AWS console, delete that replica, and run this again"
    )]
    Replica {
        /// Its region.
        region: String,
        /// Its status, as AWS has it.
        status: String,
        /// AWS's words.
        message: String,
    },
    /// A change of the table has not ended.
    #[error("{what} has not ended within {limit:?}; it goes on at AWS: run this again to wait for it")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// Another region is not reached there.
    #[error(
        "the endpoint {endpoint} is of one region, so point-in-time recovery in {region} is not turned on: run this again \
         without it (--endpoint, AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL)"
    )]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The other region.
        region: String,
    },
    /// The answer has no table.
    #[error("DescribeTable on {place} tells of no table")]
    NoDescription {
        /// Of which.
        place: String,
    },
}

/// Makes everything be as it was asked for; `say` is told each step that is done.
///
/// # Errors
/// What could not be done; what was told before stands.
pub(crate) async fn run(
    settings: Settings,
    args: &CreateTable,
    say: impl Fn(&str),
) -> Result<(), NotCreated> {
    let CreateTable { replica_regions, pitr } = args;
    let client = settings.clone().connect().await?;
    let place = client.place().to_string();
    match create_table(&client).await? {
        Created::Made => {
            until_active(&client, CREATE_LIMIT).await?;
            say(&format!("{place}: created, with the keys pk and sk, billed on demand"));
        }
        Created::WasThere => {
            until_active(&client, CREATE_LIMIT).await?;
            check(&client, &[]).await?;
            say(&format!(
                "{place}: is there already, with the keys pk and sk{}",
                billing(&describe(&client).await?)
            ));
        }
    }
    match TimeToLive::enable(&client).await? {
        TimeToLive::Enabled => say("time to live: turned on, by expires_at"),
        TimeToLive::WasEnabled => say("time to live: is on already, by expires_at"),
    }
    for region in
        replica_regions.iter().map(RegionName::as_str).filter(|region| *region != client.place().region)
    {
        if add_replica(&client, region).await? {
            say(&format!("replica in {region}: added"));
        } else {
            say(&format!("replica in {region}: is there already"));
        }
    }
    if *pitr {
        let here = client.place().region.clone();
        let elsewhere = replicas(&describe(&client).await?).into_keys().filter(|region| *region != here);
        let regions: Vec<_> = std::iter::once(here.clone()).chain(elsewhere).collect();
        for region in regions {
            if region != here
                && let Some(endpoint) =
                    client.place().endpoint.as_ref().filter(|endpoint| is_of_one_region(endpoint))
            {
                return Err(NotCreated::Endpoint { endpoint: endpoint.clone(), region });
            }
            let there = Settings { region: Some(region.clone()), ..settings.clone() }.connect().await?;
            if recover(&there).await? {
                say(&format!("point-in-time recovery in {region}: turned on"));
            } else {
                say(&format!("point-in-time recovery in {region}: is on already"));
            }
        }
    }
    Ok(())
}

/// What is to be known of how a table that was there is paid for.
fn billing(table: &TableDescription) -> &'static str {
    // A table that never was on demand has no summary.
    match table.billing_mode_summary().and_then(|summary| summary.billing_mode()) {
        Some(BillingMode::PayPerRequest) => ", billed on demand",
        _ => ", with provisioned capacity: registries are throttled above it, on demand suits them better",
    }
}

async fn describe(client: &Client) -> Result<TableDescription, NotCreated> {
    let request = client.sdk().describe_table().table_name(client.table());
    let answer = client.call(Class::Bulk, Action::DescribeTable, || request.clone().send()).await?;
    answer.table.ok_or_else(|| NotCreated::NoDescription { place: client.place().to_string() })
}

/// The replicas of a table by region, with their status and AWS's words on it.
fn replicas(table: &TableDescription) -> BTreeMap<String, (ReplicaStatus, String)> {
    let replicas = table.replicas().iter().filter_map(|replica| {
        let status = replica.replica_status().cloned().unwrap_or(ReplicaStatus::Active);
        let words = replica.replica_status_description().unwrap_or("no reason given").to_owned();
        Some((replica.region_name()?.to_owned(), (status, words)))
    });
    replicas.collect()
}

/// Adds a replica where there is none, and waits for it; says whether there was none.
async fn add_replica(client: &Client, region: &str) -> Result<bool, NotCreated> {
    // AWS takes one change of a table at a time; another run may have begun one.
    let ready = async || Ok(store::is_active(&describe(client).await?));
    until("an earlier change of the table", REPLICA_LIMIT, ready).await?;
    let table = describe(client).await?;
    let is_new = !replicas(&table).contains_key(region);
    if is_new {
        stream(client, &table).await?;
        let action = CreateReplicationGroupMemberAction::builder().region_name(region).build();
        let update = ReplicationGroupUpdate::builder().set_create(action.ok()).build();
        let request = client.sdk().update_table().table_name(client.table()).replica_updates(update);
        let updated = client.call(Class::Bulk, Action::UpdateTable, || request.clone().send()).await;
        // An answer that was lost is refused when it is asked for again.
        if let Err(failed) = updated
            && !(is_refused(&failed) && replicas(&describe(client).await?).contains_key(region))
        {
            return Err(failed.into());
        }
    }
    until(&format!("the replica in {region}"), REPLICA_LIMIT, async || {
        let described = describe(client).await?;
        match replicas(&described).remove(region) {
            Some((ReplicaStatus::Active, _)) => Ok(store::is_active(&described)),
            Some((status, message)) if has_failed(&status) => {
                let (region, status) = (region.to_owned(), status.as_str().to_owned());
                Err(NotCreated::Replica { region, status, message })
            }
            _ => Ok(false),
        }
    })
    .await?;
    Ok(is_new)
}

fn has_failed(status: &ReplicaStatus) -> bool {
    matches!(
        status,
        ReplicaStatus::CreationFailed
            | ReplicaStatus::Deleting
            | ReplicaStatus::InaccessibleEncryptionCredentials
            | ReplicaStatus::RegionDisabled
    )
}

/// Replication is fed by the table's stream of new and old items, which is to be on before.
async fn stream(client: &Client, table: &TableDescription) -> Result<(), NotCreated> {
    let wanted = |stream: &StreamSpecification| {
        stream.stream_enabled() && stream.stream_view_type() == Some(&StreamViewType::NewAndOldImages)
    };
    if table.stream_specification().is_some_and(wanted) {
        return Ok(());
    }
    let stream = StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::NewAndOldImages)
        .build();
    let request =
        client.sdk().update_table().table_name(client.table()).set_stream_specification(stream.ok());
    let updated = client.call(Class::Bulk, Action::UpdateTable, || request.clone().send()).await;
    if let Err(failed) = updated
        && !(is_refused(&failed) && describe(client).await?.stream_specification().is_some_and(wanted))
    {
        return Err(failed.into());
    }
    until("the start of the table's stream", CREATE_LIMIT, async || {
        let described = describe(client).await?;
        Ok(store::is_active(&described) && described.stream_specification().is_some_and(wanted))
    })
    .await
}

/// Whether AWS says that it is done or under way already, or that it cannot be done.
fn is_refused(failed: &Failed) -> bool {
    matches!(&failed.why, Why::Refused { .. })
}

/// Waits until `is_so`, at most for `limit`. A look that fails, and may succeed a moment later, says nothing.
async fn until(
    what: &str,
    limit: Duration,
    is_so: impl AsyncFn() -> Result<bool, NotCreated>,
) -> Result<(), NotCreated> {
    let waiting = async {
        loop {
            match is_so().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(NotCreated::Failed(failed)) if failed.why.retry_helps() => {}
                Err(other) => return Err(other),
            }
            sleep(LOOK).await;
        }
    };
    timeout(limit, waiting)
        .await
        .unwrap_or_else(|_| Err(NotCreated::TimedOut { what: what.to_owned(), limit }))
}

/// Whether an endpoint is one of AWS's own, which are of a region each; an emulator or a proxy may stand for all.
fn is_of_one_region(endpoint: &str) -> bool {
    endpoint.contains(".amazonaws.com") || endpoint.contains(".api.aws")
}

/// Turns point-in-time recovery on where it is off; says whether it was.
async fn recover(client: &Client) -> Result<bool, NotCreated> {
    let request = client.sdk().describe_continuous_backups().table_name(client.table());
    let described =
        client.call(Class::Bulk, Action::DescribeContinuousBackups, || request.clone().send()).await?;
    let status = described.continuous_backups_description.and_then(|backups| {
        backups.point_in_time_recovery_description.and_then(|recovery| recovery.point_in_time_recovery_status)
    });
    if status == Some(PointInTimeRecoveryStatus::Enabled) {
        return Ok(false);
    }
    let on = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
    let request = client.sdk().update_continuous_backups().table_name(client.table());
    let request = request.set_point_in_time_recovery_specification(on.ok());
    // Of a table that was made a moment ago AWS says for some seconds that its backups are yet to come.
    until("the start of backups", CREATE_LIMIT, async || {
        match client.call(Class::Bulk, Action::UpdateContinuousBackups, || request.clone().send()).await {
            Ok(_) => Ok(true),
            Err(Failed { why: Why::Refused { code, .. }, .. })
                if code == "ContinuousBackupsUnavailableException" =>
            {
                Ok(false)
            }
            Err(failed) => Err(failed.into()),
        }
    })
    .await?;
    Ok(true)
}
