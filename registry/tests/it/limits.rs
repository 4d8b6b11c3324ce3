//! What the ports bound: connections, streams, ages. Each limit is named to who meets it.

use std::time::Duration;

use futures::future::join_all;
use mcs_core::ids::ClustersetId;
use mcs_core::model::{Frame, Since};
use mcs_core::timing::Timing;
use mcs_proto::client::WatchStream;
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::status::CallFailed;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::started::{LIMIT, Started, client, http, id, leaf, prod, put};

const CLUSTERS: &str = "/v1/clustersets/prod/clusters";

#[tokio::test]
async fn a_connection_above_the_limit_is_told_so_on_both_ports() {
    let registry = Started::configured(|config| config.max_connections = 1).await;
    registry.client.list_clusters(&prod()).await.unwrap();
    let message = "this registry has 1 connections open, the most that it takes (--max-connections): go on with \
                   another, or try again later";
    let full = CallFailed::Unavailable { code: Code::ResourceExhausted, message: message.to_owned() };
    assert_eq!(client(registry.grpc).list_clusters(&prod()).await, Err(full));

    let held = keep(&registry).await;
    let (status, body) = http(registry.rest, "GET", CLUSTERS).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status.as_str(), &body["message"], &body["details"][0]["reason"]),
        ("429 Too Many Requests", &message.into(), &"FULL".into())
    );
    drop(held);
    let served = async { while http(registry.rest, "GET", CLUSTERS).await.0 != "200 OK" {} };
    tokio::time::timeout(LIMIT, served).await.unwrap();
}

#[tokio::test]
async fn a_stream_above_the_limit_is_told_so_and_other_calls_go_on() {
    let registry = Started::configured(|config| config.max_streams = 1).await;
    let mut east = registry.register("east").await;
    let watch = registry.client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
    let message = "this registry has 1 streams open, the most that it takes (--max-streams): go on with another, or \
                   try again later";
    let full = || CallFailed::Unavailable { code: Code::ResourceExhausted, message: message.to_owned() };
    let second = registry.client.watch(&prod(), &id("importer"), None, Since::default()).await;
    assert_eq!(second.err(), Some(full()));
    let version = east.next();
    let sync = registry.client.begin_sync(&east.member, version, &[]).await;
    assert_eq!(sync.err(), Some(full()));
    east.write(&[put("cart", 1)]).await;

    drop(watch);
    let again = async {
        while registry.client.watch(&prod(), &id("importer"), None, Since::default()).await.is_err() {}
    };
    tokio::time::timeout(LIMIT, again).await.unwrap();
}

/// Whoever may only read can name as many as the registry takes; they take no place of those in which clusters
/// register, and are forgotten when nobody watches them.
#[tokio::test]
async fn watches_of_clustersets_that_nobody_registered_in_leave_room_for_registrations() {
    let registry = Started::configured(|config| config.max_streams = 2_000).await;
    // A connection has room for a hundred.
    let clients: Vec<_> = (0..=10).map(|_| client(registry.grpc)).collect();
    let watch = |index: usize| {
        let (client, clusterset) =
            (&clients[index / 100], ClustersetId::new(format!("set-{index}")).unwrap());
        async move { client.watch(&clusterset, &id("importer"), None, Since::default()).await }
    };
    let watches: Vec<_> = join_all((0..1_000).map(watch)).await.into_iter().map(Result::unwrap).collect();
    let refused = watch(1_000).await.err();
    let message = "1000 clustersets are watched in which no cluster registered, the most that this registry takes: \
                   end other watches, or register first";
    let limit = CallFailed::Limit { message: message.to_owned() };
    assert_eq!(refused, Some(limit));
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1)]).await;

    drop(watches);
    let forgotten = async {
        while !http(registry.admin, "GET", "/metrics").await.1.contains("mcs_registry_clustersets 1\n") {}
    };
    tokio::time::timeout(LIMIT, forgotten).await.unwrap();
    assert!(watch(1_000).await.is_ok());
}

/// What waits for its rest holds memory: all that waits together has a limit, and what is done with counts no more.
#[tokio::test]
async fn requests_under_way_hold_no_more_bytes_than_the_limit_says() {
    let registry = Started::configured(|config| config.max_request_bytes = 1024 * 1024).await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 15_000)]).await;
    let version = east.next();
    let whole = ["a", "b", "c", "d"].map(|name| put(name, 15_000));
    let refused = registry.client.write(&east.member, version, &whole).await;
    let message = "the stream broke: the bodies of requests under way hold 1048576 bytes, the most that they may \
                   together: try again soon";
    assert_eq!(refused, Err(CallFailed::Busy { message: message.to_owned() }));
    east.write(&[put("desk", 15_000)]).await;

    let put = format!(
        "PUT /v1/clustersets/prod/clusters/east HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n",
        2 << 20
    );
    let mut stream = TcpStream::connect(registry.rest).await.unwrap();
    let _ = stream.write_all(&[put.as_bytes(), &vec![b' '; 2 << 20]].concat()).await;
    let mut head = [0; 12];
    tokio::time::timeout(LIMIT, stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(&head, b"HTTP/1.1 429");
}

#[tokio::test]
async fn a_sync_may_bring_more_than_requests_may_hold_at_once() {
    let registry = Started::configured(|config| config.max_request_bytes = 1024 * 1024).await;
    let mut east = registry.register("east").await;
    let ops: Vec<_> = (0..8).map(|index| put(&format!("service-{index}"), 15_000)).collect();
    let names: Vec<_> = ops.iter().map(|op| (op.key().clone(), leaf(op))).collect();
    let version = east.next();
    let (wants, sync) = registry.client.begin_sync(&east.member, version, &names).await.unwrap();
    assert_eq!(wants.len(), 8);
    let synced = sync.finish(&ops).await.unwrap();
    let taken = synced.written.results.iter().filter(|(_, result)| result.is_ok()).count();
    assert_eq!(taken, 8);
}

/// Of a stream its caller may say so as well; the time begins anew for each try, since the machine may be busy.
#[tokio::test]
async fn a_watch_ends_with_the_time_that_its_caller_gives_it() {
    let registry = Started::new().await;
    let channel = Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap();
    let mut imports = ImportsClient::new(channel.connect().await.unwrap());
    let mut given = Duration::from_millis(100);
    let mut steps = loop {
        let watch = pb::WatchRequest {
            clusterset: "prod".to_owned(),
            cluster: "importer".to_owned(),
            ..Default::default()
        };
        let mut request = tonic::Request::new(watch);
        request.set_timeout(given);
        // The client counts too, up to the begin of the answer.
        match imports.watch(request).await {
            Ok(steps) => break steps.into_inner(),
            Err(_) => given *= 2,
        }
        assert!(given < LIMIT, "no watch begins in time");
    };
    let ended = async {
        loop {
            if let Err(ended) = steps.message().await {
                return ended;
            }
        }
    };
    let ended = tokio::time::timeout(LIMIT * 2, ended).await.unwrap();
    let message = format!("the time of this call is over: its caller gave it {given:?} (grpc-timeout)");
    assert_eq!((ended.code(), ended.message()), (Code::DeadlineExceeded, &*message));
}

/// Load spreads over replicas, and a watch goes on where it was.
#[tokio::test]
async fn connections_end_when_they_are_old_on_both_ports() {
    let registry = Started::configured(|config| {
        config.policy.timing = Timing::of_lease(Duration::from_secs(1));
        config.max_connection_age = Duration::from_millis(500);
    })
    .await;
    let mut held = keep(&registry).await;
    let mut watch = registry.client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
    let Frame::Begin { epoch, .. } = next(&mut watch).await.unwrap() else { panic!() };
    let mut revision = 0;
    let ended = loop {
        match next(&mut watch).await {
            Ok(Frame::End { revision: at, .. } | Frame::Progress { revision: at, .. }) => revision = at,
            Ok(other) => panic!("{other:?}"),
            Err(ended) => break ended,
        }
    };
    assert!(matches!(ended, CallFailed::Unavailable { .. }), "{ended:?}");
    let mut watch = registry
        .client
        .watch(&prod(), &id("importer"), Some((epoch, revision)), Since::default())
        .await
        .unwrap();
    let resumed = next(&mut watch).await;
    assert!(matches!(resumed, Ok(Frame::Progress { .. })), "{resumed:?}");

    let mut rest = Vec::new();
    tokio::time::timeout(LIMIT, held.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn connections_are_counted_by_port() {
    let registry = Started::new().await;
    registry.client.list_clusters(&prod()).await.unwrap();
    let _held = keep(&registry).await;
    let (_, text) = http(registry.admin, "GET", "/metrics").await;
    for line in [
        "mcs_registry_connections{port=\"grpc\"} 1",
        "mcs_registry_connections{port=\"rest\"} 1",
        "mcs_registry_connections_closed_total{cause=\"full\",port=\"grpc\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

async fn next(watch: &mut WatchStream) -> Result<Frame, CallFailed> {
    tokio::time::timeout(LIMIT, watch.next()).await.unwrap()
}

/// A connection to the REST port that was served, and is kept.
async fn keep(registry: &Started) -> TcpStream {
    let mut stream = TcpStream::connect(registry.rest).await.unwrap();
    stream.write_all(b"GET /v2 HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "it was closed");
    }
    stream
}
