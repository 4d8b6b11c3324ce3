//! Many connections: they are cheap, more than are allowed are told so, and all may come back at once.

use std::time::Duration;

use futures::future::join_all;
use mcs_core::model::{Frame, Since};
use mcs_core::time::Clock;
use mcs_proto::client::{RegistryClient, WatchStream};
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::files::raise_open_files;
use tokio::task::JoinSet;
use tonic::Code;

use crate::program::Program;
use crate::started::{LIMIT, client, http, id, prod};
use crate::witness::Client;
use mcs_runtime::http::testing::hold_idle;
use mcs_runtime::testing::witness::Witness;

/// The most memory of the program with all connections: 300 MB, less what an optimised one has of its own file, of which
/// one that is not has twice as much.
const MEMORY: usize = (300 - 12) * 1000 * 1000;

/// Connections of the REST port that are left for the witness.
const LEFT: usize = 4;

const RENEW: &str = "/dynamo.mcs.v1.Members/Renew";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_up_to_the_limit_leave_the_others_served() {
    idle_connections(200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn ten_thousand_idle_connections_leave_the_others_served() {
    // This process and the program have the same limit, and the program keeps 512 files for other things.
    let most = 5_000.min((raise_open_files() - 600) / 2);
    eprintln!("{most} connections on each port; 5,000, if so many files may be open");
    idle_connections(most).await;
}

async fn idle_connections(most: usize) {
    let program = Program::start(&[&format!("--max-connections={most}")]).await;
    let mut witness = Client::new(&program).await;
    let (grpc, rest) = (program.grpc, program.rest);
    let attack = async move {
        let mut held = JoinSet::new();
        // The witness has one of the gRPC port, and comes and goes on the REST port.
        hold_idle(&mut held, most - 1, grpc, "POST", RENEW).await;
        hold_idle(&mut held, most - LEFT, rest, "GET", "/").await;
        held
    };
    let (mut held, seen) = witness.sees(&program, MEMORY, attack).await;

    let message = format!(
        "this registry has {most} connections open, the most that it takes (--max-connections): go on with another, \
         or try again later"
    );
    let full = CallFailed::Unavailable { code: Code::ResourceExhausted, message: message.clone() };
    // Whoever is so slow that the lane for these ends before its request is there is told nothing.
    let refused = async {
        loop {
            match client(grpc).list_clusters(&prod()).await {
                Err(CallFailed::Unavailable { code: Code::Internal, .. }) => {}
                answer => break answer,
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, refused).await.unwrap(), Err(full));
    hold_idle(&mut held, LEFT, rest, "GET", "/").await;
    let (status, body) = http(rest, "GET", "/").await;
    assert_eq!(status, "429 Too Many Requests");
    assert!(body.contains(&message), "{body}");

    held.shutdown().await;
    program.gives_back(seen.files).await;
    witness.sees(&program, MEMORY, async {}).await;
    seen.tell(&format!("{most} idle connections on each port"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_come_back_at_once_all_get_a_snapshot() {
    watchers_come_back(50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn a_thousand_watchers_that_come_back_at_once_all_get_a_snapshot() {
    watchers_come_back(1_000).await;
}

async fn watchers_come_back(count: usize) {
    let program = Program::start(&[]).await;
    let clients: Vec<_> = (0..count).map(|_| client(program.grpc)).collect();
    let watches = join_all(clients.iter().map(snapshot)).await;
    let program = program.restart().await;
    let began = SystemClock.elapsed();
    let back = join_all(watches.into_iter().zip(&clients).map(|((epoch, mut watch), client)| async move {
        while watch.next().await.is_ok() {}
        let (now, watch) = snapshot(client).await;
        assert_ne!(now, epoch);
        watch
    }));
    let mut watches = tokio::time::timeout(LIMIT, back).await.unwrap();
    let after = SystemClock.elapsed().since(began);

    // Each of them lives: it is told what happens now.
    let mut witness = Client::new(&program).await;
    let ((), seen) = witness.sees(&program, MEMORY, async {}).await;
    let told = watches
        .iter_mut()
        .map(|watch| async { while !matches!(watch.next().await.unwrap(), Frame::Change(_)) {} });
    tokio::time::timeout(LIMIT, join_all(told)).await.unwrap();
    seen.tell(&format!("{count} watchers that were back after {after:.1?}"));
}

/// Watches anew until that is served, and reads the snapshot: of which process it is.
async fn snapshot(client: &RegistryClient) -> (mcs_core::ids::Epoch, WatchStream) {
    let mut pauses = tokio::time::interval(Duration::from_millis(100));
    loop {
        pauses.tick().await;
        if let Ok(mut watch) = client.watch(&prod(), &id("importer"), None, Since::default()).await {
            let Frame::Begin { epoch, .. } = watch.next().await.unwrap() else { panic!() };
            while !matches!(watch.next().await.unwrap(), Frame::End { .. }) {}
            return (epoch, watch);
        }
    }
}
