//! An HTTP listener for the programs: HTTP/1.1 and HTTP/2, with limits and a graceful end.
//!
//! Guarantees: at most so many connections at once (further ones wait in the system's queue); a connection that does
//! not bring its first request in time is closed, whatever it sends slowly, and so is one that is slow with the head
//! of a later request, or that takes nothing of an answer; at the end no connection is accepted, requests under way are finished within the grace, and
//! the rest is cut. Streams that have no end of their own must end themselves on the drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use self::write_limit::WriteLimit;

mod write_limit;

/// Rests this long when the system has no more file descriptors, so that others can give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a listener allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// How long a client may take for the head of a request.
    pub header_read: Duration,
    /// How long a client may take nothing of what it is sent.
    pub write: Duration,
    /// How often an idle HTTP/2 connection is probed, and how long the answer may take.
    pub keep_alive: Duration,
    /// How long requests under way may take after the end began.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            header_read: Duration::from_secs(10),
            write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(20),
            grace: Duration::from_secs(20),
        }
    }
}

/// Serves `router` until `stop` is over and the connections are done. Handlers find the address of the client as
/// [`ConnectInfo<SocketAddr>`]. Dropping the future cuts all connections.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let (connections, draining) = (TaskTracker::new(), CancellationToken::new());
    let cut = CancellationToken::new();
    let _cut_on_drop = cut.clone().drop_guard();

    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, peer, permit) = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        let connection = Connection { router: router.clone(), peer, limits, draining: draining.clone() };
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                () = connection.serve(stream) => {}
            }
            drop(permit);
        });
    }

    drop(listener);
    draining.cancel();
    connections.close();
    if tokio::time::timeout(limits.grace, connections.wait()).await.is_err() {
        warn!(connections = connections.len(), grace = ?limits.grace, "connections cut: they did not end in time");
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, permit),
            Err(error) if is_of_the_client(&error) => {
                debug!(%error, "connection lost before it was accepted")
            }
            Err(error) => {
                warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Connection {
    router: Router,
    peer: SocketAddr,
    limits: Limits,
    draining: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let Self { router, peer, limits, draining } = self;
        // Small answers must not wait for the client's acknowledgement; without it they are only later.
        let _ = stream.set_nodelay(true);
        let begun = CancellationToken::new();
        let inner = TowerToHyperService::new(router);
        let service = service_fn(|mut request: Request<Incoming>| {
            begun.cancel();
            request.extensions_mut().insert(ConnectInfo(peer));
            inner.call(request)
        });

        let builder = builder(limits);
        let stream = WriteLimit::new(stream, limits.write);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        // The reader that tells HTTP/1 from HTTP/2 has no limit of its own.
        let mut first_request = std::pin::pin!(tokio::time::timeout(limits.header_read, begun.cancelled()));
        let (mut waiting, mut drained) = (true, false);
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        debug!(%peer, error, "connection ended");
                    }
                    return;
                }
                begun = first_request.as_mut(), if waiting => match begun {
                    Ok(()) => waiting = false,
                    Err(_) => {
                        debug!(%peer, limit = ?limits.header_read, "connection closed: no request in time");
                        return;
                    }
                },
                () = draining.cancelled(), if !drained => {
                    drained = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.header_read);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.keep_alive);
    builder
}

#[cfg(test)]
mod tests;
