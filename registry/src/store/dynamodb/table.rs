//! Requests to the table, in rows. What is said here is how they are made and what became of them, not what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, KeysAndAttributes, PutRequest, ReturnValuesOnConditionCheckFailure,
    WriteRequest,
};
use futures::{StreamExt, TryStreamExt, stream};
use mcs_runtime::dynamodb::{self, Action, Class, Client, Condition, Failed as Undone, Item, Unusable, Why};

use super::bodies::FORM;
use super::codec::{ORDER, Order, PK, REMOVED, Row, SK};
use super::keys::Key;
use crate::store::{Failed, Wrote};

/// Most writes that DynamoDB takes in one batch.
const WRITES_A_BATCH: usize = 25;

/// Most keys that are read in one batch: DynamoDB takes as many, and they give at most 3 MB of the 16 that an answer has.
const READS_A_BATCH: usize = 100;

/// So many batches of one call are under way at once.
const BATCHES: usize = 4;

/// A Query has as many pages as it has; how long all of them may take is its caller's to say, and this the end of a
/// caller that does not.
const WHOLE_QUERY: Duration = Duration::from_secs(60);

/// A write is made unless what stands is newer, or of a form that only a later release knows (which says so in the
/// attribute `f`; this one writes none). What is as new is written again, so that whoever repeats a write whose answer was
/// lost is told that it was made.
const UNLESS_NEWER: &str = "(attribute_not_exists(f) OR f <= :f) AND (attribute_not_exists(v) OR v <= :v)";

/// So is what nobody who serves a member wrote: unless it was removed, besides.
const UNLESS_REMOVED: &str = "(attribute_not_exists(f) OR f <= :f) AND (attribute_not_exists(v) OR v <= :v) \
     AND attribute_not_exists(r)";

/// The values of [`UNLESS_NEWER`] and [`UNLESS_REMOVED`].
fn unless_newer(order: Order) -> Item {
    Item::from([(":v".to_owned(), order.value()), (":f".to_owned(), AttributeValue::N(FORM.to_string()))])
}

/// What is done besides describing and querying the table.
const USED: [Action; 5] =
    [Action::GetItem, Action::BatchGetItem, Action::PutItem, Action::DeleteItem, Action::BatchWriteItem];

/// How fresh a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// It may miss the writes of the last moments, and costs half.
    Soon,
    /// It has all that was written in this region.
    Now,
}

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    client: Client,
    whole: Client,
}

impl From<Undone> for Failed {
    fn from(undone: Undone) -> Self {
        let reason = undone.to_string();
        match undone.why {
            Why::TimedOut { limit } => Self::TimedOut { limit },
            Why::Away { .. } | Why::NoCredentials { .. } => Self::Away { reason },
            Why::Throttled { .. } => Self::Throttled { reason },
            Why::NoTable { .. } | Why::AccessDenied { .. } | Why::Refused { .. } => Self::Refused { reason },
        }
    }
}

impl From<Unusable> for Failed {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Failed(undone) => undone.into(),
            Unusable::NotActive { .. } => Self::Away { reason: unusable.to_string() },
            Unusable::OtherKeys { .. } => Self::Refused { reason: unusable.to_string() },
        }
    }
}

impl Table {
    pub(super) fn new(client: Client) -> Self {
        let whole = client.with_total(WHOLE_QUERY);
        Self { client, whole }
    }

    pub(super) fn name(&self) -> &str {
        self.client.table()
    }

    /// Whether it is there, and what is done here is allowed.
    pub(super) async fn check(&self) -> Result<(), Failed> {
        Ok(dynamodb::check(&self.client, &USED).await?)
    }

    /// Writes a row, unless a newer one stands.
    pub(super) async fn put(&self, class: Class, row: Row) -> Result<Wrote, Failed> {
        self.put_unless(class, row, UNLESS_NEWER).await
    }

    /// Writes the record of a member, unless a newer one stands, or that it was removed.
    pub(super) async fn put_unless_removed(&self, class: Class, row: Row) -> Result<Wrote, Failed> {
        self.put_unless(class, row, UNLESS_REMOVED).await
    }

    async fn put_unless(&self, class: Class, row: Row, condition: &str) -> Result<Wrote, Failed> {
        let request = self.client.sdk().put_item().table_name(self.name());
        let request = match row.order {
            None => request,
            Some(order) => request
                .condition_expression(condition)
                .set_expression_attribute_values(Some(unless_newer(order)))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::None),
        };
        let request = request.set_item(Some(row.item()));
        Ok(wrote(self.client.write(class, Action::PutItem, || request.clone().send()).await?))
    }

    /// Deletes a row, unless a newer one stands.
    pub(super) async fn delete(&self, class: Class, key: Key, order: Order) -> Result<Wrote, Failed> {
        let request = self
            .client
            .sdk()
            .delete_item()
            .table_name(self.name())
            .set_key(Some(key_item(key)))
            .condition_expression(UNLESS_NEWER)
            .set_expression_attribute_values(Some(unless_newer(order)));
        Ok(wrote(self.client.write(class, Action::DeleteItem, || request.clone().send()).await?))
    }

    /// One item.
    pub(super) async fn get(&self, class: Class, key: Key, fresh: Fresh) -> Result<Option<Item>, Failed> {
        let request = self
            .client
            .sdk()
            .get_item()
            .table_name(self.name())
            .set_key(Some(key_item(key)))
            .consistent_read(fresh == Fresh::Now);
        let answer = self.client.call(class, Action::GetItem, || request.clone().send()).await?;
        Ok(answer.item.filter(|item| !item.is_empty()))
    }

    /// All items of a partition whose sort keys begin so, of all pages, or none.
    pub(super) async fn query(
        &self,
        class: Class,
        pk: String,
        begins: Option<&str>,
        fresh: Fresh,
    ) -> Result<Vec<Item>, Failed> {
        let text = AttributeValue::S;
        let request: QueryFluentBuilder = self
            .client
            .sdk()
            .query()
            .table_name(self.name())
            .consistent_read(fresh == Fresh::Now)
            .expression_attribute_values(":pk", text(pk));
        let request = match begins {
            None => request.key_condition_expression("pk = :pk"),
            Some(begins) => request
                .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
                .expression_attribute_values(":sk", text(begins.to_owned())),
        };
        Ok(self.whole.query(class, request).await?)
    }

    /// A page of the keys of a partition that begin so, after that of the page before; and where the next one begins, if
    /// there is one.
    pub(super) async fn keys(
        &self,
        pk: String,
        begins: &str,
        after: Option<Item>,
    ) -> Result<(Vec<Key>, Option<Item>), Failed> {
        let text = AttributeValue::S;
        let request = self
            .client
            .sdk()
            .query()
            .table_name(self.name())
            .consistent_read(true)
            .projection_expression("pk, sk")
            .key_condition_expression("pk = :pk AND begins_with(sk, :sk)")
            .expression_attribute_values(":pk", text(pk))
            .expression_attribute_values(":sk", text(begins.to_owned()))
            .set_exclusive_start_key(after);
        let page = self.client.call(Class::Bulk, Action::Query, || request.clone().send()).await?;
        let keys = page.items.unwrap_or_default().iter().filter_map(key_of).collect();
        Ok((keys, page.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    /// The items of these keys that are there.
    pub(super) async fn get_all(&self, keys: BTreeSet<Key>) -> Result<BTreeMap<Key, Item>, Failed> {
        let keys: Vec<Item> = keys.into_iter().map(key_item).collect();
        let batches: Vec<Vec<Item>> = keys.chunks(READS_A_BATCH).map(<[Item]>::to_vec).collect();
        let read = stream::iter(batches.into_iter().map(|batch| self.get_batch(batch))).buffered(BATCHES);
        read.try_fold(BTreeMap::new(), |mut all, some| async move {
            all.extend(some);
            Ok(all)
        })
        .await
    }

    async fn get_batch(&self, mut keys: Vec<Item>) -> Result<BTreeMap<Key, Item>, Failed> {
        let mut read = BTreeMap::new();
        let mut for_nothing = 0;
        loop {
            let left = keys.len();
            let asked = KeysAndAttributes::builder().set_keys(Some(keys)).build().map_err(cannot_be)?;
            let request = self.client.sdk().batch_get_item().request_items(self.name(), asked);
            let answer =
                self.client.call(Class::Bulk, Action::BatchGetItem, || request.clone().send()).await?;
            for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
                if let Some(key) = key_of(&item) {
                    read.insert(key, item);
                }
            }
            keys = answer.unprocessed_keys.into_iter().flatten().flat_map(|(_, left)| left.keys).collect();
            if keys.is_empty() {
                return Ok(read);
            }
            for_nothing = if keys.len() < left { 0 } else { for_nothing + 1 };
            self.client.again(Class::Bulk, Action::BatchGetItem, for_nothing).await?;
        }
    }

    /// Writes rows, whatever stands. They are of different keys. `written` is told of those of each batch that is done.
    pub(super) async fn put_all(&self, rows: Vec<Row>, written: impl Fn(&[Key])) -> Result<(), Failed> {
        let put = |row: Row| {
            let key = row.key.clone();
            let put = PutRequest::builder().set_item(Some(row.item())).build().map_err(cannot_be)?;
            Ok((key, WriteRequest::builder().put_request(put).build()))
        };
        self.write_all(rows.into_iter().map(put).collect::<Result<_, Failed>>()?, written).await
    }

    /// Deletes items, whatever stands.
    pub(super) async fn delete_all(&self, keys: BTreeSet<Key>) -> Result<(), Failed> {
        let delete = |key: Key| {
            let request =
                DeleteRequest::builder().set_key(Some(key_item(key.clone()))).build().map_err(cannot_be)?;
            Ok((key, WriteRequest::builder().delete_request(request).build()))
        };
        self.write_all(keys.into_iter().map(delete).collect::<Result<_, Failed>>()?, |_| {}).await
    }

    async fn write_all(
        &self,
        writes: Vec<(Key, WriteRequest)>,
        written: impl Fn(&[Key]),
    ) -> Result<(), Failed> {
        let batches = writes.chunks(WRITES_A_BATCH).map(|batch| {
            let (keys, requests): (Vec<_>, Vec<_>) = batch.iter().cloned().unzip();
            let written = &written;
            async move {
                self.write_batch(requests).await?;
                written(&keys);
                Ok(())
            }
        });
        stream::iter(batches.collect::<Vec<_>>()).buffer_unordered(BATCHES).try_collect::<()>().await
    }

    async fn write_batch(&self, mut requests: Vec<WriteRequest>) -> Result<(), Failed> {
        let mut for_nothing = 0;
        loop {
            let left = requests.len();
            let request = self.client.sdk().batch_write_item().request_items(self.name(), requests);
            let answer =
                self.client.call(Class::Bulk, Action::BatchWriteItem, || request.clone().send()).await?;
            requests = answer.unprocessed_items.into_iter().flatten().flat_map(|(_, left)| left).collect();
            if requests.is_empty() {
                return Ok(());
            }
            for_nothing = if requests.len() < left { 0 } else { for_nothing + 1 };
            self.client.again(Class::Bulk, Action::BatchWriteItem, for_nothing).await?;
        }
    }
}

fn wrote<T>(condition: Condition<T>) -> Wrote {
    match condition {
        Condition::Held(_) => Wrote::Taken,
        Condition::Failed(_) => Wrote::Older,
    }
}

fn key_item(key: Key) -> Item {
    let text = AttributeValue::S;
    Item::from([(PK.to_owned(), text(key.pk)), (SK.to_owned(), text(key.sk))])
}

fn key_of(item: &Item) -> Option<Key> {
    let text = |name: &str| item.get(name)?.as_s().ok().cloned();
    Some(Key { pk: text(PK)?, sk: text(SK)? })
}

/// A request without what it must have: none is made so.
fn cannot_be(error: impl std::error::Error) -> Failed {
    Failed::Refused { reason: error.to_string() }
}

const _: () = assert!(ORDER.len() == 1 && REMOVED.len() == 1, "the conditions name the attributes");
