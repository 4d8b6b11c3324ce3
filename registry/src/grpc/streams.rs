//! What is bounded of calls before and after their handlers see them: how many streams are open, how large a message is,
//! how slowly a request comes, and how many large answers are held.
//!
//! | call | is open | its request |
//! |---|---|---|
//! | Watch, the health service's Watch | until one side ends it; one of `--max-streams` | keeps its pace |
//! | reflection | as long as its request comes; one of `--max-streams` | keeps its pace |
//! | Sync | until it is over; one of `--max-streams` | each message in its time, see [`crate::calls::sync`] |
//! | lists | until the answer is taken, see [`crate::pages`] | keeps its pace |
//! | all others | briefly | keeps its pace |

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use http_body_util::BodyExt;
use mcs_runtime::http::{Pace, Streams, pace};
use tonic::Status;

use super::deadline::keep_deadline;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::ports::Ports;

const SYNC: &str = "/dynamo.mcs.v1.Members/Sync";

/// The calls that stay open.
const STREAMS: [&str; 4] = [
    "/dynamo.mcs.v1.Imports/Watch",
    SYNC,
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

/// The calls whose answers may be large.
const LISTS: [&str; 3] = [
    "/dynamo.mcs.v1.Imports/ListClusters",
    "/dynamo.mcs.v1.Imports/ListExports",
    "/dynamo.mcs.v1.Imports/ListImports",
];

/// The calls of our own services.
const OWN: &str = "/dynamo.mcs.v1.";

/// The calls of `routes`, bounded.
pub(super) fn bounded(routes: Router, ports: &Ports) -> Router {
    let Ports { config, streams, pages, metrics, .. } = ports.clone();
    routes
        .layer(from_fn_with_state((config.max_message_bytes, metrics.clone()), name_limit))
        .layer(from_fn_with_state((pages, metrics.clone()), hold))
        .layer(from_fn_with_state(metrics.clone(), tell_cause))
        .layer(from_fn_with_state(Pace::default(), keep_pace))
        .layer(from_fn_with_state((streams, metrics), count))
        .layer(from_fn(keep_deadline))
}

/// Holds a place for a stream until its answers have ended.
async fn count(
    State((streams, metrics)): State<(Streams, Metrics)>,
    request: Request,
    next: Next,
) -> Response {
    if !STREAMS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match streams.take() {
        Ok(place) => next.run(request).await.map(|body| place.until_end_of(body)),
        Err(full) => Status::from(metrics.failed(full.into())).into_http(),
    }
}

/// Holds a large answer until it is taken.
async fn hold(State((pages, metrics)): State<(Pages, Metrics)>, request: Request, next: Next) -> Response {
    if !LISTS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let (parts, body) = next.run(request).await.into_parts();
    if body.is_end_stream() {
        return Response::from_parts(parts, body);
    }
    // It is made whole before this: nothing is waited for.
    let held = match body.collect().await {
        Ok(answer) => {
            let trailers = answer.trailers().cloned();
            pages.hold(answer.to_bytes(), trailers)
        }
        Err(_) => Err(Error::Stream(Status::internal("the answer cannot be made; see the registry's log"))),
    };
    match held {
        Ok(body) => Response::from_parts(parts, body),
        Err(error) => Status::from(metrics.failed(error)).into_http(),
    }
}

/// Names the limit to the caller of a unary call whose message is too large: the transport answers such a call by itself.
async fn name_limit(
    State((most, metrics)): State<(usize, Metrics)>,
    request: Request,
    next: Next,
) -> Response {
    let is_own = request.uri().path().starts_with(OWN);
    let answer = next.run(request).await;
    match Status::from_header_map(answer.headers()) {
        Some(status) if is_own => match Error::of_stream(status, most) {
            limit @ Error::TooLarge { .. } => Status::from(metrics.failed(limit)).into_http(),
            _ => answer,
        },
        _ => answer,
    }
}

async fn keep_pace(rule: State<Pace>, request: Request, next: Next) -> Response {
    if request.uri().path() == SYNC { next.run(request).await } else { pace(rule, request, next).await }
}

/// Gives a request that comes too slowly, or for which there is no memory, a code of its own.
async fn tell_cause(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let told = move |error: axum::Error| match Error::of_body(&error) {
        Some(cause) => Status::from(metrics.failed(cause)).into(),
        None => Box::<dyn std::error::Error + Send + Sync>::from(error),
    };
    next.run(request.map(|body| Body::new(body.map_err(told)))).await
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tonic::Code;

    use super::*;
    use crate::in_memory;

    /// The code that a handler finds when its request does not come.
    async fn code_of(path: &'static str) -> Option<String> {
        let handler = |body: Body| async {
            let read = axum::body::to_bytes(body, usize::MAX).await;
            format!("{:?}", read.map_err(|error| Status::from_error(error.into()).code()))
        };
        let routes = bounded(Router::new().route(path, post(handler)), &in_memory().1);
        let service = TowerToHyperService::new(routes);
        let silent = Body::from_stream(futures::stream::pending::<Result<&[u8], axum::Error>>());
        let request = Request::post(path).body(silent).unwrap();
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        let answer = tokio::time::timeout(day, service.call(request)).await.ok()?.unwrap();
        let answer = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        Some(String::from_utf8(answer.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_has_a_code_of_its_own_and_a_sync_is_left_to_its_handler() {
        let slow = Some(format!("Err({:?})", Code::DeadlineExceeded));
        for path in ["/dynamo.mcs.v1.Members/Write", "/dynamo.mcs.v1.Imports/Watch", STREAMS[3]] {
            assert_eq!(code_of(path).await, slow, "{path}");
        }
        assert_eq!(code_of(SYNC).await, None);
    }
}
