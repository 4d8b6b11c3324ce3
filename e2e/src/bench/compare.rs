//! Our registry, etcd and the floor under one load, in turns.

use std::sync::Arc;

use anyhow::Result;

use super::{
    Scale,
    etcd::{Etcd, Grain},
    floor::Relay,
    hop::{Block, Hop},
    machine::Cores,
    ours::Ours,
    population::Population,
    progress,
    report::{Row, Unit},
    stats::{Ratios, Times, in_turns, together},
};

/// What the floor is, for the notes.
pub const FLOOR: &str =
    "floor: a thread that copies the bytes of a change from the writer to the same watchers";

/// The three of them, with the same population.
#[derive(Debug)]
pub struct Contest {
    ours: Arc<Ours>,
    etcd: Arc<Etcd>,
    floor: Arc<Relay>,
}

/// What was measured in one pair.
#[derive(Debug)]
pub struct Measured {
    /// Our registry.
    pub ours: Block,
    /// etcd.
    pub peer: Block,
    /// The machine alone.
    pub floor: Block,
}

impl Contest {
    /// Starts and fills them.
    ///
    /// # Errors
    /// One does not start.
    pub async fn start(cores: Cores, population: Population) -> Result<Self> {
        progress(&format!("  filling the registry and etcd with {} endpoints", population.total()));
        let mut ours = Ours::start(cores).await?;
        ours.fill(population).await?;
        let mut etcd = Etcd::start(cores).await?;
        etcd.fill(population, Grain::Service).await?;
        let floor = Relay::start(cores, population.value_bytes()).await?;
        Ok(Self { ours: Arc::new(ours), etcd: Arc::new(etcd), floor })
    }

    /// What the peer is, for the notes.
    pub fn peer(&self) -> String {
        self.etcd.note()
    }

    /// Measures pairs of blocks with `watchers` of each, after a warm-up.
    ///
    /// # Errors
    /// A change was not delivered.
    pub async fn measure(&self, scale: &Scale, watchers: usize, rate: u32) -> Result<Vec<Measured>> {
        let Scale { pairs, block, warm_up, .. } = *scale;
        progress(&format!(
            "  {watchers} watchers, {rate} changes/s: {pairs} pairs of blocks after a warm-up"
        ));
        let mut ours = Hop::open(Arc::clone(&self.ours), watchers, 0).await?;
        let mut etcd = Hop::open(Arc::clone(&self.etcd), watchers, 0).await?;
        let mut floor = Hop::open(Arc::clone(&self.floor), watchers, 0).await?;
        ours.measure(rate, warm_up).await?;
        etcd.measure(rate, warm_up).await?;
        floor.measure(rate, warm_up).await?;
        let blocks = in_turns(
            pairs,
            async |_| ours.measure(rate, block).await,
            async |pair| {
                let others =
                    (etcd.measure(rate, block).await?, floor.measure(rate, scale.floor_block()).await?);
                progress(&format!("  pair {pair} of {pairs} measured"));
                Ok(others)
            },
        );
        let measured = |(ours, (peer, floor))| Measured { ours, peer, floor };
        Ok(blocks.await?.into_iter().map(measured).collect())
    }
}

/// A row of what `number` makes of the blocks of each; none where a system does not say.
///
/// # Errors
/// As `number`.
pub fn row(
    goal: &'static str,
    what: String,
    unit: Unit,
    pairs: &[Measured],
    number: impl Fn(&[&Block]) -> Result<Option<f64>>,
) -> Result<Row> {
    let of = |pick: fn(&Measured) -> &Block| number(&pairs.iter().map(pick).collect::<Vec<_>>());
    let mut ratios = Vec::new();
    for Measured { ours, peer, .. } in pairs {
        ratios.extend(number(&[ours])?.zip(number(&[peer])?));
    }
    Ok(Row {
        floor: of(|pair| &pair.floor)?,
        peer: of(|pair| &pair.peer)?,
        ratio: Ratios::of(ratios),
        ..Row::new(goal, what, unit, of(|pair| &pair.ours)?.unwrap_or(f64::NAN))
    })
}

/// A quantile, in milliseconds, over the times that `pick` takes of all blocks.
pub fn millis(pick: impl Fn(&Block) -> &Times, quantile: f64) -> impl Fn(&[&Block]) -> Result<Option<f64>> {
    move |blocks| Ok(Some(together(blocks.iter().map(|block| pick(block)))?.millis(quantile)))
}

/// The microseconds of a core that a delivery cost, over all blocks.
///
/// # Errors
/// None.
pub fn cpu_per_delivery(blocks: &[&Block]) -> Result<Option<f64>> {
    let deliveries: u64 = blocks.iter().map(|block| block.deliveries.len()).sum();
    let cpu: Option<f64> = blocks.iter().map(|block| Some(block.cpu?.as_secs_f64())).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of minutes' worth of events")]
    Ok(cpu.map(|seconds| seconds * 1e6 / deliveries as f64))
}
