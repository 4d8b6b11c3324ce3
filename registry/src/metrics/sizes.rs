//! How much there is, over all clustersets: read when it is asked for.
//!
//! Each clusterset is looked at for as long as it takes to go over its clusters, whatever they export; no lock is held
//! over two of them.

use std::sync::Arc;
use std::time::Duration;

use mcs_core::registry::{Counts, Sizes as Held};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, Gauge, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

use super::labels::{CONDITIONS, STATES};
use super::prefixed;
use crate::keeper::Condition;
use crate::service::Service;

/// Registers what is read when it is asked for.
pub(crate) fn collect_sizes(registry: &Registry, service: Arc<Service>) -> Result<(), Error> {
    registry.register(Box::new(Sizes::new(service)?))
}

struct Sizes {
    service: Arc<Service>,
    descriptions: Vec<Desc>,
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
        let mut seen = Seen { condition: self.service.store_condition(), ..Seen::default() };
        for clusterset in self.service.clustersets() {
            seen.clustersets += 1;
            seen.watchers += clusterset.watchers();
            seen.unsaved += clusterset.unsaved(|unsaved, _| unsaved.clusters().len());
            let refresh = clusterset.shared().map(|shared| shared.age(clusterset.clock().elapsed()));
            seen.refresh_age = seen.refresh_age.max(refresh.unwrap_or_default());
            clusterset.with(|state, now| {
                let registry = &state.registry;
                seen.waiting += registry.waiting();
                seen.incomplete += usize::from(!registry.is_complete(now));
                seen.holding += usize::from(registry.is_holding());
                seen.age = seen.age.max(registry.view_age(now));
                seen.add(&registry.sizes(), registry.counts());
            });
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

/// What is seen of all clustersets.
struct Seen {
    condition: Condition,
    clustersets: usize,
    watchers: usize,
    unsaved: usize,
    incomplete: usize,
    holding: usize,
    age: Duration,
    refresh_age: Duration,
    waiting: usize,
    held: Held,
    counts: Counts,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            condition: Condition::Fine,
            clustersets: 0,
            watchers: 0,
            unsaved: 0,
            incomplete: 0,
            holding: 0,
            age: Duration::ZERO,
            refresh_age: Duration::ZERO,
            waiting: 0,
            held: Held::default(),
            counts: Counts::default(),
        }
    }
}

impl Seen {
    fn add(&mut self, held: &Held, counts: Counts) {
        for (state, members) in &held.members {
            *self.held.members.entry(*state).or_default() += members;
        }
        self.held.exports += held.exports;
        self.held.endpoints += held.endpoints;
        self.held.imports += held.imports;
        self.held.conflicts += held.conflicts;
        let Counts { expired, held, holds, pauses, collected, stale_acts, differing } = counts;
        self.counts.expired += expired;
        self.counts.held += held;
        self.counts.holds += holds;
        self.counts.pauses += pauses;
        self.counts.collected += collected;
        self.counts.stale_acts += stale_acts;
        self.counts.differing += differing;
    }

    /// Everything that was seen, as metrics.
    fn metrics(&self) -> Result<Vec<Box<dyn Collector>>, Error> {
        let Held { members, exports, endpoints, imports, conflicts } = &self.held;
        let counts = self.counts;
        let by_state =
            STATES.map(|state| (state.to_string(), members.get(&state).copied().unwrap_or_default()));
        let by_condition =
            CONDITIONS.map(|condition| (condition.to_string(), usize::from(condition == self.condition)));
        let age = Gauge::new(
            prefixed("view_age_seconds"),
            "For how long the store has not answered, so that views may lack what others wrote",
        )?;
        age.set(self.age.as_secs_f64());
        let refresh_age = Gauge::new(
            prefixed("refresh_age_seconds"),
            "Since the last read of what other replicas say began that succeeded; the oldest of all clustersets",
        )?;
        refresh_age.set(self.refresh_age.as_secs_f64());
        Ok(vec![
            gauges("leases", "Clusters by the state of their lease", "state", by_state)?,
            gauge("clustersets", "Clustersets", self.clustersets)?,
            gauge("exports", "Exports of all clusters", *exports)?,
            gauge("imports", "Services that are imported", *imports)?,
            gauge("endpoints", "Endpoints of all exports", *endpoints)?,
            gauge("conflicts", "Imports whose exports differ", *conflicts)?,
            gauge("watchers", "Watches that are open", self.watchers)?,
            gauge("views_incomplete", "Clustersets of which clusters may be missing", self.incomplete)?,
            Box::new(age),
            Box::new(refresh_age),
            gauge(
                "verdicts_waiting",
                "Leases that ran out here, and are judged once all other replicas have said that they heard nothing",
                self.waiting,
            )?,
            gauge(
                "expiry_holding",
                "Clustersets whose leases are not judged since too many are silent",
                self.holding,
            )?,
            gauges(
                "store_condition",
                "1 for how the store is now, 0 for the others",
                "condition",
                by_condition,
            )?,
            gauge("unsaved_clusters", "Clusters of which the store does not hold all yet", self.unsaved)?,
            counter("leases_expired", "Leases that ran out", counts.expired)?,
            counter("leases_held", "Leases that ran out and whose verdict waited", counts.held)?,
            counter(
                "expiry_holds",
                "Times that leases were not judged since too many were silent",
                counts.holds,
            )?,
            counter("pauses", "Pauses of the registry after which leases were counted anew", counts.pauses)?,
            counter("clusters_collected", "Clusters collected long after their lease", counts.collected)?,
            counter(
                "stale_acts",
                "Acts that were ignored since a newer one had been seen",
                counts.stale_acts,
            )?,
            counter(
                "renewals_differing",
                "Renewals by a cluster that had something else than the registry",
                counts.differing,
            )?,
        ])
    }
}

fn gauge(name: &str, help: &str, value: usize) -> Result<Box<dyn Collector>, Error> {
    let gauge = IntGauge::new(prefixed(name), help)?;
    gauge.set(number(value));
    Ok(Box::new(gauge))
}

fn gauges<const N: usize>(
    name: &str,
    help: &str,
    label: &str,
    values: [(String, usize); N],
) -> Result<Box<dyn Collector>, Error> {
    let gauges = IntGaugeVec::new(Opts::new(prefixed(name), help), &[label])?;
    for (labelled, value) in values {
        gauges.with_label_values(&[&labelled]).set(number(value));
    }
    Ok(Box::new(gauges))
}

fn counter(name: &str, help: &str, value: u64) -> Result<Box<dyn Collector>, Error> {
    let counter = IntCounter::new(prefixed(&format!("{name}_total")), help)?;
    counter.inc_by(value);
    Ok(Box::new(counter))
}

fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
