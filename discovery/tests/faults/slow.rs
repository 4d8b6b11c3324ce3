//! O64: clients that hold what they are given for as long as they can, with a byte now and then: each connection, or each
//! request on one, ends within its limit, ten seconds and more.

use crate::program::{MIB, Program};
use crate::witness::Witness;
use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::http::testing::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, PREFACE, Raw, SETTINGS, frame, headers,
};
use std::net::SocketAddr;
use std::time::Duration;

/// So many clients do the same at once.
const CLIENTS: usize = 100;

/// The most that the program's memory may grow.
const GROWTH: usize = 64 * MIB;

/// What is sent at once, and what again every second.
fn kinds() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let http2 = || [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let head = frame(HEADERS, 0, 1, &headers("POST", "/pools"));
    let begun = |head: &str, body: &str| {
        format!("POST /pools HTTP/1.1\r\nhost: test\r\n{head}\r\n\r\n{body}").into_bytes()
    };
    vec![
        ("silence", vec![], vec![]),
        ("half a preface", PREFACE[..10].to_vec(), vec![]),
        ("HTTP/2 without a request", http2(), vec![]),
        ("HTTP/2 headers that drip in", [http2(), head].concat(), frame(CONTINUATION, 0, 1, &[])),
        ("a head that drips in", b"GET / HTTP/1.1\r\nx: ".to_vec(), b"x".to_vec()),
        (
            "a second head that drips in",
            b"GET /pools HTTP/1.1\r\nhost: test\r\n\r\nGET / HTTP/1.1\r\nx: ".to_vec(),
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
    let address = program.address;
    let attack = async move {
        let kinds = kinds().into_iter().map(|(name, begin, drip)| async move {
            let clients = (0..CLIENTS).map(|_| until_closed(address, &begin, &drip));
            (name, join_all(clients).await.into_iter().max().unwrap())
        });
        join_all(kinds).await
    };
    let (longest, seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    for (name, after) in longest {
        eprintln!("{name}: the last of {CLIENTS} was closed after {after:.1?}");
    }
    program.gives_back(seen.files).await;
    seen.tell("slow clients");
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
    let (address, head) = (program.address, headers("POST", "/pools"));
    let attack = async move {
        let clients = (0..CLIENTS).map(|_| async {
            let opened = SystemClock.elapsed();
            let mut raw = Raw::http2(address).await;
            raw.send(&[frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, 0, 1, b"{")].concat()).await;
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
    let address = program.address;
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
