//! The Global Discovery Service. It answers which pools exist (`GET /pools`, read by routers) and which router
//! replicas a relay connects to (`GET /routers`); relays register their pools with `POST /pools`.
//!
//! What is decided is decided in [`mcs_core::pools`]; this crate feeds it and carries out what comes of it:
//!
//! ```text
//!  POST /pools ─► http ─► driver ◄── watch ◄── EndpointSlices of the API server
//!  GET  lists  ◄─ http ◄─ sheets ◄┘ (mcs_core::pools::directory: events in, changes of both lists out)
//! ```
//!
//! - [`args`]: flags in groups by the mode that uses them
//! - [`driver`]: the one lock around the directory, and its timers
//! - [`registrations`]: where registrations are kept
//! - [`shown`]: both lists as they are sent, and the last changes for those who watch them
//! - [`watch`]: EndpointSlices → facts
//! - [`http`], [`wire`]: the HTTP API and its JSON
//! - [`metrics`]: what an operator measures

pub mod args;
pub mod driver;
pub mod http;
pub mod metrics;
mod notices;
pub mod registrations;
mod sheet;
pub mod shown;
pub mod watch;
pub mod wire;

use mcs_core::pools::directory::{Directory, Source};
use mcs_core::pools::naming::{Naming, Services};
use mcs_core::pools::{Lease, RouterReplica};
use mcs_core::time::Clock;
use mcs_runtime::clock::sleep_until;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tasks::Tasks;
use mcs_runtime::tls::{self, Tls};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

use registrations::dynamodb::Table;
use registrations::{Registrar, Storage};

/// Tasks that are still there after the drain delay and the grace of requests are given up after this.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Where pools and router replicas come from.
#[derive(Clone)]
pub enum Discovery {
    /// Pools are those that registered; the router replicas are given.
    Registrations(Vec<RouterReplica>),
    /// Pools are the join of registrations with imported EndpointSlices; router replicas are imported.
    Slices {
        /// How the MCS implementation names its slices.
        naming: Naming,
        /// Which Services are looked for.
        services: Box<Services>,
        /// A client of the cluster's API server.
        client: kube::Client,
    },
}

/// What [`serve`] needs to know.
#[derive(Clone)]
pub struct Config {
    /// Where pools come from.
    pub discovery: Discovery,
    /// Where registrations are kept.
    pub storage: Storage,
    /// What a registration is granted.
    pub lease: Lease,
    /// The most pools that may be registered.
    pub most_pools: usize,
    /// What the listener allows.
    pub http: http::Limits,
    /// The certificates of the listener; none: it is plaintext.
    pub tls: Option<tls::Files>,
    /// How long requests are still answered after the drain began, while the Pod leaves the Service's endpoints.
    pub drain_delay: Duration,
}

/// Why the service ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A metric could not be made.
    #[error("cannot set up metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Bad),
    /// A task ended that has no end of its own.
    #[error(transparent)]
    Task(#[from] mcs_runtime::tasks::Ended),
}

/// Serves until the drain is over.
///
/// The listener answers at once; until the first view is there, all but `/livez` is 503.
///
/// # Errors
/// Why it could not start, or which task ended too early.
pub async fn serve(
    config: Config,
    clock: Arc<dyn Clock>,
    listener: TcpListener,
    shutdown: Drain,
) -> Result<(), Failed> {
    let Config { discovery, storage, lease, most_pools, http: limits, tls: files, drain_delay } = config;
    let registry = mcs_runtime::metrics::registry(metrics::PREFIX)?;
    let metrics = metrics::Metrics::register(&registry)?;
    let tls = match files {
        Some(files) => {
            // Probes of a node have no certificate.
            let files = tls::Files { lets_in_without: true, ..files };
            let counted = tls::Metrics::register(&registry, metrics::PREFIX, &[metrics::PORT])?;
            Some(Tls::load(files, clock.clone(), counted)?)
        }
        None => None,
    };

    let ready = Ready::new(shutdown.clone());
    let (source, watched) = match discovery {
        Discovery::Registrations(replicas) => (Source::Registrations(replicas), None),
        Discovery::Slices { naming, services, client } => {
            (Source::Slices(naming, *services), Some((naming, client)))
        }
    };
    let view = ready.wait_for("first view of EndpointSlices");
    let directory = Directory::new(storage.machine(lease, clock.elapsed()), source, clock.elapsed())
        .with_most_pools(most_pools);
    let driver = Arc::new(driver::Driver::new(directory, clock.clone(), view));
    let table = match storage {
        Storage::Memory => None,
        Storage::DynamoDb(config) => {
            Some(Arc::new(Table::new(config, lease, driver.clone(), clock.clone(), &registry)?))
        }
    };
    let registrar = table.clone().map_or_else(|| Registrar::Memory(driver.clone()), Registrar::DynamoDb);
    registry.register(Box::new(metrics::Sizes::new(driver.clone())?))?;

    let mut tasks = Tasks::new();
    tasks.spawn_background("timers", driver.clone().run_timers());
    if let Some(table) = table {
        let view = ready.wait_for("first view of the table of registrations");
        tasks.spawn_background("reads of the table", table.run(view));
    }
    if let Some((naming, client)) = watched {
        let watch = watch::SliceWatch::new(client, naming, driver.clone(), clock.clone(), metrics.clone());
        tasks.spawn_background("watch of EndpointSlices", watch.run());
    }
    if let Some(tls) = tls.clone() {
        tasks.spawn_background("certificates", tls.follow());
    }
    let parts = http::Parts {
        driver,
        registrar,
        ready,
        registry,
        metrics,
        lease,
        clock: clock.clone(),
        drain: shutdown.clone(),
    };
    let port = http::port(http::App::new(parts, limits, rand::random()), limits, tls);
    let draining = shutdown.draining_owned();
    let stop = async move {
        draining.await;
        let end = clock.elapsed() + drain_delay;
        sleep_until(&*clock, Some(end)).await;
    };
    tasks.spawn("http", port.serve(listener, stop));
    let grace = drain_delay + limits.listener.grace + LAST_TASKS;
    tasks.run(&shutdown, grace).await?;
    Ok(())
}
