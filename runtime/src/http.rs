//! A port of a program: HTTP/1.1 and HTTP/2, plaintext or TLS, with limits and a graceful end. REST, gRPC and the
//! admin port are all served here, so that each defence exists once.
//!
//! | against | is done | in |
//! |---|---|---|
//! | more connections than there is room for | a few at a time are told so, the others wait in the system's queue; or, where the port makes room, the one that asked nothing for longest is closed | this module, `turns` |
//! | a handshake of TLS that takes too long, or too many of them | closed after [`Limits::handshake`] | [`crate::tls`] |
//! | a client that sends nothing, or its first request slowly | closed after [`Limits::header_read`] | `connection` |
//! | a client that takes nothing of what it is sent | closed after [`Limits::write`] | `write_limit` |
//! | a peer that is gone | HTTP/2 probes, [`Limits::keep_alive`]; HTTP/1.1: no next request within [`Limits::header_read`] | `h2`, hyper |
//! | a body that drips in | the request fails; see [`pace`] | `pace` |
//! | answers that stay open without end | bounded together; see [`Streams`] | `streams` |
//! | bodies that hold memory while the rest of them does not come | bounded together; see [`hold`] | `held` |
//! | streams, headers and CONTINUATION without end, rapid resets | bounded by h2, set in one place | `h2` |
//! | floods of PING, SETTINGS, RST_STREAM and other frames that cost nothing | closed | `flood` |
//! | load that stays on one replica | connections end after about [`Limits::age`] | `connection` |
//! | the wrong protocol on a port | told in plain text, and closed | `connection` |
//!
//! At the end no connection is accepted, requests under way are finished within the grace, and the rest is cut. Streams
//! that have no end of their own must end themselves on the drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Extensions, StatusCode};
use mcs_core::rate::Rate;
use mcs_core::time::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use self::answers::{RETRY_SECONDS, allow, allows, methods};
pub use self::caller::Caller;
use self::connection::{Client, Connection, wrong_version};
pub use self::held::{Budget, Crowded, Held, hold};
pub use self::metrics::Metrics;
pub use self::pace::{Pace, TooSlow, pace};
pub use self::streams::{NoPlace, StreamPlace, Streams};
use self::turns::{Turn, Turns};
pub use self::whole::{Cut, NotWhole, whole};
use crate::logs::Sparse;
use crate::tls::{Certificate, Tls};

mod answers;
mod caller;
mod connection;
mod flood;
mod h2;
mod held;
mod metrics;
mod pace;
mod streams;
#[cfg(feature = "test-util")]
pub mod testing;
mod turns;
mod whole;
mod write_limit;

/// Rests this long when the system has no more file descriptors, so that others can give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// This many connections above the limit are told of it at once. Few, since each is served beyond what the limit
/// allows; enough for a client that asks again every second to be told, not to hang.
const TOLD: usize = 64;

/// That a limit is reached is logged at most this often.
const LOGGED: Rate = Rate::once_in(Duration::from_secs(60));

/// What a client is given to bring what it begins: a handshake, the head of a request, a piece of a body. One that
/// brings it byte by byte is gone within ten seconds, with what closing a connection and waking a task take.
pub const BRINGS_WITHIN: Duration = Duration::from_secs(9);

/// What a port allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// How long a client may take for the handshake of TLS.
    pub handshake: Duration,
    /// How long a client may take for its first request, and for the head of each.
    pub header_read: Duration,
    /// How long a client may take nothing of what it is sent.
    pub write: Duration,
    /// How often an idle HTTP/2 connection is probed.
    pub keep_alive: Duration,
    /// How long the answer to a probe may take.
    pub keep_alive_answer: Duration,
    /// A connection is asked to end after this, a tenth more or less, so that those that began together do not end
    /// together; none: it may stay.
    pub age: Option<Duration>,
    /// What does not end by itself then is cut after this.
    pub age_grace: Duration,
    /// How long requests under way may take after the end began.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: BRINGS_WITHIN,
            header_read: BRINGS_WITHIN,
            write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(20),
            keep_alive_answer: Duration::from_secs(20),
            age: None,
            age_grace: Duration::from_secs(10),
            grace: Duration::from_secs(20),
        }
    }
}

/// The versions of HTTP that a port speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    #[default]
    Any,
    /// HTTP/2; a request of HTTP/1.1 is told so.
    Http2,
}

/// What every request of a connection carries, made once from what is known of the client.
type Identify = Arc<dyn Fn(&Peer) -> Extensions + Send + Sync>;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What it showed; none when it was not asked for a certificate, or need not show one.
    pub certificate: Option<Certificate>,
}

/// A port: what is served, to whom, and within which limits.
#[derive(Clone)]
pub struct Port {
    name: &'static str,
    router: Router,
    full: Router,
    wrong: Router,
    limits: Limits,
    makes_room: bool,
    protocol: Protocol,
    tls: Option<Tls>,
    identify: Identify,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
}

impl Port {
    /// A plaintext port that serves `router`. Handlers find the client's address as
    /// [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo). `name` is for logs and metrics; by `clock`
    /// lines of the log are limited.
    pub fn new(name: &'static str, router: Router, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let most = limits.connections;
        let full = move || async move {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{most} connections are open, the most that this port takes\n"),
            )
        };
        Self {
            name,
            router,
            full: Router::new().fallback(full),
            wrong: Router::new().fallback(wrong_version),
            limits,
            makes_room: false,
            protocol: Protocol::default(),
            tls: None,
            identify: Arc::new(|_| Extensions::new()),
            metrics: Metrics::default(),
            clock,
        }
    }

    /// Answers connections above the limit with `full`, in the manner of the port.
    #[must_use]
    pub fn full(self, full: Router) -> Self {
        Self { full, ..self }
    }

    /// Serves connections above the limit in the place of those that have asked nothing for longest: for callers that
    /// ask something short and new each time, and must be answered whoever else holds the port.
    #[must_use]
    pub fn makes_room(self) -> Self {
        Self { makes_room: true, ..self }
    }

    /// Speaks these versions of HTTP only.
    #[must_use]
    pub fn protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// Speaks TLS, when there is one.
    #[must_use]
    pub fn tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Gives every request what `identify` makes of the client, once a connection.
    #[must_use]
    pub fn identify<T>(self, identify: impl Fn(&Peer) -> T + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
    {
        let identify = move |peer: &Peer| {
            let mut extensions = Extensions::new();
            extensions.insert(identify(peer));
            extensions
        };
        Self { identify: Arc::new(identify), ..self }
    }

    /// Counts in `metrics`.
    #[must_use]
    pub fn metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Serves until `stop` is over and the connections are done. Dropping the future cuts all connections.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let room = Room::new(self.limits.connections);
        let port = Arc::new(self);
        let (connections, draining) = (TaskTracker::new(), CancellationToken::new());
        let cut = CancellationToken::new();
        let _cut_on_drop = cut.clone().drop_guard();

        let mut stop = std::pin::pin!(stop);
        loop {
            let (stream, address, place) = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = port.accept(&listener, &room) => accepted,
            };
            let connection = Connection {
                client: Client { port: Arc::clone(&port), address },
                only_told: place.only_told,
                turn: port.makes_room.then(|| room.turns.join()),
                draining: draining.clone(),
            };
            let cut = cut.clone();
            connections.spawn(async move {
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = connection.serve(stream) => {}
                }
                drop(place);
            });
        }

        drop(listener);
        draining.cancel();
        connections.close();
        let grace = port.limits.grace;
        if tokio::time::timeout(grace, connections.wait()).await.is_err() {
            warn!(
                port = port.name,
                connections = connections.len(),
                ?grace,
                "connections cut: they did not end in time"
            );
        }
    }

    /// The next connection, once there is room for it.
    async fn accept(&self, listener: &TcpListener, room: &Room) -> (TcpStream, SocketAddr, Place) {
        loop {
            let place = room.place().await;
            match listener.accept().await {
                Ok((stream, peer)) => return (stream, peer, self.placed(room, place).await),
                Err(error) if is_of_the_client(&error) => {
                    debug!(port = self.name, %error, "connection lost before it was accepted");
                }
                Err(error) => {
                    warn!(port = self.name, %error, "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn placed(&self, room: &Room, place: Place) -> Place {
        let place = room.better(place);
        if !place.only_told {
            return place;
        }
        let what = if self.makes_room { "the one that asked nothing for longest goes" } else { "refused" };
        if let Some(unsaid) = room.logged.due(self.clock.elapsed()) {
            let most = self.limits.connections;
            warn!(
                port = self.name,
                most, unsaid, what, "no room for a connection: as many are open as may be"
            );
        }
        if self.makes_room { room.make().await.unwrap_or(place) } else { place }
    }
}

/// Where connections go.
struct Room {
    served: Arc<Semaphore>,
    told: Arc<Semaphore>,
    turns: Turns,
    logged: Sparse,
}

/// The place of one connection, given back when it is dropped.
struct Place {
    /// There is no room for it, of which it is told.
    only_told: bool,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    fn new(connections: usize) -> Self {
        Self {
            served: Arc::new(Semaphore::new(connections)),
            told: Arc::new(Semaphore::new(TOLD)),
            turns: Turns::default(),
            logged: Sparse::new(LOGGED),
        }
    }

    async fn place(&self) -> Place {
        tokio::select! {
            biased;
            Ok(_permit) = Arc::clone(&self.served).acquire_owned() => Place { only_told: false, _permit },
            Ok(_permit) = Arc::clone(&self.told).acquire_owned() => Place { only_told: true, _permit },
            else => std::future::pending().await,
        }
    }

    /// A connection came to `place`; others may have ended since that was found.
    fn better(&self, place: Place) -> Place {
        match Arc::clone(&self.served).try_acquire_owned() {
            Ok(_permit) if place.only_told => Place { only_told: false, _permit },
            _ => place,
        }
    }

    /// The place of the connection that has asked nothing for longest.
    async fn make(&self) -> Option<Place> {
        self.turns.displace();
        let _permit = Arc::clone(&self.served).acquire_owned().await.ok()?;
        Some(Place { only_told: false, _permit })
    }
}

fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests;
