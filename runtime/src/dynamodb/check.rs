//! Whether a table can be used: asked when a program starts, so that what is missing is told then, and not by the first
//! change that cannot be stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, KeyType, KeysAndAttributes, ScalarAttributeType, TableDescription,
    TableStatus, WriteRequest,
};
use mcs_core::backoff::Backoff;
use tracing::{info, warn};

use super::{Action, Class, Client, Condition, Failed, Place};

/// The first wait of [`until_usable`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest wait of [`until_usable`]: what somebody grants or makes is used half a minute later.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The partition and sort key of an item that nobody writes, by which calls are tried.
pub const PROBED: &str = "?";

/// A condition that no item meets: a write with it is allowed or not, and changes nothing.
const NEVER: &str = "attribute_exists(pk) AND attribute_not_exists(pk)";

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A call failed.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The table is not ready, or goes away.
    #[error("{place} is {status}: it can be used when it is ACTIVE")]
    NotActive {
        /// Which one.
        place: Arc<Place>,
        /// Its status, as AWS has it.
        status: String,
    },
    /// The table is made for something else.
    #[error(
        "{place} has the keys {found}: a table with the string keys pk (partition) and sk (sort) is needed; name \
         another one with {}", .place.flags.table
    )]
    OtherKeys {
        /// Which one.
        place: Arc<Place>,
        /// Its keys.
        found: Keys,
    },
}

/// The keys of a table, as messages tell them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<(String, String)>);

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
        f.write_str(&shown.join(", "))
    }
}

/// Looks whether the table is there with its keys, answers a Query, and lets each of `actions` be done, of
/// [`Action::GetItem`], [`Action::BatchGetItem`], [`Action::UpdateItem`], [`Action::PutItem`], [`Action::DeleteItem`] and
/// [`Action::BatchWriteItem`]. Nothing is changed. Costs half a read unit, and as much or a write unit for each.
///
/// # Errors
/// What is missing.
pub async fn check(client: &Client, actions: &[Action]) -> Result<(), Unusable> {
    let describe = client.sdk().describe_table().table_name(client.table());
    let described = client.call(Class::Urgent, Action::DescribeTable, || describe.clone().send()).await?;
    let table = described.table.unwrap_or_else(|| TableDescription::builder().build());
    is_active(client, &table)?;
    has_keys(client, &table)?;
    let probed = || AttributeValue::S(PROBED.to_owned());
    let query = client.sdk().query().table_name(client.table()).limit(1);
    let query = query.key_condition_expression("pk = :pk").expression_attribute_values(":pk", probed());
    client.call(Class::Urgent, Action::Query, || query.clone().send()).await?;
    for action in actions {
        allows(client, *action, &probed()).await?;
    }
    Ok(())
}

/// Whether the table takes calls: also while it is changed.
pub(super) fn is_active(client: &Client, table: &TableDescription) -> Result<(), Unusable> {
    match table.table_status() {
        Some(TableStatus::Active | TableStatus::Updating) => Ok(()),
        other => Err(Unusable::NotActive {
            place: Arc::clone(client.place()),
            status: other.map_or("in no status", TableStatus::as_str).to_owned(),
        }),
    }
}

fn has_keys(client: &Client, table: &TableDescription) -> Result<(), Unusable> {
    let kind = |name: &str| {
        let mut definitions = table.attribute_definitions().iter();
        definitions.find(|one| one.attribute_name() == name).map(|one| one.attribute_type().clone())
    };
    let keys: Vec<_> = table.key_schema().iter().map(|key| (key.key_type(), key.attribute_name())).collect();
    let is_text = |name| kind(name) == Some(ScalarAttributeType::S);
    if keys == [(&KeyType::Hash, "pk"), (&KeyType::Range, "sk")] && is_text("pk") && is_text("sk") {
        return Ok(());
    }
    let shown = keys.into_iter().map(|(_, name)| {
        (name.to_owned(), kind(name).map_or_else(|| "?".to_owned(), |kind| kind.as_str().to_owned()))
    });
    Err(Unusable::OtherKeys { place: Arc::clone(client.place()), found: Keys(shown.collect()) })
}

/// Whether this may be done.
async fn allows(client: &Client, action: Action, key: &AttributeValue) -> Result<(), Failed> {
    let (sdk, table, urgent) = (client.sdk(), client.table(), Class::Urgent);
    // Who is allowed to is told that the condition does not hold.
    macro_rules! probe {
        ($request:expr) => {{
            let request = $request.table_name(table).condition_expression(NEVER);
            let _: Condition<_> = client.write(urgent, action, || request.clone().send()).await?;
        }};
    }
    let nothing = || HashMap::from(["pk", "sk"].map(|name| (name.to_owned(), key.clone())));
    match action {
        Action::GetItem => {
            let request = sdk.get_item().table_name(table).set_key(Some(nothing()));
            client.call(urgent, action, || request.clone().send()).await?;
        }
        Action::BatchGetItem => {
            let keys = KeysAndAttributes::builder().keys(nothing()).build();
            let request = sdk
                .batch_get_item()
                .set_request_items(keys.ok().map(|keys| [(table.to_owned(), keys)].into()));
            client.call(urgent, action, || request.clone().send()).await?;
        }
        Action::BatchWriteItem => {
            let delete = DeleteRequest::builder().set_key(Some(nothing())).build().ok();
            let write = WriteRequest::builder().set_delete_request(delete).build();
            let request = sdk.batch_write_item().request_items(table, vec![write]);
            client.call(urgent, action, || request.clone().send()).await?;
        }
        Action::PutItem => probe!(sdk.put_item().item("pk", key.clone()).item("sk", key.clone())),
        Action::DeleteItem => probe!(sdk.delete_item().key("pk", key.clone()).key("sk", key.clone())),
        _ => probe!(
            sdk.update_item()
                .key("pk", key.clone())
                .key("sk", key.clone())
                .update_expression("SET probed = :probed")
                .expression_attribute_values(":probed", key.clone())
        ),
    }
    Ok(())
}

/// Checks the table again and again, up to every 30 s, until it can be used; what is missing is logged when it changes. For a
/// program that is not ready until then: ending it would only have it started again.
pub async fn until_usable(client: &Client, actions: &[Action]) {
    until(client, || check(client, actions)).await;
}

/// Looks again and again, until there is no reason against the table.
pub(super) async fn until<T, F>(client: &Client, look: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Unusable>>,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut told = None;
    loop {
        let why = match look().await {
            Ok(found) => {
                if told.is_some() {
                    info!(table = %client.place(), "the table can be used");
                }
                return found;
            }
            Err(unusable) => unusable.to_string(),
        };
        if told.as_ref() != Some(&why) {
            warn!(error = %why, "the table cannot be used yet: it is looked at again");
            told = Some(why);
        }
        tokio::time::sleep(backoff.next_pause(Duration::ZERO, rand::random())).await;
    }
}

#[cfg(test)]
mod tests;
