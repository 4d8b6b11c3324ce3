//! Watchers that take nothing cost no memory that grows, and the others nothing.

use crate::program::Program;
use crate::service::{ask, head, registration};
use crate::witness::Client;
use futures::future::join_all;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

/// The most that the program's memory may grow: 64 KiB a watcher, what is kept of events, and a list of 3 MB with its
/// pages while they change.
const GROWTH: usize = 64 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_take_nothing_leave_memory_and_the_others_alone() {
    stalled(20, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn five_hundred_watchers_that_take_nothing_leave_memory_and_the_others_alone() {
    stalled(500, 5_000).await;
}

/// Watchers of a list of 10,000 characters a pool, of which each is changed, once they have stalled.
async fn stalled(watchers: usize, changes: usize) {
    let program = Program::start(&[&format!("--max-streams={}", watchers + 1)]).await;
    let mut witness = Client::new(&program).await;
    let address = program.address;
    let body = |number: usize, round: usize| {
        let mut body = registration(&format!("pool-{}", number % 300));
        body["model"] = json!(format!("{round}-{number}-{}", "x".repeat(10_000)));
        body.to_string()
    };
    for number in 0..300 {
        assert_eq!(ask(address, "POST", "/pools", &body(number, 0)).await.0, 200);
    }
    let most = program.memory() + GROWTH;
    let attack = async move {
        let watch = || async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            stream.write_all(head("GET", "/pools/watch", &[], 0).as_bytes()).await.unwrap();
            stream
        };
        let held = join_all((0..watchers).map(|_| watch())).await;
        for number in 0..changes {
            assert_eq!(ask(address, "POST", "/pools", &body(number, 1)).await.0, 200);
        }
        held
    };
    let (held, seen) = witness.sees(&program, most, attack).await;
    let (_, refused) = ask(address, "GET", "/pools/watch", "").await;
    assert!(refused.contains("--max-streams"), "{refused}");
    drop(held);
    program.gives_back(seen.files).await;
    seen.tell(&format!("{watchers} watchers that take nothing of {changes} changes"));
}
