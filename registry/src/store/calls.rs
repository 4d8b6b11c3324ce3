//! Calls to the store as the registry makes them: each within a time, and counted by what became of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mcs_core::ids::{ClustersetId, Epoch, ServiceKey};
use mcs_core::model::Export;
use mcs_core::replicas::{Beat, News};
use mcs_core::timing::Timing;
use mcs_core::version::Version;
use mcs_proto::convert::Member;

use super::{Erased, Exports, Failed, Found, Held, Known, Members, Replica, Store, Write, Wrote};
use crate::metrics::Metrics;

/// A store that is asked with a limit.
#[derive(Clone)]
pub(crate) struct Calls {
    store: Arc<dyn Store>,
    timing: Timing,
    metrics: Metrics,
}

impl Calls {
    /// Asks `store`, and gives each call the time that `timing` has for it.
    pub(crate) const fn new(store: Arc<dyn Store>, timing: Timing, metrics: Metrics) -> Self {
        Self { store, timing, metrics }
    }

    /// Whether other registries may have written what is read.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// How long all reads of one member may take together, as one of them may.
    pub(crate) fn read_limit(&self) -> Duration {
        self.timing.store_read_limit()
    }

    /// What is counted.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) async fn check(&self) -> Result<(), Failed> {
        self.call("check", self.timing.store_limit(), self.store.check()).await
    }

    pub(crate) async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.call("write", self.timing.store_read_limit(), self.store.write(member, writes)).await
    }

    pub(crate) async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        self.call("remove", self.timing.store_read_limit(), self.store.remove(member, as_of)).await
    }

    pub(crate) async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        self.call("members", self.timing.store_read_limit(), self.store.members(clusterset)).await
    }

    pub(crate) async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        self.call("member", self.timing.store_limit(), self.store.member(member)).await
    }

    pub(crate) async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed> {
        self.call("exports", self.timing.store_read_limit(), self.store.exports(member, known)).await
    }

    pub(crate) async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        known: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        self.call("export", self.timing.store_read_limit(), self.store.export(member, key, known)).await
    }

    pub(crate) async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        self.call("replicas", self.timing.refresh_limit(), self.store.replicas(clusterset)).await
    }

    pub(crate) async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed> {
        self.call("beat", self.timing.store_limit(), self.store.beat(clusterset, beat)).await
    }

    pub(crate) async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed> {
        self.call("news", self.timing.store_limit(), self.store.news(clusterset, news)).await
    }

    pub(crate) async fn fading(&self, member: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        self.call("fading", self.timing.store_read_limit(), self.store.fading(member)).await
    }

    pub(crate) async fn retire(&self, clusterset: &ClustersetId, epoch: Epoch) -> Result<(), Failed> {
        self.call("retire", self.timing.store_limit(), self.store.retire(clusterset, epoch)).await
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let measured = self.metrics.begin_store_call(operation);
        let answer = tokio::time::timeout(limit, call).await.unwrap_or(Err(Failed::TimedOut { limit }));
        measured.ended(match &answer {
            Ok(_) => "ok",
            Err(Failed::TimedOut { .. }) => "timed_out",
            Err(Failed::Away { .. }) => "away",
            Err(Failed::Throttled { .. }) => "throttled",
            Err(Failed::Refused { .. }) => "refused",
            Err(Failed::Unreadable { .. }) => "unreadable",
        });
        answer
    }
}
