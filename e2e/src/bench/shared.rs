//! Registries that share a table: processes as users run them, over the stand-in for DynamoDB, which counts units as AWS
//! bills them.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use mcs_core::{ids::ClustersetId, timing::Timing};
use mcs_proto::client::RegistryClient;
use mcs_runtime::dynamodb::double::{Double, TABLE, Used};
use tokio::time::sleep;

use super::{
    machine::Cores,
    ours::{CLUSTERSET, Members, options},
    population::Population,
};
use crate::{
    stack::{Stack, StackOptions, get},
    wait::wait_at_most,
};

/// Something is broken when it takes longer to read and store a population.
const LIMIT: Duration = Duration::from_secs(300);

/// How many clusters are not stored as they are.
const UNSAVED: &str = "mcs_registry_unsaved_clusters ";

/// Replicas, their table and their members.
#[derive(Debug)]
pub struct Shared {
    double: Double,
    replicas: Vec<Stack>,
    members: Members,
}

/// How replicas are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The lease.
    pub lease: Duration,
    /// How often a replica reads what the others say.
    pub refresh: Duration,
}

impl Pace {
    /// A refresh, or as many in a lease as a replica needs.
    pub fn of(lease: Duration, refresh: Duration) -> Self {
        Self { lease, refresh: refresh.min(lease / 6) }
    }
}

impl Shared {
    /// Starts `replicas` over one table in one region, and lets a population join, each member at one of the first
    /// `serving` ones. When it returns, every replica knows everything, and nothing is left to be stored.
    ///
    /// # Errors
    /// Something did not start, or not all replicas know everything within five minutes.
    pub async fn start(
        cores: Cores,
        (replicas, serving): (usize, usize),
        pace: Pace,
        population: Population,
    ) -> Result<Self> {
        let double = Double::start().await;
        let options = StackOptions {
            lease: pace.lease,
            registry_flags: vec![
                "--store=dynamodb".to_owned(),
                format!("--dynamodb-table={TABLE}"),
                format!("--dynamodb-endpoint={}", double.endpoint()),
                format!("--refresh-interval={}ms", pace.refresh.as_millis()),
            ],
            registry_environment: double.environment().into(),
            ..options()
        };
        let mut started = Vec::new();
        for _ in 0..replicas {
            let starting = Stack::start_without_controllers(options.clone());
            started.push(cores.start_server(starting).await?);
        }
        let addresses: Vec<SocketAddr> = started.iter().map(|replica| replica.registry().grpc).collect();
        let timing = Timing::of_lease(pace.lease);
        let serving = addresses.get(..serving).context("there are fewer replicas")?;
        let members = Members::join(serving, population, timing).await?;
        for address in &addresses {
            knows(*address, population, timing).await?;
        }
        let shared = Self { double, replicas: started, members };
        shared.at_rest(pace).await?;
        Ok(shared)
    }

    /// Waits until all is stored, and each replica has read that of the others.
    async fn at_rest(&self, pace: Pace) -> Result<()> {
        for replica in &self.replicas {
            let url = format!("http://{}/metrics", replica.registry().admin);
            let stored = async || {
                let metrics = get(&url).await.map_err(|error| error.to_string())?;
                let metrics = String::from_utf8_lossy(&metrics);
                match metrics.lines().find(|line| line.starts_with(UNSAVED)) {
                    Some(line) if line.ends_with(" 0") => Ok(()),
                    line => Err(format!("{line:?}")),
                }
            };
            wait_at_most(LIMIT, "nothing left to be stored", stored).await?;
        }
        sleep(pace.lease / 2).await;
        Ok(())
    }

    /// What was used since the start, or since the last call.
    pub fn used(&self) -> Used {
        let used = self.double.units();
        self.double.reset_units();
        used
    }

    /// The members.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Where a replica is reached.
    ///
    /// # Errors
    /// There is no such replica.
    pub fn replica(&self, place: usize) -> Result<SocketAddr> {
        Ok(self.replicas.get(place).context("no such replica")?.registry().grpc)
    }
}

/// Waits until a replica knows all exports of all members, and that these are all.
async fn knows(replica: SocketAddr, population: Population, timing: Timing) -> Result<()> {
    let client = RegistryClient::new(&format!("http://{replica}").parse()?, timing)?;
    let clusterset: ClustersetId = CLUSTERSET.parse()?;
    let all = async || {
        let (clusters, is_complete) =
            client.list_clusters(&clusterset).await.map_err(|error| error.to_string())?;
        let exports: u32 = clusters.iter().map(|cluster| cluster.exports).sum();
        if usize::try_from(exports).ok() == Some(population.clusters * population.services) && is_complete {
            return Ok(());
        }
        Err(format!("{} clusters with {exports} exports, complete: {is_complete}", clusters.len()))
    };
    wait_at_most(LIMIT, "a replica that knows everything", all).await
}
