//! Two control planes of our own, in which Pods are played.

use std::path::Path;

use anyhow::Result;
use futures::try_join;
use serde_json::Value;

use crate::{
    Cluster, ClusterOptions,
    directory::copy_logs,
    stack::{Stack, StackOptions},
};

/// The clusterset.
const CLUSTERSET: &str = "conformance";

/// What runs. Dropping it kills everything; [`ControlPlanes::end`] does it in order.
#[derive(Debug)]
pub(super) struct ControlPlanes {
    stack: Stack,
    east: Cluster,
    west: Cluster,
}

impl ControlPlanes {
    pub(super) async fn start(dual_stack: bool) -> Result<Self> {
        let (east, west) = try_join!(
            Cluster::start(ClusterOptions { dual_stack, ..ClusterOptions::east() }),
            Cluster::start(ClusterOptions { dual_stack, ..ClusterOptions::west() }),
        )?;
        // The suite makes its namespaces itself, so all are watched, with the defaults of users.
        let options = StackOptions {
            clusterset: CLUSTERSET.to_owned(),
            watch_namespaces: Vec::new(),
            lease: mcs_core::timing::DEFAULT_LEASE,
            controller_flags: Vec::new(),
            registry_flags: Vec::new(),
            registry_environment: Vec::new(),
            registry_urls: Vec::new(),
        };
        let stack = Box::pin(Stack::start(options, &[&east, &west])).await?;
        Ok(Self { stack, east, west })
    }

    pub(super) fn clusters(&self) -> [&Cluster; 2] {
        [&self.east, &self.west]
    }

    pub(super) async fn rest(&self, list: &str) -> Result<Value> {
        self.stack.rest(list).await
    }

    /// Copies the logs of everything beside the reports.
    pub(super) fn keep_logs(&self, folder: &Path) -> Result<()> {
        let folders =
            [("stack", self.stack.folder()), ("east", self.east.folder()), ("west", self.west.folder())];
        folders.into_iter().try_for_each(|(name, from)| copy_logs(from, &folder.join(name)))
    }

    pub(super) async fn end(self) -> Result<()> {
        let Self { stack, east, west } = self;
        stack.end().await?;
        try_join!(east.stop(), west.stop()).map(drop)
    }
}
