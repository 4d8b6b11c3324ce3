//! The answer of a watch, made of the messages that all watchers share.
//!
//! The transport copies each message of a stream into a buffer that the stream keeps, as large as the largest batch made
//! it once: with a thousand watchers that is a thousand copies of each change, and megabytes that nobody reads. So the
//! handler puts its messages among the extensions of an answer without any, and a layer makes the answer of them: one that
//! comes alone is sent from where it lies, small ones that come together are joined.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use futures::Stream;
use http_body::Frame;
use mcs_proto::encoded::EncodedStep;
use tonic::{Code, Status};

/// Messages are joined up to this many bytes: a frame of HTTP/2.
const JOINED_BYTES: usize = 16 * 1024;

/// The messages of a watch.
type Steps = Pin<Box<dyn Stream<Item = Result<EncodedStep, Status>> + Send>>;

/// What stands among the extensions of an answer.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Option<Steps>>>);

impl Shared {
    /// An answer of `steps`.
    pub(super) fn new(steps: impl Stream<Item = Result<EncodedStep, Status>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::pin(steps)))))
    }

    fn take(&self) -> Option<Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Middleware that makes an answer of [`Shared`] messages.
pub(super) async fn share(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let steps = answer.extensions_mut().remove::<Shared>().and_then(|shared| shared.take());
    match steps {
        Some(steps) => answer.map(|_| Body::new(Answer { steps: Some(steps), end: None })),
        None => answer,
    }
}

/// The body of an answer.
struct Answer {
    /// None once they have ended.
    steps: Option<Steps>,
    /// How they ended, which is told last.
    end: Option<Status>,
}

impl Answer {
    /// The messages that are there, up to about a frame.
    fn gather(&mut self, context: &mut Context<'_>) -> Vec<EncodedStep> {
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        while bytes < JOINED_BYTES
            && let Some(steps) = &mut self.steps
        {
            match steps.as_mut().poll_next(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(step))) => {
                    bytes += step.len();
                    gathered.push(step);
                }
                Poll::Ready(Some(Err(status))) => {
                    (self.steps, self.end) = (None, Some(status));
                }
                Poll::Ready(None) => (self.steps, self.end) = (None, Some(Status::new(Code::Ok, ""))),
            }
        }
        gathered
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &*self.gather(context) {
            [] => {}
            [step] => return Poll::Ready(Some(Ok(Frame::data(step.framed())))),
            steps => {
                let framed: Vec<_> = steps.iter().map(EncodedStep::framed).collect();
                return Poll::Ready(Some(Ok(Frame::data(framed.concat().into()))));
            }
        }
        let Some(status) = self.end.take() else {
            return if self.steps.is_some() { Poll::Pending } else { Poll::Ready(None) };
        };
        let mut trailers = HeaderMap::new();
        let written = status.add_header(&mut trailers).map_err(axum::Error::new);
        Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;
    use mcs_proto::pb;

    use super::*;

    fn step(revision: u64) -> EncodedStep {
        EncodedStep::from(&pb::WatchResponse { revision, ..pb::WatchResponse::default() })
    }

    fn answer(steps: impl Stream<Item = Result<EncodedStep, Status>> + Send + 'static) -> Answer {
        Answer { steps: Shared::new(steps).take(), end: None }
    }

    async fn next(answer: &mut Answer) -> Frame<Bytes> {
        answer.frame().await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_message_that_comes_alone_is_not_copied() {
        let only = step(7);
        let mut answer = answer(stream::iter([Ok(only.clone())]).chain(stream::pending()));
        let sent = next(&mut answer).await.into_data().unwrap();
        assert_eq!((&sent, sent.as_ptr()), (&only.framed(), only.framed().as_ptr()));
        assert!(futures::poll!(answer.frame()).is_pending());
    }

    #[tokio::test]
    async fn messages_that_come_together_are_joined_up_to_a_frame() {
        let count = 2 * JOINED_BYTES as u64 / 3;
        let mut answer = answer(stream::iter((0..count).map(|revision| Ok(step(1_000 + revision % 100)))));
        let mut sent = Vec::new();
        while let Ok(data) = next(&mut answer).await.into_data() {
            sent.push(data);
        }
        let expected: Vec<_> = (0..count).map(|revision| step(1_000 + revision % 100).framed()).collect();
        assert_eq!(sent.concat(), expected.concat());
        let most = sent.iter().map(Bytes::len).max().unwrap();
        assert!(sent.len() == 2 && most < 3 * JOINED_BYTES, "{} frames, {most} bytes", sent.len());
    }

    #[tokio::test]
    async fn an_answer_ends_with_how_its_messages_ended() {
        for (end, code) in [(None, "0"), (Some(Status::new(Code::Unavailable, "drains")), "14")] {
            let mut answer = answer(stream::iter([Ok(step(1))].into_iter().chain(end.map(Err))));
            assert_eq!(next(&mut answer).await.into_data().unwrap(), step(1).framed());
            let trailers = next(&mut answer).await.into_trailers().unwrap();
            assert_eq!(trailers["grpc-status"], code);
            assert!(answer.frame().await.is_none());
        }
    }
}
