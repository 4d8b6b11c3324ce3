//! The HTTP API.
//!
//! Until the first view is there, everything but `/livez` is 503, so that a Pod stays unready and is not restarted.
//! A body above the limit is refused before it is read. An answer's list is sent from the driver's own text.

use crate::driver::{Driver, List};
use crate::metrics::Metrics;
use crate::registrations::{NotKept, Registrar};
use crate::wire;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::{Frame, SizeHint};
use mcs_core::pools::Lease;
use mcs_core::time::Clock;
use mcs_runtime::admin;
use mcs_runtime::ready::Ready;
use prometheus::Registry;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

/// What clients may do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of connections.
    pub listener: mcs_runtime::http::Limits,
    /// The most bytes of a body.
    pub body: usize,
    /// How long a request may take, its body included.
    pub request: Duration,
}

/// What the handlers work on. Cheap to clone.
#[derive(Clone)]
pub struct App {
    driver: Arc<Driver>,
    registrar: Registrar,
    ready: Ready,
    registry: Registry,
    metrics: Metrics,
    lease: Bytes,
    clock: Arc<dyn Clock>,
}

impl App {
    /// Handlers of the lists of `driver`, which register by `registrar`.
    pub fn new(
        driver: Arc<Driver>,
        registrar: Registrar,
        ready: Ready,
        registry: Registry,
        metrics: Metrics,
        lease: Lease,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { driver, registrar, ready, registry, metrics, lease: wire::lease(lease).into(), clock }
    }
}

/// The routes of the service.
pub fn router(app: App, limits: Limits) -> Router {
    Router::new()
        .route("/pools", get(list_pools).post(register))
        .route("/routers", get(list_routers))
        .route("/healthz", get(readiness))
        .route("/readyz", get(readiness))
        .route("/livez", get("ok\n"))
        .route("/metrics", get(prometheus))
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(limits.body))
        .layer(middleware::from_fn_with_state(app.clone(), gate))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, limits.request))
        .layer(CatchPanicLayer::new())
        .layer(middleware::from_fn_with_state(app.clone(), measure))
        .with_state(app)
}

async fn list_pools(State(app): State<App>) -> Response {
    list("pools", app.driver.pools())
}

async fn list_routers(State(app): State<App>) -> Response {
    list("routers", app.driver.routers())
}

async fn register(State(app): State<App>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refusal(rejection.status(), &rejection.body_text()),
    };
    match wire::registration(&body) {
        Ok(registration) => match app.registrar.register(registration).await {
            Ok(()) => json(StatusCode::OK, Body::from(app.lease)),
            Err(refused) => refusal(status_of(&refused), &refused.to_string()),
        },
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
    }
}

const fn status_of(refused: &NotKept) -> StatusCode {
    match refused {
        NotKept::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        NotKept::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

async fn readiness(State(app): State<App>) -> (StatusCode, String) {
    admin::readiness(&app.ready)
}

async fn prometheus(State(app): State<App>) -> Response {
    admin::exposition(&app.registry)
}

/// Lets only `/livez` and the probes' own answers through before the first view.
async fn gate(State(app): State<App>, request: Request, next: Next) -> Response {
    let answers_for_itself = matches!(request.uri().path(), "/livez" | "/healthz" | "/readyz");
    if answers_for_itself || app.driver.has_view() {
        return next.run(request).await;
    }
    no_view()
}

/// Measures each answer; paths that are not ours count as one.
async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let start = app.clock.elapsed();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let method = if request.method() == Method::POST { "POST" } else { "GET" };
    let response = next.run(request).await;
    let path = path.as_ref().map_or("other", MatchedPath::as_str);
    let seconds = app.clock.elapsed().since(start).as_secs_f64();
    let status = response.status();
    app.metrics.request_seconds.with_label_values(&[method, path, status.as_str()]).observe(seconds);
    response
}

fn list(name: &str, list: Option<List>) -> Response {
    let Some(List { entries, completeness }) = list else { return no_view() };
    let (begin, end) = wire::list_frame(name, completeness);
    let pieces: VecDeque<Bytes> =
        std::iter::once(begin.into()).chain(entries).chain(std::iter::once(end.into())).collect();
    let left = pieces.iter().map(|piece| piece.len() as u64).sum();
    json(StatusCode::OK, Body::new(Pieces { pieces, left }))
}

fn no_view() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "the first view is not there yet: /readyz says of what")
}

fn refusal(status: StatusCode, message: &str) -> Response {
    json(status, Body::from(wire::error(message)))
}

fn json(status: StatusCode, body: Body) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// A body of known length whose pieces are sent as they are.
struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
