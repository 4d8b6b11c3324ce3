//! What the controller counts. Labels come from closed sets only; sizes are collected when they are asked for, so that
//! none can drift.

use crate::index::Index;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use std::sync::Arc;

/// The prefix of all metrics of this program.
pub(crate) const PREFIX: &str = "mcs_controller_";

/// The counters of one controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    writes: IntCounterVec,
    reconcile_errors: IntCounterVec,
    syncs: IntCounterVec,
    registry_failures: IntCounterVec,
    connected: IntGaugeVec,
    identity_changed: IntGaugeVec,
    leader: IntGauge,
}

impl Metrics {
    /// Registers the counters, and the sizes of `index`.
    ///
    /// # Errors
    /// A metric of that name is registered already.
    pub(crate) fn register(registry: &Registry, index: Arc<Index>) -> Result<Self, prometheus::Error> {
        let counters =
            |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
                let counters = IntCounterVec::new(Opts::new(format!("{PREFIX}{name}"), help), labels)?;
                registry.register(Box::new(counters.clone()))?;
                Ok(counters)
            };
        let connected = IntGaugeVec::new(
            Opts::new(
                format!("{PREFIX}registry_connected"),
                "Whether this controller is registered at the registry",
            ),
            &["url"],
        )?;
        let identity_changed = IntGaugeVec::new(
            Opts::new(
                format!("{PREFIX}identity_changed"),
                "Whether a ClusterProperty has another value than this controller goes by, which is not followed",
            ),
            &["property"],
        )?;
        registry.register(Box::new(identity_changed.clone()))?;
        let leader = IntGauge::new(format!("{PREFIX}leader"), "Whether this controller leads")?;
        registry.register(Box::new(connected.clone()))?;
        registry.register(Box::new(leader.clone()))?;
        registry.register(Box::new(Sizes::new(index)?))?;
        Ok(Self {
            writes: counters(
                "object_writes_total",
                "Writes to the API server",
                &["kind", "verb", "outcome"],
            )?,
            reconcile_errors: counters(
                "reconcile_errors_total",
                "Rounds that failed and are tried again",
                &["kind"],
            )?,
            syncs: counters(
                "syncs_total",
                "Comparisons of the whole export set with a registry",
                &["outcome"],
            )?,
            registry_failures: counters(
                "registry_failures_total",
                "Calls to a registry that failed, by what was wrong with it, its answer or the way there",
                &["url", "reason"],
            )?,
            connected,
            identity_changed,
            leader,
        })
    }

    /// A write to the API server ended.
    pub(crate) fn written(&self, kind: &str, verb: &'static str, ok: bool) {
        self.writes.with_label_values(&[kind, verb, outcome(ok)]).inc();
    }

    /// A round of work failed.
    pub(crate) fn reconcile_failed(&self, kind: &'static str) {
        self.reconcile_errors.with_label_values(&[kind]).inc();
    }

    /// A sync ended.
    pub(crate) fn synced(&self, ok: bool) {
        self.syncs.with_label_values(&[outcome(ok)]).inc();
    }

    /// A call to the registry at `url`, which is one of the flags, failed for `reason`.
    pub(crate) fn registry_failed(&self, url: &str, reason: &'static str) {
        self.registry_failures.with_label_values(&[url, reason]).inc();
    }

    /// Whether this controller is registered at `url`, which is one of its flags.
    pub(crate) fn connected(&self, url: &str, connected: bool) {
        self.connected.with_label_values(&[url]).set(i64::from(connected));
    }

    /// Whether the ClusterProperty `property` is another than when it was read.
    pub(crate) fn identity_changed(&self, property: &'static str, changed: bool) {
        self.identity_changed.with_label_values(&[property]).set(i64::from(changed));
    }

    /// Whether this controller leads.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

const fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "error" }
}

/// Sizes of the index, read at each scrape.
struct Sizes {
    index: Arc<Index>,
    held: IntGauge,
    waiting: IntGaugeVec,
}

impl Sizes {
    fn new(index: Arc<Index>) -> Result<Self, prometheus::Error> {
        let held = IntGauge::new(format!("{PREFIX}held_imports"), "Imports that wait for their namespace")?;
        let waiting = IntGaugeVec::new(
            Opts::new(format!("{PREFIX}queue_length"), "Keys that wait to be worked on"),
            &["kind"],
        )?;
        Ok(Self { index, held, waiting })
    }
}

impl Collector for Sizes {
    fn desc(&self) -> Vec<&Desc> {
        self.held.desc().into_iter().chain(self.waiting.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let size = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        self.held.set(size(self.index.held()));
        self.waiting.with_label_values(&["export"]).set(size(self.index.exports.len()));
        self.waiting.with_label_values(&["import"]).set(size(self.index.imports.len()));
        self.held.collect().into_iter().chain(self.waiting.collect()).collect()
    }
}
