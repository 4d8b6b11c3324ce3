//! Frames of HTTP/2 that cost a client nothing, without end: the connection is closed, and nobody else notices.

use crate::program::{MIB, Program};
use crate::witness::Witness;
use mcs_runtime::http::testing::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE,
    frame, headers,
};

/// The most that the program's memory may grow.
const GROWTH: usize = 32 * MIB;

/// What is sent again and again, by the number of the time.
type Next = fn(u32) -> Vec<u8>;

/// A registration whose body may follow.
fn call(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &headers("POST", "/pools"))
}

const FLOODS: [(&str, Next); 8] = [
    ("rapid reset", |n| {
        [call(2 * n + 1, END_HEADERS | END_STREAM), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat()
    }),
    ("rapid reset of watches", |n| {
        let watch = frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &headers("GET", "/pools/watch"));
        [watch, frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat()
    }),
    ("CONTINUATION, empty", |n| if n == 0 { call(1, 0) } else { frame(CONTINUATION, 0, 1, &[]) }),
    ("headers of streams that stay open", |n| call(2 * n + 1, END_HEADERS)),
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
    ("PING", |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes())),
    ("DATA, empty", |n| if n == 0 { call(1, END_HEADERS) } else { frame(DATA, 0, 1, &[]) }),
    ("WINDOW_UPDATE", |n| {
        if n == 0 { call(1, END_HEADERS) } else { frame(WINDOW_UPDATE, 0, n % 2, &[0, 0, 0, 1]) }
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_closes_its_connection_and_nobody_else_notices() {
    let program = Program::start(&[]).await;
    let mut witness = Witness::new(&program).await;
    let (most, address) = (program.memory() + GROWTH, program.address);
    let attack = async move {
        for (_, next) in FLOODS {
            for reads in [true, false] {
                Raw::http2(address).await.flood(reads, next).await;
            }
        }
    };
    let ((), seen) = witness.sees(&program, most, attack).await;
    program.gives_back(seen.files).await;
    seen.tell("floods of eight kinds");
}
