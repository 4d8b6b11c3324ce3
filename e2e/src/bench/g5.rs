//! G5: the registry is killed and starts again with empty hands, while a hundred controllers hold what they import.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use mcs_core::{
    ids::Epoch,
    time::{Clock, Timestamp},
    timing::Timing,
};
use mcs_proto::client::RegistryClient;
use mcs_runtime::clock::SystemClock;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Scale,
    machine::{self, Cores},
    model::{Exports, Model, member},
    ours::{CLUSTERSET, options},
    population::Population,
    progress,
    report::{Report, Row, Unit},
    stats::{Times, median},
};
use crate::{
    programs::Signal,
    stack::{Stack, StackOptions},
};

/// Each Service is exported by two clusters.
const POPULATION: Population = Population { clusters: 100, services: 10, endpoints: 10 };
const EXPORTERS: usize = 2;
/// How long the registry stays away: it is restarted at once, or after its controllers have tried in vain for a while.
const AWAY: [Duration; 2] = [Duration::ZERO, Duration::from_secs(10)];
/// Of the goal, and the floor that it names, in seconds.
const MOST: f64 = 3.0;
const FLOOR: f64 = 0.15;
/// Something is broken when convergence takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures it.
///
/// # Errors
/// Something did not start, or the clusters did not converge.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::Shared;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

struct Fleet {
    models: Vec<Arc<Model>>,
    _acting: Vec<AbortOnDropHandle<()>>,
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let population = POPULATION.divided(scale.divisor);
    progress(&format!("g5: {population} join"));
    let options = StackOptions { lease: scale.lease, ..options() };
    let mut stack = Stack::start_without_controllers(options).await?;
    let fleet = Fleet::join(&stack, population, Timing::of_lease(scale.lease))?;
    let mut epoch = fleet.converged(None).await?.0;
    let shown = fleet.shows();
    let mut rows = Vec::new();
    for away in AWAY {
        let mut last = Vec::new();
        let mut all = Times::new()?;
        for round in 1..=scale.pairs {
            stack.end_registry(Signal::Kill).await?;
            sleep(away).await;
            let listens = restart(&mut stack).await?;
            let (next, reached) = fleet.converged(epoch).await?;
            epoch = next;
            let took: Vec<_> = reached.iter().map(|at| at.since(listens)).collect();
            took.iter().try_for_each(|took| all.record(*took))?;
            last.push(took.iter().max().copied().unwrap_or_default().as_secs_f64());
            progress(&format!("  restart {round} of {}, {} s away, measured", scale.pairs, away.as_secs()));
        }
        let what = |what: &str| format!("killed, {} s away, {what}", away.as_secs());
        let row =
            |name: &str, ours| Row { floor: Some(FLOOR), ..Row::new("G5", what(name), Unit::Seconds, ours) };
        let worst = last.iter().copied().fold(0.0, f64::max);
        rows.push(row("a cluster converged, p50", all.millis(0.5) / 1000.0));
        rows.push(row("all converged, median", median(last.iter().copied()).unwrap_or(f64::NAN)));
        rows.push(Row { most: Some(MOST), ..row("all converged, worst", worst) });
    }
    progress("  killed again amid the syncs");
    for _ in 0..scale.pairs {
        stack.end_registry(Signal::Kill).await?;
        restart(&mut stack).await?;
        fleet.first_told(epoch).await?;
    }
    fleet.converged(epoch).await?;
    // What a complete view does not list goes after the grace, a lease; all views are complete a lease after the start.
    progress("  waiting until every doubt is over");
    fleet.complete().await?;
    sleep(scale.lease * 3 / 2).await;
    let deleted = fleet.models.iter().map(|model| model.deleted()).sum::<u64>();
    let missing = shown.iter().zip(fleet.shows()).filter(|(before, after)| **before != *after).count();
    #[expect(clippy::cast_precision_loss, reason = "none is hoped for")]
    rows.extend([
        Row { most: Some(0.0), ..Row::new("G5", "endpoints deleted anywhere", Unit::Count, deleted as f64) },
        Row {
            most: Some(0.0),
            ..Row::new("G5", "clusters that show something else than before", Unit::Count, missing as f64)
        },
    ]);
    Ok(Report {
        rows,
        notes: vec![
            format!(
                "G5: {population}, each Service of {EXPORTERS} clusters, lease {} s; {} restarts each, from when it \
                 listens until it holds all and all is shown; {}",
                scale.lease.as_secs(),
                scale.pairs,
                cores.note()
            ),
            "controllers are outbox, view and client of mcs-controller in one process, without API servers"
                .to_owned(),
            machine::versions()?,
            load,
        ],
    })
}

/// Starts the registry, and says since when it listens.
async fn restart(stack: &mut Stack) -> Result<Timestamp> {
    let address = stack.registry().grpc;
    let (started, listens) = tokio::join!(stack.start_registry(), timeout(LIMIT, listening(address)));
    started?;
    listens.context("the registry does not listen")
}

async fn listening(address: SocketAddr) -> Timestamp {
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(1)).await;
    }
    SystemClock.elapsed()
}

impl Fleet {
    fn join(stack: &Stack, population: Population, timing: Timing) -> Result<Self> {
        let url = format!("http://{}", stack.registry().grpc).parse()?;
        let mut fleet = Self { models: Vec::new(), _acting: Vec::new() };
        for cluster in 0..population.clusters {
            let client = RegistryClient::new(&url, timing)?;
            let member = member(CLUSTERSET, &Population::cluster(cluster))?;
            let exports = exports(population, cluster)?;
            let model = Arc::new(Model::new(client, member, population.clusters, &exports, timing)?);
            fleet._acting.push(AbortOnDropHandle::new(tokio::spawn(Arc::clone(&model).act())));
            fleet.models.push(model);
        }
        Ok(fleet)
    }

    /// Waits until all have come as far as they can with one registry process that is not `before`, and says which that
    /// is and when each had.
    async fn converged(&self, before: Option<Epoch>) -> Result<(Option<Epoch>, Vec<Timestamp>)> {
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
    async fn first_told(&self, before: Option<Epoch>) -> Result<()> {
        let told = self.models.iter().map(|model| {
            Box::pin(async move {
                let told = |reached: &super::model::Reached| reached.told.is_some() && reached.told != before;
                model.reached().wait_for(told).await.map(drop)
            })
        });
        let (first, ..) = timeout(LIMIT, futures::future::select_all(told)).await.context("nobody synced")?;
        Ok(first?)
    }

    async fn complete(&self) -> Result<()> {
        let complete = async || match self.models.iter().filter(|model| !model.is_complete()).count() {
            0 => Ok(()),
            some => Err(format!("{some} views are not complete")),
        };
        crate::wait::wait_at_most(LIMIT, "complete views", complete).await
    }

    fn shows(&self) -> Vec<(usize, usize)> {
        self.models.iter().map(|model| model.shows()).collect()
    }
}

fn exports(population: Population, cluster: usize) -> Result<Exports> {
    let spec = Arc::new(Population::spec());
    let export = |service| {
        let key = Population::key(cluster / EXPORTERS, service)?;
        Ok((key, Arc::clone(&spec), population.endpoints(cluster, service, true)))
    };
    (0..population.services).map(export).collect()
}
