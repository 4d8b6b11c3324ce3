//! What is known of a clusterset, listed page by page: by this process, and nobody is asked for it.

use std::sync::PoisonError;

use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_proto::pb;

use super::Service;
use crate::keeper::Condition;
use crate::lists::{Lists, Page};

impl Service {
    /// A page of clusters.
    pub(crate) fn list_clusters(&self, clusterset: &ClustersetId, page: &Page) -> pb::ListClustersResponse {
        self.list(clusterset, |lists| lists.clusters(clusterset, page))
            .unwrap_or_else(|complete| pb::ListClustersResponse { complete, ..Default::default() })
    }

    /// A page of exports.
    pub(crate) fn list_exports(
        &self,
        clusterset: &ClustersetId,
        of: Option<&ClusterId>,
        include_endpoints: bool,
        page: &Page,
    ) -> pb::ListExportsResponse {
        self.list(clusterset, |lists| lists.exports(of, include_endpoints, page))
            .unwrap_or_else(|complete| pb::ListExportsResponse { complete, ..Default::default() })
    }

    /// A page of imports.
    pub(crate) fn list_imports(
        &self,
        clusterset: &ClustersetId,
        include_endpoints: bool,
        page: &Page,
    ) -> pb::ListImportsResponse {
        self.list(clusterset, |lists| lists.imports(include_endpoints, page))
            .unwrap_or_else(|complete| pb::ListImportsResponse { complete, ..Default::default() })
    }

    /// Whether a clusterset that is not known has no clusters for certain: a lease has passed since the start, in which
    /// they would have come, and there is nothing of it that could not be read.
    fn lacks(&self, clusterset: &ClustersetId) -> bool {
        let is_unread = || {
            let known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
            known.contains_key(clusterset)
        };
        if self.replication.is_some() {
            // Others may have registered clusters in it.
            return false;
        }
        let complete_at = self.started + self.lease();
        complete_at.has_passed(self.clock.elapsed())
            && self.keeper.condition() != Condition::Away
            && !is_unread()
    }

    /// Lists a clusterset; one that is not known has no clusters, of which it may be certain.
    fn list<T>(&self, clusterset: &ClustersetId, list: impl FnOnce(&Lists<'_>) -> T) -> Result<T, bool> {
        let known = self.known(clusterset).ok_or_else(|| self.lacks(clusterset))?;
        let lease = self.lease();
        Ok(known
            .with(|state, now| list(&Lists { registry: &state.registry, now, clock: &*self.clock, lease })))
    }
}
