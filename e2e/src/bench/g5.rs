//! G5: the registry is killed and starts again with empty hands, while a hundred controllers hold what they import.

use std::{net::SocketAddr, process, time::Duration};

use anyhow::{Context, Result};
use mcs_core::{
    time::{Clock, Timestamp},
    timing::Timing,
};
use mcs_runtime::clock::SystemClock;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    Scale,
    fleet::{Fleet, LIMIT},
    machine::{self, Cores},
    ours::options,
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

/// The time that both sides had of all cores in each restart, in seconds.
#[derive(Debug, Default)]
struct Spent {
    controllers: Vec<f64>,
    registry: Vec<f64>,
}

impl Spent {
    /// On clusters of their own the controllers would not wait for each other.
    fn note(self, clusters: usize) -> String {
        let [controllers, registry] =
            [self.controllers, self.registry].map(|spent| median(spent).unwrap_or(f64::NAN));
        format!(
            "CPU of a restart, median: {controllers:.2} s of the {clusters} controllers together, {registry:.2} s of \
             the registry"
        )
    }
}

/// Measures it.
///
/// # Errors
/// Something did not start, or the clusters did not converge.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::Shared;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let population = POPULATION.divided(scale.divisor);
    progress(&format!("g5: {population} join"));
    let options = StackOptions { lease: scale.lease, ..options() };
    let mut stack = Stack::start_without_controllers(options).await?;
    let timing = Timing::of_lease(scale.lease);
    let fleet = Fleet::join(&stack, population, EXPORTERS, timing, Duration::ZERO)?;
    let mut epoch = fleet.converged(None).await?.0;
    let shown = fleet.shows();
    let mut rows = Vec::new();
    let mut spent = Spent::default();
    for away in AWAY {
        let mut last = Vec::new();
        let mut all = Times::new()?;
        for round in 1..=scale.pairs {
            stack.end_registry(Signal::Kill).await?;
            sleep(away).await;
            let before = machine::cpu(process::id())?;
            let listens = restart(&mut stack).await?;
            let (next, reached) = fleet.converged(epoch).await?;
            epoch = next;
            spent.controllers.push((machine::cpu(process::id())? - before).as_secs_f64());
            spent.registry.push(machine::cpu(stack.registry_program()?.pid())?.as_secs_f64());
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
    let deleted = fleet.deleted();
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
            spent.note(population.clusters),
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
