//! What the controller counts. Labels come from closed sets, and a counter with labels is there from the start with each
//! value that it can have, so that a rate over it sees the first one. Sizes are collected when they are asked for, so
//! that none can drift.

use crate::index::Index;
use mcs_core::names::{PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET_ID};
use mcs_core::outbox::SyncCause;
use mcs_core::time::{Clock, Timestamp};
use mcs_proto::status::CallFailed;
use mcs_runtime::kube::follow::CAUSES;
use mcs_runtime::metrics::registered;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The prefix of all metrics of this program.
pub(crate) const PREFIX: &str = "mcs_controller_";

/// From half a millisecond, below which nothing is wrong, to above every limit of a call.
const BUCKETS: [f64; 13] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// From the time that two API servers and a registry take, to minutes without a registry.
const DELAYS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// What is written of each kind.
const WRITES: [(&str, &[&str]); 5] = [
    ("EndpointSlice", &["create", "patch", "apply", "delete"]),
    ("Namespace", &["create"]),
    ("Service", &["create", "patch", "apply", "update", "delete"]),
    ("ServiceExport", &["create", "patch", "apply-status", "delete"]),
    ("ServiceImport", &["create", "patch", "apply", "update", "apply-status", "patch-status", "delete"]),
];

/// What is listed and watched.
const FOLLOWED: [&str; 5] = ["EndpointSlice", "Namespace", "Service", "ServiceExport", "ServiceImport"];

/// What is reconciled.
const KINDS: [&str; 2] = ["export", "import"];

/// The counters of one controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    writes: IntCounterVec,
    reconcile_errors: IntCounterVec,
    reconciled: HistogramVec,
    import_delay: Histogram,
    syncs: IntCounterVec,
    registry_failures: IntCounterVec,
    connected: IntGaugeVec,
    identity_changed: IntGaugeVec,
    leader: IntGauge,
    relists: IntCounterVec,
    watch_errors: IntCounterVec,
    /// When a renewal was accepted last, in nanoseconds; [`NEVER`] while this controller does not lead.
    renewed: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

/// No moment.
const NEVER: u64 = u64::MAX;

impl Metrics {
    /// Registers the counters, and the sizes of `index`. `urls` are the registries of the flags.
    ///
    /// # Errors
    /// A metric of that name is registered already.
    pub(crate) fn register(
        registry: &Registry,
        index: Arc<Index>,
        clock: Arc<dyn Clock>,
        urls: impl IntoIterator<Item = String>,
    ) -> Result<Self, Error> {
        let new = New(registry);
        let leader = new.registered(IntGauge::new(name("leader"), "Whether this controller leads"))?;
        let renewed = Arc::new(AtomicU64::new(NEVER));
        let metrics = Self {
            writes: new.counters(
                "object_writes_total",
                "Writes to the API server",
                &["kind", "verb", "outcome"],
            )?,
            reconcile_errors: new.counters(
                "reconcile_errors_total",
                "Rounds that failed and are tried again",
                &["kind"],
            )?,
            reconciled: new.histograms(
                "reconcile_duration_seconds",
                "How long rounds of work on one export or import took, from their begin; failed ones included",
                &["kind"],
            )?,
            import_delay: new.registered(Histogram::with_opts(
                HistogramOpts::new(
                    name("import_delay_seconds"),
                    "Time from a change of endpoints in another cluster, when its controller saw it, until it was \
                     applied here. It compares the clocks of two machines: as far as they differ it says that, and one \
                     that is negative for it counts as 0. What was there before this replica led, what waited for its \
                     namespace, and what comes from a controller or registry that tells no times is not observed",
                )
                .buckets(DELAYS.to_vec()),
            ))?,
            syncs: new.counters(
                "syncs_total",
                "Comparisons of the whole export set with a registry, by what made them necessary",
                &["cause", "outcome"],
            )?,
            registry_failures: new.counters(
                "registry_failures_total",
                "Calls to a registry that failed, by what was wrong with it, its answer or the way there",
                &["url", "reason"],
            )?,
            relists: new.counters(
                "relists_total",
                "Complete lists of the API server; each watch begins with one, and another comes when it cannot go on",
                &["kind"],
            )?,
            watch_errors: new.counters(
                "watch_errors_total",
                "Lists and watches of the API server that failed and were tried again, by what was wrong",
                &["kind", "cause"],
            )?,
            connected: new.gauges(
                "registry_connected",
                "Whether this controller is registered at the registry; a replica that does not lead is at none",
                "url",
            )?,
            identity_changed: new.gauges(
                "identity_changed",
                "Whether a ClusterProperty has another value than this controller goes by, which is not followed",
                "property",
            )?,
            leader: leader.clone(),
            renewed: Arc::clone(&renewed),
            clock: Arc::clone(&clock),
        };
        registry.register(Box::new(Sizes::new(index, leader, renewed, clock)?))?;
        metrics.begin(urls);
        Ok(metrics)
    }

    /// Shows each series that is known before anything has happened.
    fn begin(&self, urls: impl IntoIterator<Item = String>) {
        for url in urls {
            self.connected(&url, false);
            for reason in CallFailed::labels() {
                self.registry_failures.with_label_values(&[url.as_str(), reason]);
            }
        }
        for outcome in [true, false].map(outcome) {
            for (kind, verbs) in WRITES {
                for verb in verbs {
                    self.writes.with_label_values(&[kind, verb, outcome]);
                }
            }
            for cause in SyncCause::ALL {
                self.syncs.with_label_values(&[cause.as_str(), outcome]);
            }
        }
        for property in [PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET_ID] {
            self.identity_changed(property, false);
        }
        for kind in KINDS {
            self.reconcile_errors.with_label_values(&[kind]);
            self.reconciled.with_label_values(&[kind]);
        }
        for kind in FOLLOWED {
            self.relists.with_label_values(&[kind]);
            for cause in CAUSES {
                self.watch_errors.with_label_values(&[kind, cause]);
            }
        }
    }

    /// A write to the API server ended.
    pub(crate) fn written(&self, kind: &str, verb: &'static str, ok: bool) {
        self.writes.with_label_values(&[kind, verb, outcome(ok)]).inc();
    }

    /// A round of work failed.
    pub(crate) fn reconcile_failed(&self, kind: &'static str) {
        self.reconcile_errors.with_label_values(&[kind]).inc();
    }

    /// A round of work that began at `begun` ended.
    pub(crate) fn reconciled(&self, kind: &'static str, begun: Timestamp) {
        let took = self.clock.elapsed().since(begun);
        self.reconciled.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    /// A change of another cluster was applied, so long after it was seen there.
    pub(crate) fn imported(&self, delay: Duration) {
        self.import_delay.observe(delay.as_secs_f64());
    }

    /// A sync ended.
    pub(crate) fn synced(&self, cause: SyncCause, ok: bool) {
        self.syncs.with_label_values(&[cause.as_str(), outcome(ok)]).inc();
    }

    /// A call to the registry at `url`, which is one of the flags, failed for `reason`.
    pub(crate) fn registry_failed(&self, url: &str, reason: &'static str) {
        self.registry_failures.with_label_values(&[url, reason]).inc();
    }

    /// Whether this controller is registered at `url`, which is one of its flags.
    pub(crate) fn connected(&self, url: &str, connected: bool) {
        self.connected.with_label_values(&[url]).set(i64::from(connected));
    }

    /// A registry took a registration or a renewal.
    pub(crate) fn renewed(&self) {
        self.renewed.store(self.clock.elapsed().as_nanos(), Ordering::Relaxed);
    }

    /// Whether the ClusterProperty `property` is another than when it was read.
    pub(crate) fn identity_changed(&self, property: &'static str, changed: bool) {
        self.identity_changed.with_label_values(&[property]).set(i64::from(changed));
    }

    /// A list of `kind` is complete.
    pub(crate) fn listed(&self, kind: &str) {
        self.relists.with_label_values(&[kind]).inc();
    }

    /// A list or watch of `kind` failed; `cause` is one of [`CAUSES`].
    pub(crate) fn watch_failed(&self, kind: &str, cause: &'static str) {
        self.watch_errors.with_label_values(&[kind, cause]).inc();
    }

    /// Whether this controller leads.
    pub(crate) fn leads(&self, leads: bool) {
        match leads {
            true => self.renewed(),
            false => self.renewed.store(NEVER, Ordering::Relaxed),
        }
        self.leader.set(i64::from(leads));
    }
}

const fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "error" }
}

fn name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Makes metrics with the prefix, and registers them.
struct New<'a>(&'a Registry);

impl New<'_> {
    fn registered<M: Collector + Clone + 'static>(&self, metric: Result<M, Error>) -> Result<M, Error> {
        registered(self.0, metric)
    }

    fn counters(&self, of: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.registered(IntCounterVec::new(Opts::new(name(of), help), labels))
    }

    fn gauges(&self, of: &str, help: &str, label: &str) -> Result<IntGaugeVec, Error> {
        self.registered(IntGaugeVec::new(Opts::new(name(of), help), &[label]))
    }

    fn histograms(&self, of: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::new(name(of), help).buckets(BUCKETS.to_vec());
        self.registered(HistogramVec::new(options, labels))
    }
}

/// What is read at each scrape. It is a leader's: what the last lead left is not shown of a replica that stands by.
struct Sizes {
    index: Arc<Index>,
    leader: IntGauge,
    renewed: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    held: IntGauge,
    waiting: IntGaugeVec,
    heartbeat_age: Gauge,
}

impl Sizes {
    fn new(
        index: Arc<Index>,
        leader: IntGauge,
        renewed: Arc<AtomicU64>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let held = IntGauge::new(
            name("held_imports"),
            "Imports that wait for their namespace; none of a replica that does not lead",
        )?;
        let waiting = IntGaugeVec::new(
            Opts::new(
                name("queue_length"),
                "Keys that wait to be worked on, those whose time is later not included; none of a replica that does \
                 not lead",
            ),
            &["kind"],
        )?;
        let heartbeat_age = Gauge::new(
            name("heartbeat_age_seconds"),
            "Time since a registry accepted this cluster's registration or renewal, or since this replica leads where \
             none has; absent while it does not lead. Above the lease, other clusters drop this cluster's endpoints",
        )?;
        Ok(Self { index, leader, renewed, clock, held, waiting, heartbeat_age })
    }
}

impl Collector for Sizes {
    fn desc(&self) -> Vec<&Desc> {
        [self.held.desc(), self.waiting.desc(), self.heartbeat_age.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let leads = self.leader.get() == 1;
        let size = |size: usize| if leads { i64::try_from(size).unwrap_or(i64::MAX) } else { 0 };
        self.held.set(if leads { self.index.held().total.into() } else { 0 });
        let now = self.clock.elapsed();
        self.waiting.with_label_values(&["export"]).set(size(self.index.exports.len(now)));
        self.waiting.with_label_values(&["import"]).set(size(self.index.imports.len(now)));
        let mut all = [self.held.collect(), self.waiting.collect()].concat();
        let renewed = self.renewed.load(Ordering::Relaxed);
        if renewed != NEVER {
            let age = now.since(Timestamp::from_nanos(renewed));
            self.heartbeat_age.set(age.as_secs_f64());
            all.extend(self.heartbeat_age.collect());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_core::ids::ServiceKey;
    use mcs_core::time::ManualClock;
    use mcs_core::timing::{DEFAULT_LEASE, EVENT_REPEAT};

    #[test]
    fn a_heartbeat_ages_from_the_begin_of_a_lead_or_the_last_renewal_and_a_standby_has_none() {
        let (metrics, told, clock) = mk_metrics();
        let ages = || told("heartbeat_age_seconds");
        let mut seen = vec![ages()];
        metrics.leads(true);
        clock.advance(DEFAULT_LEASE);
        seen.push(ages());
        metrics.renewed();
        clock.advance(DEFAULT_LEASE / 3);
        seen.push(ages());
        metrics.leads(false);
        seen.push(ages());
        assert_eq!(seen, [vec![], vec![30.0], vec![10.0], vec![]]);
    }

    #[test]
    fn the_sizes_of_a_lead_go_with_it() {
        let (metrics, told, _) = mk_metrics();
        let sizes = || [told("held_imports"), told("queue_length")].concat();
        metrics.leads(true);
        let leading = sizes();
        metrics.leads(false);
        assert_eq!((leading, sizes()), (vec![1.0, 0.0, 1.0], vec![0.0, 0.0, 0.0]));
    }

    #[test]
    fn a_key_whose_time_is_later_is_no_key_that_waits_to_be_worked_on() {
        let (registry, index) = (Registry::new(), Arc::new(Index::default()));
        let clock = Arc::new(ManualClock::default());
        index.exports.add_at(ServiceKey::new("shop", "cart").unwrap(), clock.elapsed() + EVENT_REPEAT);
        let metrics = Metrics::register(&registry, index, clock.clone(), []).unwrap();
        metrics.leads(true);
        let tick = Duration::from_nanos(1);
        let lengths = [Duration::ZERO, EVENT_REPEAT - tick, tick].map(|passes| {
            clock.advance(passes);
            gauges(&registry, "queue_length")
        });
        assert_eq!(lengths, [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]);
    }

    fn gauges(registry: &Registry, of: &str) -> Vec<f64> {
        let families = registry.gather();
        let family = families.iter().filter(|family| family.name() == name(of));
        family.flat_map(|family| family.get_metric()).map(|metric| metric.get_gauge().get_value()).collect()
    }

    /// Metrics of an index with an import that waits for its namespace, what is told of one, and the clock.
    fn mk_metrics() -> (Metrics, impl Fn(&str) -> Vec<f64>, Arc<ManualClock>) {
        let (registry, index) = (Registry::new(), Arc::new(Index::default()));
        let key = ServiceKey::new("shop", "cart").unwrap();
        index.hold(&key);
        index.imports.add(key);
        let clock = Arc::new(ManualClock::default());
        let metrics = Metrics::register(&registry, index, clock.clone(), []).unwrap();
        let told = move |of: &str| gauges(&registry, of);
        (metrics, told, clock)
    }
}
