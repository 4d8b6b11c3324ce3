//! Benchmarks of the whole system, and the table each prints.
//!
//! What is measured and its floor take turns in blocks, so that a load that comes and goes falls on both; the ratio of
//! two neighbouring blocks says more than either number.

use std::{
    fs,
    io::{self, Write, stdout},
    thread::available_parallelism,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::{
    Cluster,
    crossing::Probe,
    shared::Pair,
    stack::{Stack, StackOptions},
    table::columns,
};

/// Pairs of blocks.
const PAIRS: u16 = 5;
/// How long changes are made before the first that counts.
const WARM_UP: Duration = Duration::from_secs(10);
/// Of goal G2: an EndpointSlice changed in one cluster is visible in another, at one change a second.
const GOAL_P50: Duration = Duration::from_millis(12);
const GOAL_P99: Duration = Duration::from_millis(30);

/// How `crossing` is measured.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// Changes a second.
    pub rate: u16,
    /// Changes in all, rounded up to fill the blocks.
    pub count: u16,
}

impl Crossing {
    /// Measures how long a change of an EndpointSlice in `east` takes until `west` shows it, and beside it the floor:
    /// until a watch of the same API server shows it.
    ///
    /// # Errors
    /// Something did not start, or a change did not arrive.
    pub async fn run(self) -> Result<()> {
        let Self { rate, count } = self;
        ensure!(rate > 0 && count > 0, "rate and count must be above 0");
        let interval = Duration::from_secs(1) / u32::from(rate);
        let block = count.div_ceil(PAIRS);
        let load = load();
        let pair = Pair::start().await?;
        let options = StackOptions {
            clusterset: "bench".to_owned(),
            watch_namespaces: Vec::new(),
            lease: mcs_core::timing::DEFAULT_LEASE,
            controller_flags: Vec::new(),
            registry_flags: Vec::new(),
        };
        let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
        let namespace = pair.namespace("crossing").await?;
        let [east, west] = pair.clients();
        let mut ours = Probe::across(east.clone(), west, namespace.name(), "crossing").await?;
        let mut floor = Probe::within(east, namespace.name(), "floor").await?;
        progress(&format!(
            "crossing: {PAIRS} blocks of {block} changes and as many of the floor, {rate}/s, after a warm-up"
        ))?;
        let warm_up = u16::try_from(WARM_UP.as_secs())?.saturating_mul(rate) / 2;
        ours.run(warm_up.max(1), interval).await?;
        floor.run(warm_up.max(1), interval).await?;
        let mut blocks = Vec::new();
        for number in 1..=PAIRS {
            blocks.push((ours.run(block, interval).await?, floor.run(block, interval).await?));
            progress(&format!("  pair {number} of {PAIRS} measured"))?;
        }
        print(&Outcome::of(&blocks)?, rate, &versions(&pair.east).await?, &load)?;
        stack.end().await
    }
}

/// What the blocks come to.
struct Outcome {
    ours: Histogram<u64>,
    floor: Histogram<u64>,
    /// Median of ours by that of the floor, in each pair, ascending.
    ratios: Vec<f64>,
}

impl Outcome {
    fn of(blocks: &[(Vec<Duration>, Vec<Duration>)]) -> Result<Self> {
        let mut outcome = Self { ours: Histogram::new(3)?, floor: Histogram::new(3)?, ratios: Vec::new() };
        for (ours, floor) in blocks {
            let (ours, floor) = (histogram(ours)?, histogram(floor)?);
            outcome.ratios.push(millis(&ours, 0.5) / millis(&floor, 0.5));
            outcome.ours.add(&ours)?;
            outcome.floor.add(&floor)?;
        }
        outcome.ratios.sort_by(f64::total_cmp);
        Ok(outcome)
    }
}

/// Of microseconds.
fn histogram(times: &[Duration]) -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new(3)?;
    for time in times {
        histogram.record(u64::try_from(time.as_micros())?)?;
    }
    Ok(histogram)
}

fn millis(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    Duration::from_micros(histogram.value_at_quantile(quantile)).as_secs_f64() * 1000.0
}

fn print(outcome: &Outcome, rate: u16, versions: &str, load: &str) -> Result<()> {
    let row = |name: &str, times: &Histogram<u64>| {
        let time = |quantile| format!("{:.1}", millis(times, quantile));
        [name.to_owned(), times.len().to_string(), time(0.5), time(0.9), time(0.99), time(1.0)]
    };
    let rows = [
        row("EndpointSlice written in east -> seen in west", &outcome.ours),
        row("floor: written in east -> seen in east", &outcome.floor),
    ];
    let ratio = |index: usize| outcome.ratios.get(index).copied().unwrap_or_default();
    let (median, last) = (ratio(outcome.ratios.len() / 2), outcome.ratios.len().saturating_sub(1));
    let ratios = format!("{median:.1} ({:.1} to {:.1})", ratio(0), ratio(last));
    let mut out = stdout().lock();
    writeln!(out, "\n{}\n", columns(["MILLISECONDS", "CHANGES", "P50", "P90", "P99", "MAX"], &rows))?;
    writeln!(out, "median to the floor's, in pairs of blocks: {ratios}")?;
    writeln!(out, "{rate} changes/s, open loop; {versions}")?;
    writeln!(out, "{load}")?;
    // The goal is given for this rate alone.
    if rate == 1 {
        let (p50, p99) = (millis(&outcome.ours, 0.5), millis(&outcome.ours, 0.99));
        let (goal_p50, goal_p99) = (GOAL_P50.as_millis(), GOAL_P99.as_millis());
        let met = outcome.ours.value_at_quantile(0.5) <= u64::try_from(GOAL_P50.as_micros())?
            && outcome.ours.value_at_quantile(0.99) <= u64::try_from(GOAL_P99.as_micros())?;
        writeln!(
            out,
            "goal G2 (1/s): {}; goal p50 {goal_p50} ms, p99 {goal_p99} ms; ours p50 {p50:.1} ms, p99 {p99:.1} ms; floor p50 \
             {:.1} ms, p99 {:.1} ms; ratio {ratios}",
            if met { "met" } else { "missed" },
            millis(&outcome.floor, 0.5),
            millis(&outcome.floor, 0.99),
        )?;
    }
    Ok(())
}

async fn versions(cluster: &Cluster) -> Result<String> {
    let kubernetes = cluster.client().apiserver_version().await?.git_version;
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cores = available_parallelism().context("the number of cores")?;
    Ok(format!("programs {} ({build}), Kubernetes {kubernetes}, {cores} cores", mcs_runtime::version()))
}

/// What else the machine did before.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = load.split_whitespace().take(3).collect();
    if averages.is_empty() {
        return "load before the run: unknown".to_owned();
    }
    format!("load averages before the run, over 1, 5 and 15 minutes: {}", averages.join(", "))
}

fn progress(text: &str) -> io::Result<()> {
    writeln!(stdout(), "{text}")
}
