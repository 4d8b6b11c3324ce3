//! Clients that send without end what costs them nothing: each connection is closed, nothing is held of it, and others
//! are served.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::http::testing::Raw;
use mcs_runtime::http::testing::floods::{Next, floods};

use crate::program::Program;
use crate::witness::Client;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;

/// The most that the program's memory may grow under a flood.
const GROWTH: usize = 32 * MIB;

const WRITE: &str = "/dynamo.mcs.v1.Members/Write";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_closes_its_connection_on_both_ports_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let most = program.memory() + GROWTH;
    let ports = [program.grpc, program.rest];
    let attack = async move {
        for (_, next) in floods(WRITE) {
            for port in ports {
                for reads in [true, false] {
                    Raw::http2(port).await.flood(reads, &*next).await;
                }
            }
        }
    };
    let ((), seen) = witness.sees(&program, most, attack).await;
    program.gives_back(seen.files).await;
}

/// Each of them comes again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn floods_of_20_clients_that_come_again_and_again_grow_nothing() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    for (name, next) in floods(WRITE) {
        for (port, address) in [("gRPC", program.grpc), ("REST", program.rest)] {
            let (longest, seen) =
                witness.sees(&program, program.memory() + GROWTH, attack(address, next.clone())).await;
            program.gives_back(seen.files).await;
            seen.tell(&format!("{name} on {port}, closed after at most {longest:.1?}"));
        }
    }
}

/// Floods from many clients for a while: the longest time until a connection was closed.
async fn attack(address: SocketAddr, next: Next) -> Duration {
    let attacker = |next: Next| async move {
        let began = SystemClock.elapsed();
        let mut longest = Duration::ZERO;
        while SystemClock.elapsed().since(began) < Duration::from_secs(3) {
            let opened = SystemClock.elapsed();
            Raw::http2(address).await.flood(true, &*next).await;
            longest = longest.max(SystemClock.elapsed().since(opened));
        }
        longest
    };
    let attackers = (0..20).map(|_| tokio::spawn(attacker(next.clone())));
    join_all(attackers).await.into_iter().map(Result::unwrap).max().unwrap()
}
