//! G9: the memory that pools take, and that lists of them take while they are sent.

use anyhow::Result;
use tokio::time::sleep;

use super::{
    Scale,
    machine::{self, Cores},
    pools::Service,
    progress,
    report::{Report, Row, Unit},
    requests::{Connection, get},
    stats::median,
};

const POOLS: usize = 100_000;
const MOST_BYTES: f64 = 400.0;
/// Who reads the list and stands still amid it, at once.
const READERS: usize = 32;
/// Of what a list is long, by what its readers hold of it. A copy is a whole one; what the kernel takes of it for its
/// sockets is in nobody's memory.
const MOST_SHARE: f64 = 3.0;
/// What is sent of a pool is less than twice this.
const FLOOR_BYTES: f64 = 150.0;

/// Measures both.
///
/// # Errors
/// Something did not start, or refused.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::apart()?;
    cores.generator()?.block_on(Box::pin(measure(scale, cores)))
}

async fn measure(scale: &Scale, cores: Cores) -> Result<Report> {
    let load = machine::load();
    let pools = POOLS / scale.divisor;
    progress(&format!("g9: memory of {pools} pools"));
    #[expect(clippy::cast_precision_loss, reason = "counts of what is held in memory")]
    let (count, readers) = (pools as f64, READERS as f64);
    let (mut each, mut renewed, mut shares, mut length) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    for pair in 1..=scale.pairs {
        let service = Service::start(cores).await?;
        // What a request needs that nobody has made yet is no pool's.
        service.list().await?;
        sleep(scale.quiet).await;
        let empty = service.memory()?;
        service.register(pools).await?;
        sleep(scale.quiet).await;
        each.push((service.memory()? - empty) / count);
        service.register(pools).await?;
        sleep(scale.quiet).await;
        let held = service.memory()?;
        renewed.push((held - empty) / count);
        #[expect(clippy::cast_precision_loss, reason = "the length of a list")]
        let bytes = service.list().await?.len() as f64;
        length = bytes;
        let mut stalled = Vec::new();
        for _ in 0..READERS {
            let connection = Connection::open(service.address()).await?;
            stalled.push(connection.stall(&get("/pools", "")).await?);
        }
        sleep(scale.quiet).await;
        shares.push((service.memory()? - held) / readers / bytes * 100.0);
        drop(stalled);
        progress(&format!("  round {pair} of {} measured", scale.pairs));
    }
    let middle = |numbers: Vec<f64>| median(numbers).unwrap_or(f64::NAN);
    Ok(Report {
        rows: vec![
            Row {
                most: Some(MOST_BYTES),
                floor: Some(FLOOR_BYTES),
                ..Row::new("G9", "a pool, above the empty process", Unit::Bytes, middle(each))
            },
            Row::new("G9", "the same after a heartbeat of each", Unit::Bytes, middle(renewed)),
            Row {
                most: Some(MOST_SHARE),
                ..Row::new(
                    "G9",
                    format!("each of {READERS} readers amid the list, of its length"),
                    Unit::Percent,
                    middle(shares),
                )
            },
        ],
        notes: vec![
            format!(
                "G9: {pools} pools, of which {:.0} bytes each are listed; memory is what is resident, after {} s of \
                 quiet, the median of {} processes; {}",
                length / count,
                scale.quiet.as_secs(),
                scale.pairs,
                cores.note()
            ),
            machine::versions()?,
            load,
        ],
    })
}
