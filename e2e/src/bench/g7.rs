//! G7: what it costs to hold endpoints and to keep leases while nothing happens.

use std::sync::Arc;

use anyhow::Result;
use mcs_core::{time::Clock, timing::Timing};
use mcs_runtime::clock::SystemClock;
use tokio::time::sleep;

use super::{
    Scale,
    etcd::{Etcd, Grain},
    fleet::Fleet,
    hop::{Hop, Target},
    machine::{self, Cores},
    ours::{Ours, options},
    population::{ENDPOINT_BYTES, Population},
    progress,
    report::{Report, Row, Unit},
    stats::Ratios,
};
use crate::stack::{Stack, StackOptions};

const HELD: Population = Population { clusters: 250, services: 100, endpoints: 10 };
const RATE: u32 = 250;
/// In the peer's case a watcher costs what it costs there, so the goal is judged with one, and shown with as many as
/// there are clusters.
const WATCHERS: [usize; 2] = [1, 250];
const MOST_BYTES: f64 = 200.0;

/// What keeps its leases; how much it exports plays no part.
const IDLE: Population = Population { clusters: 100, services: 10, endpoints: 10 };
const MOST_IDLE_PERCENT: f64 = 0.5;

/// Measures both.
///
/// # Errors
/// Something did not start, or a change was not delivered.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

/// The memory of a process, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Memory {
    empty: f64,
    idle: f64,
    /// The most under changes, for each number of watchers.
    changing: Vec<f64>,
}

/// What one key of etcd stands for, as the table says it. The goal is given for the first.
const GRAINS: [(Grain, &str); 2] =
    [(Grain::Endpoint, "a key an endpoint"), (Grain::Service, "a key a Service")];

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let population = HELD.divided(scale.divisor);
    progress(&format!("g7: memory of the registry, {population}"));
    let mut registry = Ours::start(cores).await?;
    let empty = at_rest(scale, registry.process()?).await?;
    registry.fill(population).await?;
    let ours = hold(scale, registry, empty).await?;
    let mut rows = Vec::new();
    let mut notes = vec![format!(
        "G7: {population}; memory is what is resident, after {} s of quiet; {}",
        scale.quiet.as_secs(),
        cores.note()
    )];
    for (grain, named) in GRAINS {
        progress(&format!("g7: memory of etcd, {named}"));
        let mut etcd = Etcd::start(cores).await?;
        if rows.is_empty() {
            notes.push(format!("{}; each endpoint has {ENDPOINT_BYTES} bytes of a value", etcd.note()));
        }
        let empty = at_rest(scale, etcd.process()?).await?;
        etcd.fill(population, grain).await?;
        let peer = hold(scale, etcd, empty).await?;
        rows.extend(rows_of(population.total(), &ours, &peer, grain == Grain::Endpoint, named));
    }
    rows.push(idle(scale, cores).await?);
    notes.extend([machine::versions()?, load]);
    Ok(Report { rows, notes })
}

fn rows_of(total: usize, ours: &Memory, peer: &Memory, is_judged: bool, named: &str) -> Vec<Row> {
    let megabytes = |what: &str, ours: f64, peer: f64| Row {
        peer: Some(peer / 1e6),
        ratio: Ratios::of([(ours, peer)]),
        ..Row::new("G7", format!("{what}, etcd with {named}"), Unit::Megabytes, ours / 1e6)
    };
    let judged = |limit: f64| is_judged.then_some(limit);
    #[expect(clippy::cast_precision_loss, reason = "a count of what is held in memory")]
    let each = |memory: &Memory| (memory.idle - memory.empty) / total as f64;
    let mut rows = vec![
        Row {
            most: judged(MOST_BYTES),
            #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
            floor: Some(ENDPOINT_BYTES as f64),
            peer: Some(each(peer)),
            ratio: Ratios::of([(each(ours), each(peer))]),
            ..Row::new(
                "G7",
                format!("an endpoint, above the empty process, etcd with {named}"),
                Unit::Bytes,
                each(ours),
            )
        },
        megabytes("the empty process", ours.empty, peer.empty),
        Row {
            most_ratio: judged(1.0),
            ..megabytes(&format!("{total} endpoints, idle"), ours.idle, peer.idle)
        },
    ];
    for ((place, watchers), (ours, peer)) in
        WATCHERS.iter().enumerate().zip(ours.changing.iter().zip(&peer.changing))
    {
        let what = format!("the most under {RATE} changes/s to {watchers} watchers");
        let most_ratio = judged(1.0).filter(|_| place == 0);
        rows.push(Row { most_ratio, ..megabytes(&what, *ours, *peer) });
    }
    rows
}

async fn at_rest(scale: &Scale, pid: u32) -> Result<f64> {
    sleep(scale.quiet).await;
    memory(pid)
}

fn memory(pid: u32) -> Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "the memory of a process")]
    Ok(machine::resident(pid)? as f64)
}

/// The memory of a system that was filled, at rest and under changes.
async fn hold<T: Target>(scale: &Scale, target: T, empty: f64) -> Result<Memory> {
    let target = Arc::new(target);
    let pid = target.pid().unwrap_or_default();
    let idle = at_rest(scale, pid).await?;
    let mut changing = Vec::new();
    for watchers in WATCHERS {
        let mut hop = Hop::open(Arc::clone(&target), (watchers / scale.divisor).max(1), 0).await?;
        hop.measure(RATE, scale.warm_up).await?;
        let mut most = f64::MIN;
        for _ in 0..scale.pairs {
            hop.measure(RATE, scale.block).await?;
            most = most.max(memory(pid)?);
        }
        changing.push(most);
    }
    Ok(Memory { empty, idle, changing })
}

/// The share of a core that clusters cost which only keep their leases and watch, both over one connection, as
/// controllers do.
async fn idle(scale: &Scale, cores: Cores) -> Result<Row> {
    let population = IDLE.divided(scale.divisor);
    progress(&format!("g7: {} clusters that keep their leases", population.clusters));
    let options = StackOptions { lease: scale.lease, ..options() };
    let stack = cores.start_server(Stack::start_without_controllers(options)).await?;
    let timing = Timing::of_lease(scale.lease);
    // Spread, as the renewals of clusters that began at different times are.
    let fleet = Fleet::join(&stack, population, 1, timing, timing.heartbeat())?;
    fleet.converged(None).await?;
    // After that nothing is told any more.
    fleet.complete().await?;
    sleep(scale.quiet).await;
    let pid = stack.registry_program()?.pid();
    let (since, before) = (SystemClock.elapsed(), machine::cpu(pid)?);
    sleep(scale.block * 2).await;
    let (now, after) = (SystemClock.elapsed(), machine::cpu(pid)?);
    let share = after.saturating_sub(before).as_secs_f64() / now.since(since).as_secs_f64();
    let what = format!("{} clusters that renew and watch, share of a core", population.clusters);
    Ok(Row { most: Some(MOST_IDLE_PERCENT), ..Row::new("G7", what, Unit::CorePercent, share * 100.0) })
}
