//! Answers that do not wait for the whole body of their request: the connection cannot go on after them, since what is
//! left of the body comes next on it. They say so, so that a client does not send its next request there in vain.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, CONTENT_LENGTH};
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};

/// Middleware for HTTP/1.1; over HTTP/2 each request has a stream of its own. An answer that goes on while the body is
/// read, as that of a sync, is none of these.
pub(super) async fn announce(request: Request, next: Next) -> Response {
    let is_http1 = request.version() <= Version::HTTP_11;
    let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let noted = Arc::clone(&is_read);
    let mut response = next.run(request.map(|body| Body::new(Noted { body, is_read: noted }))).await;
    let is_whole =
        response.headers().contains_key(CONTENT_LENGTH) || response.body().size_hint().exact().is_some();
    if is_http1 && is_whole && !is_read.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A body of which it is noted that it was read to its end.
struct Noted {
    body: Body,
    is_read: Arc<AtomicBool>,
}

impl HttpBody for Noted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_read.store(frame.is_none() || self.body.is_end_stream(), Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
