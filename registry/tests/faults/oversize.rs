//! O63: too much at once: it is refused by the limit that it breaks, before it is held, and what was there before stays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::http::Request;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use mcs_core::model::{ExportSpec, Port};
use mcs_core::registry::Op;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::RegistryClient;
use mcs_proto::pb;
use mcs_proto::pb::members_client::MembersClient;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::client::GrpcService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::program::Program;
use crate::started::{LIMIT, client, endpoints, key, member, prod, put, registration, spec};
use crate::witness::Client;
use mcs_runtime::testing::MIB;
use mcs_runtime::testing::witness::Witness;

/// The most that the program's memory may grow: 400,000 endpoints, the most that are read of one export before it is
/// refused, and what the allocator keeps.
const GROWTH: usize = 192 * MIB;

/// The most that a system and a protocol take of a body that nobody reads, besides one message.
const UNREAD: usize = 8 * MIB;

const HUGE: usize = 100 * 1000 * 1000;

const MANY: u32 = 1_000_000;

/// What a message above the limit is told, over gRPC and REST alike.
const TOO_LARGE: &str =
    "a message has at most 4194304 bytes here (--max-message-bytes); larger sets of endpoints go in chunks";

const CART: &str = "/v1/clustersets/prod/clusters/east/exports/shop/cart";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_by_its_limit_and_the_earlier_state_stays() {
    refused_and_kept("too large requests", |grpc, rest, east| async move {
        announced(grpc).await;
        beside_the_endpoints(&east).await;
        over_rest(rest).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn a_million_endpoints_are_refused_and_the_earlier_state_stays() {
    refused_and_kept("a million endpoints", |grpc, _, east| async move {
        in_one_message(grpc).await;
        in_chunks(&east).await;
    })
    .await;
}

/// Attacks by the addresses of the gRPC and the REST port, and by a client of cluster `east`.
async fn refused_and_kept<A>(name: &str, attack: impl FnOnce(SocketAddr, SocketAddr, RegistryClient) -> A)
where
    A: Future<Output = ()> + Send + 'static,
{
    let program = Program::start(&[]).await;
    let mut witness = Client::new(&program).await;
    let east = client(program.grpc);
    let as_member = member("east", "uid-of-east");
    let register = registration(&as_member, Version::new(1, 1), Sum::EMPTY);
    east.register(&as_member, &register).await.unwrap();
    east.write(&as_member, Version::new(1, 2), &[put("cart", 2)]).await.unwrap();
    let before = held(&east).await;

    let attack = attack(program.grpc, program.rest, east.clone());
    let ((), seen) = witness.sees(&program, program.memory() + GROWTH, attack).await;
    program.gives_back(seen.files).await;
    seen.tell(name);
    assert_eq!(held(&east).await, before);
}

async fn held(client: &RegistryClient) -> Vec<pb::Export> {
    let (exports, _) = client.list_exports(&prod(), true).await.unwrap();
    exports.into_iter().filter(|export| export.cluster == "east").collect()
}

/// A message that is said to have a gigabyte, and follows.
async fn announced(grpc: SocketAddr) {
    let mut channel = channel(grpc).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let head = Bytes::from_static(&[0, 0x40, 0, 0, 0]);
    let body = std::iter::once(head)
        .chain(std::iter::repeat_n(Bytes::from(vec![0; 16 * 1024]), 64 * 1024))
        .map(move |piece| {
            counted.fetch_add(piece.len(), Ordering::Relaxed);
            Ok::<_, Status>(Frame::data(piece))
        });
    let request = Request::post(format!("http://{grpc}/dynamo.mcs.v1.Members/Write"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(StreamBody::new(stream::iter(body))))
        .unwrap();
    std::future::poll_fn(|context| GrpcService::<tonic::body::Body>::poll_ready(&mut channel, context))
        .await
        .unwrap();
    let answer =
        tokio::time::timeout(LIMIT, GrpcService::call(&mut channel, request)).await.unwrap().unwrap();
    let status = Status::from_header_map(answer.headers()).unwrap();
    assert!(status.code() == Code::ResourceExhausted && status.message() == TOO_LARGE, "{status:?}");
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < UNREAD, "{taken} bytes of it were taken");
}

async fn channel(grpc: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap()
}

/// A million endpoints as no client of ours would send them.
async fn in_one_message(grpc: SocketAddr) {
    let endpoint = |number: u32| pb::Endpoint {
        address: std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string(),
        ..pb::Endpoint::default()
    };
    let group = pb::EndpointGroup {
        family: pb::IpFamily::Ipv4.into(),
        endpoints: (0..MANY).map(endpoint).collect(),
        ..pb::EndpointGroup::default()
    };
    let endpoints = Some(pb::EndpointSet { groups: vec![group], more: false });
    let op = pb::Op {
        key: Some((&key("cart")).into()),
        act: Some(pb::op::Act::PutEndpoints(pb::PutEndpoints {
            leaf: vec![1; 16],
            endpoints,
            ..pb::PutEndpoints::default()
        })),
        changed_at: None,
    };
    let request = pb::WriteRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: "uid-of-east".to_owned(),
        version: Some(Version::new(1, 3).into()),
        ops: vec![op],
    };
    let mut members = MembersClient::new(channel(grpc).await);
    let refused = members.write(stream::iter([request])).await.unwrap_err();
    assert!(refused.code() == Code::ResourceExhausted && refused.message() == TOO_LARGE, "{refused:?}");
}

/// A million endpoints as they may be sent.
async fn in_chunks(client: &RegistryClient) {
    let endpoints = Arc::new(endpoints(MANY));
    let put = Op::Put {
        key: key("cart"),
        leaf: Leaf::default(),
        spec: Arc::new(spec()),
        endpoints,
        changed_at: None,
    };
    let problem = "has more than 400000 endpoints; at most 200000 are kept";
    assert_eq!(refused(client, 4, &[put]).await, [("endpoints".to_owned(), problem.to_owned())]);
}

/// One more than there may be of each, and 65 KiB of annotations.
async fn beside_the_endpoints(client: &RegistryClient) {
    let port = |number: u16| Port { name: format!("p-{number}"), port: number, ..Port::default() };
    let named =
        |count: u32, text: &str| (0..count).map(|n| (format!("example.com/{n}"), text.to_owned())).collect();
    let specs = [
        ExportSpec { ports: (1..=65).map(port).collect(), ..spec() },
        ExportSpec { labels: named(65, "x"), ..spec() },
        ExportSpec { annotations: named(33, "x"), ..spec() },
        ExportSpec { annotations: named(1, &"x".repeat(65 * 1024)), ..spec() },
    ];
    let put = |(number, spec): (usize, ExportSpec)| {
        let key = if number == 0 { key("cart") } else { key(&format!("cart-{number}")) };
        Op::Put {
            key,
            leaf: Leaf::default(),
            spec: Arc::new(spec),
            endpoints: Arc::default(),
            changed_at: None,
        }
    };
    let ops: Vec<_> = specs.into_iter().enumerate().map(put).collect();
    let refused = refused(client, 5, &ops).await;
    let refused: Vec<_> = refused.iter().map(|(field, problem)| (&**field, &**problem)).collect();
    assert_eq!(
        refused,
        [
            ("ports", "must be at most 64, and are 65 (export shop/cart)"),
            ("exportedLabels", "must be at most 64, and are 65 (export shop/cart-1)"),
            ("exportedAnnotations", "must be at most 32, and are 33 (export shop/cart-2)"),
            (
                "exportedAnnotations",
                "labels and annotations together must be at most 65536 bytes, and are 66573 (export shop/cart-3)"
            ),
        ]
    );
}

/// Field and problem of each change, all of which are refused.
async fn refused(client: &RegistryClient, seq: u64, ops: &[Op]) -> Vec<(String, String)> {
    let member = member("east", "uid-of-east");
    let written = client.write(&member, Version::new(1, seq), ops).await.unwrap();
    let refused = written.results.into_iter().map(|(_, result)| result.unwrap_err());
    refused.map(|refused| (refused.field, refused.problem)).collect()
}

/// A hundred megabytes, with their length and without, and a million endpoints in chunks.
async fn over_rest(rest: SocketAddr) {
    let blank = vec![b' '; 64 * 1024];
    let chunk = [format!("{:x}\r\n", blank.len()).as_bytes(), &blank, b"\r\n"].concat();
    let whole = [b"{".as_slice(), &blank[1..]].concat();
    for (length, first, piece) in [
        (format!("content-length: {HUGE}"), whole, blank.clone()),
        ("transfer-encoding: chunked".to_owned(), b"1\r\n{\r\n".to_vec(), chunk),
    ] {
        let (answer, sent) = send(rest, "PUT", CART, &length, first, &piece).await;
        assert_eq!((answer.0, answer.1["message"].as_str()), (413, Some(TOO_LARGE)), "{length}");
        assert!(sent < 4 * MIB + UNREAD, "{sent} bytes of it were taken: {length}");
    }
}

/// Sends a request until it is answered or ended: status and body of the answer, and how much was sent.
async fn send(
    rest: SocketAddr,
    method: &str,
    path: &str,
    length: &str,
    first: Vec<u8>,
    piece: &[u8],
) -> ((u16, Value), usize) {
    let (mut answers, mut asks) = TcpStream::connect(rest).await.unwrap().into_split();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{length}\r\n\r\n").into_bytes();
    let mut sent = 0;
    let sending = async {
        for bytes in [&head[..], &first].into_iter().chain(std::iter::repeat_n(piece, HUGE / piece.len())) {
            if asks.write_all(bytes).await.is_err() {
                return;
            }
            sent += bytes.len();
        }
    };
    let mut answer = String::new();
    let exchange = async { tokio::join!(sending, answers.read_to_string(&mut answer)).1 };
    // What was sent in vain may reset the connection after the answer.
    let _ = tokio::time::timeout(LIMIT, exchange).await.unwrap();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {length}: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    ((status, serde_json::from_str(body).unwrap()), sent)
}
