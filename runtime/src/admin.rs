//! The admin port: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes.
//!
//! `/healthz` says that the process answers, and nothing else: it must never take a program down for what another one
//! does. `/readyz` names what is missing. The port has no end of its own, so that it answers while the rest drains.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;

use crate::http::{self, Limits};
use crate::ready::Ready;

#[derive(Clone)]
struct Admin {
    metrics: Registry,
    ready: Ready,
}

/// Serves the admin port until it is dropped; see [`crate::tasks::Tasks::spawn_background`].
pub async fn serve(listener: TcpListener, metrics: Registry, ready: Ready) {
    let limits = Limits { connections: 64, ..Limits::default() };
    http::serve(listener, router(metrics, ready), limits, std::future::pending()).await;
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
    let missing = admin.ready.missing();
    if missing.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", ")))
}

async fn prometheus(State(admin): State<Admin>) -> Response {
    match TextEncoder::new().encode_to_string(&admin.metrics.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded; see the log\n").into_response()
        }
    }
}
