//! The registry of clustersets: holds the clusters of each, what they export, and merges the exports of one Service
//! into one import.
//!
//! | module | does |
//! |---|---|
//! | [`args`] | flags → [`Config`] |
//! | `caller` | who calls, and what that allows |
//! | `service` | use cases: checks what comes in, finds the clusterset, answers |
//! | `clusterset` | one clusterset: [`mcs_core::registry`] and [`mcs_core::log`], each behind a lock; a change is encoded once |
//! | [`store`] | where records are kept besides memory: one narrow trait, and the store that is memory |
//! | `keeper`, `unsaved` | what the store does not hold yet, and how it gets there |
//! | `replicas`, `news` | how several processes over one store act as one: what each reads of the others, and tells them |
//! | `verdicts`, `refusals` | what is logged of leases and members, and of what was refused |
//! | `shown` | what watchers see: the log, and the messages that tell it |
//! | `watch` | the stream of one watcher |
//! | `pages` | large answers: made away from the threads that serve controllers, few held at once |
//! | `lists` | pages of clusters, exports and imports |
//! | [`recorded`] | the same of what a store holds, without a registry |
//! | `calls` | the calls of the API: messages in, messages out |
//! | `ports` | what both transports have in common |
//! | `grpc`, `rest` | the same calls over two transports |
//! | `apis` | both without ports |
//! | `error` | what can go wrong, and how each transport says it |
//! | `limits` | the names of all limits |
//! | `metrics` | sizes and counts, collected when they are asked for |
//!
//! All decisions (leases, versions, wholeness, merge) are [`mcs_core`]'s. Records are held in memory: a restart loses
//! them, importers keep what they have, and controllers bring everything back within a lease.

mod apis;
pub mod args;
mod caller;
mod calls;
mod clusterset;
mod error;
mod grpc;
mod keeper;
mod limits;
mod lists;
mod metrics;
mod news;
mod pages;
mod ports;
pub mod recorded;
mod refusals;
mod replicas;
mod rest;
mod service;
mod shown;
pub mod store;
mod unsaved;
mod verdicts;
mod watch;

pub use apis::Apis;
pub use replicas::Replication;
#[cfg(feature = "openapi")]
pub use rest::openapi;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mcs_core::ids::Epoch;
use mcs_core::registry::Policy;
use mcs_core::time::Clock;
use mcs_runtime::admin;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tasks::Tasks;
use mcs_runtime::tls::{self, Tls};
use tokio::net::TcpListener;
use tracing::info;

use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::ports::Ports;
use crate::service::Service;
use crate::store::{Calls, Store};

/// How long requests under way may take after the end began. Watches end at once.
const DRAIN: Duration = Duration::from_secs(5);

/// The names of all metrics begin so.
const METRICS: &str = "mcs_registry_";

/// The ports whose connections are counted.
const PORTS: [&str; 2] = ["grpc", "rest"];

/// What an operator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Leases and limits of each clusterset.
    pub policy: Policy,
    /// How it keeps up with others over the same store, where that is shared.
    pub replication: Replication,
    /// Connections end after about this long.
    pub max_connection_age: Duration,
    /// The largest message that is read, in bytes.
    pub max_message_bytes: usize,
    /// The most connections of the gRPC and of the REST port, each.
    pub max_connections: usize,
    /// The most bytes that the bodies of requests under way hold together.
    pub max_request_bytes: usize,
    /// The most watches, syncs and other calls that stay open.
    pub max_streams: usize,
}

/// Where the registry is reached.
#[derive(Debug)]
pub struct Listeners {
    /// For controllers.
    pub grpc: TcpListener,
    /// For people and scripts.
    pub rest: TcpListener,
    /// For probes and Prometheus. Always plaintext.
    pub admin: TcpListener,
    /// The certificates of gRPC and REST; none: both are plaintext.
    pub tls: Option<tls::Files>,
}

/// What answers calls, whatever brings them.
struct Parts {
    registry: prometheus::Registry,
    metrics: Metrics,
    service: Arc<Service>,
}

impl Parts {
    /// A registry that knows nothing yet. Nothing judges its leases and nothing writes to the store, unless a call comes.
    fn new(
        config: &Config,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        store: Arc<dyn Store>,
        shutdown: Drain,
    ) -> anyhow::Result<Self> {
        let registry = mcs_runtime::metrics::registry(METRICS).context("cannot make metrics")?;
        let metrics = Metrics::register(&registry, Arc::clone(&clock)).context("cannot register metrics")?;
        let timing = config.policy.timing;
        let keeper = Keeper::new(Calls::new(store, timing, metrics.clone()), timing, Arc::clone(&clock));
        let (policy, replication) = (config.policy, config.replication.clone());
        let service = Service::new(policy, epoch, clock, replication, keeper, metrics.clone(), shutdown);
        let service = Arc::new(service);
        metrics::collect_sizes(&registry, Arc::clone(&service)).context("cannot register sizes")?;
        Ok(Self { registry, metrics, service })
    }
}

/// Serves until `shutdown` drains: no new connections then, watches and syncs end, other calls are finished.
///
/// # Errors
/// A listener or a task that failed.
pub async fn serve(
    config: Config,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    listeners: Listeners,
    shutdown: Drain,
) -> anyhow::Result<()> {
    let Listeners { grpc, rest, admin, tls: files } = listeners;
    let epoch = Epoch(rand::random());
    info!(
        version = mcs_runtime::version(), %epoch, lease = ?config.policy.timing.lease(),
        grpc = %grpc.local_addr()?, rest = %rest.local_addr()?, admin = %admin.local_addr()?,
        tls = files.is_some(), client_certificates = files.as_ref().is_some_and(|files| files.client_ca.is_some()),
        "registry starts"
    );

    let Parts { registry, metrics, service } =
        Parts::new(&config, epoch, Arc::clone(&clock), store, shutdown.clone())?;
    let tls = match files {
        Some(files) => {
            let counted =
                tls::Metrics::register(&registry, METRICS, &PORTS).context("cannot register certificates")?;
            Some(Tls::load(files, Arc::clone(&clock), counted)?)
        }
        None => None,
    };

    let ready = Ready::new(shutdown.clone());
    let (serving, stored) = (ready.wait_for("listeners"), ready.wait_for("the store"));
    let mut tasks = Tasks::new();
    tasks.spawn_background("admin", admin::serve(admin, registry, ready.clone(), Arc::clone(&clock)));
    tasks.spawn("judge", Arc::clone(&service).judge());
    tasks.spawn("store", Arc::clone(&service).keep(stored));
    tasks.spawn("replicas", Arc::clone(&service).follow());
    if let Some(tls) = tls.clone() {
        tasks.spawn_background("certificates", tls.follow());
    }
    let ports = Ports::new(config, clock, tls, metrics, shutdown.clone());
    tasks.spawn("grpc", grpc::serve(grpc, Arc::clone(&service), ports.clone(), ready));
    tasks.spawn("rest", rest::serve(rest, service, ports));
    serving.ready();

    // The listeners have their own grace, so that what is cut is named; this one is for what hangs.
    tasks.run(&shutdown, DRAIN * 2).await?;
    info!("registry ends");
    Ok(())
}

/// A registry that keeps to `policy`, and whose ports take next to nothing.
#[cfg(test)]
fn with_policy(policy: Policy) -> Config {
    Config {
        policy,
        replication: Replication::default(),
        max_connection_age: mcs_core::timing::DEFAULT_LEASE * 60,
        max_message_bytes: 1_000,
        max_connections: 1,
        max_request_bytes: 1_000,
        max_streams: 1,
    }
}

/// A registry without ports that takes one of everything, on a clock that stands still.
#[cfg(test)]
fn in_memory() -> (Parts, Ports) {
    use mcs_core::time::ManualClock;
    use mcs_core::timing::DEFAULT_LEASE;

    use crate::store::Memory;

    let one = Policy {
        max_clusters: 1,
        max_exports: 1,
        max_writes_per_second: 1,
        ..Policy::of_lease(DEFAULT_LEASE)
    };
    let config = with_policy(one);
    let (clock, store) = (Arc::new(ManualClock::default()), Arc::new(Memory::default()));
    let parts = Parts::new(&config, Epoch(1), clock.clone(), store, Drain::default()).unwrap();
    let ports = Ports::new(config, clock, None, parts.metrics.clone(), Drain::default());
    (parts, ports)
}
