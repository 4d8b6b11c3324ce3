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

#[tokio::test]
async fn a_client_that_takes_nothing_of_an_answer_is_cut_off() {
    // More than the buffers of both ends hold.
    let large = || async { "x".repeat(64 << 20) };
    let limits = Limits { connections: 1, write: Duration::from_millis(50), ..Limits::default() };
    let router = Router::new().route("/large", get(large)).route("/", get("hello"));
    let server = Server::start(router, limits).await;
    let mut stuck = server.connect().await;
    stuck.write_all(request("/large").as_bytes()).await.unwrap();
    let mut next = server.connect().await;
    next.write_all(request("/").as_bytes()).await.unwrap();
    assert_eq!(body(&read_all(next).await), "hello");
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_served() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Server::start(Router::new().route("/", get("hello")), limits).await;
    let first = server.connect().await;
    let mut second = server.connect().await;
    second.write_all(request("/").as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), second.peek(&mut byte)).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    drop(first);
    assert_eq!(body(&read_all(second).await), "hello");
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
}

impl Server {
    async fn start(router: Router, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
        let task = tokio::spawn(serve(listener, router, limits, shutdown.watch().draining_owned()));
        Self { address, shutdown, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn has_ended(self) {
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
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
