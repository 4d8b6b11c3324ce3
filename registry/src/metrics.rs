//! What Prometheus is told, with the prefix `mcs_registry_`. Labels come from closed sets: methods, codes, states.
//!
//! Durations are observed as they happen; sizes and counts are read from the registries when they are asked for, so
//! they cannot drift from what they describe.

use std::sync::Arc;

use mcs_core::model::MemberState;
use mcs_core::registry::{Counts, Registry as Members};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::http;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};
use tonic::Code;

use crate::service::Service;

const STATES: [MemberState; 4] =
    [MemberState::Syncing, MemberState::Active, MemberState::Held, MemberState::Expired];

/// What is observed as it happens. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: HistogramVec,
    store_calls: HistogramVec,
    connections: http::Metrics,
    clock: Arc<dyn Clock>,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn register(registry: &Registry, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let durations = |name: &str, help: &str, labels: &[&str]| {
            let buckets =
                vec![0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
            let options =
                HistogramOpts::new(format!("mcs_registry_{name}_duration_seconds"), help).buckets(buckets);
            let durations = HistogramVec::new(options, labels)?;
            registry.register(Box::new(durations.clone()))?;
            Ok::<_, Error>(durations)
        };
        Ok(Self {
            requests: durations(
                "request",
                "Duration of requests by their outcome",
                &["transport", "method", "code"],
            )?,
            store_calls: durations(
                "store_call",
                "Duration of calls to the store by their outcome",
                &["operation", "outcome"],
            )?,
            connections: http::Metrics::register(registry, "mcs_registry_", &["grpc", "rest"])?,
            clock,
        })
    }

    /// What is counted of connections.
    pub(crate) const fn connections(&self) -> &http::Metrics {
        &self.connections
    }

    /// A call to the store begins.
    pub(crate) fn begin_store_call(&self, operation: &'static str) -> StoreCall {
        StoreCall { metrics: self.clone(), operation, began: self.clock.elapsed(), outcome: CANCELLED }
    }

    /// A request begins.
    pub(crate) fn begin(&self, transport: &'static str, method: &'static str) -> Request {
        let began = self.clock.elapsed();
        Request { metrics: self.clone(), transport, method, began, code: Code::Cancelled }
    }
}

/// A request under way. It is observed when it is dropped, as cancelled unless it ended.
pub(crate) struct Request {
    metrics: Metrics,
    transport: &'static str,
    method: &'static str,
    began: Timestamp,
    code: Code,
}

impl Request {
    /// It ended with this code.
    pub(crate) fn ended(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Metrics { requests, clock, .. } = &self.metrics;
        let seconds = clock.elapsed().since(self.began).as_secs_f64();
        let code = format!("{:?}", self.code);
        requests.with_label_values(&[self.transport, self.method, &code]).observe(seconds);
    }
}

/// The outcome of a call to the store that was given up.
const CANCELLED: &str = "cancelled";

/// A call to the store under way. It is observed when it is dropped, as cancelled unless it ended.
pub(crate) struct StoreCall {
    metrics: Metrics,
    operation: &'static str,
    began: Timestamp,
    outcome: &'static str,
}

impl StoreCall {
    /// It ended so.
    pub(crate) fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for StoreCall {
    fn drop(&mut self) {
        let Metrics { store_calls, clock, .. } = &self.metrics;
        let seconds = clock.elapsed().since(self.began).as_secs_f64();
        store_calls.with_label_values(&[self.operation, self.outcome]).observe(seconds);
    }
}

/// Registers what is read when it is asked for.
pub(crate) fn collect_sizes(registry: &Registry, service: Arc<Service>) -> Result<(), Error> {
    registry.register(Box::new(Sizes::new(service)?))
}

/// Sizes and counts over all clustersets.
struct Sizes {
    service: Arc<Service>,
    descriptions: Vec<Desc>,
}

/// What is counted of all clustersets.
#[derive(Default)]
struct Seen {
    by_state: [i64; STATES.len()],
    exports: usize,
    imports: usize,
    endpoints: usize,
    conflicts: usize,
    watchers: usize,
    holding: usize,
    incomplete: usize,
    clustersets: usize,
    counts: Counts,
}

impl Seen {
    fn add(&mut self, members: &Members, watchers: usize, complete: bool) {
        self.clustersets += 1;
        self.watchers += watchers;
        self.incomplete += usize::from(!complete);
        self.holding += usize::from(members.is_holding());
        let sizes = members.sizes();
        for (sum, state) in self.by_state.iter_mut().zip(STATES) {
            let count = sizes.members.get(&state).copied().unwrap_or_default();
            *sum += i64::try_from(count).unwrap_or(i64::MAX);
        }
        self.exports += sizes.exports;
        self.endpoints += sizes.endpoints;
        self.imports += sizes.imports;
        self.conflicts += sizes.conflicts;
        let counts = members.counts();
        self.counts.expired += counts.expired;
        self.counts.holds += counts.holds;
        self.counts.pauses += counts.pauses;
        self.counts.collected += counts.collected;
        self.counts.stale_acts += counts.stale_acts;
    }

    /// Everything that was seen, as metrics.
    fn metrics(&self) -> Result<Vec<Box<dyn Collector>>, Error> {
        let gauge = |name: &str, help: &str, value: usize| -> Result<Box<dyn Collector>, Error> {
            let gauge = IntGauge::new(format!("mcs_registry_{name}"), help)?;
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            Ok(Box::new(gauge))
        };
        let counter = |name: &str, help: &str, value: u64| -> Result<Box<dyn Collector>, Error> {
            let counter = IntCounter::new(format!("mcs_registry_{name}_total"), help)?;
            counter.inc_by(value);
            Ok(Box::new(counter))
        };
        let leases = IntGaugeVec::new(
            Opts::new("mcs_registry_leases", "Clusters by the state of their lease"),
            &["state"],
        )?;
        for (state, count) in STATES.iter().zip(self.by_state) {
            leases.with_label_values(&[&state.to_string()]).set(count);
        }
        Ok(vec![
            Box::new(leases),
            gauge("clustersets", "Clustersets", self.clustersets)?,
            gauge("exports", "Exports of all clusters", self.exports)?,
            gauge("imports", "Services that are imported", self.imports)?,
            gauge("endpoints", "Endpoints of all exports", self.endpoints)?,
            gauge("conflicts", "Imports whose exports differ", self.conflicts)?,
            gauge("watchers", "Watches that are open", self.watchers)?,
            gauge("views_incomplete", "Clustersets of which clusters may be missing", self.incomplete)?,
            gauge(
                "expiry_holding",
                "Clustersets whose leases are not judged since too many are silent",
                self.holding,
            )?,
            counter("leases_expired", "Leases that ran out", self.counts.expired)?,
            counter(
                "expiry_holds",
                "Times that leases were not judged since too many were silent",
                self.counts.holds,
            )?,
            counter(
                "pauses",
                "Pauses of the registry after which leases were counted anew",
                self.counts.pauses,
            )?,
            counter(
                "clusters_collected",
                "Clusters collected long after their lease",
                self.counts.collected,
            )?,
            counter(
                "stale_acts",
                "Acts that were ignored since a newer one had been seen",
                self.counts.stale_acts,
            )?,
        ])
    }
}

impl Sizes {
    fn new(service: Arc<Service>) -> Result<Self, Error> {
        let metrics = Seen::default().metrics()?;
        let descriptions = metrics.iter().flat_map(|metric| metric.desc()).cloned().collect();
        Ok(Self { service, descriptions })
    }
}

impl Collector for Sizes {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut seen = Seen::default();
        for clusterset in self.service.clustersets() {
            let watchers = clusterset.watchers();
            clusterset
                .with(|state, now| seen.add(&state.registry, watchers, state.registry.is_complete(now)));
        }
        match seen.metrics() {
            Ok(metrics) => metrics.iter().flat_map(|metric| metric.collect()).collect(),
            Err(error) => {
                tracing::error!(%error, "sizes cannot be told");
                Vec::new()
            }
        }
    }
}
