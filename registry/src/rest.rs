//! The calls as REST: proto3 JSON of the same messages under resource paths, with errors as `google.rpc.Status` and the
//! HTTP code that matches.
//!
//! | module | does |
//! |---|---|
//! | `routes` | every route, in one table |
//! | `request` | path, query and body → a message |
//! | `body` | limits of bodies; objects one after another |
//! | `json` | proto3 JSON as it comes in |
//! | `serve` | what each route does |
//! | `answer` | messages and errors as they go out |
//! | `unread` | says which answers end their connection |
//! | `openapi` | the document of all this, made from the table and the proto files: for a test, see [`OPENAPI`] |
//!
//! A stream of messages is a stream of JSON values, one a line. Nothing is decided here: messages go to [`crate::calls`],
//! as gRPC's do (docs/decisions/0012).

mod answer;
mod body;
mod json;
#[cfg(feature = "openapi")]
pub mod openapi;
mod request;
#[cfg_attr(not(feature = "openapi"), expect(dead_code, reason = "some of it is said by the document alone"))]
mod routes;
mod serve;
mod unread;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::any;
use mcs_runtime::http::{Pace, Streams, allows, methods, pace};
use tokio::net::TcpListener;
use tonic::Code;
use tower_http::catch_panic::CatchPanicLayer;

use self::routes::{Call, ROUTES, Route};
use crate::error::Error;
use crate::metrics::{Metrics, Request as Measured};
use crate::pages::Pages;
use crate::ports::Ports;
use crate::service::Service;

/// The document that `/openapi.json` answers with; `make openapi` makes it.
const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// A page has at most about this many bytes as protobuf: what a person asks for comes whole, and nothing grows without
/// bound.
const PAGE_BYTES: usize = 32 * 1024 * 1024;

#[derive(Clone)]
struct Rest {
    service: Arc<Service>,
    metrics: Metrics,
    streams: Streams,
    /// The largest message that is read, in bytes.
    most: usize,
    /// The most bytes of a page, about, as protobuf.
    page: usize,
    pages: Pages,
}

/// Serves the port until the drain is over.
pub(crate) async fn serve(listener: TcpListener, service: Arc<Service>, ports: Ports) {
    let told = ports.clone();
    let full = move || async move { answer::refused(&told.full()).1 };
    let stop = ports.shutdown.draining_owned();
    ports.port("rest", router(service, &ports), Router::new().fallback(full)).serve(listener, stop).await;
}

/// The routes of the REST port, bounded.
pub(crate) fn router(service: Arc<Service>, ports: &Ports) -> Router {
    ports.bounded(routes(Rest::new(service, ports)))
}

fn routes(rest: Rest) -> Router {
    let mut router = Router::new();
    for (path, routes) in by_path() {
        let serve = move |State(rest): State<Rest>, request| async move { rest.serve(routes, request).await };
        let mut served = any(serve);
        // The messages of a sync have their own time.
        if !routes.iter().any(|route| route.call == Call::Sync) {
            served = served.layer(from_fn_with_state(Pace::default(), pace));
        }
        router = router.route(path, served);
    }
    router
        .fallback(async || answer::refused(&Error::NoRoute).1)
        .layer(CatchPanicLayer::custom(|_| answer::panicked()))
        .layer(from_fn(unread::announce))
        .with_state(rest)
}

/// The paths, each with its routes.
fn by_path() -> impl Iterator<Item = (&'static str, &'static [Route])> {
    let same = |one: &Route, next: &Route| one.path == next.path;
    ROUTES.chunk_by(same).filter_map(|routes| Some((routes.first()?.path, routes)))
}

/// The methods that a path takes.
fn allowed(routes: &[Route]) -> String {
    methods(routes.iter().map(|route| &route.method))
}

impl Rest {
    fn new(service: Arc<Service>, ports: &Ports) -> Self {
        Self {
            service,
            metrics: ports.metrics.clone(),
            streams: ports.streams.clone(),
            most: ports.config.max_message_bytes,
            page: PAGE_BYTES,
            pages: ports.pages.clone(),
        }
    }

    /// Answers a request by the route of its method, out of those of its path. HEAD is a GET whose body is not sent.
    async fn serve(&self, routes: &'static [Route], request: Request) -> Response {
        if *request.method() == Method::OPTIONS {
            return allows(&allowed(routes));
        }
        let wanted = match *request.method() {
            Method::HEAD => &Method::GET,
            ref method => method,
        };
        let Some(route) = routes.iter().find(|route| route.method == *wanted) else {
            return answer::refused(&Error::NoMethod { allowed: allowed(routes) }).1;
        };
        let mut measured = Some(self.metrics.begin("rest", route.call.name()));
        let (code, response) = match self.hold(route, request, &mut measured).await {
            Ok(response) => (Code::Ok, response),
            Err(error) => answer::refused(&self.service.failed(error)),
        };
        if let Some(measured) = measured {
            measured.ended(code);
        }
        response
    }

    /// Serves a route; what goes on after its answer has begun holds a place among the streams.
    async fn hold(
        &self,
        route: &'static Route,
        request: Request,
        measured: &mut Option<Measured>,
    ) -> Result<Response, Error> {
        if !matches!(route.call, Call::Watch | Call::Sync) {
            return self.answer(route, request, measured).await;
        }
        let place = self.streams.take()?;
        Ok(self.answer(route, request, measured).await?.map(|body| place.until_end_of(body)))
    }
}

#[cfg(test)]
mod tests;
