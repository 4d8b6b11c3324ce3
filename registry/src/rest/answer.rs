//! Answers: messages as proto3 JSON, one or one a line, and errors as `google.rpc.Status`.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use mcs_proto::status::{BUSY, FULL};
use mcs_runtime::http::{RETRY_SECONDS, allow};
use serde::Serialize;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::error::Error;

/// One JSON value.
pub(super) const JSON: &str = "application/json";

/// JSON values, one a line.
pub(super) const LINES: &str = "application/x-ndjson";

/// A message.
///
/// # Errors
/// When it cannot be written, which is a fault of this program.
pub(super) fn message(message: &impl Serialize) -> Result<Response, Error> {
    Ok(([(CONTENT_TYPE, JSON)], text(message)?).into_response())
}

/// The text of a message.
///
/// # Errors
/// When it cannot be written, which is a fault of this program.
pub(super) fn text(message: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec(message).map_err(unwritable)?;
    text.push(b'\n');
    Ok(text)
}

fn unwritable(error: serde_json::Error) -> Error {
    tracing::error!(%error, "answer cannot be written");
    Error::Stream(Status::internal("the answer cannot be written; see the registry's log"))
}

/// Messages, one a line. An error is told in a last line, since the answer has begun.
pub(super) fn lines<M: Serialize>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
) -> Response {
    let lines = messages.map(|message| {
        let written = message
            .and_then(|message| serde_json::to_vec(&message).map_err(|error| unwritable(error).into()));
        let told = |status: Status| serde_json::to_vec(&StreamError { error: StatusBody::from(&status) });
        let mut line = written.or_else(told).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    ([(CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response()
}

/// An error, with its gRPC code.
pub(super) fn refused(error: &Error) -> (Code, Response) {
    let status = Status::from(error);
    let mut response = problem(error.http_code(status.code()), &status);
    if let Error::NoMethod { allowed } = error {
        allow(response.headers_mut(), allowed);
    }
    (status.code(), response)
}

/// A request that panicked.
pub(super) fn panicked() -> Response {
    let status = Status::internal("this request failed; see the registry's log");
    problem(StatusCode::INTERNAL_SERVER_ERROR, &status)
}

fn problem(code: StatusCode, status: &Status) -> Response {
    // Texts in a struct can always be written.
    let mut body = serde_json::to_vec(&StatusBody::from(status)).unwrap_or_default();
    body.push(b'\n');
    let mut response = (code, [(CONTENT_TYPE, JSON)], body).into_response();
    let passes = |reason: &str| matches!(reason, BUSY | FULL);
    let is_busy = status.get_details_error_info().is_some_and(|info| passes(&info.reason));
    if is_busy || code == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
    }
    response
}

/// A `google.rpc.Status`.
#[derive(Serialize)]
struct StatusBody<'a> {
    code: i32,
    message: &'a str,
    details: Vec<Value>,
}

impl<'a> From<&'a Status> for StatusBody<'a> {
    fn from(status: &'a Status) -> Self {
        let detail = status.get_details_error_info().map(|info| {
            json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": info.reason,
                "domain": info.domain,
                "metadata": info.metadata,
            })
        });
        Self { code: status.code().into(), message: status.message(), details: detail.into_iter().collect() }
    }
}

/// The last line of a stream that broke.
#[derive(Serialize)]
struct StreamError<'a> {
    error: StatusBody<'a>,
}
