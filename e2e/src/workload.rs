//! What runs in the Pods of `make e2e`, one program in one image: servers that answer with their name, clients that count
//! who answered and what failed, relays of pools, and the stand-in for DynamoDB.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Subcommand;
use global_discovery_client::{Capacity, Client, Location, PoolKey, PoolRegistration, Settings};
use http::Response;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use mcs_runtime::{clock::SystemClock, shutdown::Drain};
use tokio::{net::TcpListener, time::sleep};

mod send;
mod table;

pub use self::send::Totals;

/// The port that servers are reached at.
pub const SERVED: u16 = 8080;
/// The port at which a client tells its totals.
pub const TOLD: u16 = 8081;
/// The port of the stand-in for DynamoDB.
pub const TABLE: u16 = 8000;

/// A part to play, until SIGTERM.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Answers each request with a name, on after SIGTERM until no cluster sends here any more
    Serve {
        /// What it answers
        #[arg(long)]
        name: String,
        /// How long it answers after SIGTERM, in seconds
        #[arg(long, default_value_t = 8)]
        linger_secs: u64,
    },
    /// Sends requests, each over a new connection, and tells who answered and what failed
    Send {
        /// Host and port
        #[arg(long)]
        to: String,
        /// Requests a second
        #[arg(long, default_value_t = 20)]
        rate: u32,
        /// After how many milliseconds a request has failed
        #[arg(long, default_value_t = 2_000)]
        limit_ms: u64,
    },
    /// Keeps a pool registered, as its relays do
    Relay {
        /// The discovery service
        #[arg(long)]
        url: String,
        /// The pool, as `<cluster>/<namespace>/<dgd>`
        #[arg(long)]
        pool: String,
    },
    /// Stands in for DynamoDB, in memory and without a table
    Table {
        /// The region that it is
        #[arg(long)]
        region: String,
    },
}

impl Role {
    /// Plays it until the drain.
    ///
    /// # Errors
    /// A port is taken, or an argument makes no sense.
    pub async fn play(self, shutdown: &Drain) -> Result<()> {
        match self {
            Self::Serve { name, linger_secs } => {
                serve(name, Duration::from_secs(linger_secs), shutdown).await
            }
            Self::Send { to, rate, limit_ms } => {
                send::run(to, rate, Duration::from_millis(limit_ms), shutdown).await
            }
            Self::Relay { url, pool } => relay(&url, &pool, shutdown).await,
            Self::Table { region } => table::run(region, shutdown).await,
        }
    }
}

/// Endpoints that end are still sent to until all clusters have heard of it, so the port stays open for so long.
async fn serve(name: String, linger: Duration, shutdown: &Drain) -> Result<()> {
    let ending = async {
        shutdown.draining().await;
        sleep(linger).await;
    };
    tokio::select! {
        () = ending => Ok(()),
        failed = answer(SERVED, move || name.clone()) => failed,
    }
}

/// Answers each request on a port with a text, one request a connection.
async fn answer(port: u16, text: impl Fn() -> String + Send + Sync + 'static) -> Result<()> {
    let listener = listen(port).await?;
    let text = Arc::new(text);
    loop {
        let (stream, _) = listener.accept().await.context("taking a connection")?;
        let text = Arc::clone(&text);
        tokio::spawn(async move {
            let service = service_fn(|_| {
                let body = http_body_util::Full::new(Bytes::from(text()));
                std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(body)))
            });
            // A caller that goes is no failure of this side.
            let _ =
                http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn listen(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from(([0, 0, 0, 0], port));
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

async fn relay(url: &str, pool: &str, shutdown: &Drain) -> Result<()> {
    let parts: Vec<_> = pool.split('/').collect();
    let [cluster_id, namespace, dgd_name] = <[&str; 3]>::try_from(parts)
        .ok()
        .context("--pool is <cluster>/<namespace>/<dgd>")?
        .map(str::to_owned);
    let registration = PoolRegistration {
        key: PoolKey { cluster_id, namespace, dgd_name },
        location: Location::default(),
        model: "example/model".to_owned(),
        capabilities: vec!["chat".to_owned()],
        capacity: vec![Capacity { workers: 4 }],
        frontends: Vec::new(),
    };
    let client = Client::new(&Settings::of([url]), Arc::new(SystemClock))?;
    let _kept = client.keep_registered(registration);
    answer_until(SERVED, pool, shutdown).await
}

/// A relay has a port of its own, by which it is ready.
async fn answer_until(port: u16, text: &str, shutdown: &Drain) -> Result<()> {
    let text = text.to_owned();
    tokio::select! {
        () = shutdown.draining() => Ok(()),
        failed = answer(port, move || text.clone()) => failed,
    }
}
