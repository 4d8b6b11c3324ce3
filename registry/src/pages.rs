//! Answers that may be large: lists, and single entries with their endpoints.
//!
//! They are made away from the threads that serve controllers, few at once. One that is large is held until its reader
//! has taken it, and there may be few of these: who asks for lists and reads slowly must not fill the memory. HTTP/2
//! lets a reader keep a stream that it never reads, on a connection that lives; what nothing is taken of goes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use mcs_proto::chunks::CHUNK_BYTES;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tonic::Status;

use crate::error::Error;

/// So many are made at once; further ones wait, as none takes long.
const MAKING: usize = 2;

/// An answer is given to its connection in pieces of this size. One that is not larger is not counted: the connection
/// holds as much of any.
const PIECE: usize = 64 * 1024;

/// An answer above this is large: a page of gRPC is not.
const LARGE: usize = 2 * CHUNK_BYTES;

/// So many large ones are being read at once; further ones are refused, since their readers decide how long that takes.
const HELD: usize = 4;

/// The same of those that are not large.
const HELD_PAGES: usize = 64;

/// An answer of which nothing is taken for this long goes, at the latest when it was not taken for twice as long.
const NOT_TAKEN: Duration = Duration::from_secs(30);

/// Where such answers are made, for both ports. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pages {
    making: Arc<Semaphore>,
    held: Arc<Semaphore>,
    held_pages: Arc<Semaphore>,
}

impl Default for Pages {
    fn default() -> Self {
        let [making, held, held_pages] =
            [MAKING, HELD, HELD_PAGES].map(|places| Arc::new(Semaphore::new(places)));
        Self { making, held, held_pages }
    }
}

impl Pages {
    /// What `make` gives.
    ///
    /// # Errors
    /// That of `make`.
    pub(crate) async fn make<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _making = self.making.acquire().await;
        let failed = |_| Error::Stream(Status::internal("the answer cannot be made; see the registry's log"));
        spawn_blocking(make).await.map_err(failed)?
    }

    /// The body of an answer, with what follows it.
    ///
    /// # Errors
    /// Too many large answers are being read.
    pub(crate) fn hold(&self, text: Bytes, trailers: Option<HeaderMap>) -> Result<Body, Error> {
        if text.len() <= PIECE {
            return Ok(body(Arc::new(Mutex::new(Some((text, None)))), trailers));
        }
        let (places, most) =
            if text.len() <= LARGE { (&self.held_pages, HELD_PAGES) } else { (&self.held, HELD) };
        let full = |_| Error::ManyAnswers { most };
        let place = Arc::clone(places).try_acquire_owned().map_err(full)?;
        let held = Arc::new(Mutex::new(Some((text, Some(place)))));
        tokio::spawn(give_up(Arc::downgrade(&held)));
        Ok(body(held, trailers))
    }
}

/// What was not taken yet, and the place that it has; none when it was given up.
type Held = Mutex<Option<(Bytes, Option<OwnedSemaphorePermit>)>>;

/// Nothing was taken of an answer for too long.
#[derive(Debug, thiserror::Error)]
#[error("nothing of the answer was taken for {NOT_TAKEN:?}")]
struct NotTaken;

fn body(held: Arc<Held>, trailers: Option<HeaderMap>) -> Body {
    Body::new(StreamBody::new(stream::unfold((held, trailers), |(held, mut trailers)| async move {
        let Some(piece) = take_piece(&held) else { return Some((Err(NotTaken), (held, None))) };
        let frame = if piece.is_empty() { Frame::trailers(trailers.take()?) } else { Frame::data(piece) };
        Some((Ok(frame), (held, trailers)))
    })))
}

/// A copy, since a piece that waits in the connection would keep all of it.
fn take_piece(held: &Held) -> Option<Bytes> {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    let (text, _) = held.as_mut()?;
    Some(Bytes::copy_from_slice(&text.split_to(text.len().min(PIECE))))
}

async fn give_up(held: Weak<Held>) {
    let mut left = usize::MAX;
    loop {
        sleep(NOT_TAKEN).await;
        let Some(held) = held.upgrade() else { return };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some((text, _)) if text.len() < left => left = text.len(),
            _ => {
                *held = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use mcs_proto::status::CallFailed;

    use super::*;

    async fn next(body: &mut Body) -> Option<usize> {
        let frame = body.frame().await?.ok()?;
        Some(frame.into_data().unwrap().len())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_taken_slowly_is_held_and_one_that_is_not_goes() {
        let pages = Pages::default();
        let mut slow = pages.hold(vec![0; 5 * PIECE].into(), None).unwrap();
        let mut stalled = pages.hold(vec![0; 5 * PIECE].into(), None).unwrap();
        assert_eq!(next(&mut stalled).await, Some(PIECE));
        for _ in 0..5 {
            assert_eq!(next(&mut slow).await, Some(PIECE));
            sleep(NOT_TAKEN - Duration::from_millis(1)).await;
        }
        assert_eq!(pages.held_pages.available_permits(), HELD_PAGES - 1, "the slow one has its place");
        assert!(slow.frame().await.is_none());
        assert_eq!(pages.held_pages.available_permits(), HELD_PAGES);
        assert_eq!(
            stalled.frame().await.unwrap().unwrap_err().to_string(),
            "nothing of the answer was taken for 30s"
        );
    }

    #[tokio::test]
    async fn there_are_few_large_answers_and_more_that_are_not_and_small_ones_are_not_counted() {
        let pages = Pages::default();
        let mut held = Vec::new();
        for (bytes, places, most) in
            [(LARGE + 1, HELD, HELD), (LARGE, HELD_PAGES, HELD_PAGES), (PIECE + 1, 0, HELD_PAGES)]
        {
            let hold = || pages.hold(vec![0; bytes].into(), None);
            held.extend((0..places).map(|_| hold().unwrap()));
            let refused = Status::from(hold().unwrap_err());
            let message =
                format!("{most} large answers are being read, as many as may be at once: try again soon");
            let busy = CallFailed::Busy { message };
            assert_eq!(CallFailed::from(refused), busy);
        }
        assert!(pages.hold(vec![0; PIECE].into(), None).is_ok());
    }

    #[tokio::test]
    async fn what_follows_an_answer_is_told_after_it() {
        let trailers = HeaderMap::from_iter([("x".parse().unwrap(), "1".parse().unwrap())]);
        let body = Pages::default().hold(vec![7; PIECE + 1].into(), Some(trailers.clone())).unwrap();
        let told = body.collect().await.unwrap();
        assert_eq!(told.trailers(), Some(&trailers));
        assert_eq!(told.to_bytes(), vec![7; PIECE + 1]);
    }
}
