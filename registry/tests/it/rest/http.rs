//! A client of the REST port that knows nothing of it but HTTP, and checks what it is told against the document.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::schema;
use crate::started::{LIMIT, Started};

/// Where what belongs to cluster `east` is.
pub(crate) const EAST: &str = "/v1/clustersets/prod/clusters/east";

/// A GET.
pub(crate) async fn get(registry: &Started, path: &str) -> (u16, Value) {
    call(registry, "GET", path, Value::Null).await
}

/// A request with one JSON value as its body, or with none, and the one JSON value of its answer.
pub(crate) async fn call(registry: &Started, method: &str, path: &str, body: Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = send(registry, request(method, path, text)).await;
    (answer.status, answer.json())
}

/// A POST of JSON values, one a line, and the lines of its answer.
pub(crate) async fn post_lines(registry: &Started, path: &str, lines: &[Value]) -> (u16, Vec<Value>) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answer = send(registry, request("POST", path, text)).await;
    (answer.status, answer.lines())
}

/// A request.
pub(crate) fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "registry.test")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request over a connection of its own, and reads the whole answer.
pub(crate) async fn send(registry: &Started, request: Request<Body>) -> Answer {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let exchange = async {
        let response = open(registry.rest, request).await;
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    };
    let answer = tokio::time::timeout(LIMIT, exchange).await.unwrap();
    if method != "HEAD" && method != "OPTIONS" {
        schema::check(&method, &path, &answer);
    }
    answer
}

/// Sends a request over an HTTP/1.1 connection of its own.
pub(crate) async fn open(address: SocketAddr, request: Request<Body>) -> Response<Incoming> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

/// Sends a request over an HTTP/2 connection of its own.
pub(crate) async fn open_http2(address: SocketAddr, request: Request<Body>) -> Response<Incoming> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    parts.uri = format!("http://{address}{}", parts.uri).parse().unwrap();
    parts.headers.remove("host");
    sender.send_request(Request::from_parts(parts, body)).await.unwrap()
}

/// Reads an answer line by line, as it comes.
pub(crate) struct Lines {
    body: Incoming,
    text: Vec<u8>,
}

impl Lines {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Self { body: response.into_body(), text: Vec::new() }
    }

    /// The next line; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(LIMIT, self.read()).await.unwrap()
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let data: Bytes = self.body.frame().await?.unwrap().into_data().unwrap();
            self.text.extend_from_slice(&data);
        }
    }
}
