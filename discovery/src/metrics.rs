//! What an operator measures: requests and the watch as they happen, sizes when they are asked for.

use crate::driver::Driver;
use crate::shown::Cause;
use mcs_core::pools::Completeness;
use mcs_runtime::http;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use std::sync::Arc;

/// What every metric's name begins with.
pub const PREFIX: &str = "global_discovery_";
/// The name of the one port.
pub const PORT: &str = "http";
/// The lists.
const LISTS: [&str; 2] = ["pools", "routers"];

fn name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// What is counted as it happens.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Seconds to answer a request, by method, path and status.
    pub request_seconds: HistogramVec,
    /// Errors of the watch of EndpointSlices, by what failed: `list` or `watch`.
    pub watch_errors: IntCounterVec,
    /// Complete lists of EndpointSlices.
    pub relists: IntCounter,
    /// EndpointSlices that could not be read.
    pub unreadable_slices: IntCounter,
    /// Connections of the port.
    pub connections: http::Metrics,
    watchers: IntGaugeVec,
    resyncs: IntCounterVec,
}

/// Counts one watcher as long as it is there.
#[derive(Debug)]
pub struct WatchCount {
    list: &'static str,
    watchers: IntGauge,
    resyncs: IntCounterVec,
}

impl WatchCount {
    /// It is told the whole list.
    pub fn resynced(&self, cause: Cause) {
        self.resyncs.with_label_values(&[self.list, label(cause)]).inc();
    }
}

impl Drop for WatchCount {
    fn drop(&mut self) {
        self.watchers.dec();
    }
}

const fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Begin => "begin",
        Cause::Completeness => "completeness",
        Cause::Behind => "behind",
    }
}

impl Metrics {
    /// Makes them and adds them to `registry`.
    ///
    /// # Errors
    /// One of the same name is there already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let buckets = vec![0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
        let request_seconds = HistogramVec::new(
            HistogramOpts::new(name("request_seconds"), "Seconds to answer a request").buckets(buckets),
            &["method", "path", "status"],
        )?;
        let watch_errors = IntCounterVec::new(
            Opts::new(name("watch_errors_total"), "Errors of the watch of EndpointSlices"),
            &["call"],
        )?;
        let relists = IntCounter::new(name("relists_total"), "Complete lists of EndpointSlices")?;
        let unreadable_slices =
            IntCounter::new(name("unreadable_slices_total"), "EndpointSlices that could not be read")?;
        let watchers = Opts::new(name("watchers"), "Watches of a list that are open");
        let watchers = IntGaugeVec::new(watchers, &["list"])?;
        let resyncs = Opts::new(
            name("resyncs_total"),
            "Whole lists that watchers were told: at their begin, when completeness changed, or since they were behind",
        );
        let resyncs = IntCounterVec::new(resyncs, &["list", "cause"])?;
        for list in LISTS {
            watchers.with_label_values(&[list]);
            for cause in [Cause::Begin, Cause::Completeness, Cause::Behind] {
                resyncs.with_label_values(&[list, label(cause)]);
            }
        }
        registry.register(Box::new(watchers.clone()))?;
        registry.register(Box::new(resyncs.clone()))?;
        registry.register(Box::new(request_seconds.clone()))?;
        registry.register(Box::new(watch_errors.clone()))?;
        // There from the start, so that the first one shows as a rise.
        for call in ["list", "watch"] {
            watch_errors.with_label_values(&[call]);
        }
        registry.register(Box::new(relists.clone()))?;
        registry.register(Box::new(unreadable_slices.clone()))?;
        let connections = http::Metrics::register(registry, PREFIX, &[PORT])?;
        Ok(Self { request_seconds, watch_errors, relists, unreadable_slices, connections, watchers, resyncs })
    }

    /// Counts a watcher of `list` until the count is dropped.
    pub fn watch(&self, list: &'static str) -> WatchCount {
        let watchers = self.watchers.with_label_values(&[list]);
        watchers.inc();
        WatchCount { list, watchers, resyncs: self.resyncs.clone() }
    }
}

/// Sizes of the lists, read from the directory at each scrape.
pub struct Sizes {
    driver: Arc<Driver>,
    listed: IntGaugeVec,
    complete: IntGaugeVec,
    registrations: IntGauge,
    imported: IntGauge,
    slices: IntGauge,
}

impl Sizes {
    /// The sizes of `driver`'s lists.
    ///
    /// # Errors
    /// A name is no metric name.
    pub fn new(driver: Arc<Driver>) -> Result<Self, prometheus::Error> {
        let listed = Opts::new(name("listed"), "Entries of a list");
        let complete = Opts::new(name("complete"), "Whether a list is exact");
        Ok(Self {
            driver,
            listed: IntGaugeVec::new(listed, &["list"])?,
            complete: IntGaugeVec::new(complete, &["list"])?,
            registrations: IntGauge::new(name("registrations"), "Pools registered within their lease")?,
            imported: IntGauge::new(name("imported_pools"), "Pools with a Ready relay in EndpointSlices")?,
            slices: IntGauge::new(name("slices"), "EndpointSlices of pools and of the router")?,
        })
    }

    fn parts(&self) -> [&dyn Collector; 5] {
        [&self.listed, &self.complete, &self.registrations, &self.imported, &self.slices]
    }
}

impl Collector for Sizes {
    fn desc(&self) -> Vec<&Desc> {
        self.parts().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let measures = self.driver.measures();
        let lists = [
            ("pools", measures.pools, measures.pools_completeness),
            ("routers", measures.routers, measures.routers_completeness),
        ];
        for (list, size, completeness) in lists {
            self.listed.with_label_values(&[list]).set(number(size));
            let complete = completeness == Completeness::Exact;
            self.complete.with_label_values(&[list]).set(i64::from(complete));
        }
        self.registrations.set(number(measures.sizes.registrations));
        self.imported.set(number(measures.sizes.live));
        self.slices.set(number(measures.sizes.slices));
        self.parts().into_iter().flat_map(Collector::collect).collect()
    }
}

fn number(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
