//! Every route, in one table.

use axum::http::Method;
use mcs_runtime::http::methods;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Registers a pool.
    Register,
    /// Lists the pools.
    ListPools,
    /// Streams the pools.
    WatchPools,
    /// Lists the router replicas.
    ListRouters,
    /// Streams the router replicas.
    WatchRouters,
    /// Whether requests may come.
    Ready,
    /// Whether the process answers.
    Live,
    /// What Prometheus asks for.
    Metrics,
    /// The document of the API.
    OpenApi,
}

impl Call {
    /// Whether it tells of the process alone, as probes ask.
    pub(super) const fn is_probe(self) -> bool {
        matches!(self, Self::Ready | Self::Live)
    }
}

/// A route.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Its path. It has no parameters.
    pub(super) path: &'static str,
    /// Its method. HEAD goes where GET goes.
    pub(super) method: Method,
    /// What it does.
    pub(super) call: Call,
}

const fn get(path: &'static str, call: Call) -> Route {
    Route { path, method: Method::GET, call }
}

/// All routes; those of one path stand together.
pub(super) static ROUTES: [Route; 10] = [
    get("/pools", Call::ListPools),
    Route { path: "/pools", method: Method::POST, call: Call::Register },
    get("/pools/watch", Call::WatchPools),
    get("/routers", Call::ListRouters),
    get("/routers/watch", Call::WatchRouters),
    get("/healthz", Call::Ready),
    get("/readyz", Call::Ready),
    get("/livez", Call::Live),
    get("/metrics", Call::Metrics),
    get("/openapi.json", Call::OpenApi),
];

/// The routes of a path; none where there is no such path.
pub(super) fn of_path(path: &str) -> &'static [Route] {
    let Some(first) = ROUTES.iter().position(|route| route.path == path) else { return &[] };
    let count = ROUTES[first..].iter().take_while(|route| route.path == path).count();
    &ROUTES[first..first + count]
}

/// The methods that a path takes.
pub(super) fn allowed(routes: &[Route]) -> String {
    methods(routes.iter().map(|route| &route.method))
}

/// The label of a method in metrics, out of a closed set.
pub(super) fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        _ => "other",
    }
}
