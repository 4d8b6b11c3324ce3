//! What the API server asks for in headers alone.
//!
//! Its flow control refuses in plain text, and says in `Retry-After` when to come again; kube reads bodies. So such an
//! answer is given the body that the server's other refusals have: a Status that says it too.

use ::kube::client::Body;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::Service;

/// A client's service whose refusals say in their bodies when to come again.
#[derive(Clone, Debug)]
pub(crate) struct RetryAfter<S>(pub(crate) S);

impl<S, B> Service<Request<Body>> for RetryAfter<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { Ok(with_body(answer.await?)) })
    }
}

fn with_body<B>(answer: Response<B>) -> Response<Either<B, Full<Bytes>>> {
    let (mut parts, body) = answer.into_parts();
    let refused = matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let Some(seconds) = seconds(&parts.headers).filter(|_| refused && !is_json(&parts.headers)) else {
        return Response::from_parts(parts, Either::Left(body));
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": parts.status.as_u16(),
        "reason": parts.status.canonical_reason(),
        "message": format!("the API server is busy, and asks to come again in {seconds} s"),
        "details": {"retryAfterSeconds": seconds},
    });
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Either::Right(Full::from(status.to_string())))
}

/// The time as seconds; as a date nobody sends it.
fn seconds(headers: &HeaderMap) -> Option<u32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}
