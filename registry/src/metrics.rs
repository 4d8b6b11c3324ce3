//! What Prometheus is told, with the prefix `mcs_registry_`; `docs/registry.md` says what each is for.
//!
//! | module | tells |
//! |---|---|
//! | `calls` | durations of requests and of calls to the store, by what became of them; limits that were hit |
//! | `writes` | what was refused, left out and repaired |
//! | `replication` | what is read of what other replicas changed, and what the store lost |
//! | `watches` | what watchers were told, and how they ended |
//! | `sizes` | how much there is: read when it is asked for, so that it cannot drift from what it describes |
//! | `labels` | the closed sets that labels come from |
//!
//! A counter with a label is there from the start with each of its values, so that a rate over it sees the first one.

mod calls;
mod labels;
mod replication;
mod sizes;
mod watches;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use mcs_core::registry::TOO_MANY;
use mcs_core::time::Clock;
use mcs_core::validate::Refusal;
use mcs_runtime::http;
use mcs_runtime::metrics::registered;
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

pub(crate) use self::calls::Request;
use self::replication::Replicated;
pub(crate) use self::sizes::collect_sizes;
pub(crate) use self::watches::{Behind, Ended, Snapshot, Watches};
pub(crate) use self::writes::Fate;
use self::writes::Writes;
use crate::limits::Limit;

/// From half a millisecond, below which nothing is wrong, to above every limit of a call.
const BUCKETS: [f64; 13] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// What is observed as it happens. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: HistogramVec,
    store_calls: HistogramVec,
    limits: IntCounterVec,
    refresh_lag: Histogram,
    writes: Writes,
    replication: Replicated,
    watches: Watches,
    connections: http::Metrics,
    clock: Arc<dyn Clock>,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn register(registry: &Registry, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let new = New(registry);
        Ok(Self {
            requests: new.histograms(
                "request_duration_seconds",
                "How long requests took, by how they ended; of a watch, until its first message",
                &["transport", "method", "code"],
            )?,
            store_calls: new.histograms(
                "store_call_duration_seconds",
                "How long calls to the store took, by how they ended",
                &["operation", "outcome"],
            )?,
            limits: new.counters(
                "limits_hit_total",
                "Requests that were refused for a limit",
                "limit",
                &Limit::ALL.map(Limit::name),
            )?,
            refresh_lag: new.histogram(
                "refresh_lag_seconds",
                "How late leases were judged and views brought up to date after that was due",
            )?,
            writes: Writes::register(&new)?,
            replication: Replicated::register(&new)?,
            watches: Watches::register(&new)?,
            connections: http::Metrics::register(registry, crate::METRICS, &crate::PORTS)?,
            clock,
        })
    }

    /// All that is shown was brought up to date, so long after it was due.
    pub(crate) fn refreshed(&self, late: Duration) {
        self.refresh_lag.observe(late.as_secs_f64());
    }

    /// What is counted of connections.
    pub(crate) const fn connections(&self) -> &http::Metrics {
        &self.connections
    }

    /// An export was refused, which may be for a limit.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.writes.refused(refusal);
        if refusal.field == TOO_MANY {
            self.limits.with_label_values(&[Limit::Exports.name()]).inc();
        }
    }

    /// What becomes of writes and syncs.
    pub(crate) const fn writes(&self) -> &Writes {
        &self.writes
    }

    /// What becomes of what other replicas say.
    pub(crate) const fn replication(&self) -> &Replicated {
        &self.replication
    }

    /// What becomes of watches.
    pub(crate) const fn watches(&self) -> &Watches {
        &self.watches
    }
}

/// Makes metrics with the prefix, and registers them.
struct New<'a>(&'a Registry);

impl New<'_> {
    fn registered<M: Collector + Clone + 'static>(&self, metric: Result<M, Error>) -> Result<M, Error> {
        registered(self.0, metric)
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::new(prefixed(name), help).buckets(BUCKETS.to_vec());
        self.registered(HistogramVec::new(options, labels))
    }

    fn histogram(&self, name: &str, help: &str) -> Result<Histogram, Error> {
        let options = HistogramOpts::new(prefixed(name), help).buckets(BUCKETS.to_vec());
        self.registered(Histogram::with_opts(options))
    }

    fn counters(&self, name: &str, help: &str, label: &str, values: &[&str]) -> Result<IntCounterVec, Error> {
        let counters = self.registered(IntCounterVec::new(Opts::new(prefixed(name), help), &[label]))?;
        for value in values {
            counters.with_label_values(&[value]);
        }
        Ok(counters)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.registered(IntCounter::new(prefixed(name), help))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.registered(IntGauge::new(prefixed(name), help))
    }
}

fn prefixed(name: &str) -> String {
    format!("{}{name}", crate::METRICS)
}
