//! Frames of HTTP/2 that cost a client nothing, without end: the connection is closed, and nobody else notices.

use crate::program::Program;
use crate::witness::Client;
use mcs_runtime::http::testing::Raw;
use mcs_runtime::http::testing::floods::{floods, rapid_reset};
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;

/// The most that the program's memory may grow.
const GROWTH: usize = 32 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_closes_its_connection_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let (most, address) = (program.memory() + GROWTH, program.address);
    let attack = async move {
        let of_watches = ("rapid reset of watches", rapid_reset("GET", "/pools/watch"));
        for (_, next) in floods("/pools").into_iter().chain([of_watches]) {
            for reads in [true, false] {
                Raw::http2(address).await.flood(reads, &*next).await;
            }
        }
    };
    let ((), seen) = witness.sees(&program, most, attack).await;
    program.gives_back(seen.files).await;
    seen.tell("floods of twelve kinds");
}
