//! Calls to the store as the registry makes them: each within a time, and counted by what became of it.

use std::sync::Arc;
use std::time::Duration;

use mcs_core::ids::ClustersetId;
use mcs_proto::convert::Member;

use super::{Exports, Failed, Known, Members, Store, Write, Wrote};
use crate::metrics::Metrics;

/// A store that is asked with a limit.
#[derive(Clone)]
pub(crate) struct Calls {
    store: Arc<dyn Store>,
    /// How long a call of a few records may take.
    limit: Duration,
    metrics: Metrics,
}

impl Calls {
    /// Asks `store`, and gives each call `limit`.
    pub(crate) const fn new(store: Arc<dyn Store>, limit: Duration, metrics: Metrics) -> Self {
        Self { store, limit, metrics }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    pub(crate) async fn check(&self) -> Result<(), Failed> {
        self.call("check", self.store.check()).await
    }

    pub(crate) async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.call("write", self.store.write(member, writes)).await
    }

    pub(crate) async fn remove(&self, member: &Member) -> Result<(), Failed> {
        self.call("remove", self.store.remove(member)).await
    }

    pub(crate) async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        self.call("members", self.store.members(clusterset)).await
    }

    pub(crate) async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed> {
        self.call("exports", self.store.exports(member, known)).await
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let measured = self.metrics.begin_store_call(operation);
        let limit = self.limit;
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
