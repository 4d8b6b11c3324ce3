//! Many connections: they are cheap, and more than are allowed are told so.

use crate::program::Program;
use crate::service::ask;
use crate::witness::Client;
use mcs_runtime::files::raise_open_files;
use mcs_runtime::http::testing::hold_idle;
use mcs_runtime::testing::witness::Witness;
use tokio::task::JoinSet;

/// The most memory of the program with all connections: 300 MB, less what an optimised one has of its own file, of which
/// one that is not has twice as much.
const MEMORY: usize = (300 - 12) * 1000 * 1000;

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

async fn idle_connections(most: usize) {
    let program = Program::start(&[&format!("--max-connections={most}")]).await;
    let mut witness = Client::new(&program).await;
    let address = program.address;
    let attack = async move {
        let mut held = JoinSet::new();
        hold_idle(&mut held, most - LEFT, address, "GET", "/routers").await;
        held
    };
    let (mut held, seen) = witness.sees(&program, MEMORY, attack).await;

    // The watch of the witness has one.
    hold_idle(&mut held, LEFT - 1, address, "GET", "/routers").await;
    let (status, told) = ask(address, "GET", "/pools", "").await;
    let expected = format!("{most} connections are open, the most that there may be (--max-connections)");
    assert!(status == 503 && told.contains(&expected), "{status} {told}");

    held.shutdown().await;
    program.gives_back(seen.files).await;
    witness.sees(&program, MEMORY, async {}).await;
    seen.tell(&format!("{most} idle connections"));
}
