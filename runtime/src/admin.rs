//! The admin port: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes.
//!
//! `/healthz` says that the process answers, and nothing else: it must never take a program down for what another one
//! does. `/readyz` names what is missing. The port has no end of its own, so that it answers while the rest drains, and
//! who holds it without asking goes first: a probe that finds no room would have the program restarted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use mcs_core::time::Clock;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;

use crate::http::{Limits, Port};
use crate::ready::Ready;

/// How long a client of this port may take for the head of a request: probes and scrapes send it at once.
const HEADER_READ: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Admin {
    metrics: Registry,
    ready: Ready,
}

/// Serves the admin port until it is dropped; see [`crate::tasks::Tasks::spawn_background`].
pub async fn serve(listener: TcpListener, metrics: Registry, ready: Ready, clock: Arc<dyn Clock>) {
    let limits = Limits { header_read: HEADER_READ, ..Limits::default() };
    let port = Port::new("admin", router(metrics, ready), limits, clock).makes_room();
    port.serve(listener, std::future::pending()).await;
}

/// The routes of the admin port, for a program that serves them elsewhere.
pub fn router(metrics: Registry, ready: Ready) -> Router {
    Router::new()
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(prometheus))
        .with_state(Admin { metrics, ready })
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    readiness(&admin.ready)
}

async fn prometheus(State(admin): State<Admin>) -> Response {
    exposition(&admin.metrics)
}

/// The answer to a readiness probe: 200, or 503 with the names of what is missing.
pub fn readiness(ready: &Ready) -> (StatusCode, String) {
    let missing = ready.missing();
    if missing.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", ")))
}

/// The answer to a scrape: the metrics as text, or 500 with the reason in the log.
pub fn exposition(metrics: &Registry) -> Response {
    match TextEncoder::new().encode_to_string(&metrics.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded; see the log\n").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::clock::SystemClock;
    use crate::shutdown::Shutdown;

    #[tokio::test]
    async fn the_probes_tell_what_is_missing_and_the_metrics_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
        let ready = Ready::new(shutdown.watch());
        let view = ready.wait_for("first view");
        tokio::spawn(serve(
            listener,
            crate::metrics::registry("sample_").unwrap(),
            ready,
            Arc::new(SystemClock),
        ));

        let mut seen = vec![ask(address, "/healthz").await, ask(address, "/readyz").await];
        view.ready();
        seen.push(ask(address, "/readyz").await);
        shutdown.drain();
        seen.push(ask(address, "/readyz").await);
        let expected = [
            ("200 OK", "ok\n"),
            ("503 Service Unavailable", "not ready: first view\n"),
            ("200 OK", "ok\n"),
            ("503 Service Unavailable", "not ready: shutting down\n"),
        ];
        assert_eq!(seen, expected.map(|(status, body)| (status.to_owned(), body.to_owned())));

        let (status, metrics) = ask(address, "/metrics").await;
        assert_eq!(status, "200 OK");
        assert!(metrics.contains("sample_build_info"), "{metrics}");
    }

    /// Status and body of one request.
    async fn ask(address: SocketAddr, path: &str) -> (String, String) {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap().trim_start_matches("HTTP/1.1 ");
        (status.to_owned(), body.to_owned())
    }
}
