//! O64: slow clients: each connection, or each request on one, ends within its limit, that of the admin port sooner.

use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_core::version::{Sum, Version};
use mcs_proto::pb;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::http::testing::{Raw, slow};
use prost::Message;
use tokio::task::JoinSet;

use crate::program::Program;
use crate::started::{client, member, put, registration};
use crate::witness::Client;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;

/// So many clients do the same at once.
const CLIENTS: usize = 100;

/// The most that the program's memory may grow.
const GROWTH: usize = 64 * MIB;

const WRITE: &str = "/dynamo.mcs.v1.Members/Write";

const LIST_EXPORTS: &str = "/dynamo.mcs.v1.Imports/ListExports";

const REGISTER: &str = "PUT /v1/clustersets/prod/clusters/east\r\ncontent-type: application/json\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn slow_clients_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let ports = [("gRPC", program.grpc), ("REST", program.rest), ("admin", program.admin)];
    let on_all = ports.into_iter().map(|(port, address)| (port, address, slow::without_a_request(WRITE)));
    let kinds: Vec<_> = on_all.chain([("REST", program.rest, slow::amid_requests(REGISTER))]).collect();
    let attack = async move {
        let kinds = kinds.into_iter().flat_map(|(port, address, slow)| {
            slow.into_iter()
                .map(move |slow| async move { (port, slow.name, slow.closed_after(address, CLIENTS).await) })
        });
        join_all(kinds).await
    };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    for (port, name, after) in longest {
        eprintln!("{name} on {port}: the last of {CLIENTS} was closed after {after:.1?}");
    }
    program.gives_back(seen.files).await;
    seen.tell("slow clients");
}

fn all_exports() -> Vec<u8> {
    let list = pb::ListExportsRequest {
        clusterset: "prod".to_owned(),
        include_endpoints: true,
        ..pb::ListExportsRequest::default()
    };
    list.encode_to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn http2_requests_whose_body_drips_in_fail_and_their_connection_goes_on() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let (grpc, rest) = (program.grpc, program.rest);
    let attack = async move {
        // A message of 25,600 bytes, and an object.
        let message = slow::refused_after(grpc, WRITE, b"\0\0\0\x64\0", CLIENTS);
        let object = slow::refused_after(rest, "/v1/clustersets/prod/clusters/east/write", b"{", CLIENTS);
        let (message, object) = tokio::join!(message, object);
        message.max(object)
    };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    seen.tell(&format!("HTTP/2 bodies that drip in, refused after at most {longest:.1?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn clients_that_take_no_answers_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let (rest, began) = (program.rest, SystemClock.elapsed());
    let attack = async move { slow::taking_nothing(rest, "/openapi.json", CLIENTS).await };
    let (held, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    let after = SystemClock.elapsed().since(began);
    drop(held);
    seen.tell(&format!("clients that take no answers, closed after at most {after:.1?}"));
}

/// They answer probes, so that the connection lives, and never let more of an answer come than the first 64 KiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn answers_that_are_not_taken_over_http2_are_not_held() {
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let (east, sets) = (member("east", "uid-of-east"), (0..20).map(|n| put(&format!("large-{n}"), 10_000)));
    let client = client(program.grpc);
    client.register(&east, &registration(&east, Version::new(1, 1), Sum::EMPTY)).await.unwrap();
    client.write(&east, Version::new(1, 2), &sets.collect::<Vec<_>>()).await.unwrap();
    let grpc = program.grpc;
    let attack = async move {
        let mut held = JoinSet::new();
        for _ in 0..10 {
            let mut raw = Raw::http2(grpc).await;
            for stream in (1..40).step_by(2) {
                raw.post(stream, LIST_EXPORTS, &all_exports()).await;
            }
            held.spawn(async move { raw.idle().await });
        }
        held
    };
    let (mut held, seen) = witness.sees(&program, program.memory() + 2 * GROWTH, attack).await;
    held.shutdown().await;
    program.gives_back(seen.files).await;
    seen.tell("200 answers that are not taken over HTTP/2");
}
