//! Makes a table, and has it delete what expired. All of it may be done again, and by several at once.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification, TimeToLiveStatus,
};

use tracing::{info, warn};

use super::check::{is_active, until};
use super::{Action, Class, Client, Failed, Place, Unusable, Why};

/// The attribute by which items expire: seconds since 1970.
pub const EXPIRES_AT: &str = "expires_at";

/// A table that was made is waited for so long, which AWS takes some ten seconds for.
pub const CREATE_LIMIT: Duration = Duration::from_secs(120);

/// A table that is being made is looked at this often.
const LOOK: Duration = Duration::from_secs(1);

/// What became of [`create_table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was made, and is not ready yet.
    Made,
    /// It was there.
    WasThere,
}

/// What became of [`TimeToLive::enable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeToLive {
    /// It was turned on.
    Enabled,
    /// It was on.
    WasEnabled,
}

/// Why expired items stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTimeToLive {
    /// A call failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// Items expire by something else.
    #[error("{place} has its time to live on {attribute}: turn that off, then on for {EXPIRES_AT}")]
    OtherAttribute {
        /// Which table.
        place: Arc<Place>,
        /// The attribute.
        attribute: String,
    },
    /// It was turned off a short time ago.
    #[error("{place} is turning its time to live off: AWS lets it be turned on again within about an hour")]
    BeingDisabled {
        /// Which table.
        place: Arc<Place>,
    },
}

/// What became of [`prepare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The table.
    pub table: Created,
    /// Whether what expired goes. A program works without: that is garbage collection only.
    pub time_to_live: Result<TimeToLive, NoTimeToLive>,
}

/// Makes the table where it is not, with the string keys `pk` and `sk` and billed on demand. It can be used when
/// [`until_active`] says so.
///
/// # Errors
/// It was not made.
pub async fn create_table(client: &Client) -> Result<Created, Failed> {
    // Names and kinds are all there, so that these do build.
    let key = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().ok();
    let text = |name| {
        let definition = AttributeDefinition::builder().attribute_name(name);
        definition.attribute_type(ScalarAttributeType::S).build().ok()
    };
    let request = client
        .sdk()
        .create_table()
        .table_name(client.table())
        .set_key_schema([key("pk", KeyType::Hash), key("sk", KeyType::Range)].into_iter().collect())
        .set_attribute_definitions([text("pk"), text("sk")].into_iter().collect())
        .billing_mode(BillingMode::PayPerRequest);
    match client.call(Class::Bulk, Action::CreateTable, || request.clone().send()).await {
        Ok(_) => Ok(Created::Made),
        // Or another one is making it, or this did, and the answer was lost.
        Err(Failed { why: Why::Refused { code, .. }, .. }) if code == "ResourceInUseException" => {
            Ok(Created::WasThere)
        }
        Err(failed) => Err(failed),
    }
}

/// Waits until the table can be used, at most so long.
///
/// # Errors
/// How it was at last.
pub async fn until_active(client: &Client, limit: Duration) -> Result<(), Unusable> {
    let request = client.sdk().describe_table().table_name(client.table());
    let mut last = None;
    let waiting = async {
        loop {
            let described = client.call(Class::Bulk, Action::DescribeTable, || request.clone().send()).await;
            let unusable = match described {
                Ok(answer) => match answer.table.as_ref().map(|table| is_active(client, table)) {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(unusable)) => unusable,
                    None => continue,
                },
                // It was made a moment ago, and not everybody at AWS knows of it.
                Err(failed) if failed.why.retry_helps() || matches!(failed.why, Why::NoTable { .. }) => {
                    failed.into()
                }
                Err(failed) => return Err(failed.into()),
            };
            last = Some(unusable);
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(limit, waiting).await {
        Ok(ended) => ended,
        Err(_) => Err(last.unwrap_or_else(|| Unusable::NotActive {
            place: Arc::clone(client.place()),
            status: TableStatus::Creating.as_str().to_owned(),
        })),
    }
}

impl TimeToLive {
    /// Has items expire by [`EXPIRES_AT`] where they do not. It is asked for first: AWS refuses to turn on what is on.
    ///
    /// # Errors
    /// They do not expire.
    pub async fn enable(client: &Client) -> Result<Self, NoTimeToLive> {
        if let Some(known) = Self::described(client).await? {
            return Ok(known);
        }
        let specification =
            TimeToLiveSpecification::builder().attribute_name(EXPIRES_AT).enabled(true).build();
        let request = client.sdk().update_time_to_live().table_name(client.table());
        let request = request.set_time_to_live_specification(specification.ok());
        let updated = client.call(Class::Bulk, Action::UpdateTimeToLive, || request.clone().send()).await;
        let Err(failed) = updated else { return Ok(Self::Enabled) };
        // Another one may have been faster, or an answer was lost.
        match Self::described(client).await? {
            Some(known) => Ok(known),
            None => Err(failed.into()),
        }
    }

    async fn described(client: &Client) -> Result<Option<Self>, NoTimeToLive> {
        let request = client.sdk().describe_time_to_live().table_name(client.table());
        let answer = client.call(Class::Bulk, Action::DescribeTimeToLive, || request.clone().send()).await?;
        let Some(described) = answer.time_to_live_description else { return Ok(None) };
        let place = || Arc::clone(client.place());
        match (described.time_to_live_status, described.attribute_name) {
            (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some(attribute)) => {
                if attribute == EXPIRES_AT {
                    Ok(Some(Self::WasEnabled))
                } else {
                    Err(NoTimeToLive::OtherAttribute { place: place(), attribute })
                }
            }
            (Some(TimeToLiveStatus::Disabling), _) => Err(NoTimeToLive::BeingDisabled { place: place() }),
            _ => Ok(None),
        }
    }
}

/// Makes the table where it is not, waits until it can be used, at most so long, and has what expired go.
///
/// # Errors
/// It cannot be used.
pub async fn prepare(client: &Client, limit: Duration) -> Result<Prepared, Unusable> {
    let table = create_table(client).await?;
    until_active(client, limit).await?;
    Ok(Prepared { table, time_to_live: TimeToLive::enable(client).await })
}

/// Prepares the table again and again, up to every 30 s, until it can be used. What is missing is logged when it changes,
/// and a time to live that cannot be turned on once: the program goes on without.
pub async fn until_prepared(client: &Client) {
    let prepared = until(client, || prepare(client, CREATE_LIMIT)).await;
    match prepared.time_to_live {
        Ok(_) => {
            info!(table = %client.place(), made = prepared.table == Created::Made, "the table is prepared")
        }
        Err(problem) => warn!(
            error = %problem,
            "items of the table that have expired stay in it, which costs storage and reads and nothing else"
        ),
    }
}

#[cfg(test)]
mod tests;
