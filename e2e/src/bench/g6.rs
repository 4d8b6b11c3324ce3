//! G6: many watchers. What one change of a large Service costs with a thousand of them, whether many changes reach
//! hundreds of them in time, and what watchers that read nothing cost the others.

use std::sync::Arc;

use anyhow::Result;

use super::{
    Scale,
    compare::{Contest, FLOOR, cpu_per_delivery, millis, row},
    hop::{Block, Hop},
    machine::{self, Cores},
    ours::Ours,
    population::Population,
    progress,
    report::{Report, Row, Unit},
    stats::{Ratios, together},
};

#[derive(Clone, Copy, Debug)]
struct Load {
    population: Population,
    watchers: usize,
    rate: u32,
}

/// One change of a hundred endpoints at a time: the next one is due when the one before was told long ago.
const LARGE: Load =
    Load { population: Population { clusters: 100, services: 1, endpoints: 100 }, watchers: 1_000, rate: 5 };
const MOST_LAST_P99: f64 = 50.0;
const MOST_CPU: f64 = 15.0;

/// As many changes a second as watchers.
const MANY: Load =
    Load { population: Population { clusters: 250, services: 10, endpoints: 10 }, watchers: 250, rate: 250 };
const MOST_P99: f64 = 25.0;

/// One watcher of so many reads nothing.
const STALLED: usize = 10;
const MOST_STALLED_RATIO: f64 = 1.1;

impl Load {
    fn divided(self, by: usize) -> Self {
        let watchers = (self.watchers / by).max(STALLED);
        Self { population: self.population.divided(by), watchers, ..self }
    }

    fn note(&self) -> String {
        let Self { population, watchers, rate } = self;
        format!("{population}, {rate} changes/s, {watchers} watchers")
    }
}

/// Measures all three, and beside the first two etcd and the floor.
///
/// # Errors
/// Something did not start, or a change was not delivered.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let (load, peer) = (machine::load(), "the same without watchers that read nothing");
    let (large, many) = (LARGE.divided(scale.divisor), MANY.divided(scale.divisor));
    let mut notes = vec![
        format!("G6: open loop, a connection for each watcher; {}", cores.note()),
        format!("a large change: {}", large.note()),
        format!("many changes: {}", many.note()),
        format!("stalled: one watcher of {STALLED} reads nothing; the peer is {peer}"),
        FLOOR.to_owned(),
    ];
    progress("g6: a large change to many watchers");
    let contest = Contest::start(cores, large.population).await?;
    notes.push(contest.peer());
    let blocks = contest.measure(scale, large.watchers, large.rate).await?;
    drop(contest);
    let what = |what: &str, load: Load| format!("{what} to {} watchers", load.watchers);
    let last = millis(|block| &block.last, 0.99);
    let mut rows = vec![
        Row {
            most: Some(MOST_LAST_P99),
            ..row("G6", what("a large change, last one p99", large), Unit::Millis, &blocks, last)?
        },
        Row {
            most: Some(MOST_CPU),
            ..row(
                "G6",
                what("a large change, CPU a delivery", large),
                Unit::CpuMicros,
                &blocks,
                cpu_per_delivery,
            )?
        },
    ];
    progress("g6: many changes to many watchers");
    let contest = Contest::start(cores, many.population).await?;
    let blocks = contest.measure(scale, many.watchers, many.rate).await?;
    drop(contest);
    let deliveries = millis(|block| &block.deliveries, 0.99);
    rows.push(Row {
        most: Some(MOST_P99),
        ..row("G6", what("many changes, p99", many), Unit::Millis, &blocks, deliveries)?
    });
    rows.push(row(
        "G6",
        what("many changes, CPU a delivery", many),
        Unit::CpuMicros,
        &blocks,
        cpu_per_delivery,
    )?);
    rows.push(stalled(scale, cores, many).await?);
    notes.extend([machine::versions()?, load]);
    Ok(Report { rows, notes })
}

/// What the others wait while some watchers read nothing, and while all read.
async fn stalled(scale: &Scale, cores: Cores, load: Load) -> Result<Row> {
    let Load { population, watchers, rate } = load;
    let Scale { pairs, block, warm_up, .. } = *scale;
    progress("g6: watchers that read nothing");
    let mut ours = Ours::start(cores).await?;
    ours.fill(population).await?;
    let stalling = watchers / STALLED;
    let mut hop = Hop::open(Arc::new(ours), watchers - stalling, stalling).await?;
    let mut blocks = Vec::new();
    for pair in 1..=pairs {
        // Those that read nothing before catch up meanwhile.
        hop.measure(rate, warm_up).await?;
        let reading = hop.measure(rate, block).await?;
        hop.stall(true);
        let stalled = hop.measure(rate, block).await?;
        hop.stall(false);
        blocks.push((stalled, reading));
        progress(&format!("  pair {pair} of {pairs} measured"));
    }
    let of = |pick: fn(&(_, _)) -> &Block| -> Result<f64> {
        Ok(together(blocks.iter().map(|pair| &pick(pair).deliveries))?.millis(0.99))
    };
    let p99 = |block: &Block| block.deliveries.millis(0.99);
    Ok(Row {
        most_ratio: Some(MOST_STALLED_RATIO),
        peer: Some(of(|(_, reading)| reading)?),
        ratio: Ratios::of(blocks.iter().map(|(stalled, reading)| (p99(stalled), p99(reading)))),
        ..Row::new(
            "G6",
            format!("{stalling} of {watchers} watchers stalled, p99 of the others"),
            Unit::Millis,
            of(|(stalled, _)| stalled)?,
        )
    })
}
