//! An API server that has one Lease: get, list, watch, create and update with resource versions, and calls that hang.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Client, ResourceExt};
use mcs_core::time::{Clock, Timestamp};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// The server; clones are one server.
#[derive(Clone, Default)]
pub(crate) struct LeaseServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    hanging_writes: usize,
    writes: usize,
}

impl LeaseServer {
    /// A client of this server; what it asks is answered until it is dropped.
    pub(crate) fn client(&self) -> Client {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Answer>>();
        let server = self.clone();
        tokio::spawn(async move {
            let mut hanging = Vec::new();
            while let Some((request, send)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                match server.answer(&parts.method, &parts.uri.to_string(), &body) {
                    Some(response) => send.send_response(response),
                    None => hanging.push(send),
                }
            }
        });
        Client::new(service, "system")
    }

    /// The Lease now.
    pub(crate) fn lease(&self) -> Lease {
        self.0.lock().unwrap().lease.clone().unwrap()
    }

    /// How many writes succeeded.
    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    /// The next `count` writes are never answered, and do nothing.
    pub(crate) fn hang_writes(&self, count: usize) {
        self.0.lock().unwrap().hanging_writes = count;
    }

    /// Somebody else writes the Lease.
    pub(crate) fn set(&self, lease: Lease) {
        self.0.lock().unwrap().put(lease);
    }

    /// Somebody deletes the Lease.
    pub(crate) fn delete(&self) {
        let mut state = self.0.lock().unwrap();
        let lease = state.lease.take().unwrap();
        state.version += 1;
        state.tell("DELETED", &lease);
    }

    fn answer(&self, method: &Method, uri: &str, body: &[u8]) -> Option<Response<Answer>> {
        let mut state = self.0.lock().unwrap();
        let one = uri.contains("/leases/");
        match method {
            &Method::GET if uri.contains("watch=true") => Some(state.watch()),
            &Method::GET if one => Some(match &state.lease {
                Some(lease) => json_response(StatusCode::OK, &serde_json::to_value(lease).unwrap()),
                None => status(StatusCode::NOT_FOUND),
            }),
            &Method::GET => {
                let items: Vec<_> = state.lease.iter().collect();
                let metadata = json!({"resourceVersion": state.version.to_string()});
                let list = json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "items": items});
                Some(json_response(StatusCode::OK, &list))
            }
            &Method::POST | &Method::PUT if state.hanging_writes > 0 => {
                state.hanging_writes -= 1;
                None
            }
            &Method::POST | &Method::PUT => {
                let wanted: Lease = serde_json::from_slice(body).unwrap();
                Some(state.write(method, wanted))
            }
            other => panic!("{other} {uri}"),
        }
    }
}

impl State {
    fn write(&mut self, method: &Method, wanted: Lease) -> Response<Answer> {
        let known = self.lease.as_ref().and_then(ResourceExt::resource_version);
        match (method == Method::POST, known) {
            (true, Some(_)) => status(StatusCode::CONFLICT),
            (false, None) => status(StatusCode::NOT_FOUND),
            (false, known) if wanted.resource_version() != known => status(StatusCode::CONFLICT),
            _ => {
                self.writes += 1;
                self.put(wanted);
                json_response(StatusCode::OK, &serde_json::to_value(&self.lease).unwrap())
            }
        }
    }

    fn put(&mut self, mut lease: Lease) {
        let event = if self.lease.is_some() { "MODIFIED" } else { "ADDED" };
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.tell(event, &lease);
        self.lease = Some(lease);
    }

    fn tell(&mut self, kind: &str, lease: &Lease) {
        self.watches.retain(|watch| watch.send(json!({"type": kind, "object": lease})).is_ok());
    }

    fn watch(&mut self) -> Response<Answer> {
        let (send, receive) = mpsc::unbounded_channel::<Value>();
        self.watches.push(send);
        let frame = |event: Value| Ok(Frame::data(Bytes::from(format!("{event}\n"))));
        Response::new(StreamBody::new(UnboundedReceiverStream::new(receive).map(frame)).boxed_unsync())
    }
}

fn status(code: StatusCode) -> Response<Answer> {
    let reason = if code == StatusCode::NOT_FOUND { "NotFound" } else { "Conflict" };
    let status = json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "message": "", "reason": reason});
    json_response(code, &status)
}

fn json_response(code: StatusCode, body: &Value) -> Response<Answer> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = code;
    response
}

/// The paused time of tokio as a clock; the wall clock of each is off by its own seconds.
pub(crate) struct PausedClock {
    start: tokio::time::Instant,
    wall_off: i64,
}

impl PausedClock {
    /// A clock at zero.
    #[expect(clippy::disallowed_methods, reason = "paused time is the clock of these tests")]
    pub(crate) fn start(wall_off: i64) -> Arc<Self> {
        Arc::new(Self { start: tokio::time::Instant::now(), wall_off })
    }
}

impl Clock for PausedClock {
    fn elapsed(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    fn wall_nanos(&self) -> i128 {
        let elapsed = i128::try_from(self.start.elapsed().as_nanos()).unwrap();
        i128::from(1_700_000_000 + self.wall_off) * 1_000_000_000 + elapsed
    }
}
