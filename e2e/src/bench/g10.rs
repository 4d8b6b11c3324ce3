//! G10: how long the list of pools takes to its last byte, beside a server of files that sends the same bytes.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Scale,
    machine::{self, Cores},
    peers::{NGINX, Running},
    plain::Plain,
    pools::{CONNECTIONS, Service, registration},
    progress,
    report::{Report, Row, Unit},
    requests::{Connection, Load, Until, get, load, post},
    schedule::Schedule,
    stats::{Ratios, median},
};

const MOST_RATIO: f64 = 1.5;
/// What counts as not slower; two blocks of the same differ by as much.
const MOST_RATIO_CHANGING: f64 = 1.1;
const MOST_UNCHANGED_MILLIS: f64 = 0.2;
/// Registrations a second, each of which changes a pool: those of two relays of each of 200 pools, were they no
/// heartbeats.
const RATE: u32 = 80;

/// So many pools, read over so many connections at once.
#[derive(Clone, Copy, Debug)]
struct Size {
    pools: usize,
    connections: usize,
}

const SIZES: [Size; 3] = [
    Size { pools: 100_000, connections: 1 },
    Size { pools: 1_000, connections: 1 },
    Size { pools: 100, connections: CONNECTIONS },
];

/// Measures all.
///
/// # Errors
/// Something did not start, or refused.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let before = machine::load();
    let nginx = NGINX.find();
    let mut note = NGINX.missing();
    let mut rows = Vec::new();
    for Size { pools, connections } in SIZES {
        let pools = (pools / scale.divisor).max(10);
        progress(&format!("g10: a list of {pools} pools over {connections} connections"));
        let service = Service::start(cores).await?;
        service.register(pools).await?;
        let contest = Contest { service, connections, block: scale.block / 6, cores, nginx: nginx.clone() };
        rows.extend(contest.measure(scale, pools, &mut note).await?);
    }
    Ok(Report {
        rows,
        notes: vec![
            format!(
                "G10: each answer to its last byte, one request at a time on a connection, blocks of {:.1} s; {}",
                (scale.block / 6).as_secs_f64(),
                cores.note()
            ),
            "floor: a thread that sends the same bytes from its memory".to_owned(),
            note,
            format!(
                "under changes: {RATE} registrations/s that each change a pool; the peer is the same without"
            ),
            machine::versions()?,
            before,
        ],
    })
}

struct Contest {
    service: Service,
    connections: usize,
    block: Duration,
    cores: Cores,
    nginx: Option<PathBuf>,
}

/// One turn of all that is compared.
struct Turn {
    ours: Load,
    peer: Option<Load>,
    floor: Load,
    changing: Option<Load>,
    unchanged: Option<Load>,
}

impl Contest {
    async fn measure(&self, scale: &Scale, pools: usize, note: &mut String) -> Result<Vec<Row>> {
        let list = self.service.list().await?;
        let length = list.len();
        let peer = match &self.nginx {
            Some(file) => Some(Running::nginx(self.cores, file, &list).await?),
            None => None,
        };
        if let Some(peer) = &peer {
            *note = peer.note();
        }
        let plain = Plain::start(self.cores, list).await?;
        // What is large is read over one connection alone.
        let is_large = self.connections == 1 && pools > 1_000 / scale.divisor;
        let mut turns = Vec::new();
        for pair in 1..=scale.pairs {
            let ours = self.read(self.service.address(), "").await?;
            let peer = match &peer {
                Some(peer) => Some(self.read(peer.address(), "").await?),
                None => None,
            };
            let floor = self.read(plain.address(), "").await?;
            let (mut changing, mut unchanged) = (None, None);
            if is_large {
                unchanged = Some(self.ask_for_changes().await?);
                changing = Some(self.read_amid_changes(pools).await?);
            }
            turns.push(Turn { ours, peer, floor, changing, unchanged });
            progress(&format!("  pair {pair} of {} measured", scale.pairs));
        }
        let kilobytes = length / 1000;
        let what = format!("a list of {pools} pools ({kilobytes} kB)");
        Ok(rows(&what, self.connections, &turns))
    }

    async fn read(&self, address: std::net::SocketAddr, header: &'static str) -> Result<Load> {
        let request = move |_| get("/pools", header);
        load(address, self.connections, Until::after(self.block), 200, request).await
    }

    /// Says what it has, of which nothing has changed.
    async fn ask_for_changes(&self) -> Result<Load> {
        let mut connection = Connection::open(self.service.address()).await?;
        let head = connection.ask(&get("/pools", "")).await?;
        let etag = head.etag.context("a list without an entity tag")?;
        let request = get("/pools", &format!("if-none-match: {etag}\r\n"));
        let until = Until::after(self.block);
        load(self.service.address(), 1, until, 304, move |_| request.clone()).await
    }

    /// Reads the list while pools are changed all the time.
    async fn read_amid_changes(&self, pools: usize) -> Result<Load> {
        let address = self.service.address();
        let mut connection = Connection::open(address).await?;
        let changing = tokio::spawn(async move {
            let schedule = Schedule::new(SystemClock.elapsed(), RATE, Duration::from_secs(86_400));
            for number in 0..schedule.count() {
                sleep(schedule.due(number).since(SystemClock.elapsed())).await;
                let change = usize::try_from(number)?;
                // Spread over the whole list, and different each time.
                let body = registration(change * 7_919 % pools, 9 + change % 90);
                let head = connection.ask(&post("/pools", "application/json", &body)).await?;
                ensure!(head.status == 200, "{} to a change", head.status);
            }
            anyhow::Ok(())
        });
        let changing = AbortOnDropHandle::new(changing);
        let load = self.read(address, "").await?;
        ensure!(!changing.is_finished(), "the changes ended before the list was read");
        Ok(load)
    }
}

fn rows(what: &str, connections: usize, turns: &[Turn]) -> Vec<Row> {
    // Over many connections it is the time of the server's core for each, else how long one waits for it.
    let (unit, number): (Unit, fn(&Load) -> f64) = if connections == 1 {
        (Unit::Micros, |load| load.median_millis() * 1000.0)
    } else {
        (Unit::CpuMicros, Load::micros_each)
    };
    let of = |pick: fn(&Turn) -> Option<&Load>| median(turns.iter().filter_map(pick).map(number));
    let ratio = |one: fn(&Turn) -> Option<&Load>, other: fn(&Turn) -> Option<&Load>| {
        let both = turns.iter().filter_map(|turn| Some((number(one(turn)?), number(other(turn)?))));
        Ratios::of(both)
    };
    let mut rows = vec![Row {
        most_ratio: Some(MOST_RATIO),
        floor: of(|turn| Some(&turn.floor)),
        peer: of(|turn| turn.peer.as_ref()),
        ratio: ratio(|turn| Some(&turn.ours), |turn| turn.peer.as_ref()),
        ..Row::new(
            "G10",
            format!("{what} over {connections} connections"),
            unit,
            of(|turn| Some(&turn.ours)).unwrap_or(f64::NAN),
        )
    }];
    if let Some(changing) = of(|turn| turn.changing.as_ref()) {
        rows.push(Row {
            most_ratio: Some(MOST_RATIO_CHANGING),
            peer: of(|turn| Some(&turn.ours)),
            ratio: ratio(|turn| turn.changing.as_ref(), |turn| Some(&turn.ours)),
            ..Row::new("G10", format!("{what} under {RATE} changes/s"), unit, changing)
        });
    }
    if let Some(unchanged) = of(|turn| turn.unchanged.as_ref()) {
        rows.push(Row {
            most: Some(MOST_UNCHANGED_MILLIS * 1000.0),
            ..Row::new("G10", format!("{what}, unchanged, by its entity tag"), unit, unchanged)
        });
    }
    rows
}
