//! What is counted of the table. All labels are of closed sets, and each series is there from the start.

use crate::driver::Driver;
use crate::metrics::PREFIX;
use mcs_runtime::dynamodb::{Action, Observer, Outcome};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntCounterVec, IntGauge, Opts, Registry};
use std::sync::Arc;

/// What this service asks of DynamoDB.
const ACTIONS: [Action; 6] = [
    Action::Query,
    Action::UpdateItem,
    Action::DescribeTable,
    Action::CreateTable,
    Action::DescribeTimeToLive,
    Action::UpdateTimeToLive,
];

/// What became of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// It was written.
    Written,
    /// The table had it, or another relay's write of the same was under way.
    Skipped,
    /// It was not taken.
    Failed,
}

impl Write {
    const ALL: [Self; 3] = [Self::Written, Self::Skipped, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// What is counted. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    requests: IntCounterVec,
    writes: IntCounterVec,
    reads: IntCounterVec,
    unreadable: IntGauge,
}

impl Metrics {
    /// Makes them and adds them to `registry`, with the age of the view of `driver`.
    pub(super) fn register(registry: &Registry, driver: Arc<Driver>) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(format!("{PREFIX}{name}"), help), labels)
        };
        let requests = counter(
            "table_requests_total",
            "Requests to DynamoDB, each try of a call, by what was asked and what became of it",
            &["action", "outcome"],
        )?;
        let writes = counter(
            "table_writes_total",
            "Registrations by what became of them: written, skipped since the table had them, or failed",
            &["result"],
        )?;
        let reads =
            counter("table_reads_total", "Reads of the whole table, by whether they succeeded", &["result"])?;
        for action in ACTIONS {
            for outcome in Outcome::ALL {
                requests.with_label_values(&[action.as_str(), outcome.as_str()]);
            }
        }
        Write::ALL.iter().for_each(|write| drop(writes.with_label_values(&[write.as_str()])));
        ["ok", "failed"].iter().for_each(|result| drop(reads.with_label_values(&[result])));
        let unreadable = IntGauge::new(
            format!("{PREFIX}table_unreadable_items"),
            "Items that the last read of the table could not decode",
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(reads.clone()))?;
        registry.register(Box::new(unreadable.clone()))?;
        registry.register(Box::new(Age::new(driver)?))?;
        Ok(Self { requests, writes, reads, unreadable })
    }

    /// A registration is done with.
    pub(super) fn wrote(&self, write: Write) {
        self.writes.with_label_values(&[write.as_str()]).inc();
    }

    /// A read is over, in which so many items could not be decoded.
    pub(super) fn read(&self, is_whole: bool, unreadable: usize) {
        self.reads.with_label_values(&[if is_whole { "ok" } else { "failed" }]).inc();
        if is_whole {
            self.unreadable.set(i64::try_from(unreadable).unwrap_or(i64::MAX));
        }
    }
}

impl Observer for Metrics {
    fn requested(&self, action: Action, outcome: Outcome) {
        self.requests.with_label_values(&[action.as_str(), outcome.as_str()]).inc();
    }
}

/// How old the view is, looked at when it is asked for; not there before the first one.
struct Age {
    driver: Arc<Driver>,
    seconds: Gauge,
}

impl Age {
    fn new(driver: Arc<Driver>) -> Result<Self, prometheus::Error> {
        let name = format!("{PREFIX}table_view_age_seconds");
        let seconds = Gauge::new(name, "Seconds since the last read of the table that succeeded began")?;
        Ok(Self { driver, seconds })
    }
}

impl Collector for Age {
    fn desc(&self) -> Vec<&Desc> {
        self.seconds.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(age) = self.driver.measures().table_age else { return Vec::new() };
        self.seconds.set(age.as_secs_f64());
        self.seconds.collect()
    }
}
