//! G2: how long a change of an EndpointSlice takes until another cluster shows it, through API servers, controllers
//! and registry: one change a second, many Services that change, and one that flaps while others change.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::try_join;
use mcs_core::timing::DEFAULT_LEASE;

use super::{
    Scale, machine, progress,
    report::{Report, Row, Unit},
    stats::{Ratios, Times, in_turns, together},
};
use crate::{
    Cluster,
    crossing::Probe,
    shared::{Pair, pair},
    stack::{Stack, StackOptions},
};

/// Of goal G2, at one change a second.
const MOST_P50: f64 = 12.0;
const MOST_P99: f64 = 30.0;

/// Of goal G2: so many Services of which each changes once a second.
const MANY: u16 = 50;
const MOST_MANY_P99: f64 = 60.0;

/// Of goal G2: one Service that changes so often, and when its last state is to be there. What the others have then is
/// what they are to have of a busy cluster at all.
const FLAPS: u32 = 50;
const MOST_LAST: f64 = 250.0;
/// How long it flaps at a time.
const BURST: Duration = Duration::from_secs(1);
/// The Services that change meanwhile, each once a second.
const OTHERS: u16 = 10;

/// How it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// Changes a second of one Service by itself; the goal is given for one.
    pub rate: u16,
    /// Changes in all at that rate, rounded up to fill the blocks.
    pub count: u16,
}

impl Crossing {
    /// Measures it, and beside it the floor: until a watch of the same API server shows the change.
    ///
    /// # Errors
    /// Something did not start, or a change did not arrive.
    pub fn run(self, scale: &Scale) -> Result<Report> {
        machine::Cores::Shared.generator()?.block_on(Box::pin(self.measure(scale)))
    }

    async fn measure(self, scale: &Scale) -> Result<Report> {
        ensure!(self.rate > 0 && self.count > 0, "rate and count must be above 0");
        let load = machine::load();
        let pair = pair().await?;
        let namespace = pair.namespace("crossing").await?;
        let stack = Stack::start(options(namespace.name()), &[&pair.east, &pair.west]).await?;
        let mut rows = self.one(scale, pair, namespace.name()).await?;
        rows.extend(many(scale, pair, namespace.name()).await?);
        rows.extend(flapping(scale, pair, namespace.name()).await?);
        let report = Report {
            rows,
            notes: vec![
                format!(
                    "G2: {} changes/s, {MANY} changes/s over as many Services, and bursts of {FLAPS} changes/s of one \
                     while {OTHERS} others change once a second; open loop; ratios to the floor, a watch of the API \
                     server written to, but of the others to what they take without the bursts",
                    self.rate
                ),
                format!("{}, {}", machine::versions()?, kubernetes(&pair.east).await?),
                load,
            ],
        };
        stack.end().await?;
        namespace.delete().await?;
        Ok(report)
    }

    /// One Service, at the rate that was asked for.
    async fn one(self, scale: &Scale, pair: &Pair, namespace: &str) -> Result<Vec<Row>> {
        let Self { rate, count } = self;
        let interval = Duration::from_secs(1) / u32::from(rate);
        let block = count.div_ceil(scale.pairs);
        let [east, west] = pair.clients();
        let mut ours = Probe::across(east.clone(), west, namespace, "crossing").await?;
        let mut floor = Probe::within(east, namespace, "floor").await?;
        progress(&format!("crossing: {} pairs of {block} changes, {rate}/s, after a warm-up", scale.pairs));
        let warm_up = u16::try_from(scale.warm_up.as_secs())?.saturating_mul(rate) / 2;
        ours.run(warm_up.max(1), interval).await?;
        floor.run(warm_up.max(1), interval).await?;
        let blocks = turns(scale, &mut ours, &mut floor, block, interval).await?;
        ours.remove().await?;
        floor.remove().await?;
        // The goal is given for this rate alone.
        let judged = |most: f64| (rate == 1).then_some(most);
        let what = "EndpointSlice to the other cluster";
        Ok(vec![
            row(format!("{what}, p50"), 0.5, judged(MOST_P50), &blocks)?,
            row(format!("{what}, p99"), 0.99, judged(MOST_P99), &blocks)?,
        ])
    }
}

/// Many Services that change.
async fn many(scale: &Scale, pair: &Pair, namespace: &str) -> Result<Vec<Row>> {
    let interval = Duration::from_secs(1) / u32::from(MANY);
    let [east, west] = pair.clients();
    let mut ours = Probe::across_many(east.clone(), west, namespace, "many", MANY).await?;
    let mut floor = Probe::within_many(east, namespace, "floor", MANY).await?;
    let block = changes(scale.block / 5, interval)?;
    progress(&format!("crossing: {} pairs of {block} changes, {MANY}/s over {MANY} Services", scale.pairs));
    let warm_up = changes(scale.warm_up / 5, interval)?;
    ours.run(warm_up, interval).await?;
    floor.run(warm_up, interval).await?;
    let blocks = turns(scale, &mut ours, &mut floor, block, interval).await?;
    ours.remove().await?;
    floor.remove().await?;
    let what = format!("{MANY}/s over {MANY} Services");
    Ok(vec![
        row(format!("{what}, p50"), 0.5, None, &blocks)?,
        row(format!("{what}, p99"), 0.99, Some(MOST_MANY_P99), &blocks)?,
    ])
}

/// One Service that flaps, and what the others have of it.
async fn flapping(scale: &Scale, pair: &Pair, namespace: &str) -> Result<Vec<Row>> {
    let [east, west] = pair.clients();
    let mut hot = Probe::across(east.clone(), west.clone(), namespace, "hot").await?;
    let mut others = Probe::across_many(east, west, namespace, "other", OTHERS).await?;
    let (often, seldom) = (Duration::from_secs(1) / FLAPS, Duration::from_secs(1) / u32::from(OTHERS));
    let bursts = changes(scale.block / 3, BURST)?;
    let flaps = changes(BURST, often)?;
    // Others change during bursts, and for as long without any.
    let meanwhile = changes(BURST, seldom)?;
    progress(&format!("crossing: {bursts} bursts of {flaps} changes, {FLAPS}/s"));
    let (mut last, mut blocks) = (Vec::new(), Vec::new());
    for _ in 0..bursts {
        let (burst, disturbed) = try_join!(hot.run(flaps, often), others.run(meanwhile, seldom))?;
        last.push(*burst.last().context("a burst without a change")?);
        blocks.push((Times::of(disturbed)?, Times::of(others.run(meanwhile, seldom).await?)?));
    }
    hot.remove().await?;
    others.remove().await?;
    let worst = last.iter().max().copied().unwrap_or_default();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let last = Times::of(last)?;
    let what = format!("one Service at {FLAPS}/s, its last state");
    Ok(vec![
        Row::new("G2", format!("{what}, p50"), Unit::Millis, last.millis(0.5)),
        Row {
            most: Some(MOST_LAST),
            ..Row::new("G2", format!("{what}, worst"), Unit::Millis, millis(worst))
        },
        Row {
            floor: None,
            ..row("the others meanwhile, p99".to_owned(), 0.99, Some(MOST_MANY_P99), &blocks)?
        },
    ])
}

/// A stack as users run it, that watches one namespace.
pub(super) fn options(namespace: &str) -> StackOptions {
    StackOptions { lease: DEFAULT_LEASE, ..StackOptions::for_namespace(namespace) }
}

/// How many changes there are in `time`; at least one.
pub(super) fn changes(time: Duration, interval: Duration) -> Result<u16> {
    Ok(u16::try_from(time.as_nanos() / interval.as_nanos().max(1))?.max(1))
}

async fn turns(
    scale: &Scale,
    ours: &mut Probe,
    floor: &mut Probe,
    block: u16,
    interval: Duration,
) -> Result<Vec<(Times, Times)>> {
    in_turns(
        scale.pairs,
        async |_| Times::of(ours.run(block, interval).await?),
        async |pair| {
            let times = Times::of(floor.run(block, interval).await?)?;
            progress(&format!("  pair {pair} of {} measured", scale.pairs));
            Ok(times)
        },
    )
    .await
}

fn row(what: String, quantile: f64, most: Option<f64>, blocks: &[(Times, Times)]) -> Result<Row> {
    let ours = together(blocks.iter().map(|(ours, _)| ours))?;
    let floor = together(blocks.iter().map(|(_, floor)| floor))?;
    Ok(Row {
        most,
        floor: Some(floor.millis(quantile)),
        ratio: Ratios::of(blocks.iter().map(|(ours, floor)| (ours.millis(quantile), floor.millis(quantile)))),
        ..Row::new("G2", what, Unit::Millis, ours.millis(quantile))
    })
}

/// The version of a cluster, for the notes.
pub(super) async fn kubernetes(cluster: &Cluster) -> Result<String> {
    Ok(format!("Kubernetes {}", cluster.client().apiserver_version().await?.git_version))
}
