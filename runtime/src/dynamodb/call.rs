//! One call to a table: within its limits, tried again where that may help.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use tokio::time::Sleep;

use super::{Client, Failed, Why};

/// An item as the SDK has it.
pub type Item = HashMap<String, AttributeValue>;

/// What is asked of DynamoDB; a closed set, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// `BatchGetItem`
    BatchGetItem,
    /// `BatchWriteItem`
    BatchWriteItem,
    /// `CreateTable`
    CreateTable,
    /// `DeleteItem`
    DeleteItem,
    /// `DescribeContinuousBackups`
    DescribeContinuousBackups,
    /// `DescribeTable`
    DescribeTable,
    /// `DescribeTimeToLive`
    DescribeTimeToLive,
    /// `GetItem`
    GetItem,
    /// `PutItem`
    PutItem,
    /// `Query`
    Query,
    /// `Scan`
    Scan,
    /// `TransactWriteItems`
    TransactWriteItems,
    /// `UpdateContinuousBackups`
    UpdateContinuousBackups,
    /// `UpdateItem`
    UpdateItem,
    /// `UpdateTable`
    UpdateTable,
    /// `UpdateTimeToLive`
    UpdateTimeToLive,
}

impl Action {
    /// Its name, as AWS has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BatchGetItem => "BatchGetItem",
            Self::BatchWriteItem => "BatchWriteItem",
            Self::CreateTable => "CreateTable",
            Self::DeleteItem => "DeleteItem",
            Self::DescribeContinuousBackups => "DescribeContinuousBackups",
            Self::DescribeTable => "DescribeTable",
            Self::DescribeTimeToLive => "DescribeTimeToLive",
            Self::GetItem => "GetItem",
            Self::PutItem => "PutItem",
            Self::Query => "Query",
            Self::Scan => "Scan",
            Self::TransactWriteItems => "TransactWriteItems",
            Self::UpdateContinuousBackups => "UpdateContinuousBackups",
            Self::UpdateItem => "UpdateItem",
            Self::UpdateTable => "UpdateTable",
            Self::UpdateTimeToLive => "UpdateTimeToLive",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who goes first when not all can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// What others wait for: beats, renewals, and the reads that tell of them.
    Urgent,
    /// Everything else.
    Bulk,
}

/// What became of a request; a closed set, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It was done.
    Done,
    /// [`Why::TimedOut`]
    TimedOut,
    /// [`Why::Away`]
    Away,
    /// [`Why::Throttled`]
    Throttled,
    /// AWS refused it; a condition that did not hold is told so too.
    Refused,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Done, Self::TimedOut, Self::Away, Self::Throttled, Self::Refused];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::TimedOut => "timed_out",
            Self::Away => "away",
            Self::Throttled => "throttled",
            Self::Refused => "refused",
        }
    }

    const fn of(why: &Why) -> Self {
        match why {
            Why::TimedOut { .. } => Self::TimedOut,
            Why::Away { .. } => Self::Away,
            Why::Throttled { .. } => Self::Throttled,
            Why::NoTable { .. }
            | Why::NoCredentials { .. }
            | Why::AccessDenied { .. }
            | Why::Refused { .. } => Self::Refused,
        }
    }
}

/// Is told of each request, so of each try of a call.
pub trait Observer: Send + Sync + 'static {
    /// A request of this action is over.
    fn requested(&self, action: Action, outcome: Outcome);
}

/// What became of a write with a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition<T> {
    /// The condition held: it was written.
    Held(T),
    /// It did not hold: nothing was written. With the item that stands, where the request asked for it
    /// (`return_values_on_condition_check_failure`) and there is one. A try whose answer was lost may have been this
    /// caller's own: look at the item before taking it for another's.
    Failed(Option<Item>),
}

/// An error that tells of a condition that did not hold.
pub trait Conditional {
    /// The item that stands, if that is what this error says.
    fn failed_condition(&self) -> Option<Option<&Item>>;
}

macro_rules! conditional {
    ($($error:ident)*) => {$(
        impl Conditional for $error {
            fn failed_condition(&self) -> Option<Option<&Item>> {
                match self {
                    Self::ConditionalCheckFailedException(failed) => Some(failed.item()),
                    _ => None,
                }
            }
        }
    )*};
}

conditional!(PutItemError UpdateItemError DeleteItemError);

impl Client {
    /// Makes a call. `send` is asked for each try anew:
    /// `client.call(Class::Bulk, Action::GetItem, || request.clone().send())`.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn call<T, E, F>(&self, class: Class, action: Action, send: impl Fn() -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: Error + ProvideErrorMetadata + 'static,
    {
        let over = pin!(tokio::time::sleep(self.limits.total));
        self.tries(class, action, over, send).await.map_err(|ended| self.failed(action, ended.why))
    }

    /// Makes a write with a condition.
    ///
    /// # Errors
    /// Why it was not done; of [`Why::TimedOut`] and [`Why::Away`] nobody knows whether it was.
    pub async fn write<T, E, F>(
        &self,
        class: Class,
        action: Action,
        send: impl Fn() -> F,
    ) -> Result<Condition<T>, Failed>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: Error + ProvideErrorMetadata + Conditional + 'static,
    {
        let over = pin!(tokio::time::sleep(self.limits.total));
        match self.tries(class, action, over, send).await {
            Ok(answer) => Ok(Condition::Held(answer)),
            Err(Ended { why, error }) => {
                let answered = error.as_ref().and_then(SdkError::as_service_error);
                match answered.and_then(Conditional::failed_condition) {
                    Some(item) => Ok(Condition::Failed(item.cloned())),
                    None => Err(self.failed(action, why)),
                }
            }
        }
    }

    /// Waits before what a batch left undone is asked for again: it was throttled, so that is a try again, and spends from
    /// the same budget. `tries` says how many in a row came to nothing.
    ///
    /// # Errors
    /// It is not asked for again.
    pub async fn again(&self, class: Class, action: Action, tries: u32) -> Result<(), Failed> {
        let why = Why::Throttled { reason: "a part of a batch was left undone".to_owned() };
        match self.tries.again(class, tries.max(1), &why) {
            Some(pause) => {
                tokio::time::sleep(pause.mul_f64(rand::random())).await;
                Ok(())
            }
            None => Err(self.failed(action, why)),
        }
    }

    /// Reads a Query to its end: all pages, within the limit of one call together, or it fails. A page may be empty and
    /// not the last one.
    ///
    /// # Errors
    /// Why it was not read to its end.
    pub async fn query(&self, class: Class, request: QueryFluentBuilder) -> Result<Vec<Item>, Failed> {
        let mut over = pin!(tokio::time::sleep(self.limits.total));
        let (mut items, mut from) = (Vec::new(), None);
        loop {
            let (page, next) = self.page(class, &request, from, over.as_mut()).await?;
            items.extend(page);
            if next.is_none() {
                return Ok(items);
            }
            from = next;
        }
    }

    /// Reads a Query to its end page by page, each within the limit of a call: what is large takes its time, and one page is
    /// held at once. `take` is given each as it comes, so also those before one that fails.
    ///
    /// # Errors
    /// Why it was not read to its end.
    pub async fn query_pages(
        &self,
        class: Class,
        request: QueryFluentBuilder,
        mut take: impl FnMut(Vec<Item>),
    ) -> Result<(), Failed> {
        let mut from = None;
        loop {
            let over = pin!(tokio::time::sleep(self.limits.total));
            let (page, next) = self.page(class, &request, from, over).await?;
            take(page);
            if next.is_none() {
                return Ok(());
            }
            from = next;
        }
    }

    /// A page of a Query, and where the next one begins.
    async fn page(
        &self,
        class: Class,
        request: &QueryFluentBuilder,
        from: Option<Item>,
        over: Pin<&mut Sleep>,
    ) -> Result<(Vec<Item>, Option<Item>), Failed> {
        let request = request.clone().set_exclusive_start_key(from);
        let read = self.tries(class, Action::Query, over, || request.clone().send()).await;
        let page = read.map_err(|ended| self.failed(Action::Query, ended.why))?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    /// Tries until it is done, given up, or `over`.
    async fn tries<T, E, F>(
        &self,
        class: Class,
        action: Action,
        mut over: Pin<&mut Sleep>,
        send: impl Fn() -> F,
    ) -> Result<T, Ended<E>>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: Error + ProvideErrorMetadata + 'static,
    {
        let late = || Ended { why: Why::TimedOut { limit: self.limits.total }, error: None };
        let _place = tokio::select! {
            biased;
            place = self.tries.begin(class) => place,
            () = &mut over => return Err(late()),
        };
        let mut tries = 0;
        loop {
            let tried = tokio::select! {
                biased;
                tried = send() => tried,
                () = &mut over => {
                    self.note(action, Outcome::TimedOut);
                    return Err(late());
                }
            };
            let error = match tried {
                Ok(answer) => {
                    self.note(action, Outcome::Done);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let why = Why::read(&error, action, &self.place, self.limits.attempt);
            self.note(action, Outcome::of(&why));
            tries += 1;
            let Some(pause) = self.tries.again(class, tries, &why) else {
                return Err(Ended { why, error: Some(error) });
            };
            tokio::select! {
                biased;
                () = &mut over => return Err(Ended { why, error: Some(error) }),
                () = tokio::time::sleep(pause.mul_f64(rand::random())) => {}
            }
        }
    }

    fn note(&self, action: Action, outcome: Outcome) {
        if let Some(observer) = &self.observer {
            observer.requested(action, outcome);
        }
    }

    fn failed(&self, action: Action, why: Why) -> Failed {
        Failed { action, place: Arc::clone(&self.place), why }
    }
}

/// How a call ended that was not done.
struct Ended<E> {
    why: Why,
    /// What the SDK said; none where the time was over first.
    error: Option<SdkError<E>>,
}

#[cfg(test)]
mod tests;
