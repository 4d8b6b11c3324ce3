//! O64: slow clients: each connection, or each request on one, ends within its limit.

use crate::program::Program;
use crate::witness::Client;
use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::http::testing::slow;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;

/// So many clients do the same at once.
const CLIENTS: usize = 100;

/// The most that the program's memory may grow.
const GROWTH: usize = 64 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn slow_clients_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let address = program.address;
    let attack = async move {
        let kinds = [slow::without_a_request("/pools"), slow::amid_requests("POST /pools")].concat();
        join_all(
            kinds
                .into_iter()
                .map(|slow| async move { (slow.name, slow.closed_after(address, CLIENTS).await) }),
        )
        .await
    };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    for (name, after) in longest {
        eprintln!("{name}: the last of {CLIENTS} was closed after {after:.1?}");
    }
    program.gives_back(seen.files).await;
    seen.tell("slow clients");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn http2_requests_whose_body_drips_in_fail_and_their_connection_goes_on() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let address = program.address;
    let attack = async move { slow::refused_after(address, "/pools", b"{", CLIENTS).await };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    seen.tell(&format!("HTTP/2 bodies that drip in, refused after at most {longest:.1?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn clients_that_take_no_answers_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let (address, began) = (program.address, SystemClock.elapsed());
    let attack = async move { slow::taking_nothing(address, "/openapi.json", CLIENTS).await };
    let (held, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    let after = SystemClock.elapsed().since(began);
    drop(held);
    seen.tell(&format!("clients that take no answers, closed after at most {after:.1?}"));
}
