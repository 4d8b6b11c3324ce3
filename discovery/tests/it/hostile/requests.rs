//! Requests from outside, whatever they are, played to the HTTP API in process: each is answered in the form of the API,
//! and the lists stay what they are.

use super::texts::is_plain;
use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::http::{HeaderMap, Request, StatusCode};
use futures::FutureExt;
use global_discovery_service::driver::Driver;
use global_discovery_service::http::{App, Limits, Parts, router};
use global_discovery_service::metrics::Metrics;
use global_discovery_service::registrations::Registrar;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use mcs_core::pools::directory::{Directory, Source};
use mcs_core::pools::storage::Storage;
use mcs_core::pools::{Lease, PoolKey};
use mcs_core::time::{Clock, ManualClock};
use mcs_runtime::http::Caller;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Shutdown;
use serde_json::Value;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Between two requests of a script.
pub const SEPARATOR: &str = "\n%%\n";

/// The largest body that is read.
const MAX_BODY: usize = 64 * 1024;

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap(),
    );
}

/// Plays requests, of which each has a line with method and target, lines with headers, an empty line, and a body.
///
/// # Panics
/// What must hold does not.
pub fn play(bytes: &[u8]) {
    let script = bytes.to_vec();
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let routes = service();
            for request in split(&script, SEPARATOR.as_bytes()).into_iter().take(16) {
                let (head, body) = match split(request, b"\n\n").as_slice() {
                    [head] => (*head, Vec::new()),
                    [head, rest @ ..] => (*head, rest.join(&b"\n\n"[..])),
                    [] => continue,
                };
                let Some(request) = read(head, body) else { continue };
                let what = format!("{} {}", request.method(), request.uri());
                let is_head = request.method() == "HEAD";
                look_at(&what, is_head, &send(&routes, request).await);
                look_at_lists(&routes).await;
            }
        });
    });
}

/// A service that anyone may call, with nothing in it.
fn service() -> Router {
    let shutdown = Shutdown::manual();
    let clock = Arc::new(ManualClock::default());
    let ready = Ready::new(shutdown.watch());
    let lease = Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
    let view = ready.wait_for("view");
    let (storage, source) = (Storage::memory(lease, clock.elapsed()), Source::Registrations(Vec::new()));
    let directory = Directory::new(storage, source, clock.elapsed());
    let driver = Arc::new(Driver::new(directory, clock.clone(), view));
    let registrar = Registrar::Memory(driver.clone());
    let registry = prometheus::Registry::new();
    let metrics = Metrics::register(&registry).unwrap();
    let parts = Parts { ready, registry, metrics, lease, clock, drain: shutdown.watch() };
    let listener = mcs_runtime::http::Limits::default();
    let limits = Limits { listener, body: MAX_BODY, request: Duration::from_secs(30), streams: 4 };
    let app = App::new(parts, limits, 7);
    app.open(driver, registrar);
    router(app).layer(Extension(Caller::Anyone))
}

fn split<'a>(bytes: &'a [u8], by: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(by.len()).position(|window| window == by) {
        parts.push(&rest[..at]);
        rest = &rest[at + by.len()..];
    }
    parts.push(rest);
    parts
}

/// The request; none where HTTP does not allow it.
fn read(head: &[u8], body: Vec<u8>) -> Option<Request<Body>> {
    let mut lines = split(head, b"\n").into_iter();
    let line = std::str::from_utf8(lines.next()?).ok()?;
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let mut request = Request::builder().method(method).uri(target);
    for header in lines {
        let at = header.iter().position(|byte| *byte == b':')?;
        request = request.header(&header[..at], header[at + 1..].trim_ascii());
    }
    request.body(Body::from(body)).ok()
}

/// An answer, as far as it goes on by itself.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    ended: bool,
}

async fn send(routes: &Router, request: Request<Body>) -> Answer {
    let response = TowerToHyperService::new(routes.clone()).call(request).await.unwrap();
    let (parts, mut body) = response.into_parts();
    let mut answer = Answer { status: parts.status, headers: parts.headers, body: Vec::new(), ended: false };
    while let Some(frame) = body.frame().now_or_never() {
        let Some(frame) = frame else {
            answer.ended = true;
            break;
        };
        answer.body.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    answer
}

fn look_at(what: &str, is_head: bool, answer: &Answer) {
    let Answer { status, headers, body, ended } = answer;
    let status = status.as_u16();
    assert!(matches!(status, 200 | 204 | 304 | 404 | 405 | 413 | 422), "{what:?}: {status}");
    let kind = headers.get("content-type").map(|kind| kind.to_str().unwrap());
    if let Some(length) = headers.get("content-length").filter(|_| !is_head) {
        assert_eq!(length.to_str().unwrap(), body.len().to_string(), "{what:?}");
    }
    match kind {
        _ if is_head || matches!(status, 204 | 304) => assert!(body.is_empty(), "{what:?}"),
        Some("application/json") => {
            let value: Value = serde_json::from_slice(body).unwrap();
            if status >= 400 {
                let told = value["error"].as_str().unwrap();
                assert!(is_plain(told) && !told.is_empty() && told.len() < 2_000, "{what:?}: {told:?}");
            }
        }
        Some("text/event-stream") => assert!(status == 200 && !ended, "{what:?}"),
        Some(text) => assert!(status == 200 && text.starts_with("text/plain") && *ended, "{what:?}: {text}"),
        None => panic!("{what:?}: {status} without a type"),
    }
}

/// Whatever came before: the list has valid pools in it, in order, and each could be registered.
async fn look_at_lists(routes: &Router) {
    for path in ["/pools", "/routers"] {
        let answer = send(routes, Request::get(path).body(Body::empty()).unwrap()).await;
        look_at(path, false, &answer);
        assert_eq!(answer.status, 200);
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        let mut last = None;
        for pool in list["pools"].as_array().into_iter().flatten() {
            let part = |name: &str| pool["key"][name].as_str().unwrap();
            let key = PoolKey::new(part("cluster_id"), part("namespace"), part("dgd_name")).unwrap();
            assert!(last.as_ref().is_none_or(|last| *last < key), "{list}");
            assert!(is_plain_value(pool), "{pool}");
            last = Some(key);
        }
    }
}

fn is_plain_value(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains(char::is_control),
        Value::Array(items) => items.iter().all(is_plain_value),
        Value::Object(members) => members.values().all(is_plain_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
