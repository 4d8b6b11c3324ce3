//! A relay between controllers and a registry, which counts the messages of a sync and holds the stream after one, or
//! refuses syncs.
//!
//! It speaks HTTP/2 on both sides and looks into the bodies of one method: gRPC writes each message behind a byte of
//! flags and four bytes of length. Messages are passed on one by one, in both directions under one count.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use anyhow::{Context as _, Result};
use http::{HeaderValue, Request, Response};
use http_body_util::{Either, Empty};
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    client::conn::http2 as client,
    server::conn::http2 as server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// The method whose messages are counted.
const SYNC: &str = "/dynamo.mcs.v1.Members/Sync";
/// The bytes before each message.
const PREFIX: usize = 5;

/// What became of the first sync since [`Relay::hold_after`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// It is held, after so many messages.
    Held,
    /// It has ended with no more messages than that.
    Ended,
}

/// A running relay. What goes through it ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    watched: Arc<watch::Sender<Watched>>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// After how many messages a sync is held; none when all pass.
    limit: Option<usize>,
    /// Counts the calls of [`Relay::hold_after`], so that streams of before are told from those of after.
    round: u64,
    /// Messages of the sync of this round.
    passed: usize,
    /// A sync has begun in this round.
    begun: bool,
    outcome: Option<Sync>,
    /// Syncs are refused.
    refuses: bool,
}

impl Relay {
    /// A relay to the registry at `registry`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(registry: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let watched = Arc::new(watch::Sender::default());
        let shared = Arc::clone(&watched);
        let accepting = tokio::spawn(async move {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let connection = serve(stream, registry, Arc::clone(&shared));
                // One that breaks is the callers' to notice.
                connections.push(AbortOnDropHandle::new(tokio::spawn(async { drop(connection.await) })));
                connections.retain(|connection| !connection.is_finished());
            }
        });
        Ok(Self { address, watched, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// The URL for controllers.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds the next sync after `messages`, whichever way these go; all that come after it pass.
    pub fn hold_after(&self, messages: usize) {
        self.watched.send_modify(|watched| {
            *watched = Watched { limit: Some(messages), round: watched.round + 1, ..Watched::default() };
        });
    }

    /// Refuses syncs from now on, as a registry does that has an error of its own, or none any more.
    pub fn refuse_syncs(&self, refuses: bool) {
        self.watched.send_modify(|watched| watched.refuses = refuses);
    }

    /// Waits until the sync that [`Relay::hold_after`] is about is held or has ended.
    ///
    /// # Errors
    /// The relay is gone.
    pub async fn outcome(&self) -> Result<Sync> {
        let mut watched = self.watched.subscribe();
        let watched = watched.wait_for(|watched| watched.outcome.is_some()).await?;
        watched.outcome.context("an outcome")
    }
}

/// Passes on what one caller says, until either side ends.
async fn serve(caller: TcpStream, registry: SocketAddr, watched: Arc<watch::Sender<Watched>>) -> Result<()> {
    let upstream = TokioIo::new(TcpStream::connect(registry).await?);
    let (sender, upstream) = client::handshake(TokioExecutor::new(), upstream).await?;
    let pass = service_fn(move |request: Request<Incoming>| {
        let (mut sender, watched) = (sender.clone(), Arc::clone(&watched));
        async move {
            if request.uri().path() == SYNC && watched.borrow().refuses {
                return Ok(refusal());
            }
            let counting = if request.uri().path() == SYNC { Counting::begin(&watched) } else { None };
            let count = |body| Counted { body, waiting: Vec::new(), counting: counting.clone(), ends: false };
            let answer = sender.send_request(request.map(count)).await?;
            let answer: Response<Counted> = answer.map(|body| Counted { ends: true, ..count(body) });
            Ok::<_, hyper::Error>(answer.map(Either::Left))
        }
    });
    let downstream = server::Builder::new(TokioExecutor::new());
    tokio::select! {
        ended = downstream.serve_connection(TokioIo::new(caller), pass) => ended?,
        ended = upstream => ended?,
    }
    Ok(())
}

/// An answer that is nothing but an error of gRPC: `INTERNAL`.
fn refusal() -> Response<Either<Counted, Empty<Bytes>>> {
    let mut answer = Response::new(Either::Right(Empty::new()));
    let headers =
        [("content-type", "application/grpc"), ("grpc-status", "13"), ("grpc-message", "no syncs today")];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The sync that is counted. One that breaks by itself does not count.
struct Counting {
    round: u64,
    watched: Arc<watch::Sender<Watched>>,
}

impl Counting {
    /// What counts a sync that begins; none when another one was the first of its round.
    fn begin(watched: &Arc<watch::Sender<Watched>>) -> Option<Arc<Self>> {
        let mut round = None;
        watched.send_if_modified(|watched| {
            if watched.limit.is_some() && !watched.begun {
                watched.begun = true;
                round = Some(watched.round);
            }
            false
        });
        round.map(|round| Arc::new(Self { round, watched: Arc::clone(watched) }))
    }

    /// Counts one message more; false when it is one too many.
    fn may_pass(&self) -> bool {
        let mut may = true;
        self.change(|watched| {
            may = watched.limit.is_none_or(|limit| watched.passed < limit);
            watched.passed += usize::from(may);
            if watched.limit == Some(watched.passed) {
                watched.outcome.get_or_insert(Sync::Held);
            }
        });
        may
    }

    /// Changes what is known of its round, while that lasts.
    fn change(&self, change: impl FnOnce(&mut Watched)) {
        self.watched.send_if_modified(|watched| {
            let current = watched.round == self.round;
            if current {
                change(watched);
            }
            current
        });
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.change(|watched| {
            if watched.outcome.is_none() {
                (watched.begun, watched.passed) = (false, 0);
            }
        });
    }
}

/// One direction of a call.
struct Counted {
    body: Incoming,
    /// The beginning of a message.
    waiting: Vec<u8>,
    counting: Option<Arc<Counting>>,
    /// The call ends with it.
    ends: bool,
}

impl Counted {
    /// The first message of what waits, if it is there as a whole.
    fn message(&mut self) -> Option<Bytes> {
        let length = self.waiting.get(1..PREFIX)?;
        let length = length.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
        let whole = (self.waiting.len() >= PREFIX + length).then_some(PREFIX + length)?;
        let rest = self.waiting.split_off(whole);
        Some(std::mem::replace(&mut self.waiting, rest).into())
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(counting) = self.counting.clone() else {
            return Pin::new(&mut self.body).poll_frame(cx);
        };
        loop {
            if let Some(message) = self.message() {
                // What is held stays so until the connection is cut.
                return match counting.may_pass() {
                    true => Poll::Ready(Some(Ok(Frame::data(message)))),
                    false => Poll::Pending,
                };
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)?);
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.waiting.extend_from_slice(&data),
                Some(Err(trailers)) => {
                    if self.ends {
                        counting.change(|watched| {
                            watched.outcome.get_or_insert(Sync::Ended);
                        });
                    }
                    return Poll::Ready(Some(Ok(trailers)));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}
