//! G2: how long a change of an EndpointSlice takes until another cluster shows it, through API servers, controllers
//! and registry.

use std::time::Duration;

use anyhow::{Result, ensure};
use mcs_core::timing::DEFAULT_LEASE;

use super::{
    Scale, machine, progress,
    report::{Report, Row, Unit},
    stats::{Ratios, Times, in_turns, together},
};
use crate::{
    Cluster,
    crossing::Probe,
    shared::pair,
    stack::{Stack, StackOptions},
};

/// Of goal G2, at one change a second.
const MOST_P50: f64 = 12.0;
const MOST_P99: f64 = 30.0;

/// How it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// Changes a second; the goal is given for one.
    pub rate: u16,
    /// Changes in all, rounded up to fill the blocks.
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
        let Self { rate, count } = self;
        ensure!(rate > 0 && count > 0, "rate and count must be above 0");
        let interval = Duration::from_secs(1) / u32::from(rate);
        let block = count.div_ceil(scale.pairs);
        let load = machine::load();
        let pair = pair().await?;
        let namespace = pair.namespace("crossing").await?;
        let options = StackOptions {
            clusterset: namespace.name().to_owned(),
            watch_namespaces: vec![namespace.name().to_owned()],
            lease: DEFAULT_LEASE,
            controller_flags: Vec::new(),
            registry_flags: Vec::new(),
            registry_urls: Vec::new(),
        };
        let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
        let [east, west] = pair.clients();
        let mut ours = Probe::across(east.clone(), west, namespace.name(), "crossing").await?;
        let mut floor = Probe::within(east, namespace.name(), "floor").await?;
        progress(&format!("crossing: {} pairs of {block} changes, {rate}/s, after a warm-up", scale.pairs));
        let warm_up = u16::try_from(scale.warm_up.as_secs())?.saturating_mul(rate) / 2;
        ours.run(warm_up.max(1), interval).await?;
        floor.run(warm_up.max(1), interval).await?;
        let blocks = in_turns(
            scale.pairs,
            async |_| Times::of(ours.run(block, interval).await?),
            async |pair| {
                let times = Times::of(floor.run(block, interval).await?)?;
                progress(&format!("  pair {pair} of {} measured", scale.pairs));
                Ok(times)
            },
        )
        .await?;
        let report = Report {
            rows: rows(rate, &blocks)?,
            notes: vec![
                format!(
                    "G2: {rate} changes/s, open loop; ratios to the floor, a watch of the API server written to"
                ),
                format!("{}, {}", machine::versions()?, kubernetes(&pair.east).await?),
                load,
            ],
        };
        stack.end().await?;
        namespace.delete().await?;
        Ok(report)
    }
}

fn rows(rate: u16, blocks: &[(Times, Times)]) -> Result<Vec<Row>> {
    let ours = together(blocks.iter().map(|(ours, _)| ours))?;
    let floor = together(blocks.iter().map(|(_, floor)| floor))?;
    let row = |name: &str, quantile: f64, most: f64| Row {
        // The goal is given for this rate alone.
        most: (rate == 1).then_some(most),
        floor: Some(floor.millis(quantile)),
        ratio: Ratios::of(blocks.iter().map(|(ours, floor)| (ours.millis(quantile), floor.millis(quantile)))),
        ..Row::new(
            "G2",
            format!("EndpointSlice to the other cluster, {name}"),
            Unit::Millis,
            ours.millis(quantile),
        )
    };
    Ok(vec![row("p50", 0.5, MOST_P50), row("p99", 0.99, MOST_P99)])
}

async fn kubernetes(cluster: &Cluster) -> Result<String> {
    Ok(format!("Kubernetes {}", cluster.client().apiserver_version().await?.git_version))
}
