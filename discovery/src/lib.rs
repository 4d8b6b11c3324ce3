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

use futures::FutureExt;
use mcs_core::pools::directory::{Directory, Source};
use mcs_core::pools::naming::{Naming, Services};
use mcs_core::pools::{Lease, RouterReplica};
use mcs_core::time::Clock;
use mcs_runtime::clock::sleep_until;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tasks::Tasks;
use mcs_runtime::tls::{self, Tls};
use std::error::Error;
use std::pin::pin;
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

/// What is served. It may have to be looked for.
#[derive(Clone)]
pub struct Sources {
    /// Where pools come from.
    pub discovery: Discovery,
    /// Where registrations are kept.
    pub storage: Storage,
}

/// What [`serve`] needs to know.
#[derive(Clone)]
pub struct Config {
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
    /// What is to be served could not be found.
    #[error(transparent)]
    Sources(Box<dyn Error + Send + Sync>),
    /// A task ended that has no end of its own.
    #[error(transparent)]
    Task(#[from] mcs_runtime::tasks::Ended),
}

/// Serves what `sources` finds until the drain is over.
///
/// The listener answers at once; until the first view is there, all but `/livez` is 503. A region or an API server that is
/// looked for may take seconds.
///
/// # Errors
/// Why it could not start, or which task ended too early.
pub async fn serve<E: Into<Box<dyn Error + Send + Sync>>>(
    config: Config,
    sources: impl Future<Output = Result<Sources, E>>,
    clock: Arc<dyn Clock>,
    listener: TcpListener,
    shutdown: Drain,
) -> Result<(), Failed> {
    let Config { lease, http: limits, drain_delay, .. } = config;
    let registry = mcs_runtime::metrics::registry(metrics::PREFIX)?;
    let metrics = metrics::Metrics::register(&registry)?;
    let tls = match &config.tls {
        Some(files) => {
            // Probes of a node have no certificate.
            let files = tls::Files { lets_in_without: true, ..files.clone() };
            let counted = tls::Metrics::register(&registry, metrics::PREFIX, &[metrics::PORT])?;
            Some(Tls::load(files, clock.clone(), counted)?)
        }
        None => None,
    };

    let ready = Ready::new(shutdown.clone());
    let parts = http::Parts {
        ready: ready.clone(),
        registry: registry.clone(),
        metrics: metrics.clone(),
        lease,
        clock: clock.clone(),
        drain: shutdown.clone(),
    };
    let app = http::App::new(parts, limits, rand::random());
    let port = http::port(app.clone(), limits, tls.clone());
    let mut tasks = Tasks::new();
    if let Some(tls) = tls {
        tasks.spawn_background("certificates", tls.follow());
    }
    let (draining, ticking) = (shutdown.draining_owned(), clock.clone());
    let stop = async move {
        draining.await;
        let end = ticking.elapsed() + drain_delay;
        sleep_until(&*ticking, Some(end)).await;
    };
    let http = port.serve(listener, stop);

    let view = ready.wait_for("what lists are made of");
    let mut sources = pin!(sources);
    let begin = |found: Result<Sources, E>, tasks: &mut Tasks| {
        let sources = found.map_err(|error| Failed::Sources(error.into()))?;
        let (driver, registrar) = begin(sources, &config, clock, &registry, metrics, &ready, tasks)?;
        app.open(driver, registrar);
        view.ready();
        Ok::<(), Failed>(())
    };
    // Where nothing is to be looked for, the first request is served.
    if let Some(found) = sources.as_mut().now_or_never() {
        begin(found, &mut tasks)?;
        tasks.spawn("http", http);
    } else {
        tasks.spawn("http", http);
        tokio::select! {
            found = sources => begin(found, &mut tasks)?,
            () = shutdown.draining() => {}
        }
    }
    let grace = drain_delay + limits.listener.grace + LAST_TASKS;
    tasks.run(&shutdown, grace).await?;
    Ok(())
}

/// Begins to look at what is served: whose lists there are, and by whom pools are registered.
fn begin(
    sources: Sources,
    config: &Config,
    clock: Arc<dyn Clock>,
    registry: &prometheus::Registry,
    metrics: metrics::Metrics,
    ready: &Ready,
    tasks: &mut Tasks,
) -> Result<(Arc<driver::Driver>, Registrar), Failed> {
    let Sources { discovery, storage } = sources;
    let Config { lease, most_pools, .. } = *config;
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
            Some(Arc::new(Table::new(config, lease, driver.clone(), clock.clone(), registry)?))
        }
    };
    let registrar = table.clone().map_or_else(|| Registrar::Memory(driver.clone()), Registrar::DynamoDb);
    registry.register(Box::new(metrics::Sizes::new(driver.clone())?))?;

    tasks.spawn_background("timers", driver.clone().run_timers());
    if let Some(table) = table {
        let view = ready.wait_for("first view of the table of registrations");
        tasks.spawn_background("reads of the table", table.run(view));
    }
    if let Some((naming, client)) = watched {
        let watch = watch::SliceWatch::new(client, naming, driver.clone(), clock, metrics);
        tasks.spawn_background("watch of EndpointSlices", watch.run());
    }
    Ok((driver, registrar))
}
