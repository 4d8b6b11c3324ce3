//! Answers and errors as they go out. All are JSON but those for Prometheus and for watchers; an error is
//! `{"error": "…"}`, which says what is wrong and what to do.

use super::caller::Denied;
use super::tag::Tags;
use crate::registrations::NotKept;
use crate::sheet::Entry;
use crate::shown::List;
use crate::wire::{self, BadRegistration};
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use mcs_core::text::shown;
use mcs_runtime::http::{Crowded, Cut, NoPlace, NotWhole, RETRY_SECONDS, TooSlow, allow};
use std::iter::once;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// The answer to a probe that finds all well.
pub(super) const OK: &str = "{\"status\":\"ok\"}";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// A list may be kept, and must be asked for again with its tag.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// What a connection takes before its client reads: a list up to so many bytes holds nothing back.
const SMALL: u64 = 64 * 1024;

/// A longer list is given up when it was not taken by then, at 4 Mbit/s for one of 30 MB. The pages that it is made of are
/// kept as they were until it is, so who reads slowly while pools change would hold what they were.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// An answer repeats at most about so many bytes of what went wrong with a body.
const SHOWN: usize = 200;

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There is nothing to list yet.
    #[error("the first view is not there yet: /readyz says of what")]
    NoView,
    /// Something is still waited for, or the process ends.
    #[error("not ready: {}", .missing.join(", "))]
    NotReady {
        /// What is missing.
        missing: Vec<String>,
    },
    /// The process ends.
    #[error("this replica shuts down: watch another one")]
    Draining,
    /// There is no such path.
    #[error("no such path: GET /openapi.json names all that there are")]
    NoRoute,
    /// The path does not take the method.
    #[error("this path takes {allowed} only")]
    NoMethod {
        /// What it takes.
        allowed: String,
    },
    /// The body is too long.
    #[error("the body has more than {most} bytes, the most that is read (--max-body-bytes)")]
    TooLarge {
        /// The most.
        most: usize,
    },
    /// The body came too slowly.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    /// The body took too long.
    #[error("the body of the request took more than {time:?}")]
    TooLate {
        /// How long it may take.
        time: Duration,
    },
    /// There is no memory for the body.
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// The body ended before its end.
    #[error("the body cannot be read: {}", shown(.problem, SHOWN))]
    Broken {
        /// What happened.
        problem: String,
    },
    /// The body is no registration.
    #[error(transparent)]
    Invalid(#[from] BadRegistration),
    /// The store does not take it.
    #[error(transparent)]
    NotKept(#[from] NotKept),
    /// The certificate does not allow it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There are too many watches.
    #[error("{} watches are open, the most that there may be (--max-streams): watch another replica, or list", .0.most)]
    Streams(#[from] NoPlace),
    /// There are too many connections.
    #[error("{most} connections are open, the most that there may be (--max-connections): try again soon")]
    Connections {
        /// The most.
        most: usize,
    },
    /// The request panicked.
    #[error("this request failed; see the log of the service")]
    Panicked,
}

impl Error {
    /// The status of the answer.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } | Self::NotKept(NotKept::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) | Self::TooLate { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Broken { .. } => StatusCode::BAD_REQUEST,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Denied(_) => StatusCode::FORBIDDEN,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoView
            | Self::NotReady { .. }
            | Self::Draining
            | Self::Crowded(_)
            | Self::NotKept(NotKept::Store(_) | NotKept::Full(_))
            | Self::Streams(_)
            | Self::Connections { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<NotWhole> for Error {
    fn from(why: NotWhole) -> Self {
        match why {
            NotWhole::TooLarge { most } => Self::TooLarge { most },
            NotWhole::Cut(Cut::TooSlow(slow)) => slow.into(),
            NotWhole::Cut(Cut::Crowded(crowded)) => crowded.into(),
            NotWhole::Broken { problem } => Self::Broken { problem },
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = json(wire::error(&self.to_string()));
        *response.status_mut() = self.status();
        if let Self::NoMethod { allowed } = &self {
            allow(response.headers_mut(), allowed);
        }
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}

/// A text of JSON.
pub(super) fn json(text: impl Into<Bytes>) -> Response {
    let text = text.into();
    let length = HeaderValue::from(text.len());
    ([(CONTENT_TYPE, JSON), (CONTENT_LENGTH, length)], Body::from(text)).into_response()
}

/// A list, encoded as it is taken.
pub(super) fn list<E>(name: &str, list: List<E>, tags: Tags) -> Response
where
    E: Entry + Send + Sync + 'static,
{
    let List { entries, completeness, version } = list;
    let (begin, end) = wire::list_frame(name, completeness);
    let left = (begin.len() + entries.bytes() + end.len()) as u64;
    let pieces = once(Bytes::from(begin)).chain(entries).chain(once(Bytes::from(end)));
    let mut response = Body::new(Pieces::new(pieces, left)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(left));
    tag(headers, tags.of(version));
    response
}

/// The list is the one that the caller has.
pub(super) fn not_modified(of: Option<HeaderValue>) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    tag(response.headers_mut(), of);
    response
}

fn tag(headers: &mut HeaderMap, of: Option<HeaderValue>) {
    if let Some(tag) = of {
        headers.insert(ETAG, tag);
    }
    headers.insert(CACHE_CONTROL, REVALIDATE);
}

/// A stream of events, which nothing on the way may keep or gather.
pub(super) fn events(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// An answer without its body.
pub(super) fn head(response: Response) -> Response {
    response.map(|_| Body::empty())
}

/// A body of known length whose pieces are sent as they are.
struct Pieces {
    /// None when they were given up.
    pieces: Arc<Mutex<Option<Box<dyn Iterator<Item = Bytes> + Send>>>>,
    left: u64,
    _limit: Option<AbortOnDropHandle<()>>,
}

/// A list was not taken in time.
#[derive(Debug, thiserror::Error)]
#[error("the list was not taken within {TAKEN_WITHIN:?}")]
struct NotTaken;

impl Pieces {
    fn new(pieces: impl Iterator<Item = Bytes> + Send + 'static, left: u64) -> Self {
        let pieces: Box<dyn Iterator<Item = Bytes> + Send> = Box::new(pieces);
        let pieces = Arc::new(Mutex::new(Some(pieces)));
        // A client that takes nothing is not noticed by a body, which is not asked then.
        let limit = (left > SMALL).then(|| {
            let held = Arc::clone(&pieces);
            let giving_up = async move {
                sleep(TAKEN_WITHIN).await;
                *held.lock().unwrap_or_else(PoisonError::into_inner) = None;
            };
            AbortOnDropHandle::new(tokio::spawn(giving_up.in_current_span()))
        });
        Self { pieces, left, _limit: limit }
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = NotTaken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NotTaken>>> {
        let piece = match &mut *self.pieces.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(pieces) => pieces.next(),
            None => return Poll::Ready(Some(Err(NotTaken))),
        };
        self.left = self.left.saturating_sub(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::testing::Numbered;
    use crate::shown::Shown;
    use http_body_util::BodyExt;
    use mcs_core::pools::Completeness;

    /// A list of two entries that nobody else holds, and the text of both.
    fn whole(bytes: usize) -> (List<Numbered>, Arc<str>) {
        let (shown, text) = (Shown::new("pools", Completeness::Exact), Arc::from("1".repeat(bytes / 2)));
        for number in 0..2 {
            shown.edit().put(Numbered(number, Arc::clone(&text)));
        }
        (shown.list(), text)
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_list_that_is_not_taken_is_given_up_and_held_no_more() {
        for (millis, is_held) in [(59_999, true), (60_000, false), (60_001, false)] {
            let (list, text) = whole(1_200_000);
            let mut body = super::list("pools", list, Tags::of_process(1)).into_body();
            body.frame().await.unwrap().unwrap();
            sleep(Duration::from_millis(millis)).await;
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&text) > 1, is_held, "after {millis} ms");
            assert_eq!(body.collect().await.is_ok(), is_held, "after {millis} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_list_waits_for_its_reader() {
        let mut body = super::list("pools", whole(1_000).0, Tags::of_process(1)).into_body();
        body.frame().await.unwrap().unwrap();
        sleep(TAKEN_WITHIN * 2).await;
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(rest.len(), 1_001 + "],\"complete\":true}".len());
    }
}
