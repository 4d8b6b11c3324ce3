//! A stand-in for the API server: the test answers each request itself.

use crate::service::PATIENCE;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower_test::mock::{Handle, SendResponse, pair};

type Answer = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) struct ApiServer {
    requests: Handle<Request<Body>, Response<Answer>>,
    peeked: Option<Asked>,
}

/// A request, and the place to answer it.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    answer: SendResponse<Response<Answer>>,
}

/// A body that the test goes on with; it ends when this is dropped.
pub(crate) struct Open(UnboundedSender<Result<Frame<Bytes>, Infallible>>);

pub(crate) fn api_server() -> (ApiServer, kube::Client) {
    let (service, requests) = pair();
    (ApiServer { requests, peeked: None }, kube::Client::new(service, "default"))
}

impl ApiServer {
    /// Waits until there is a request, and leaves it.
    pub(crate) async fn peek(&mut self) {
        self.peeked = Some(self.asked().await);
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        if let Some(peeked) = self.peeked.take() {
            return peeked;
        }
        let next = tokio::time::timeout(PATIENCE, self.requests.next_request());
        let (request, answer) = next.await.expect("no request in time").expect("the client is gone");
        let url = url::Url::parse(&format!("http://api{}", request.uri())).unwrap();
        let query = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned()));
        Asked { path: url.path().to_owned(), query: query.collect(), answer }
    }

    /// The next request, which is a list.
    pub(crate) async fn list(&mut self) -> Asked {
        let asked = self.asked().await;
        assert!(!asked.query.contains_key("watch"), "a watch in place of a list");
        asked
    }

    /// The next request, which is a watch from `version` on; it is accepted.
    pub(crate) async fn watch(&mut self, version: &str) -> Open {
        let asked = self.asked().await;
        let found = (asked.query.get("watch"), asked.query.get("resourceVersion"));
        assert_eq!(found, (Some(&"true".to_owned()), Some(&version.to_owned())));
        asked.open()
    }
}

impl Asked {
    /// Answers a list.
    pub(crate) fn listed(self, version: &str, items: Value) {
        self.json(200, &slice_list(version, items));
    }

    /// Answers with a status object.
    pub(crate) fn refused(self, code: u16, retry_after: Option<u32>) {
        self.json(code, &status(code, retry_after));
    }

    /// Answers with an object.
    pub(crate) fn json(self, code: u16, body: &Value) {
        let response =
            Response::builder().status(code).body(Full::new(Bytes::from(body.to_string())).boxed_unsync());
        self.answer.send_response(response.unwrap());
    }

    /// Answers with a body of which more may follow.
    pub(crate) fn open(self) -> Open {
        let (sender, receiver) = unbounded_channel();
        let stream = UnboundedReceiverStream::new(receiver).map(|frame: Result<_, Infallible>| frame);
        self.answer.send_response(Response::new(StreamBody::new(stream).boxed_unsync()));
        Open(sender)
    }
}

impl Open {
    /// Goes on with `text` as it is.
    pub(crate) fn text(&self, text: String) {
        self.0.send(Ok(Frame::data(text.into()))).unwrap();
    }

    /// Goes on with one event of a watch.
    pub(crate) fn event(&self, kind: &str, object: &Value) {
        self.text(format!("{}\n", json!({"type": kind, "object": object})));
    }

    /// Goes on with a bookmark as API servers write it: mostly null.
    pub(crate) fn bookmark(&self, version: &str) {
        let object = json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "",
            "metadata": {"resourceVersion": version, "creationTimestamp": null},
            "endpoints": null, "ports": null
        });
        self.event("BOOKMARK", &object);
    }
}

pub(crate) fn slice_list(version: &str, items: Value) -> Value {
    json!({
        "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": version, "continue": ""}, "items": items
    })
}

pub(crate) fn status(code: u16, retry_after: Option<u32>) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Test",
        "message": "as the test says", "details": retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}))
    })
}

/// A slice as mcs-controller writes it.
pub(crate) fn slice(
    namespace: &str,
    name: &str,
    service: &str,
    port: (&str, u16),
    addresses: &[&str],
) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "namespace": namespace, "name": name, "resourceVersion": "90",
            "labels": {
                "multicluster.kubernetes.io/service-name": service,
                "multicluster.kubernetes.io/source-cluster": "east",
                "topology.kubernetes.io/region": "us-east-2"
            }
        },
        "addressType": if addresses.iter().any(|address| address.contains(':')) { "IPv6" } else { "IPv4" },
        "ports": [{"name": port.0, "port": port.1, "protocol": "TCP"}],
        "endpoints": addresses.iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
            .collect::<Vec<_>>()
    })
}

pub(crate) fn relay(addresses: &[&str]) -> Value {
    slice("ml", "relay", "chat-pool-relay", ("relay", 7000), addresses)
}

pub(crate) fn frontend(addresses: &[&str]) -> Value {
    slice("ml", "frontend", "chat-frontend", ("http", 8000), addresses)
}

pub(crate) fn router(addresses: &[&str]) -> Value {
    slice("routing", "router", "global-router", ("relay", 50051), addresses)
}
