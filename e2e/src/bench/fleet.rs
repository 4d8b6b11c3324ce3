//! A clusterset of controllers without API servers: one [`Model`] for each of its clusters, in one process.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::future::{select_all, try_join_all};
use mcs_core::{ids::Epoch, time::Timestamp, timing::Timing};
use mcs_proto::client::RegistryClient;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    model::{Exports, Model, Reached, member},
    ours::CLUSTERSET,
    population::Population,
};
use crate::{stack::Stack, wait::wait_at_most};

/// Something is broken when convergence takes longer.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The controllers of a clusterset; they act until this is dropped.
#[derive(Debug)]
pub struct Fleet {
    models: Vec<Arc<Model>>,
    _acting: Vec<AbortOnDropHandle<()>>,
}

impl Fleet {
    /// Controllers of a population of which `exporters` clusters each export the same Services. They begin one after the
    /// other, spread over `within`.
    ///
    /// # Errors
    /// None: names and address are valid.
    pub fn join(
        stack: &Stack,
        population: Population,
        exporters: usize,
        timing: Timing,
        within: Duration,
    ) -> Result<Self> {
        let url = format!("http://{}", stack.registry().grpc).parse()?;
        let mut fleet = Self { models: Vec::new(), _acting: Vec::new() };
        let share = within / u32::try_from(population.clusters.max(1))?;
        for (place, cluster) in (0..).zip(0..population.clusters) {
            let client = RegistryClient::new(&url, timing)?;
            let member = member(CLUSTERSET, &Population::cluster(cluster))?;
            let exports = exports(population, exporters, cluster)?;
            let model = Arc::new(Model::new(client, member, population.clusters, &exports, timing)?);
            let acting = Arc::clone(&model);
            let act = async move {
                sleep(share * place).await;
                acting.act().await;
            };
            fleet._acting.push(AbortOnDropHandle::new(tokio::spawn(act)));
            fleet.models.push(model);
        }
        Ok(fleet)
    }

    /// Waits until all have come as far as they can with one registry process that is not `before`, and says which that
    /// is and when each had.
    ///
    /// # Errors
    /// They have not, after [`LIMIT`].
    pub async fn converged(&self, before: Option<Epoch>) -> Result<(Option<Epoch>, Vec<Timestamp>)> {
        let converged = self.models.iter().map(|model| async move {
            let reached = model.reached().wait_for(|reached| reached.is_whole(before)).await?.clone();
            anyhow::Ok((reached.told, reached.at))
        });
        let converged = timeout(LIMIT, try_join_all(converged)).await;
        let converged =
            converged.with_context(|| format!("no convergence within {} s", LIMIT.as_secs()))??;
        let epoch = converged.first().and_then(|(epoch, _)| *epoch);
        Ok((epoch, converged.into_iter().map(|(_, at)| at).collect()))
    }

    /// Waits until the first has told a registry process other than `before` all.
    ///
    /// # Errors
    /// None has, after [`LIMIT`].
    pub async fn first_told(&self, before: Option<Epoch>) -> Result<()> {
        let told = self.models.iter().map(|model| {
            Box::pin(async move {
                let told = |reached: &Reached| reached.told.is_some() && reached.told != before;
                model.reached().wait_for(told).await.map(drop)
            })
        });
        let (first, ..) = timeout(LIMIT, select_all(told)).await.context("nobody synced")?;
        Ok(first?)
    }

    /// Waits until all know of every cluster, as far as the registry says.
    ///
    /// # Errors
    /// Some do not, after [`LIMIT`].
    pub async fn complete(&self) -> Result<()> {
        let complete = async || match self.models.iter().filter(|model| !model.is_complete()).count() {
            0 => Ok(()),
            some => Err(format!("{some} views are not complete")),
        };
        wait_at_most(LIMIT, "complete views", complete).await
    }

    /// How many endpoints each shows, of how many clusters.
    pub fn shows(&self) -> Vec<(usize, usize)> {
        self.models.iter().map(|model| model.shows()).collect()
    }

    /// How many endpoints they would have deleted so far.
    pub fn deleted(&self) -> u64 {
        self.models.iter().map(|model| model.deleted()).sum()
    }
}

fn exports(population: Population, exporters: usize, cluster: usize) -> Result<Exports> {
    let spec = Arc::new(Population::spec());
    let export = |service| {
        let key = Population::key(cluster / exporters, service)?;
        Ok((key, Arc::clone(&spec), population.endpoints(cluster, service, true)))
    };
    (0..population.services).map(export).collect()
}
