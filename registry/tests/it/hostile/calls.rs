//! Requests from outside, played to both APIs of a registry in process.

use super::texts::is_plain;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use mcs_core::registry::Policy;
use mcs_core::time::{ManualClock, WallTime};
use mcs_core::validate::check_export;
use mcs_proto::convert::{Member, read_key};
use mcs_proto::pb;
use mcs_registry::{Apis, Config, Replication};
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tls::Certificate;
use prost::Message;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// Between two requests of a REST script.
pub const SEPARATOR: &str = "\n%%\n";

/// Calls of a gRPC script.
#[derive(Clone, PartialEq, Message)]
pub struct Script {
    /// The calls.
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<Call>,
}

/// One call.
#[derive(Clone, PartialEq, Message)]
pub struct Call {
    /// Its place in [`METHODS`].
    #[prost(uint32, tag = "1")]
    pub method: u32,
    /// Its messages, encoded.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub messages: Vec<Vec<u8>>,
    /// What follows them in the body.
    #[prost(bytes = "vec", tag = "3")]
    pub rest: Vec<u8>,
}

/// The methods of both services.
pub const METHODS: [&str; 10] = [
    "Members/Register",
    "Members/Renew",
    "Members/Write",
    "Members/Sync",
    "Members/RemoveCluster",
    "Imports/Watch",
    "Imports/ListClusters",
    "Imports/ListExports",
    "Imports/ListImports",
    "Imports/GetRegistry",
];

/// How often an answer that does not go on is asked again: what it waits for is in this process.
const PATIENCE: usize = 16;

/// At most so many pieces of an answer are read.
const PIECES: usize = 64;

/// The largest message that the registry reads.
const MAX_MESSAGE: usize = 256 * 1024;

/// Plays requests, of which each has a line with method and target, and a body.
///
/// # Panics
/// What must hold does not.
pub fn play_rest(bytes: &[u8]) {
    let Ok(script) = std::str::from_utf8(bytes) else { return };
    in_process(async |apis| {
        for request in script.split(SEPARATOR).take(16) {
            let (line, body) = request.split_once('\n').unwrap_or((request, ""));
            let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
            let request = Request::builder().method(method).uri(target);
            // What HTTP does not allow in a request line is no request.
            let Ok(request) = request.body(Body::from(body.to_owned())) else { continue };
            let answer = send(&apis.rest, request).await;
            look_at_rest(line, &answer);
        }
        look_at_lists(&apis).await;
    });
}

/// Plays calls.
///
/// # Panics
/// What must hold does not.
pub fn play_grpc(bytes: &[u8]) {
    let Ok(script) = Script::decode(bytes) else { return };
    in_process(async |apis| {
        for call in script.calls.into_iter().take(16) {
            let method = METHODS[usize::try_from(call.method).unwrap() % METHODS.len()];
            let mut body = Vec::new();
            for message in call.messages {
                frame(&message, &mut body);
            }
            body.extend(call.rest);
            let answer = send(&apis.grpc, grpc(method, body)).await;
            look_at_grpc(method, &answer);
        }
        look_at_lists(&apis).await;
    });
}

/// The code and the message that a call with one message ends with, which no registry of these has seen before.
pub fn call_grpc(method: &str, message: &[u8]) -> (Code, String) {
    let mut ended = None;
    in_process(async |apis| ended = Some(call(&apis, method, message).await));
    ended.unwrap()
}

/// The code and the message that a call with one message ends with.
pub async fn call(apis: &Apis, method: &str, message: &[u8]) -> (Code, String) {
    let mut body = Vec::new();
    frame(message, &mut body);
    status_of(&send(&apis.grpc, grpc(method, body)).await).unwrap()
}

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap(),
    );
}

/// With a new registry that anyone may call.
fn in_process(play: impl AsyncFnOnce(Apis)) {
    called_by(None, play);
}

/// With a new registry, as the holder of a certificate finds it; without one, as anyone.
pub fn called_by(certificate: Option<Certificate>, play: impl AsyncFnOnce(Apis)) {
    let limits = Policy::of_lease(Duration::from_secs(30));
    let config = Config {
        policy: Policy { max_clusters: 4, max_exports: 6, max_writes_per_second: 8, ..limits },
        replication: Replication::default(),
        max_connection_age: Duration::from_secs(1_800),
        max_message_bytes: MAX_MESSAGE,
        max_request_bytes: 4 * MAX_MESSAGE,
        max_connections: 4,
        max_streams: 4,
    };
    let clock = Arc::new(ManualClock::at(WallTime::from_unix_secs(1_795_978_809)));
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let shutdown = Shutdown::manual();
            let apis = match certificate {
                None => Apis::new(config, clock, shutdown.watch()),
                Some(certificate) => Apis::of_certificate(certificate, config, clock, shutdown.watch()),
            };
            play(apis.unwrap()).await;
            shutdown.drain();
            for _ in 0..PATIENCE {
                tokio::task::yield_now().await;
            }
        });
    });
}

/// An answer, as far as it goes on by itself.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
    /// Whether it has ended.
    ended: bool,
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let answer = TowerToHyperService::new(router.clone()).call(request);
    let response: Response<Body> = answer.await.unwrap();
    let (parts, mut body) = response.into_parts();
    let mut answer = Answer {
        status: parts.status,
        headers: parts.headers,
        body: Vec::new(),
        trailers: HeaderMap::new(),
        ended: false,
    };
    let mut waited = 0;
    for _ in 0..PIECES + PATIENCE {
        match body.frame().now_or_never() {
            None if waited == PATIENCE => break,
            None => {
                waited += 1;
                tokio::task::yield_now().await;
            }
            Some(None) => {
                answer.ended = true;
                break;
            }
            Some(Some(frame)) => match frame.unwrap().into_data() {
                Ok(data) => answer.body.extend_from_slice(&data),
                Err(frame) => answer.trailers.extend(frame.into_trailers().unwrap()),
            },
        }
    }
    answer
}

fn look_at_rest(line: &str, answer: &Answer) {
    let status = answer.status.as_u16();
    assert!(status < 500 && status != 408, "{line:?}: {status}");
    assert!(!answer.body.iter().any(|byte| *byte < b' ' && *byte != b'\n'), "{line:?}");
    let kind = answer.headers.get("content-type").map(|kind| kind.to_str().unwrap());
    let text = std::str::from_utf8(&answer.body).unwrap();
    match kind {
        Some("application/json") if line.starts_with("HEAD ") => assert!(answer.body.is_empty(), "{line:?}"),
        Some("application/json") if answer.ended => {
            let value: Value = serde_json::from_str(text).unwrap();
            if status >= 400 {
                look_at_status(line, &value);
            }
        }
        Some("application/x-ndjson") => {
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let value: Value = serde_json::from_str(line).unwrap();
                if let Some(error) = value.get("error") {
                    look_at_status(line, error);
                }
            }
        }
        _ => assert!(answer.body.is_empty() || status < 400, "{line:?}: {status} {kind:?}"),
    }
}

/// A `google.rpc.Status`.
fn look_at_status(what: &str, status: &Value) {
    let code = status["code"].as_i64().unwrap();
    assert!((1..=16).contains(&code), "{what:?}: {status}");
    let fault = [Code::Unknown, Code::Internal, Code::DataLoss].map(|code| i64::from(i32::from(code)));
    assert!(!fault.contains(&code), "{what:?}: {status}");
    assert_told(what, status["message"].as_str().unwrap());
    for detail in status["details"].as_array().unwrap() {
        assert!(detail["@type"].is_string() && detail["reason"].is_string(), "{what:?}: {status}");
        for value in detail["metadata"].as_object().unwrap().values() {
            assert_told(what, value.as_str().unwrap());
        }
    }
}

fn look_at_grpc(method: &str, answer: &Answer) {
    assert_eq!(answer.status, StatusCode::OK, "{method}");
    // A stream that goes on has none yet.
    let Some((code, message)) = status_of(answer) else { return assert!(!answer.ended, "{method}") };
    assert_told(method, &message);
    // What cannot be decoded is told so by the transport, which knows no field of it.
    let undecoded = [
        "failed to decode",
        "protocol error",
        "compressed",
        "Unexpected compression",
        "Unexpected EOF",
        "Missing request",
    ];
    match code {
        Code::Internal | Code::Unimplemented => {
            assert!(undecoded.iter().any(|text| message.contains(text)), "{method}: {code:?} {message}");
        }
        Code::Unknown | Code::DataLoss => panic!("{method}: {code:?} {message}"),
        _ => {}
    }
}

fn status_of(answer: &Answer) -> Option<(Code, String)> {
    let told = |name: &str| answer.headers.get(name).or_else(|| answer.trailers.get(name));
    let code = Code::from_bytes(told("grpc-status")?.as_bytes());
    let message = told("grpc-message").map_or_else(Vec::new, |message| percent_decoded(message.as_bytes()));
    Some((code, String::from_utf8(message).unwrap()))
}

/// Whatever came before: lists have identities alone in them, and end, whole or by pages of one.
async fn look_at_lists(apis: &Apis) {
    for set in ["prod", "test"] {
        let of_set = || pb::ListClustersRequest { clusterset: set.to_owned(), ..Default::default() };
        let clusters: pb::ListClustersResponse = list(apis, METHODS[6], &of_set()).await;
        for cluster in &clusters.clusters {
            let pb::Cluster { clusterset, cluster: id, uid, region, instance, build, .. } = cluster.clone();
            for text in [&region, &instance, &build] {
                assert_told("a list", text);
            }
            Member::read(clusterset, id, uid).unwrap();
        }
        let exports = pb::ListExportsRequest {
            clusterset: set.to_owned(),
            include_endpoints: true,
            ..Default::default()
        };
        let exports: pb::ListExportsResponse = list(apis, METHODS[7], &exports).await;
        for export in exports.exports {
            let key = read_key(export.key.as_ref()).unwrap();
            if let Some(spec) = export.spec {
                assert_eq!(check_export(&key, &spec.try_into().unwrap()), Ok(()));
            }
        }
        let mut seen = BTreeSet::new();
        let mut token = String::new();
        loop {
            let request = pb::ListImportsRequest {
                clusterset: set.to_owned(),
                page_size: 1,
                page_token: token.clone(),
                ..Default::default()
            };
            let page: pb::ListImportsResponse = list(apis, METHODS[8], &request).await;
            assert!(page.imports.len() <= 1);
            for import in page.imports {
                assert!(seen.insert(read_key(import.key.as_ref()).unwrap()), "an import is listed once");
            }
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        let answer = send(&apis.rest, get(&format!("/v1/clustersets/{set}/imports"))).await;
        look_at_rest("the imports", &answer);
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(value["imports"].as_array().unwrap().len(), seen.len());
    }
}

async fn list<M: Message + Default>(apis: &Apis, method: &str, request: &impl Message) -> M {
    let mut body = Vec::new();
    frame(&request.encode_to_vec(), &mut body);
    let answer = send(&apis.grpc, grpc(method, body)).await;
    look_at_grpc(method, &answer);
    M::decode(&answer.body[5..]).unwrap()
}

fn get(target: &str) -> Request<Body> {
    Request::get(target).body(Body::empty()).unwrap()
}

fn grpc(method: &str, body: Vec<u8>) -> Request<Body> {
    Request::post(format!("/dynamo.mcs.v1.{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from(body))
        .unwrap()
}

/// A message as gRPC sends it.
fn frame(message: &[u8], body: &mut Vec<u8>) {
    body.push(0);
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(message);
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap();
        decoded.push(u8::try_from(digit() * 16 + digit()).unwrap());
    }
    decoded
}

/// What a client shows.
fn assert_told(what: &str, text: &str) {
    assert!(is_plain(text), "{what:?}: {text:?}");
    assert!(text.len() <= 4_000, "{what:?}: {} bytes: {text:?}", text.len());
}
