//! A stand-in for the API server, for tests: the test answers each request itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use super::asked::RetryAfter;
use ::kube::client::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;
use tower_test::mock::{Handle, SendResponse, pair};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// The stand-in.
pub struct ApiServer {
    requests: Handle<Request<Body>, Response<Answer>>,
    peeked: Option<Asked>,
}

/// A request, and the place to answer it.
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// Its query.
    pub query: BTreeMap<String, String>,
    body: Body,
    answer: SendResponse<Response<Answer>>,
}

/// A body that the test goes on with; it ends when this is dropped.
pub struct Open(UnboundedSender<Result<Frame<Bytes>, Infallible>>);

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.method, self.path, self.query)
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

/// A stand-in, and a client of it that reads answers as [`super::client`]'s does.
pub fn api_server() -> (ApiServer, ::kube::Client) {
    let (service, requests) = pair();
    (ApiServer { requests, peeked: None }, ::kube::Client::new(RetryAfter(service), "default"))
}

impl ApiServer {
    /// Waits until there is a request, and leaves it.
    pub async fn peek(&mut self) {
        self.peeked = Some(self.asked().await);
    }

    /// The next request.
    ///
    /// # Panics
    /// None comes in a minute.
    pub async fn asked(&mut self) -> Asked {
        let next = tokio::time::timeout(PATIENCE, self.next());
        next.await.expect("no request in time").expect("the client is gone")
    }

    /// The next request, whenever it comes; none when all clients are gone.
    pub async fn next(&mut self) -> Option<Asked> {
        if let Some(peeked) = self.peeked.take() {
            return Some(peeked);
        }
        let (request, answer) = self.requests.next_request().await?;
        let (parts, body) = request.into_parts();
        let url = url::Url::parse(&format!("http://api{}", parts.uri)).unwrap();
        let query = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned()));
        let (path, query) = (url.path().to_owned(), query.collect());
        Some(Asked { method: parts.method, path, query, body, answer })
    }

    /// The next request, which is a list.
    ///
    /// # Panics
    /// It is none.
    pub async fn list(&mut self) -> Asked {
        let asked = self.asked().await;
        assert!(!asked.is_watch(), "a watch in place of a list");
        asked
    }

    /// The next request, which is a watch from `version` on; it is accepted.
    ///
    /// # Panics
    /// It is none, or from elsewhere.
    pub async fn watch(&mut self, version: &str) -> Open {
        let asked = self.asked().await;
        assert_eq!((asked.is_watch(), asked.query("resourceVersion")), (true, Some(version)));
        asked.open()
    }

    /// Asserts that the next request comes after the pause that follows a failure whose bound is `bound` seconds, or
    /// after `asked` seconds where the server asked for more; and leaves it.
    ///
    /// # Panics
    /// It comes earlier or later.
    pub async fn comes_after(&mut self, bound: f64, asked: f64) {
        let (least, most) = ((bound / 2.0).max(asked), bound.max(asked * 1.25));
        let early = tokio::time::timeout(Duration::from_secs_f64(least - 0.01), self.peek()).await;
        assert!(early.is_err(), "a request before {least} s");
        let late = tokio::time::timeout(Duration::from_secs_f64(most - least + 0.02), self.peek()).await;
        late.unwrap_or_else(|_| panic!("no request within {most} s"));
    }
}

impl Asked {
    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query("watch") == Some("true")
    }

    /// A value of its query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// What it says.
    ///
    /// # Panics
    /// That is no JSON.
    pub async fn body(&mut self) -> Value {
        let body = std::mem::replace(&mut self.body, Body::empty());
        serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap()
    }

    /// Answers a list.
    pub fn listed(self, version: &str, items: Value) {
        self.json(200, &list(version, "", items));
    }

    /// Answers with a page of a list, after which comes the one that `token` stands for.
    pub fn page(self, version: &str, token: &str, items: Value) {
        self.json(200, &list(version, token, items));
    }

    /// Answers with a status object.
    pub fn refused(self, code: u16, retry_after: Option<u32>) {
        self.json(code, &status(code, retry_after));
    }

    /// Answers as the API server's flow control does: in plain text, with a header.
    pub fn throttled(self, retry_after: u32) {
        let answer = Response::builder()
            .status(429)
            .header("content-type", "text/plain; charset=utf-8")
            .header("retry-after", retry_after)
            .body(Full::new(Bytes::from("Too many requests, please try again later.\n")).boxed_unsync());
        self.answer.send_response(answer.unwrap());
    }

    /// Answers with an object.
    pub fn json(self, code: u16, body: &Value) {
        let response = Response::builder()
            .status(code)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())).boxed_unsync());
        self.answer.send_response(response.unwrap());
    }

    /// Answers with a body of which more may follow.
    pub fn open(self) -> Open {
        let (sender, receiver) = unbounded();
        let body = StreamBody::new(receiver.map(|frame: Result<_, Infallible>| frame)).boxed_unsync();
        self.answer.send_response(Response::new(body));
        Open(sender)
    }
}

impl Open {
    /// Goes on with `text` as it is.
    ///
    /// # Panics
    /// Nobody reads it any more.
    pub fn text(&self, text: String) {
        self.0.unbounded_send(Ok(Frame::data(text.into()))).unwrap();
    }

    /// Goes on with one event of a watch.
    pub fn event(&self, kind: &str, object: &Value) {
        self.text(format!("{}\n", json!({"type": kind, "object": object})));
    }

    /// Goes on with a bookmark as API servers write it: mostly null.
    pub fn bookmark(&self, version: &str) {
        let object = json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "",
            "metadata": {"resourceVersion": version, "creationTimestamp": null},
            "endpoints": null, "ports": null
        });
        self.event("BOOKMARK", &object);
    }

    /// Whether the client has left.
    pub fn is_left(&self) -> bool {
        self.0.is_closed()
    }
}

/// A list, or the page of one that is followed by that of `token`.
pub fn list(version: &str, token: &str, items: Value) -> Value {
    json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "continue": token}, "items": items
    })
}

/// A status object.
pub fn status(code: u16, retry_after: Option<u32>) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "as the test says", "details": retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}))
    })
}
