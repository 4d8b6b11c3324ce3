//! What the gRPC and the REST port have in common: limits, certificates, and who calls.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use mcs_core::time::Clock;
use mcs_core::timing::MAX_PROGRESS;
use mcs_runtime::http::{self, Budget, Port, Streams, hold};
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tls::Tls;

use crate::caller::Caller;
use crate::error::Error;
use crate::limits::Limit;
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::{Config, DRAIN};

/// What both ports need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ports {
    /// Limits.
    pub(crate) config: Config,
    /// What lines of the log are limited by.
    pub(crate) clock: Arc<dyn Clock>,
    /// The certificates; none: plaintext.
    pub(crate) tls: Option<Tls>,
    /// The watches and syncs that are open, of both.
    pub(crate) streams: Streams,
    /// What the bodies of requests hold.
    pub(crate) held: Budget,
    /// The large answers of both.
    pub(crate) pages: Pages,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Ends with the drain.
    pub(crate) shutdown: Drain,
}

impl Ports {
    /// No port and no call yet; so much may come as `config` says.
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        tls: Option<Tls>,
        metrics: Metrics,
        shutdown: Drain,
    ) -> Self {
        let streams = Streams::new(config.max_streams);
        let held = Budget::new(config.max_request_bytes);
        Self { config, clock, tls, streams, held, pages: Pages::default(), metrics, shutdown }
    }

    /// A port that serves `routes`; connections above the limit are answered by `full`.
    pub(crate) fn port(&self, name: &'static str, routes: Router, full: Router) -> Port {
        let asks = self.tls.as_ref().is_some_and(Tls::asks_for_certificates);
        Port::new(name, routes, self.limits(), Arc::clone(&self.clock))
            .full(full)
            .tls(self.tls.clone())
            .identify(move |peer| Caller::identify(peer, asks))
            .metrics(self.metrics.connections().clone())
    }

    /// `routes`, with a limit of what the bodies of their requests hold.
    pub(crate) fn bounded(&self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self.held.clone(), hold))
    }

    /// What a connection above the limit is told.
    pub(crate) fn full(&self) -> Error {
        let most = self.config.max_connections;
        self.metrics.failed(Error::Full { what: "connections", limit: Limit::Connections, most })
    }

    fn limits(&self) -> http::Limits {
        let timing = self.config.policy.timing;
        http::Limits {
            connections: self.config.max_connections,
            keep_alive: timing.keep_alive_of_registry(),
            keep_alive_answer: timing.keep_alive_answer().min(MAX_PROGRESS),
            age: Some(self.config.max_connection_age),
            // A watch that does not end by itself is cut then; its client goes on from its revision.
            age_grace: timing.heartbeat(),
            grace: DRAIN,
            ..http::Limits::default()
        }
    }
}
