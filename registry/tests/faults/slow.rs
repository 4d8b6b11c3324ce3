//! O64: clients that hold what they are given for as long as they can, with a byte now and then: each connection, or each
//! request on one, ends within its limit. The limits are those of the program, ten seconds and more; two
//! of the admin port.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_core::version::{Sum, Version};
use mcs_proto::pb;
use mcs_runtime::clock::SystemClock;
use prost::Message;
use tokio::task::JoinSet;

use crate::program::{MIB, Program};
use crate::started::{client, member, put, registration};
use crate::witness::Witness;
use mcs_runtime::http::testing::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, PREFACE, Raw, SETTINGS, frame, headers,
};

/// So many clients do the same at once.
const CLIENTS: usize = 100;

/// The most that the program's memory may grow.
const GROWTH: usize = 64 * MIB;

const LIST_EXPORTS: &str = "/dynamo.mcs.v1.Imports/ListExports";

const REGISTER: &str =
    "PUT /v1/clustersets/prod/clusters/east HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";

/// What is sent at once, and what again every second.
type Slow = (&'static str, Vec<u8>, Vec<u8>);

/// On all ports.
fn of_all_ports() -> Vec<Slow> {
    let http2 = || [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let head = frame(HEADERS, 0, 1, &headers("POST", "/dynamo.mcs.v1.Members/Write"));
    vec![
        ("silence", vec![], vec![]),
        ("half a preface", PREFACE[..10].to_vec(), vec![]),
        ("HTTP/2 without a request", http2(), vec![]),
        ("HTTP/2 headers that drip in", [http2(), head].concat(), frame(CONTINUATION, 0, 1, &[])),
        ("a head that drips in", b"GET / HTTP/1.1\r\nx: ".to_vec(), b"x".to_vec()),
    ]
}

/// On the REST port.
fn of_rest() -> Vec<Slow> {
    let begun = |head: &str, body: &str| [REGISTER, head, "\r\n\r\n", body].concat().into_bytes();
    vec![
        (
            "a second head that drips in",
            b"GET / HTTP/1.1\r\nhost: test\r\n\r\nGET / HTTP/1.1\r\nx: ".to_vec(),
            b"x".to_vec(),
        ),
        ("a body that drips in", begun("content-length: 100000", "{"), b" ".to_vec()),
        ("a body in chunks that drips in", begun("transfer-encoding: chunked", ""), b"1\r\n \r\n".to_vec()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn slow_clients_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Witness::new(&program).await;
    let ports = [("gRPC", program.grpc), ("REST", program.rest), ("admin", program.admin)];
    let of_all = ports.into_iter().map(|(port, address)| (port, address, of_all_ports()));
    let kinds: Vec<_> = of_all.chain([("REST", program.rest, of_rest())]).collect();
    let attack = async move {
        let kinds = kinds.into_iter().flat_map(|(port, address, slow)| {
            slow.into_iter().map(move |(name, begin, drip)| async move {
                let clients = (0..CLIENTS).map(|_| until_closed(address, &begin, &drip));
                (port, name, join_all(clients).await.into_iter().max().unwrap())
            })
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

/// How long a slow client is kept.
async fn until_closed(address: SocketAddr, begin: &[u8], drip: &[u8]) -> Duration {
    let opened = SystemClock.elapsed();
    let mut raw = Raw::connect(address).await;
    raw.send(begin).await;
    raw.drip(drip).await;
    SystemClock.elapsed().since(opened)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn http2_requests_whose_body_drips_in_fail_and_their_connection_goes_on() {
    let program = Program::start(&[]).await;
    let mut witness = Witness::new(&program).await;
    // A message of 25,600 bytes, and an object.
    let calls = [
        (program.grpc, headers("POST", "/dynamo.mcs.v1.Members/Write"), &b"\0\0\0\x64\0"[..]),
        (program.rest, headers("POST", "/v1/clustersets/prod/clusters/east/write"), b"{"),
    ];
    let attack = async move {
        let clients = (0..CLIENTS).flat_map(|_| &calls).map(|(address, head, begin)| async move {
            let opened = SystemClock.elapsed();
            let mut raw = Raw::http2(*address).await;
            raw.send(&[frame(HEADERS, END_HEADERS, 1, head), frame(DATA, 0, 1, begin)].concat()).await;
            raw.ended(1, &frame(DATA, 0, 1, b" ")).await;
            SystemClock.elapsed().since(opened)
        });
        join_all(clients).await.into_iter().max().unwrap()
    };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    seen.tell(&format!("HTTP/2 bodies that drip in, refused after at most {longest:.1?}"));
}

/// The clients keep their connections and read nothing; the files of the program tell when they are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn clients_that_take_no_answers_are_closed_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Witness::new(&program).await;
    let address = program.rest;
    let attack = async move {
        let began = SystemClock.elapsed();
        let asks = "GET /openapi.json HTTP/1.1\r\nhost: test\r\n\r\n".repeat(1_000);
        let clients = (0..CLIENTS).map(|_| async {
            let mut raw = Raw::connect(address).await;
            raw.send(asks.as_bytes()).await;
            raw
        });
        (began, join_all(clients).await)
    };
    let ((began, held), seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
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
    let mut witness = Witness::new(&program).await;
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
