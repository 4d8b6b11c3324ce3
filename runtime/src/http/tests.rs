use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::clock::SystemClock;
use crate::shutdown::Shutdown;

/// Longer than any wait of these tests on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn handlers_know_the_address_of_the_client() {
    let router = Router::new()
        .route("/", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }));
    let server = Server::start(router, Limits::default()).await;
    let mut client = server.connect().await;
    let own = client.local_addr().unwrap().to_string();
    client.write_all(request("/").as_bytes()).await.unwrap();
    assert_eq!(body(&read_all(client).await), own);
}

#[tokio::test]
async fn a_connection_without_a_request_in_time_is_closed() {
    let limits = Limits { header_read: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(Router::new(), limits).await;
    let openings = ["", "G", "PRI * HTTP/2", "GET / HTTP/1.1\r\nhost: x\r\n"];
    for opening in openings {
        let mut client = server.connect().await;
        client.write_all(opening.as_bytes()).await.unwrap();
        let answer = read_all(client).await;
        assert!(!answer.contains("200 OK"), "after {opening:?}: {answer}");
    }
}

/// Nor is there a second limit for what follows the first byte: who came later and says nothing outlasts it otherwise.
#[tokio::test]
async fn a_first_byte_that_comes_late_gives_no_more_time_for_the_request() {
    let limits = Limits { header_read: Duration::from_secs(4), ..Limits::default() };
    let server = Server::start(Router::new(), limits).await;
    let mut late = server.connect().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let silent = server.connect().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    late.write_all(b"G").await.unwrap();
    tokio::select! {
        biased;
        _ = read_all(late) => {}
        _ = read_all(silent) => panic!("it is kept for another limit"),
    }
}

/// A probe, which has no certificate where others must show one.
#[tokio::test]
async fn a_connection_of_nobody_ends_with_its_first_answer() {
    let router = Router::new().route("/", get("hello"));
    let kept = request("/").replace("close", "keep-alive");
    let server =
        Server::with(router.clone(), |port| port.identify(|_| Caller::Nobody), Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(kept.as_bytes()).await.unwrap();
    assert!(read_all(client).await.ends_with("hello"));

    let server = Server::with(router, |port| port.identify(|_| Caller::Anyone), Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(kept.as_bytes()).await.unwrap();
    client.write_all(request("/").as_bytes()).await.unwrap();
    assert_eq!(read_all(client).await.matches("hello").count(), 2);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_an_answer_is_cut_off() {
    // More than the buffers of both ends hold.
    let large = || async { "x".repeat(64 << 20) };
    let limits = Limits { connections: 1, write: Duration::from_millis(50), ..Limits::default() };
    let router = Router::new().route("/large", get(large)).route("/", get("hello"));
    let server = Server::start(router, limits).await;
    let mut stuck = server.connect().await;
    stuck.write_all(request("/large").as_bytes()).await.unwrap();
    server.until(|server| server.get("/"), "hello").await;
    server.closed("stalled", 1).await;
}

#[tokio::test]
async fn a_connection_above_the_limit_is_told_so_and_the_next_one_is_served_when_there_is_room() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Server::start(Router::new().route("/", get("hello")), limits).await;
    let first = server.connect().await;
    let told = server.get("/").await;
    assert_eq!(told, "1 connections are open, the most that this port takes\n");
    let mut again = server.connect().await;
    again.write_all(request("/").replace("close", "keep-alive").as_bytes()).await.unwrap();
    assert!(read_all(again).await.starts_with("HTTP/1.1 503"), "it is served once, and closed");
    server.closed("full", 2).await;
    drop(first);
    server.until(|server| server.get("/"), "hello").await;
}

/// As many as the port takes say half of what they want, for longer than the test lasts.
#[tokio::test]
async fn a_port_that_makes_room_serves_who_asks_in_the_place_of_who_has_asked_nothing_for_longest() {
    let limits = Limits { connections: 2, header_read: PATIENCE, ..Limits::default() };
    let router = Router::new().route("/", get("hello"));
    let server = Server::with(router, Port::makes_room, limits).await;
    let mut asking = server.connect().await;
    asking.write_all(request("/").replace("close", "keep-alive").as_bytes()).await.unwrap();
    let mut head = [0; 15];
    asking.read_exact(&mut head).await.unwrap();
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert_eq!(server.get("/").await, "hello");
    assert!(read_all(asking).await.ends_with("hello"), "it asked before the slow one came");
    server.closed("full", 1).await;
    let _other = server.connect().await;
    assert_eq!(server.get("/").await, "hello");
    assert_eq!(read_all(slow).await, "");
}

#[tokio::test]
async fn a_port_answers_in_its_own_manner_that_it_is_full() {
    let limits = Limits { connections: 0, ..Limits::default() };
    let server = Server::of(|port| port.full(Router::new().fallback(|| async { "full" })), limits).await;
    assert_eq!(server.get("/").await, "full");
}

/// Those who are told are few: the others wait in the system's queue, and are served when there is room.
#[tokio::test]
async fn who_does_not_even_fit_among_those_who_are_told_waits() {
    let limits = Limits { connections: 1, header_read: PATIENCE, ..Limits::default() };
    let server = Server::start(Router::new().route("/", get("hello")), limits).await;
    let mut held = Vec::new();
    for _ in 0..=TOLD {
        held.push(server.connect().await);
    }
    server.closed("full", TOLD).await;
    let mut last = server.connect().await;
    last.write_all(request("/").as_bytes()).await.unwrap();
    drop(held);
    assert_eq!(body(&read_all(last).await), "hello");
    server.closed("full", TOLD).await;
}

#[tokio::test]
async fn a_connection_ends_when_it_is_old() {
    let soon = Duration::from_millis(50);
    let limits = Limits { age: Some(soon), age_grace: soon, header_read: PATIENCE, ..Limits::default() };
    let server = Server::start(Router::new().route("/", get("hello")), limits).await;
    let mut idle = server.connect().await;
    idle.write_all(request("/").replace("close", "keep-alive").as_bytes()).await.unwrap();
    assert_eq!(body(&read_all(idle).await), "hello");

    let mut http2 = server.connect_http2().await;
    let frames = frames_to_the_end(&mut http2).await;
    assert!(frames.contains(&GOAWAY), "{frames:?}");
}

#[tokio::test]
async fn a_request_that_does_not_end_with_its_old_connection_is_cut() {
    let limits =
        Limits { age: Some(Duration::ZERO), age_grace: Duration::from_millis(50), ..Limits::default() };
    let stuck = || async { std::future::pending::<()>().await };
    let server = Server::start(Router::new().route("/", get(stuck)), limits).await;
    assert_eq!(server.get("/").await, "");
    server.closed("age", 1).await;
}

#[tokio::test]
async fn a_flood_of_frames_that_ask_for_nothing_ends_the_connection() {
    let floods = [
        ("ping", frame(PING, 0, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("priority", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(0xfe, 0, 0, &[])),
    ];
    let server = Server::start(Router::new().route("/", get("hello")), Limits::default()).await;
    for (count, (name, frame)) in floods.into_iter().enumerate() {
        let client = server.connect_http2().await;
        let flooded = tokio::time::timeout(PATIENCE, flood(client, &frame.repeat(100))).await;
        flooded.unwrap_or_else(|_| panic!("{name} goes on"));
        server.closed("flood", count + 1).await;
        assert_eq!(server.get("/").await, "hello");
    }
}

/// h2's own defences, which must not be lost with an update of it.
#[tokio::test]
async fn rapid_resets_and_headers_without_end_end_the_connection() {
    let request = [0x82, 0x84, 0x86, 0x41, 1, b'x']; // GET / http, authority x
    let server = Server::start(Router::new().route("/", get("hello")), Limits::default()).await;
    let resets: Vec<u8> = (0..1_000_u32)
        .map(|count| 2 * count + 1)
        .flat_map(|stream| {
            [
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &request),
                frame(RST_STREAM, 0, stream, &[0; 4]),
            ]
            .concat()
        })
        .collect();
    let endless = frame(HEADERS, END_STREAM, 1, &request);
    let field = [&[0x00, 1, b'a', 0x7f, 0x81, 0x0f], [b'b'; 256].as_slice()].concat();
    let endless = [endless, frame(CONTINUATION, 0, 1, &field).repeat(1_000)].concat();
    for (name, bytes) in [("resets", resets), ("headers", endless)] {
        let client = server.connect_http2().await;
        let frames = tokio::time::timeout(PATIENCE, flood(client, &bytes)).await;
        assert!(frames.unwrap_or_default().contains(&GOAWAY), "{name} go on");
    }
}

#[tokio::test]
async fn a_tls_client_is_told_that_the_port_is_plaintext() {
    let server = Server::start(Router::new(), Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(&[TLS_HANDSHAKE, 3, 1, 0, 5, 1, 0, 0, 1, 3]).await.unwrap();
    assert_eq!(body(&read_all(client).await), "this port is plaintext: use http, not https\n");
    server.closed("protocol", 1).await;
}

#[tokio::test]
async fn a_port_for_http2_tells_a_client_of_http1_so() {
    let server = Server::of(|port| port.protocol(Protocol::Http2), Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(request("/").as_bytes()).await.unwrap();
    let answer = read_all(client).await;
    assert!(answer.starts_with("HTTP/1.1 505"), "{answer}");
    assert_eq!(body(&answer), "this port speaks HTTP/2 only, as gRPC does\n");
}

/// O64: a body that stops.
#[tokio::test]
async fn a_request_whose_body_does_not_come_fails_and_one_that_is_whole_does_not() {
    let rule = Pace { window: Duration::from_millis(50), bytes: 16 };
    let read = |body: axum::body::Bytes| async move { format!("{} bytes", body.len()) };
    let router = Router::new()
        .route("/", axum::routing::put(read))
        .layer(axum::middleware::from_fn_with_state(rule, pace));
    let server = Server::start(router, Limits::default()).await;
    let put = "PUT / HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 4\r\n\r\nhal";
    let ask = async |put: String| {
        let mut client = server.connect().await;
        client.write_all(put.as_bytes()).await.unwrap();
        body(&read_all(client).await).to_owned()
    };
    let answer = ask(put.to_owned()).await;
    assert!(answer.contains("the body of the request came too slowly: 3 bytes in 50ms"), "{answer}");
    assert_eq!(ask(format!("{put}f")).await, "4 bytes");
}

#[tokio::test]
async fn every_request_carries_what_the_program_made_of_the_client() {
    use axum::extract::Extension;
    let show = |Extension(family): Extension<&'static str>| async move { family };
    let identify = |peer: &Peer| if peer.address.is_ipv4() { "v4" } else { "v6" };
    let server = Server::of(|port| port.identify(identify), Limits::default()).await;
    assert_eq!(server.get("/").await, "");
    let router = Router::new().route("/", get(show));
    let server = Server::with(router, |port| port.identify(identify), Limits::default()).await;
    assert_eq!(server.get("/").await, "v4");
}

#[tokio::test]
async fn the_end_finishes_requests_closes_idle_connections_and_takes_no_new_ones() {
    let (entered, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (enter, until) = (entered.clone(), finish.clone());
    let slow = move || async move {
        enter.notify_one();
        until.notified().await;
        "finished"
    };
    let server = Server::start(
        Router::new().route("/slow", get(slow)),
        Limits { grace: PATIENCE, ..Limits::default() },
    )
    .await;
    let idle = server.connect().await;
    let mut busy = server.connect().await;
    busy.write_all(request("/slow").as_bytes()).await.unwrap();
    entered.notified().await;

    server.shutdown.drain();
    assert_eq!(read_all(idle).await, "");
    assert!(TcpStream::connect(server.address).await.is_err(), "a new connection was taken");
    finish.notify_one();
    assert_eq!(body(&read_all(busy).await), "finished");
    server.has_ended().await;
}

#[tokio::test]
async fn a_request_that_outlives_the_grace_is_cut() {
    let entered = Arc::new(Notify::new());
    let enter = entered.clone();
    let stuck = move || async move {
        enter.notify_one();
        std::future::pending::<()>().await;
    };
    let limits = Limits { grace: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(Router::new().route("/", get(stuck)), limits).await;
    let mut client = server.connect().await;
    client.write_all(request("/").as_bytes()).await.unwrap();
    entered.notified().await;
    server.shutdown.drain();
    assert_eq!(read_all(client).await, "");
    server.has_ended().await;
}

struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
    counted: prometheus::Registry,
}

impl Server {
    async fn start(router: Router, limits: Limits) -> Self {
        Self::with(router, |port| port, limits).await
    }

    async fn of(change: impl FnOnce(Port) -> Port, limits: Limits) -> Self {
        Self::with(Router::new(), change, limits).await
    }

    async fn with(router: Router, change: impl FnOnce(Port) -> Port, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
        let counted = prometheus::Registry::new();
        let metrics = Metrics::register(&counted, "test_", &["test"]).unwrap();
        let port = change(Port::new("test", router, limits, Arc::new(SystemClock)).metrics(metrics));
        let task = tokio::spawn(port.serve(listener, shutdown.watch().draining_owned()));
        Self { address, shutdown, task, counted }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn connect_http2(&self) -> TcpStream {
        let mut client = self.connect().await;
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        client
    }

    /// The body of an answer.
    async fn get(&self, path: &str) -> String {
        let mut client = self.connect().await;
        // A server that is full may have closed it already.
        let _ = client.write_all(request(path).as_bytes()).await;
        body(&read_all(client).await).to_owned()
    }

    /// Asks until the answer is this.
    async fn until<'a, F: Future<Output = String>>(&'a self, ask: impl Fn(&'a Self) -> F, wanted: &str) {
        let asking = async { while ask(self).await != wanted {} };
        tokio::time::timeout(PATIENCE, asking).await.unwrap();
    }

    /// Waits until so many connections were closed for this.
    async fn closed(&self, cause: &str, count: usize) {
        let line = format!("test_connections_closed_total{{cause=\"{cause}\",port=\"test\"}} {count}");
        let counted = || prometheus::TextEncoder::new().encode_to_string(&self.counted.gather()).unwrap();
        let counting = async {
            while !counted().lines().any(|found| found == line) {
                tokio::task::yield_now().await;
            }
        };
        let limited = tokio::time::timeout(PATIENCE, counting).await;
        limited.unwrap_or_else(|_| panic!("{line} is missing in\n{}", counted()));
    }

    async fn has_ended(self) {
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

const TLS_HANDSHAKE: u8 = 0x16;

const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Sends `bytes` again and again until the server closes the connection, and says what kinds of frames it sent.
async fn flood(client: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let (mut answers, mut asks) = client.into_split();
    let sending = async { while asks.write_all(bytes).await.is_ok() {} };
    let (frames, ()) = tokio::join!(frames_to_the_end(&mut answers), sending);
    frames
}

/// The kinds of the frames that come until the server closes the connection.
async fn frames_to_the_end(client: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 9];
        if client.read_exact(&mut head).await.is_err() {
            return kinds;
        }
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if client.read_exact(&mut payload).await.is_err() {
            return kinds;
        }
        kinds.push(head[3]);
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
}

/// What came until the server closed the connection; a reset counts as a close.
async fn read_all(mut client: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}
