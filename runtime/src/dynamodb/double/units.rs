//! What calls cost, by DynamoDB's rules.
//!
//! The emulator counts as DynamoDB does what it did: an item is its attributes, names included; a write costs a unit for
//! each KiB begun of the larger of the item before and after; a read half a unit, or one where it is consistent, for each
//! 4 KiB begun, of the sum of all items of a page of a Query, before its filter; what is within a transaction twice. What
//! a condition refuses costs as a write of the item that stands, which is counted here, for the emulator does not tell it.

use std::collections::BTreeMap;

use dynoxide::types::{Item, item_size, write_capacity_units};
use serde_json::Value;
use tokio::sync::watch;

use super::asked::{Answer, Asked};
use super::emulator::Emulator;

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// How many calls, whatever became of them.
    pub calls: u64,
    /// Read units.
    pub read: f64,
    /// Write units.
    pub write: f64,
}

/// What is counted, by action.
#[derive(Debug, Default)]
pub(super) struct Counts(watch::Sender<BTreeMap<String, Used>>);

/// Where writes that came from another region are counted.
pub(super) const REPLICATED: &str = "Replicated";

/// Has the answer tell what it cost; says whether the caller wants to know that too.
pub(super) fn want(asked: &mut Asked) -> bool {
    let is_wanted = matches!(asked.body["ReturnConsumedCapacity"].as_str(), Some("TOTAL" | "INDEXES"));
    if !is_wanted && asked.body.is_object() {
        asked.body["ReturnConsumedCapacity"] = "TOTAL".into();
    }
    is_wanted
}

impl Counts {
    pub(super) fn called(&self, action: &str) {
        self.add(action, Used { calls: 1, ..Used::default() });
    }

    /// Counts what an answer cost, which it keeps only where that is wanted.
    pub(super) fn counted(
        &self,
        asked: &Asked,
        answer: Answer,
        is_wanted: bool,
        emulator: &Emulator,
    ) -> Answer {
        let mut body = answer.json();
        let units = if answer.is_good() {
            told(&body["ConsumedCapacity"])
        } else if answer.is("ConditionalCheckFailedException") {
            standing(asked, emulator)
        } else if answer.is("TransactionCanceledException") {
            2.0 * standing(asked, emulator)
        } else {
            0.0
        };
        let used = if asked.is_write() {
            Used { write: units, ..Used::default() }
        } else {
            Used { read: units, ..Used::default() }
        };
        self.add(&asked.action, used);
        match &mut body {
            Value::Object(body) if !is_wanted && answer.is_good() => {
                body.remove("ConsumedCapacity");
            }
            _ => return answer,
        }
        Answer::good(&body)
    }

    /// Counts the write of an item that came from another region.
    pub(super) fn replicated(&self, item: Option<&Value>) {
        let write = write_capacity_units(item.map_or(0, size));
        self.add(REPLICATED, Used { calls: 1, write, ..Used::default() });
    }

    fn add(&self, action: &str, more: Used) {
        self.0.send_modify(|counts| counts.entry(action.to_owned()).or_default().add(more));
    }

    pub(super) fn by_action(&self) -> BTreeMap<String, Used> {
        self.0.borrow().clone()
    }

    pub(super) fn total(&self) -> Used {
        let mut total = Used::default();
        self.0.borrow().values().for_each(|used| total.add(*used));
        total
    }

    pub(super) fn reset(&self) {
        self.0.send_modify(BTreeMap::clear);
    }

    /// Waits until the counts are so.
    pub(super) async fn until(&self, is_so: impl Fn(&BTreeMap<String, Used>) -> bool) {
        // The sender outlives this.
        let _ = self.0.subscribe().wait_for(is_so).await;
    }
}

impl Used {
    fn add(&mut self, more: Self) {
        let Self { calls, read, write } = self;
        *calls += more.calls;
        *read += more.read;
        *write += more.write;
    }
}

/// What an answer says that it cost: of one table, or of several.
fn told(capacity: &Value) -> f64 {
    match capacity {
        Value::Array(tables) => tables.iter().map(told).sum(),
        one => one["CapacityUnits"].as_f64().unwrap_or_default(),
    }
}

/// What a write costs of the items that stand.
fn standing(asked: &Asked, emulator: &Emulator) -> f64 {
    let size_of = |(table, key): (String, Value)| emulator.item(&table, &key).as_ref().map_or(0, size);
    asked.written().into_iter().map(|written| write_capacity_units(size_of(written))).sum()
}

fn size(item: &Value) -> usize {
    serde_json::from_value::<Item>(item.clone()).map_or(0, |item| item_size(&item))
}
