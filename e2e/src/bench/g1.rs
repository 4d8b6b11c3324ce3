//! G1: the registry's own hop, from a member's write to the event at every watcher.

use anyhow::Result;

use super::{
    Scale,
    compare::{Contest, FLOOR, millis, row},
    hop::Block,
    machine::{self, Cores},
    population::Population,
    progress,
    report::{Report, Row, Unit},
    stats::Times,
};

const POPULATION: Population = Population { clusters: 100, services: 100, endpoints: 10 };
const RATE: u32 = 250;
/// The goal is given for this many; a tenth of it shows what a watcher costs.
const WATCHERS: usize = 100;
const MOST_P50: f64 = 1.0;
const MOST_P99: f64 = 5.0;
const MOST_RATIO: f64 = 0.5;

/// Measures it, and beside it etcd and the floor.
///
/// # Errors
/// Something did not start, or a change was not delivered.
pub fn run(scale: &Scale) -> Result<Report> {
    // As the goal says: the generator takes its share of the cores that the server has.
    let cores = Cores::Shared;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let population = POPULATION.divided(scale.divisor);
    progress("g1: the registry's hop");
    let contest = Contest::start(cores, population).await?;
    let mut report = Report::default();
    for (watchers, is_judged) in [(WATCHERS, true), (WATCHERS / 10, false)] {
        let watchers = (watchers / scale.divisor).max(1);
        let blocks = contest.measure(scale, watchers, RATE).await?;
        type Pick = fn(&Block) -> &Times;
        let quantile = |what: &str, pick: Pick, quantile: f64, most: Option<f64>| -> Result<Row> {
            let what = format!("write to {watchers} watchers, {what}");
            let most = most.filter(|_| is_judged);
            let row = row("G1", what, Unit::Millis, &blocks, millis(pick, quantile))?;
            Ok(Row { most, most_ratio: most.map(|_| MOST_RATIO), ..row })
        };
        report.rows.extend([
            quantile("p50", |block| &block.deliveries, 0.5, Some(MOST_P50))?,
            quantile("p99", |block| &block.deliveries, 0.99, Some(MOST_P99))?,
            quantile("last one p50", |block| &block.last, 0.5, None)?,
            quantile("last one p99", |block| &block.last, 0.99, None)?,
            quantile("generator late p99", |block| &block.late, 0.99, None)?,
        ]);
    }
    report.notes = vec![
        format!(
            "G1: {population}, {RATE} changes/s, open loop, a connection for each watcher; {}",
            cores.note()
        ),
        FLOOR.to_owned(),
        contest.peer(),
        machine::versions()?,
        load,
    ];
    Ok(report)
}
