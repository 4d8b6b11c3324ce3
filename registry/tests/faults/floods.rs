//! Clients that send without end what costs them nothing: each connection is closed, nothing is held of it, and others
//! are served.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;

use crate::program::{MIB, Program};
use crate::witness::Witness;
use mcs_runtime::http::testing::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, Raw, SETTINGS,
    WINDOW_UPDATE, frame, headers,
};

/// The most that the program's memory may grow under a flood.
const GROWTH: usize = 32 * MIB;

/// What is sent again and again, by the number of the time.
type Next = fn(u32) -> Vec<u8>;

/// A call whose body may follow.
fn call(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &headers("POST", "/dynamo.mcs.v1.Members/Write"))
}

const FLOODS: [(&str, Next); 11] = [
    ("rapid reset", |n| {
        [call(2 * n + 1, END_HEADERS | END_STREAM), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat()
    }),
    ("CONTINUATION, empty", |n| if n == 0 { call(1, 0) } else { frame(CONTINUATION, 0, 1, &[]) }),
    // A header of 16,256 bytes that goes into no table, nearly as much as a frame takes.
    ("CONTINUATION, full", |n| {
        if n == 0 {
            return call(1, 0);
        }
        frame(CONTINUATION, 0, 1, &[b"\x00\x01x\x7f\x81\x7e".as_slice(), &[b'x'; 16_256]].concat())
    }),
    ("headers of streams that stay open", |n| call(2 * n + 1, END_HEADERS)),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
    ("SETTINGS that change a table", |n| {
        frame(SETTINGS, 0, 0, &[&[0, 1][..], &(n % 4_096).to_be_bytes()].concat())
    }),
    ("PING", |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes())),
    ("DATA, empty", |n| if n == 0 { call(1, END_HEADERS) } else { frame(DATA, 0, 1, &[]) }),
    ("WINDOW_UPDATE", |n| {
        if n == 0 { call(1, END_HEADERS) } else { frame(WINDOW_UPDATE, 0, n % 2, &[0, 0, 0, 1]) }
    }),
    ("PRIORITY", |n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 1])),
    ("a type that does not exist", |_| frame(0xfa, 0, 0, &[])),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_closes_its_connection_on_both_ports_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Witness::new(&program).await;
    let most = program.memory() + GROWTH;
    let ports = [program.grpc, program.rest];
    let attack = async move {
        for (_, next) in FLOODS {
            for port in ports {
                for reads in [true, false] {
                    Raw::http2(port).await.flood(reads, next).await;
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
    let mut witness = Witness::new(&program).await;
    for (name, next) in FLOODS {
        for (port, address) in [("gRPC", program.grpc), ("REST", program.rest)] {
            let (longest, seen) =
                witness.sees(&program, program.memory() + GROWTH, attack(address, next)).await;
            program.gives_back(seen.files).await;
            seen.tell(&format!("{name} on {port}, closed after at most {longest:.1?}"));
        }
    }
}

/// Floods from many clients for a while: the longest time until a connection was closed.
async fn attack(address: SocketAddr, next: Next) -> Duration {
    let attacker = move || async move {
        let began = SystemClock.elapsed();
        let mut longest = Duration::ZERO;
        while SystemClock.elapsed().since(began) < Duration::from_secs(3) {
            let opened = SystemClock.elapsed();
            Raw::http2(address).await.flood(true, next).await;
            longest = longest.max(SystemClock.elapsed().since(opened));
        }
        longest
    };
    let attackers = (0..20).map(|_| tokio::spawn(attacker()));
    join_all(attackers).await.into_iter().map(Result::unwrap).max().unwrap()
}
