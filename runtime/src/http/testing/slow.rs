//! Clients that hold what they are given for as long as they can, with a byte now and then.

use std::net::SocketAddr;
use std::time::Duration;

use mcs_core::time::Clock;
use tokio::task::JoinSet;

use super::{CONTINUATION, DATA, END_HEADERS, HEADERS, PREFACE, Raw, SETTINGS, frame, headers};
use crate::clock::SystemClock;

/// A client that is slow.
#[derive(Clone, Debug)]
pub struct Slow {
    /// What it does, for people.
    pub name: &'static str,
    /// What it sends at once.
    begin: Vec<u8>,
    /// What it sends again every second.
    drip: Vec<u8>,
}

impl Slow {
    const fn new(name: &'static str, begin: Vec<u8>, drip: Vec<u8>) -> Self {
        Self { name, begin, drip }
    }

    /// So many of them at once: how long the last one was kept.
    pub async fn closed_after(&self, address: SocketAddr, clients: usize) -> Duration {
        let connections = opened(address, clients).await.into_iter();
        longest(connections.map(|mut raw| {
            let Self { begin, drip, .. } = self.clone();
            async move {
                raw.send(&begin).await;
                raw.drip(&drip).await;
            }
        }))
        .await
    }
}

/// Those that bring no request; `path` is one of a POST.
pub fn without_a_request(path: &str) -> Vec<Slow> {
    let http2 = || [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let head = frame(HEADERS, 0, 1, &headers("POST", path));
    vec![
        Slow::new("silence", vec![], vec![]),
        Slow::new("half a preface", PREFACE[..10].to_vec(), vec![]),
        Slow::new("HTTP/2 without a request", http2(), vec![]),
        Slow::new("HTTP/2 headers that drip in", [http2(), head].concat(), frame(CONTINUATION, 0, 1, &[])),
        Slow::new("a head that drips in", b"GET / HTTP/1.1\r\nx: ".to_vec(), b"x".to_vec()),
    ]
}

/// Those that have a request served before, or bring half of its body; `post` are the method, path and headers of one
/// whose body is an object.
pub fn amid_requests(post: &str) -> Vec<Slow> {
    let begun = |framing: &str, body: &str| {
        let (line, headers) = post.split_once("\r\n").unwrap_or((post, ""));
        format!("{line} HTTP/1.1\r\nhost: test\r\n{headers}{framing}\r\n\r\n{body}").into_bytes()
    };
    vec![
        Slow::new(
            "a second head that drips in",
            b"GET / HTTP/1.1\r\nhost: test\r\n\r\nGET / HTTP/1.1\r\nx: ".to_vec(),
            b"x".to_vec(),
        ),
        Slow::new("a body that drips in", begun("content-length: 100000", "{"), b" ".to_vec()),
        Slow::new(
            "a body in chunks that drips in",
            begun("transfer-encoding: chunked", ""),
            b"1\r\n \r\n".to_vec(),
        ),
    ]
}

/// So many requests of HTTP/2 whose body begins with `begin` and drips in: how long the last one was waited for. Their
/// connections go on.
pub async fn refused_after(address: SocketAddr, path: &str, begin: &[u8], clients: usize) -> Duration {
    let sent = [frame(HEADERS, END_HEADERS, 1, &headers("POST", path)), frame(DATA, 0, 1, begin)].concat();
    longest(opened(address, clients).await.into_iter().map(|mut raw| {
        let sent = sent.clone();
        async move {
            raw.begin_http2().await;
            raw.send(&sent).await;
            raw.ended(1, &frame(DATA, 0, 1, b" ")).await;
        }
    }))
    .await
}

/// So many clients that ask for `path` a thousand times and read nothing. They keep their connections: the files of the
/// program tell when they are closed.
pub async fn taking_nothing(address: SocketAddr, path: &str, clients: usize) -> Vec<Raw> {
    let asks = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").repeat(1_000);
    let mut held = opened(address, clients).await;
    for raw in &mut held {
        raw.send(asks.as_bytes()).await;
    }
    held
}

/// Connections, opened one after another: of many at once the system drops those for which a port has no place in its
/// queue, and tries again a second later, which is not the program's time.
async fn opened(address: SocketAddr, count: usize) -> Vec<Raw> {
    let mut opened = Vec::new();
    for _ in 0..count {
        opened.push(Raw::connect(address).await);
    }
    opened
}

/// The longest that one of these takes, side by side.
async fn longest(clients: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>) -> Duration {
    let mut running = JoinSet::new();
    for client in clients {
        running.spawn(async move {
            let began = SystemClock.elapsed();
            client.await;
            SystemClock.elapsed().since(began)
        });
    }
    running.join_all().await.into_iter().max().unwrap_or_default()
}
