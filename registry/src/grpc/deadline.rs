//! The time that a caller gives a call (`grpc-timeout`): when it has passed the call ends, whether its answer has begun or
//! not. A caller that is still there gave the call up then, and one that is not would otherwise keep what its call holds.
//!
//! The answer of a stream ends so too: a watch with a timeout is one that its caller wants for so long. A call without one
//! goes on as long as it may; none is prolonged by it: the limits of [`super::streams`] hold all the same.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use mcs_core::validate::Refusal;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::error::Error;

const TIMEOUT: &str = "grpc-timeout";

/// A timeout has at most so many digits.
const MOST_DIGITS: usize = 8;

/// Middleware that ends a call when its caller's time for it has passed.
pub(super) async fn keep_deadline(request: Request, next: Next) -> Response {
    let given = match request.headers().get(TIMEOUT).map(read).transpose() {
        Ok(None) => return next.run(request).await,
        Ok(Some(given)) => given,
        Err(invalid) => return Status::from(Error::Invalid(invalid)).into_http(),
    };
    let mut end = Box::pin(sleep(given));
    tokio::select! {
        biased;
        response = next.run(request) => {
            response.map(|body| Body::new(Ending { body: Some(body), end, given }))
        }
        () = &mut end => Status::from(Error::Late { given }).into_http(),
    }
}

/// Reads a timeout: up to eight digits and a unit, as gRPC writes it.
fn read(value: &HeaderValue) -> Result<Duration, Refusal> {
    let wrong = || Refusal::new(TIMEOUT, "must be one to eight digits and one of H, M, S, m, u and n");
    let text = value.to_str().map_err(|_| wrong())?;
    let (digits, unit) =
        text.len().checked_sub(1).and_then(|last| text.split_at_checked(last)).ok_or_else(wrong)?;
    if digits.len() > MOST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "H" => Duration::from_secs(60 * 60),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return Err(wrong()),
    };
    Ok(unit * number)
}

/// An answer that ends with its call's time.
struct Ending {
    /// None once it has ended.
    body: Option<Body>,
    end: Pin<Box<Sleep>>,
    given: Duration,
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, end, given } = &mut *self;
        let Some(answer) = body else { return Poll::Ready(None) };
        // First, or an answer that never waits would have no end.
        if end.as_mut().poll(context).is_ready() {
            *body = None;
            let mut trailers = HeaderMap::new();
            return match Status::from(Error::Late { given: *given }).add_header(&mut trailers) {
                Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Err(unwritable) => Poll::Ready(Some(Err(axum::Error::new(unwritable)))),
            };
        }
        let frame = std::task::ready!(Pin::new(answer).poll_frame(context));
        // What holds a place among the streams lets it go at its end.
        if frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers)) {
            *body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tonic::Code;

    use super::*;

    /// Longer than any timeout of these tests.
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// What a call with this timeout is answered by a handler that takes `takes`, and then tells a message every second
    /// until `ends`: how many messages, and the status; nothing when it has no end within a day.
    async fn called(timeout: Option<&str>, takes: Duration, ends: Duration) -> Option<(usize, Code, String)> {
        let handler = move || async move {
            sleep(takes).await;
            let messages = stream::unfold(Duration::ZERO, move |told| async move {
                if told >= ends {
                    return None;
                }
                sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, axum::Error>(Bytes::from_static(b"m")), told + Duration::from_secs(1)))
            });
            let mut trailers = HeaderMap::new();
            Status::new(Code::Ok, "").add_header(&mut trailers).unwrap();
            let body = http_body_util::StreamBody::new(
                messages
                    .map(|message| message.map(Frame::data))
                    .chain(stream::iter([Ok(Frame::trailers(trailers))])),
            );
            Response::new(Body::new(body))
        };
        let routes = Router::new().route("/call", post(handler)).layer(from_fn(keep_deadline));
        let mut request = axum::http::Request::post("/call");
        if let Some(timeout) = timeout {
            request = request.header(TIMEOUT, timeout);
        }
        let request = request.body(Body::empty()).unwrap();
        let exchange = async {
            let answer = TowerToHyperService::new(routes).call(request).await.unwrap();
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.unwrap();
            let told = body.trailers().cloned().unwrap_or(parts.headers);
            let status = Status::from_header_map(&told).unwrap();
            (body.to_bytes().len(), status.code(), status.message().to_owned())
        };
        tokio::time::timeout(DAY, exchange).await.ok()
    }

    fn late(messages: usize, given: &str) -> Option<(usize, Code, String)> {
        let message = format!("the time of this call is over: its caller gave it {given} (grpc-timeout)");
        Some((messages, Code::DeadlineExceeded, message))
    }

    fn answered(messages: usize) -> Option<(usize, Code, String)> {
        Some((messages, Code::Ok, String::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_answered_within_the_time_of_its_caller_or_not() {
        let millis = Duration::from_millis;
        assert_eq!(called(Some("1S"), millis(999), Duration::ZERO).await, answered(0));
        assert_eq!(called(Some("1S"), millis(1_001), Duration::ZERO).await, late(0, "1s"));
        assert_eq!(called(Some("250m"), millis(251), Duration::ZERO).await, late(0, "250ms"));
        assert_eq!(called(Some("99999999H"), millis(1_001), Duration::ZERO).await, answered(0));
        assert_eq!(called(None, DAY / 2, Duration::ZERO).await, answered(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_with_the_time_of_its_caller_after_what_was_told_until_then() {
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(called(Some("1500m"), Duration::ZERO, hour).await, late(1, "1.5s"));
        assert_eq!(called(Some("1M"), Duration::from_millis(500), hour).await, late(59, "60s"));
        assert_eq!(called(Some("3S"), Duration::ZERO, Duration::from_secs(2)).await, answered(2));
        assert_eq!(called(None, Duration::ZERO, DAY * 2).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_that_is_none_is_refused_by_its_name() {
        let message = "grpc-timeout: must be one to eight digits and one of H, M, S, m, u and n";
        let refused = Some((0, Code::InvalidArgument, message.to_owned()));
        for wrong in ["", "S", "5", "123456789S", "1s", "1x", "-1S", "+1S", "1 S", "1.5S", "0x1S", "1S ü"] {
            assert_eq!(called(Some(wrong), Duration::ZERO, Duration::ZERO).await, refused, "{wrong:?}");
        }
    }

    #[test]
    fn each_unit_is_what_grpc_means_by_it() {
        let secs = Duration::from_secs;
        let of = |text: &str| read(&HeaderValue::from_str(text).unwrap()).unwrap();
        assert_eq!(
            ["2H", "2M", "2S", "2m", "2u", "2n", "0S", "00000002S"].map(of),
            [
                secs(7_200),
                secs(120),
                secs(2),
                Duration::from_millis(2),
                Duration::from_micros(2),
                Duration::from_nanos(2),
                Duration::ZERO,
                secs(2)
            ]
        );
    }
}
