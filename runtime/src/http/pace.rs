//! The least speed of a request's body: who opens a request and lets its body drip in would hold a task, a handler and
//! a place among the requests of the connection for as long as it likes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::BRINGS_WITHIN;

/// What a body must bring while it is waited for: so much in each window, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a window is.
    pub window: Duration,
    /// The bytes that must come in each.
    pub bytes: usize,
}

impl Default for Pace {
    /// 64 KiB in 9 s: a message of 4 MiB over a line of 56 kbit/s is just cut off, over one of 64 it is not.
    fn default() -> Self {
        Self { window: BRINGS_WITHIN, bytes: 64 * 1024 }
    }
}

/// A body came too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the body of the request came too slowly: {got} bytes in {:?}, at least {} are expected in that time",
    .pace.window, .pace.bytes
)]
pub struct TooSlow {
    /// What was expected.
    pub pace: Pace,
    /// What came.
    pub got: usize,
}

/// Middleware by which reading the body fails with [`TooSlow`] when it does not keep up.
pub async fn pace(State(pace): State<Pace>, request: Request, next: Next) -> Response {
    next.run(request.map(|body| pace.limit(body))).await
}

impl Pace {
    /// A body whose reading fails with [`TooSlow`] when it does not keep up.
    pub fn limit(self, body: Body) -> Body {
        Body::new(Paced { body, pace: self, got: 0, window: None })
    }
}

struct Paced {
    body: Body,
    pace: Pace,
    /// What came in this window.
    got: usize,
    /// Runs since the body was waited for first, or since the last window ended.
    window: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                self.got += frame.data_ref().map_or(0, Bytes::len);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Self { pace, got, window, .. } = &mut *self;
        loop {
            let running = window.get_or_insert_with(|| Box::pin(sleep(pace.window)));
            if running.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if *got < pace.bytes {
                return Poll::Ready(Some(Err(TooSlow { pace: *pace, got: *got }.into())));
            }
            (*got, *window) = (0, None);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc;

    use super::*;

    const PACE: Pace = Pace { window: Duration::from_secs(10), bytes: 100 };

    /// How many bytes came before the body ended or failed, when `bytes` come every `pause`.
    async fn read(bytes: usize, pause: Duration, times: usize) -> Result<usize, String> {
        let (sender, receiver) = mpsc::channel::<Bytes>(1);
        tokio::spawn(async move {
            for _ in 0..times {
                sleep(pause).await;
                if sender.send(vec![0; bytes].into()).await.is_err() {
                    return;
                }
            }
        });
        let stream = futures::stream::unfold(receiver, |mut receiver| async {
            Some((Ok::<_, Infallible>(receiver.recv().await?), receiver))
        });
        let body = Body::new(Paced { body: Body::from_stream(stream), pace: PACE, got: 0, window: None });
        match axum::body::to_bytes(body, usize::MAX).await {
            Ok(all) => Ok(all.len()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_up_may_take_as_long_as_it_needs() {
        assert_eq!(read(10, Duration::from_millis(900), 1_000).await, Ok(10_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_in_fails_after_the_first_window() {
        let error = read(10, Duration::from_millis(1_100), 1_000).await.unwrap_err();
        assert_eq!(
            error,
            "the body of the request came too slowly: 90 bytes in 10s, at least 100 are expected in that time"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_body_needs_to_end_within_a_window_only() {
        assert_eq!(read(1, Duration::from_millis(9_999), 1).await, Ok(1));
        assert!(read(1, Duration::from_millis(10_001), 1).await.is_err());
    }
}
