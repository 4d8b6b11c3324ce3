//! Many connections: they are cheap, and more than are allowed are told so.

use crate::program::Program;
use crate::service::{PATIENCE, ask};
use crate::witness::Witness;
use futures::future::join_all;
use mcs_runtime::files::raise_open_files;
use mcs_runtime::http::testing::Raw;
use std::net::SocketAddr;
use tokio::task::JoinSet;

/// The most memory of the program with all connections: 300 MB, less what an optimised one has of its own file, of which
/// one that is not has twice as much.
const MEMORY: usize = (300 - 12) * 1000 * 1000;

/// Connections that a test opens at once, fewer than wait in the queue of a port.
const AT_ONCE: usize = 256;

/// Connections that are left for the witness, which comes and goes.
const LEFT: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_up_to_the_limit_leave_the_others_served() {
    idle_connections(200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn ten_thousand_idle_connections_leave_the_others_served() {
    // This process and the program have the same limit, and the program keeps 256 files for other things.
    let most = 10_000.min(raise_open_files() - 600);
    eprintln!("{most} connections; 10,000, if so many files may be open");
    idle_connections(most).await;
}

/// Each is a client of HTTP/2 that was served once and then wants nothing, which is what lasts.
async fn idle_connections(most: usize) {
    let program = Program::start(&[&format!("--max-connections={most}")]).await;
    let mut witness = Witness::new(&program).await;
    let address = program.address;
    let attack = async move {
        let mut held = JoinSet::new();
        open(&mut held, most - LEFT, address).await;
        held
    };
    let (mut held, seen) = witness.sees(&program, MEMORY, attack).await;

    // The watch of the witness has one.
    open(&mut held, LEFT - 1, address).await;
    let (status, told) = ask(address, "GET", "/pools", "").await;
    let expected = format!("{most} connections are open, the most that there may be (--max-connections)");
    assert!(status == 503 && told.contains(&expected), "{status} {told}");

    held.shutdown().await;
    program.gives_back(seen.files).await;
    witness.sees(&program, MEMORY, async {}).await;
    seen.tell(&format!("{most} idle connections"));
}

async fn open(held: &mut JoinSet<()>, count: usize, address: SocketAddr) {
    let ask = || async {
        let mut raw = Raw::http2(address).await;
        raw.ask("GET", "/routers").await;
        raw
    };
    for begun in (0..count).step_by(AT_ONCE) {
        let raws = join_all((begun..count.min(begun + AT_ONCE)).map(|_| ask()));
        for mut raw in tokio::time::timeout(PATIENCE, raws).await.unwrap() {
            held.spawn(async move { raw.idle().await });
        }
    }
}
