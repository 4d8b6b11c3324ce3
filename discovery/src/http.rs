//! The HTTP API.
//!
//! | module | does |
//! |---|---|
//! | `routes` | every route, in one table |
//! | `body` | bodies of requests, bounded in bytes, in time and together |
//! | `caller` | who calls, and which pools that may register |
//! | `tag` | `ETag` and `If-None-Match` |
//! | `events` | the stream of one watcher |
//! | `answer` | answers and errors as they go out: JSON, but for metrics and streams |
//! | `openapi` | the document of all this, made from the table: for a test, see `OPENAPI` |
//!
//! Until the first view is there, everything but `/livez` is 503, so that a Pod stays unready and is not restarted.
//! An answer's list is encoded as it is sent. One function looks up the route, since a router of many layers
//! costs more than a registration does.

mod answer;
mod body;
mod caller;
mod events;
#[cfg(feature = "openapi")]
pub mod openapi;
mod routes;
mod tag;

use crate::driver::Driver;
use crate::metrics::Metrics;
use crate::registrations::Registrar;
use crate::sheet::Entry;
use crate::shown::Shown;
use crate::wire;
use answer::Error;
use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, Method, Version};
use axum::response::{IntoResponse, Response};
use caller::{may_ask, may_register};
use mcs_core::pools::Lease;
use mcs_core::time::Clock;
use mcs_runtime::admin;
use mcs_runtime::http::{Budget, Caller, Peer, Port, StreamPlace, Streams, allows};
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tls::Tls;
use prometheus::Registry;
use routes::{Call, Route};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tag::Tags;
use tower_http::catch_panic::CatchPanicLayer;

/// The document that `/openapi.json` answers with; `make openapi` makes it.
const OPENAPI: &str = include_str!("../../docs/openapi-discovery.json");

/// What the bodies of requests under way hold together, until they are answered: 64 of the largest that there may be by
/// default, or more registrations than relays send at once. None may be larger.
pub(crate) const HELD_BYTES: usize = 64 * 1024 * 1024;

/// What clients may do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of connections.
    pub listener: mcs_runtime::http::Limits,
    /// The most bytes of a body.
    pub body: usize,
    /// How long the body of a request may take.
    pub request: Duration,
    /// The most watches at once.
    pub streams: usize,
}

/// What the handlers work on. Cheap to clone.
#[derive(Clone)]
pub struct App {
    opened: Arc<OnceLock<Opened>>,
    ready: Ready,
    registry: Registry,
    metrics: Metrics,
    lease: Bytes,
    clock: Arc<dyn Clock>,
    drain: Drain,
    tags: Tags,
    bodies: body::Bounds,
    streams: Streams,
}

/// Whose lists are answered, and by whom pools are registered.
struct Opened {
    driver: Arc<Driver>,
    registrar: Registrar,
}

/// What [`App::new`] needs.
pub struct Parts {
    /// What is still waited for.
    pub ready: Ready,
    /// What `/metrics` tells.
    pub registry: Registry,
    /// What is counted here.
    pub metrics: Metrics,
    /// What a registration is answered with.
    pub lease: Lease,
    /// By which answers are measured.
    pub clock: Arc<dyn Clock>,
    /// Ends the watches.
    pub drain: Drain,
}

impl App {
    /// Handlers within `limits`, which say that the process lives, and have nothing to list before
    /// [`open`](Self::open). `process` is a number that no other process has, so that the tags of two never meet.
    pub fn new(parts: Parts, limits: Limits, process: u64) -> Self {
        let Parts { ready, registry, metrics, lease, clock, drain } = parts;
        let bodies =
            body::Bounds { most: limits.body, time: limits.request, together: Budget::new(HELD_BYTES) };
        Self {
            opened: Arc::default(),
            ready,
            registry,
            metrics,
            lease: wire::lease(lease).into(),
            clock,
            drain,
            tags: Tags::of_process(process),
            bodies,
            streams: Streams::new(limits.streams),
        }
    }

    /// From now on the lists of `driver` are answered, and `registrar` takes registrations; the first call counts.
    pub fn open(&self, driver: Arc<Driver>, registrar: Registrar) {
        let _ = self.opened.set(Opened { driver, registrar });
    }
}

/// The port of the service, with TLS where there is one.
pub fn port(app: App, limits: Limits, tls: Option<Tls>) -> Port {
    let asks = tls.as_ref().is_some_and(Tls::asks_for_certificates);
    let (most, clock) = (limits.listener.connections, Arc::clone(&app.clock));
    let connections = app.metrics.connections.clone();
    let full = move || async move { Error::Connections { most }.into_response() };
    Port::new("http", router(app), limits.listener, clock)
        .full(Router::new().fallback(full))
        .tls(tls)
        .identify(move |peer: &Peer| Caller::identify(peer, asks))
        .metrics(connections)
}

/// The routes of the service.
pub fn router(app: App) -> Router {
    Router::new()
        .fallback(serve)
        .layer(CatchPanicLayer::custom(|_| Error::Panicked.into_response()))
        .with_state(app)
}

/// Answers a request, and measures that.
async fn serve(State(app): State<App>, request: Request) -> Response {
    let start = app.clock.elapsed();
    let routes = routes::of_path(request.uri().path());
    let path = routes.first().map_or("other", |route| route.path);
    let method = routes::label(request.method());
    let (is_http1, has_body) = (request.version() <= Version::HTTP_11, !request.body().is_end_stream());
    let (mut response, is_read) = match app.answer(routes, request).await {
        Ok(answered) => answered,
        Err(error) => (error.into_response(), false),
    };
    if is_http1 && has_body && !is_read {
        // The rest of the body would be taken for the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let seconds = app.clock.elapsed().since(start).as_secs_f64();
    let status = response.status();
    app.metrics.request_seconds.with_label_values(&[method, path, status.as_str()]).observe(seconds);
    response
}

impl App {
    /// The answer of the route of the request's method, out of those of its path, and whether its body was read.
    async fn answer(&self, routes: &'static [Route], request: Request) -> Result<(Response, bool), Error> {
        let caller = Caller::of(request.extensions());
        let is_probe = routes.iter().any(|route| route.call.is_probe());
        may_ask(&caller, is_probe && matches!(*request.method(), Method::GET | Method::HEAD))?;
        if !is_probe {
            self.opened()?;
        }
        if routes.is_empty() {
            return Err(Error::NoRoute);
        }
        if *request.method() == Method::OPTIONS {
            return Ok((allows(&routes::allowed(routes)), false));
        }
        let is_head = *request.method() == Method::HEAD;
        let wanted = if is_head { &Method::GET } else { request.method() };
        let Some(route) = routes.iter().find(|route| route.method == *wanted) else {
            return Err(Error::NoMethod { allowed: routes::allowed(routes) });
        };
        if route.call == Call::Register {
            let body = self.bodies.read(request.into_body()).await?;
            let registered = self.register(&caller, &body.bytes).await;
            return Ok((registered.map_or_else(Error::into_response, answer::json), true));
        }
        let response = self.get(route.call, request.headers(), is_head)?;
        Ok((if is_head { answer::head(response) } else { response }, false))
    }

    /// What is served, once there is a view of it.
    fn opened(&self) -> Result<&Opened, Error> {
        self.opened.get().filter(|opened| opened.driver.has_view()).ok_or(Error::NoView)
    }

    async fn register(&self, caller: &Caller, body: &[u8]) -> Result<Bytes, Error> {
        let registration = wire::registration(body)?;
        may_register(caller, &registration.key)?;
        self.opened()?.registrar.register(registration).await?;
        Ok(self.lease.clone())
    }

    fn get(&self, call: Call, headers: &HeaderMap, is_head: bool) -> Result<Response, Error> {
        match call {
            Call::ListPools => self.list("pools", self.opened()?.driver.pools(), headers),
            Call::ListRouters => self.list("routers", self.opened()?.driver.routers(), headers),
            Call::WatchPools | Call::WatchRouters if is_head => Ok(answer::events(axum::body::Body::empty())),
            Call::WatchPools => self.watch("pools", self.opened()?.driver.pools()),
            Call::WatchRouters => self.watch("routers", self.opened()?.driver.routers()),
            Call::Ready => self.readiness(),
            Call::Live => Ok(answer::json(answer::OK)),
            Call::Metrics => Ok(admin::exposition(&self.registry)),
            Call::OpenApi => Ok(answer::json(OPENAPI)),
            Call::Register => Err(Error::NoRoute),
        }
    }

    fn list<E>(
        &self,
        name: &str,
        list: Option<&Arc<Shown<E>>>,
        headers: &HeaderMap,
    ) -> Result<Response, Error>
    where
        E: Entry + Send + Sync + 'static,
    {
        let list = list.ok_or(Error::NoView)?;
        let version = list.version();
        if self.tags.is_known(headers, version) {
            return Ok(answer::not_modified(self.tags.of(version)));
        }
        Ok(answer::list(name, list.list(), self.tags))
    }

    fn watch<E>(&self, name: &'static str, list: Option<&Arc<Shown<E>>>) -> Result<Response, Error>
    where
        E: Entry<Key: Send + Sync> + Send + Sync + 'static,
    {
        let place = self.place()?;
        let watcher = list.ok_or(Error::NoView)?.watch();
        let body = events::stream(watcher, self.metrics.watch(name), self.drain.clone());
        Ok(answer::events(place.until_end_of(body)))
    }

    /// A place for a watch; none while the process ends, since a watch would end at once.
    fn place(&self) -> Result<StreamPlace, Error> {
        if self.drain.is_draining() {
            return Err(Error::Draining);
        }
        Ok(self.streams.take()?)
    }

    fn readiness(&self) -> Result<Response, Error> {
        let missing = self.ready.missing();
        if missing.is_empty() { Ok(answer::json(answer::OK)) } else { Err(Error::NotReady { missing }) }
    }
}
