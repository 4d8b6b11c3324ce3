//! One connection, from its first byte to its end.

use std::fmt::Display;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use rand::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::flood::FloodGuard;
use super::metrics::Cause;
use super::write_limit::WriteLimit;
use super::{Caller, Peer, Port, Protocol, Turn, h2};
use crate::tls::handshake::{Failed, Passed, Reason};

/// How long a client that is only told something is given to say what it wants, and to take the answer.
const TELLING: Duration = Duration::from_secs(3);

const NO_REQUEST: &str = "it brought no request in time";
const FLOOD: &str = "too many of its frames ask for nothing";
const STALLED: &str = "it takes nothing of what it is sent";

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that was accepted.
pub(super) struct Connection {
    pub(super) client: Client,
    /// There is no room to serve it.
    pub(super) only_told: bool,
    /// When it goes to make room; none on a port that makes none.
    pub(super) turn: Option<Turn>,
    pub(super) draining: CancellationToken,
}

/// Who is served, and by which port.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) port: Arc<Port>,
    pub(super) address: SocketAddr,
}

impl Client {
    /// Notes that its connection is closed by the server.
    fn closed(&self, cause: Cause, why: &'static str) {
        debug!(port = self.port.name, peer = %self.address, why, "connection closed");
        self.port.metrics.closed(self.port.name, cause);
    }
}

/// What serves a connection on which the client has begun.
type Served<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Connection {
    /// Serves it until it ends, or goes to make room.
    pub(super) async fn serve(self, stream: TcpStream) {
        let Client { port, .. } = &self.client;
        let _open = port.metrics.opened(port.name);
        let displaced = async {
            match &self.turn {
                Some(turn) => turn.displaced().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.serve_to_its_end(stream) => {}
            () = displaced => self.client.closed(Cause::Full, "others ask, and it did not for longest"),
        }
    }

    async fn serve_to_its_end(&self, stream: TcpStream) {
        // What opens a connection is not kept while it is idle: there may be thousands.
        if let Some(served) = Box::pin(self.open(stream)).await {
            served.await;
        }
    }

    /// Waits for the client to begin, as the port expects it.
    async fn open(&self, stream: TcpStream) -> Option<Served<'_>> {
        let Client { port, address } = &self.client;
        if self.only_told {
            self.client.closed(Cause::Full, "there is no room for it");
        }
        // Small answers must not wait for the client's acknowledgement; without it they are only later.
        let _ = stream.set_nodelay(true);
        let limits = port.limits;
        // The first byte is part of what it begins, and gives no more time for that.
        let begun_by = from_now(match &port.tls {
            _ if self.only_told => TELLING,
            Some(_) => limits.handshake,
            None => limits.header_read,
        });
        let first = tokio::select! {
            first = timeout_at(begun_by, first_byte(&stream)) => first,
            () = self.draining.cancelled() => return None,
        };
        match (first, &port.tls) {
            (Ok(None), _) => {}
            (Ok(Some(TLS_HANDSHAKE)), Some(tls)) => {
                let handshake = tls.accept(stream, port.protocol, begun_by);
                let handshake = tokio::select! {
                    handshake = handshake => handshake,
                    () = self.draining.cancelled() => return None,
                };
                match handshake {
                    Ok(Passed { stream, certificate }) => {
                        let peer = Peer { address: *address, certificate };
                        let asked_by = from_now(if self.only_told { TELLING } else { limits.header_read });
                        return Some(Box::pin(self.http(Box::new(stream), &peer, asked_by)));
                    }
                    Err(Failed { reason, why, stream }) => {
                        tls.failed(port.name, *address, reason, &why);
                        if let Some(stream) = stream {
                            part(stream, "").await;
                        }
                    }
                }
            }
            (Ok(Some(_)), Some(tls)) => {
                tls.failed(port.name, *address, Reason::NotTls, "it does not begin with a TLS handshake");
                part(stream, &bad_request("this port speaks TLS: use https, not http\n")).await;
            }
            (Ok(Some(TLS_HANDSHAKE)), None) => {
                self.client.closed(Cause::Protocol, "it begins a TLS handshake, and this port is plaintext");
                part(stream, &bad_request("this port is plaintext: use http, not https\n")).await;
            }
            (Ok(Some(_)), None) => {
                let peer = Peer { address: *address, certificate: None };
                return Some(Box::pin(self.http(stream, &peer, begun_by)));
            }
            (Err(_), Some(tls)) => tls.failed(port.name, *address, Reason::Timeout, "it does not begin"),
            (Err(_), None) => self.client.closed(Cause::NoRequest, NO_REQUEST),
        }
        None
    }

    /// Serves requests, of which the first is to be there by `asked_by`, until the client ends the connection or it is
    /// ended for it.
    fn http<S>(
        &self,
        stream: S,
        peer: &Peer,
        asked_by: Instant,
    ) -> impl Future<Output = ()> + Send + use<'_, S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { client, only_told, turn, .. } = self;
        let Port { limits, protocol, .. } = *client.port;
        let begun = CancellationToken::new();
        let mut extensions = (client.port.identify)(peer);
        extensions.insert(ConnectInfo(peer.address));
        // Who shows no certificate where one is asked for gets one answer, as a probe does, and holds no place for longer.
        let is_brief = *only_told || matches!(extensions.get(), Some(Caller::Nobody));
        let router = if *only_told { &client.port.full } else { &client.port.router };
        let right = TowerToHyperService::new(router.clone());
        let wrong = TowerToHyperService::new(client.port.wrong.clone());
        let asked = begun.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            asked.cancel();
            if let Some(turn) = turn {
                turn.asked();
            }
            request.extensions_mut().extend(extensions.clone());
            let is_right = protocol == Protocol::Any || request.version() == Version::HTTP_2;
            if is_right { right.call(request) } else { wrong.call(request) }
        });

        let noted = client.clone();
        let stream = FloodGuard::new(stream, move || noted.closed(Cause::Flood, FLOOD));
        let noted = client.clone();
        let stream = WriteLimit::new(stream, limits.write, move || noted.closed(Cause::Stalled, STALLED));
        let connection = h2::builder(limits).serve_connection(TokioIo::new(stream), service).into_owned();
        self.until_its_end(Box::pin(connection), begun, asked_by, is_brief)
    }

    /// Asks `connection` to end when it is time, and cuts it where it does not.
    async fn until_its_end(
        &self,
        mut connection: Pin<Box<impl GracefulConnection<Error: Display>>>,
        begun: CancellationToken,
        asked_by: Instant,
        is_brief: bool,
    ) {
        let Self { client, draining, .. } = self;
        let limits = &client.port.limits;
        // The reader that tells HTTP/1 from HTTP/2 has no limit of its own.
        let (mut phase, mut drained) = (Phase::Waiting, false);
        let mut deadline = std::pin::pin!(at(Some(asked_by)));
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        debug!(port = client.port.name, peer = %client.address, %error, "connection ended");
                    }
                    return;
                }
                () = begun.cancelled(), if phase == Phase::Waiting => {
                    phase = Phase::Serving;
                    if is_brief {
                        connection.as_mut().graceful_shutdown();
                        deadline.set(at(Some(from_now(TELLING))));
                    } else {
                        deadline.set(at(limits.age.map(|age| from_now(jittered(age)))));
                    }
                }
                () = draining.cancelled(), if !drained => {
                    drained = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = deadline.as_mut() => match phase {
                    Phase::Waiting => return client.closed(Cause::NoRequest, NO_REQUEST),
                    Phase::Serving if is_brief => return,
                    Phase::Serving => {
                        phase = Phase::Ending;
                        connection.as_mut().graceful_shutdown();
                        deadline.set(at(Some(from_now(limits.age_grace))));
                    }
                    Phase::Ending => return client.closed(Cause::Age, "it did not end when it was old"),
                },
            }
        }
    }
}

/// What a connection is given time for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// To bring its first request.
    Waiting,
    /// To be served.
    Serving,
    /// To end, as it was asked to.
    Ending,
}

/// The first byte that the client sends, which is not taken; none when it sends nothing more.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut byte = [0];
    match stream.peek(&mut byte).await {
        Ok(1) => Some(byte[0]),
        Ok(_) | Err(_) => None,
    }
}

/// An answer to a client that speaks another protocol: most show what they cannot read, or know HTTP when they see it.
fn bad_request(text: &str) -> String {
    let head =
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{text}", text.len())
}

/// Says last words, and closes the connection when the client has read them: what is left unread of the client's when
/// it is closed would take the words with it, and the alert of a handshake that failed.
async fn part(mut stream: TcpStream, words: &str) {
    let parting = async {
        stream.write_all(words.as_bytes()).await?;
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that has gone needs no answer.
    let _ = timeout(TELLING, parting).await;
}

/// Answers on a port that speaks HTTP/2 only.
pub(super) async fn wrong_version() -> (StatusCode, &'static str) {
    (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "this port speaks HTTP/2 only, as gRPC does\n")
}

/// Waits until then; for ever when there is no end.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn from_now(time: Duration) -> Instant {
    sleep(time).deadline()
}

fn jittered(age: Duration) -> Duration {
    age.mul_f64(rand::rng().random_range(0.9..1.1))
}
