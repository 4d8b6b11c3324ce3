//! G8: how many registrations one core takes, beside those of another registry and what the machine needs for requests
//! of that size, and what of it is the service's own book.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use global_discovery_service::{driver::Driver, wire};
use mcs_core::{
    pools::{
        Lease,
        directory::{Directory, Source},
        storage::Storage,
    },
    time::Clock,
};
use mcs_runtime::{clock::SystemClock, ready::Ready, shutdown::Drain};

use super::{
    Scale,
    machine::{self, Cores},
    peers::{RNACOS, Running},
    plain::Plain,
    pools::{CONNECTIONS, Service, registering, registration},
    progress,
    report::{Report, Row, Unit},
    requests::{Load, Until, load, post},
    stats::{Ratios, Times, median, together},
};

/// Distinct ones.
const POOLS: usize = 100_000;
/// 40,000 a second.
const MOST_MICROS: f64 = 25.0;
/// A rate of one and a half times the peer's.
const MOST_RATIO: f64 = 1.0 / 1.5;
const MOST_IN_PROCESS_MILLIS: f64 = 150.0;
/// As long as the answer of the service.
const ANSWER: &str = r#"{"lease_duration_secs":86400,"heartbeat_interval_secs":5}"#;

/// Measures all.
///
/// # Errors
/// Something did not start, or refused.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

/// One turn of all three.
#[derive(Debug)]
struct Turn {
    first: Load,
    /// What the service had of its core for each of the first ones, in microseconds.
    cpu: f64,
    again: Load,
    peer: Option<Load>,
    floor: Load,
    parsed: f64,
    registered: f64,
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let before = machine::load();
    let pools = POOLS / scale.divisor;
    let rnacos = RNACOS.find();
    let mut peer_note = RNACOS.missing();
    let plain = Plain::start(cores, ANSWER.into()).await?;
    progress(&format!("g8: {pools} pools over {CONNECTIONS} connections"));
    let mut turns = Vec::new();
    for pair in 1..=scale.pairs {
        let service = Service::start(cores).await?;
        let idle = machine::cpu(service.pid())?;
        let first = service.register(pools).await?;
        let used = machine::cpu(service.pid())?.saturating_sub(idle);
        #[expect(clippy::cast_precision_loss, reason = "a count of pools")]
        let cpu = used.as_secs_f64() * 1e6 / pools as f64;
        let again = service.register(pools).await?;
        drop(service);
        let peer = match &rnacos {
            Some(file) => {
                let (load, note) = register_at_peer(cores, file, pools).await?;
                peer_note = note;
                Some(load)
            }
            None => None,
        };
        let floor = load(plain.address(), CONNECTIONS, Until::Count(pools), 200, registering).await?;
        let (parsed, registered) = in_process(pools);
        turns.push(Turn { first, cpu, again, peer, floor, parsed, registered });
        progress(&format!("  pair {pair} of {} measured", scale.pairs));
    }
    Ok(Report {
        rows: rows(pools, &turns)?,
        notes: vec![
            format!(
                "G8: {pools} distinct pools over {CONNECTIONS} connections that are kept, each with one request at a \
                 time; memory store; {}",
                cores.note()
            ),
            "floor: a thread that reads each request and answers with as many bytes".to_owned(),
            format!("{peer_note}; it registers an instance of a service of its own for each pool"),
            "25 us a registration are 40,000 a second".to_owned(),
            machine::versions()?,
            before,
        ],
    })
}

fn rows(pools: usize, turns: &[Turn]) -> Result<Vec<Row>> {
    type Pick = fn(&Turn) -> &Load;
    let micros = |pick: Pick| median(turns.iter().map(|turn| pick(turn).micros_each())).unwrap_or(f64::NAN);
    let peers: Vec<_> = turns.iter().filter_map(|turn| turn.peer.as_ref()).collect();
    let peer = median(peers.iter().map(|load| load.micros_each()));
    let ratio = |pick: Pick| {
        let both = turns.iter().filter_map(|turn| Some((pick(turn), turn.peer.as_ref()?)));
        Ratios::of(both.map(|(ours, peer)| (ours.micros_each(), peer.micros_each())))
    };
    let all = |pick: Pick| together(turns.iter().map(|turn| &pick(turn).times));
    let late = |times: Result<Times>| Ok::<_, anyhow::Error>(times?.millis(0.99));
    let of_peers = match peers.is_empty() {
        true => None,
        false => Some(late(together(peers.iter().map(|load| &load.times)))?),
    };
    let row = |what: &str, pick: Pick| Row {
        floor: Some(micros(|turn| &turn.floor)),
        peer,
        ratio: ratio(pick),
        ..Row::new("G8", format!("{what}, over {CONNECTIONS} connections"), Unit::CpuMicros, micros(pick))
    };
    let single = |what: String, unit, pick: fn(&Turn) -> f64| {
        Row::new("G8", what, unit, median(turns.iter().map(pick)).unwrap_or(f64::NAN))
    };
    Ok(vec![
        Row {
            most: Some(MOST_MICROS),
            most_ratio: Some(MOST_RATIO),
            ..row("a registration of a new pool", |turn| &turn.first)
        },
        // What else runs on the core does not count here.
        single("the same, CPU of the service".to_owned(), Unit::CpuMicros, |turn| turn.cpu),
        row("a heartbeat", |turn| &turn.again),
        Row {
            floor: Some(late(all(|turn| &turn.floor))?),
            peer: of_peers,
            ..Row::new("G8", "a registration, p99", Unit::Millis, late(all(|turn| &turn.first))?)
        },
        Row {
            most: Some(MOST_IN_PROCESS_MILLIS),
            ..single(format!("{pools} pools registered in process"), Unit::Millis, |turn| turn.registered)
        },
        single(format!("{pools} bodies read in process"), Unit::Millis, |turn| turn.parsed),
    ])
}

/// Registers as many services at r-nacos.
async fn register_at_peer(cores: Cores, file: &Path, pools: usize) -> Result<(Load, String)> {
    let peer = Running::rnacos(cores, file).await?;
    let request = |number: usize| {
        let (high, low) = (number / 250 % 250, number % 250);
        let body = format!(
            "serviceName=pool-{number:06}&namespaceId=inference&ip=10.{high}.{low}.7&port=8000&ephemeral=true"
        );
        post("/nacos/v1/ns/instance", "application/x-www-form-urlencoded", &body)
    };
    let load = load(peer.address(), CONNECTIONS, Until::Count(pools), 200, request).await?;
    Ok((load, peer.note()))
}

/// How long it takes to read the bodies of so many registrations, and to register them, in milliseconds.
fn in_process(pools: usize) -> (f64, f64) {
    let timed = |begun| SystemClock.elapsed().since(begun).as_secs_f64() * 1000.0;
    let bodies: Vec<_> = (0..pools).map(|number| registration(number, 8)).collect();
    let begun = SystemClock.elapsed();
    let read: Vec<_> = bodies.iter().filter_map(|body| wire::registration(body.as_bytes()).ok()).collect();
    let parsed = timed(begun);
    let lease = Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
    let view = Ready::new(Drain::default()).wait_for("the first view");
    let (now, source) = (SystemClock.elapsed(), Source::Registrations(Vec::new()));
    let directory = Directory::new(Storage::memory(lease, now), source, now);
    let driver = Driver::new(directory, Arc::new(SystemClock), view);
    let begun = SystemClock.elapsed();
    let is_registered = read.into_iter().all(|registration| driver.register(registration).is_ok());
    (parsed, if is_registered { timed(begun) } else { f64::NAN })
}
