//! G12: how soon a change is seen at another replica, and what looking for it costs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;

use super::{
    Scale,
    hop::{Hop, Target},
    machine::{self, Cores},
    population::Population,
    progress,
    report::{Report, Row, Unit},
    shared::{Pace, Shared},
    wire::Request,
};

const POPULATION: Population = Population { clusters: 100, services: 10, endpoints: 10 };
const RATE: u32 = 1;
/// The setting that the goal asks for, and the default.
const REFRESHES: [(Duration, bool); 2] =
    [(Duration::from_millis(350), true), (Duration::from_secs(2), false)];
const MOST_P99: f64 = 500.0;
const MOST_READ: f64 = 10_000.0;
const HOUR: Duration = Duration::from_secs(3_600);

/// Measures it.
///
/// # Errors
/// Something did not start, or a change was not seen.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

/// Members at one replica, and watchers at another one.
struct Across {
    shared: Shared,
    watched: SocketAddr,
}

impl Target for Across {
    fn lanes(&self) -> usize {
        self.shared.members().len()
    }

    async fn change(&self, lane: usize, number: u64) -> Result<()> {
        self.shared.members().change(lane, number).await
    }

    fn watch(&self, watcher: usize) -> (SocketAddr, Request) {
        (self.watched, self.shared.members().watched(watcher))
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let population = POPULATION.divided(scale.divisor);
    let mut rows = Vec::new();
    for (refresh, is_judged) in REFRESHES {
        let pace = Pace::of(scale.lease, refresh);
        let refresh = pace.refresh;
        progress(&format!("g12: a change at another replica, refresh of {refresh:?}"));
        let shared = Shared::start(cores, (2, 1), pace, population).await?;
        let watched = shared.replica(1)?;
        let across = Arc::new(Across { shared, watched });
        let mut hop = Hop::open(Arc::clone(&across), 1, 0).await?;
        hop.measure(RATE, scale.warm_up).await?;
        across.shared.used();
        let since = SystemClock.elapsed();
        let block = hop.measure(RATE, scale.block * u32::from(scale.pairs)).await?;
        let used = across.shared.used();
        let share = HOUR.div_duration_f64(SystemClock.elapsed().since(since));
        let judged = |most: f64| is_judged.then_some(most);
        let what = |what: &str| format!("refresh of {refresh:?}: {what}");
        rows.extend([
            Row::new(
                "G12",
                what("write to another replica's watcher, p50"),
                Unit::Millis,
                block.deliveries.millis(0.5),
            ),
            Row {
                most: judged(MOST_P99),
                ..Row::new(
                    "G12",
                    what("write to another replica's watcher, p99"),
                    Unit::Millis,
                    block.deliveries.millis(0.99),
                )
            },
            Row {
                most: judged(MOST_READ),
                ..Row::new("G12", what("read by a replica"), Unit::UnitsAnHour, used.read * share / 2.0)
            },
        ]);
    }
    let notes = vec![
        format!(
            "G12: {population}, all at one of two replicas, {RATE} change/s, watched at the other one; units read are those of both, halved"
        ),
        cores.note(),
        machine::versions()?,
        load,
    ];
    Ok(Report { rows, notes })
}
