//! Streams over REST: watches and syncs as JSON values, one a line.

use axum::body::{Body, Bytes};
use mcs_core::registry::Op;
use mcs_proto::pb;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::http::{EAST, Lines, get, open, open_http2, post_lines, request};
use super::lists::base64;
use super::schema;
use super::writes::{addresses, spec};
use crate::started::{Exporter, LIMIT, Started, http, key, leaf, prod, put};

const WATCH: &str = "/v1/clustersets/prod/imports/watch?cluster=importer";

#[tokio::test]
async fn a_watch_tells_a_snapshot_and_then_what_grpc_writes() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1)]).await;
    let epoch = epoch(&registry, &east).await;

    let mut watch = Lines::of(open(registry.rest, request("GET", WATCH, "")).await);
    let snapshot = told(&mut watch, "end").await;
    let [begin, section, header, part, end] = snapshot.as_slice() else { panic!("{snapshot:#?}") };
    let at = |line: &Value| line["revision"].clone();
    let cart = json!({"namespace": "shop", "name": "cart"});
    assert_eq!(
        *begin,
        json!({"revision": "0", "begin": {
            "epoch": epoch, "absentGrace": "60s", "build": mcs_runtime::version(),
        }})
    );
    let of_east = json!({
        "cluster": "east",
        "uid": "uid-of-east",
        "region": "eu-west-1",
        "state": "LEASE_STATE_ACTIVE",
        "whole": true,
        "version": {"term": "1", "seq": "2"},
        "sum": base64(&east.sum.to_bytes()),
    });
    assert_eq!(*section, json!({"revision": at(section), "section": of_east}));
    let import = get(&registry, "/v1/clustersets/prod/imports/shop/cart?includeEndpoints=true").await.1;
    let merged = json!({
        "key": cart,
        "definition": import["definition"],
        "participants": import["participants"],
        "conflicts": [],
        "more": false,
    });
    assert_eq!(*header, json!({"revision": at(header), "header": merged}));
    let endpoints = json!({
        "key": cart,
        "cluster": "east",
        "uid": "uid-of-east",
        "version": {"term": "1", "seq": "2"},
        "leaf": base64(&leaf(&put("cart", 1)).to_bytes()),
        "endpoints": import["parts"][0]["endpoints"],
    });
    assert_eq!(*part, json!({"revision": at(part), "part": endpoints}));
    assert_eq!(*end, json!({"revision": at(end), "end": {"complete": false}}));

    east.write(&[Op::Delete { key: key("cart") }]).await;
    let changes = told(&mut watch, "section").await;
    let gone = json!({"key": cart, "cluster": "east"});
    assert!(changes.iter().any(|line| line["partGone"] == gone), "{changes:#?}");
    assert!(changes.iter().any(|line| line["headerGone"] == json!({"key": cart})), "{changes:#?}");
}

#[tokio::test]
async fn a_watch_goes_on_from_its_revision_however_the_epoch_is_spelled() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1), put("till", 1)]).await;
    let mut watch = Lines::of(open(registry.rest, request("GET", WATCH, "")).await);
    let snapshot = told(&mut watch, "end").await;
    let epoch = snapshot[0]["begin"]["epoch"].as_str().unwrap().to_owned();
    let revision = snapshot.last().unwrap()["revision"].as_str().unwrap().to_owned();
    drop(watch);
    east.write(&[put("cart", 2)]).await;

    let url_safe = epoch.replace('+', "-").replace('/', "_");
    let bare = url_safe.trim_end_matches('=');
    for spelled in [&*epoch, &*epoch.replace('+', "%2B").replace('/', "%2F"), &*url_safe, bare] {
        let path = format!("{WATCH}&epoch={spelled}&revision={revision}");
        let mut watch = Lines::of(open_http2(registry.rest, request("GET", &path, "")).await);
        let changes = told(&mut watch, "progress").await;
        assert!(changes.iter().all(|line| line["begin"].is_null()), "{changes:#?}");
        let parts: Vec<_> = changes.iter().filter(|line| line["part"].is_object()).collect();
        assert_eq!((parts.len(), &parts[0]["part"]["key"]["name"]), (1, &json!("cart")));
    }
    // Another process's revisions mean nothing here.
    let path = format!("{WATCH}&epoch=AAAAAAAAAAAAAAAAAAAAAA&revision={revision}");
    let mut watch = Lines::of(open(registry.rest, request("GET", &path, "")).await);
    assert!(watch.next().await.unwrap()["begin"].is_object());
}

#[tokio::test]
async fn a_watch_that_is_not_read_holds_nobody_up() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let (mut grpc, _) = registry.watch().await;
    let still = open(registry.rest, request("GET", WATCH, "")).await;
    // More than the connection holds, again and again.
    for _ in 0..5 {
        east.write(&[put("large", 30_000), put("cart", 1)]).await;
    }
    let version = east.version();
    loop {
        if let mcs_core::model::Frame::Change(change) = grpc.next().await.unwrap()
            && let Some(mcs_core::model::Object::Section(section)) = change.object
            && section.version == version
        {
            break;
        }
    }
    // It is told the last state, whatever it skipped.
    let mut still = Lines::of(still);
    let last = json!({"term": "1", "seq": version.seq.to_string()});
    while still.next().await.unwrap()["section"]["version"] != last {}
}

#[tokio::test]
async fn a_drain_ends_watches_and_syncs_with_a_last_line_that_says_so() {
    let registry = Started::new().await;
    registry.register("east").await;
    let mut watch = Lines::of(open(registry.rest, request("GET", WATCH, "")).await);
    told(&mut watch, "end").await;
    let (asks, body) = body();
    asks.send(json!({"begin": begin(2)})).await.unwrap();
    let path = format!("{EAST}/sync");
    let mut sync = Lines::of(open_http2(registry.rest, request("POST", &path, body)).await);

    registry.shutdown.drain();
    for lines in [&mut watch, &mut sync] {
        let last = told(lines, "error").await.pop().unwrap();
        let expected = json!({"error": {
            "code": 14,
            "message": "this registry is shutting down: go on with another, or with this one once it is back",
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "UNAVAILABLE",
                "domain": "mcs-registry.dynamo.nvidia.com",
                "metadata": {},
            }],
        }});
        assert_eq!((last, lines.next().await), (expected, None));
    }
    tokio::time::timeout(LIMIT, registry.program).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_sync_in_two_posts_first_asks_and_then_tells() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("kept", 1), put("changed", 1), put("gone", 1)]).await;

    let names = json!({"names": {"names": [
        {"key": name("kept"), "leaf": base64(&leaf(&put("kept", 1)).to_bytes())},
        {"key": name("changed"), "leaf": base64(&[9; 16])},
    ]}});
    let asks = [json!({"begin": begin(3)}), names, json!({"namesEnd": {}})];
    let wants = [json!({"wants": {"keys": [name("changed")]}}), json!({"wantsEnd": {}})];
    let path = format!("{EAST}/sync");
    assert_eq!(post_lines(&registry, &path, &asks).await, (200, wants.to_vec()));
    assert_eq!(registry.client.list_exports(&prod(), false).await.unwrap().0.len(), 3);

    let put = json!({"leaf": base64(&[9; 16]), "spec": spec(), "endpoints": addresses(&["10.0.0.9"])});
    let tells = [json!({"op": {"key": name("changed"), "put": put}}), json!({"end": {}})];
    let results = [
        json!({"result": {"key": name("changed"), "dropped": []}}),
        json!({"done": {"deleted": 1, "degraded": false}}),
    ];
    let (all, answers) = ([&asks[..], &tells[..]].concat(), [&wants[..], &results[..]].concat());
    assert_eq!(post_lines(&registry, &path, &all).await, (200, answers));
    let (exports, _) = registry.client.list_exports(&prod(), false).await.unwrap();
    let keys: Vec<_> = exports.into_iter().map(|export| export.key.unwrap().name).collect();
    assert_eq!(keys, ["changed", "kept"]);
}

#[tokio::test]
async fn a_sync_over_http2_asks_while_it_is_told() {
    let registry = Started::new().await;
    registry.register("east").await;
    let (asks, body) = body();
    asks.send(json!({"begin": begin(2)})).await.unwrap();
    let path = format!("{EAST}/sync");
    let mut sync = Lines::of(open_http2(registry.rest, request("POST", &path, body)).await);

    let leaf = base64(&[1; 16]);
    asks.send(json!({"names": {"names": [{"key": name("cart"), "leaf": leaf}]}})).await.unwrap();
    assert_eq!(sync.next().await, Some(json!({"wants": {"keys": [name("cart")]}})));
    asks.send(json!({"namesEnd": {}})).await.unwrap();
    assert_eq!(sync.next().await, Some(json!({"wantsEnd": {}})));
    let put = json!({"leaf": leaf, "spec": spec(), "endpoints": addresses(&["10.0.0.1"])});
    asks.send(json!({"op": {"key": name("cart"), "put": put}})).await.unwrap();
    assert_eq!(sync.next().await, Some(json!({"result": {"key": name("cart"), "dropped": []}})));
    asks.send(json!({"end": {}})).await.unwrap();
    assert_eq!(sync.next().await, Some(json!({"done": {"deleted": 0, "degraded": false}})));
    assert_eq!(sync.next().await, None);
}

#[tokio::test]
async fn a_sync_that_breaks_deletes_nothing_and_says_where_it_broke() {
    let registry = Started::new().await;
    registry.register("east").await.write(&[put("cart", 1)]).await;
    let path = format!("{EAST}/sync");
    let (begin, names_end) = (json!({"begin": begin(3)}), json!({"namesEnd": {}}));
    let wants_end = json!({"wantsEnd": {}});
    let delete = json!({"op": {"key": name("till"), "delete": {}}});

    // What does not begin is an error like any other.
    for (lines, field) in [
        (vec![], "step"),
        (vec![names_end.clone()], "step"),
        (vec![json!({"begin": {"uid": "uid-of-east"}})], "version"),
        (vec![json!({"begin": {"cluster": "west"}})], "cluster"),
        (vec![json!({"begin": 7})], "begin"),
    ] {
        let (status, answer) = post_lines(&registry, &path, &lines).await;
        assert_eq!(
            (status, &answer[0]["details"][0]["metadata"]["field"]),
            (400, &json!(field)),
            "{lines:?}"
        );
    }
    for (lines, before, field) in [
        (vec![begin.clone()], vec![], "namesEnd"),
        (vec![begin.clone(), json!({"end": {}})], vec![], "step"),
        (vec![begin.clone(), names_end.clone(), delete], vec![result("till"), wants_end.clone()], "end"),
        (vec![begin.clone(), names_end.clone(), json!([])], vec![wants_end.clone()], "the body"),
        (vec![begin, names_end, json!({"names": {}})], vec![wants_end], "step"),
    ] {
        let (status, mut answers) = post_lines(&registry, &path, &lines).await;
        let last = answers.pop().unwrap();
        assert_eq!((status, &last["error"]["code"]), (200, &json!(3)), "{lines:?}");
        assert_eq!(last["error"]["details"][0]["metadata"]["field"], field, "{lines:?}");
        answers.sort_by_key(ToString::to_string);
        assert_eq!(answers, before, "{lines:?}");
    }
    assert_eq!(registry.client.list_exports(&prod(), false).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_sync_whose_caller_goes_ends_and_deletes_nothing() {
    let registry = Started::new().await;
    registry.register("east").await.write(&[put("cart", 1)]).await;
    let mut stream = TcpStream::connect(registry.rest).await.unwrap();
    let steps = format!("{}\n{}\n", json!({"begin": begin(3)}), json!({"namesEnd": {}}));
    let head = format!("POST {EAST}/sync HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(format!("{head}{:x}\r\n{steps}\r\n", steps.len()).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("wantsEnd") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    drop(stream);

    let ended = r#"_count{code="Cancelled",method="Sync",transport="rest"} 1"#;
    let over = async {
        while !http(registry.admin, "GET", "/metrics").await.1.contains(ended) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, over).await.unwrap();
    assert_eq!(registry.client.list_exports(&prod(), false).await.unwrap().0.len(), 1);
}

fn name(name: &str) -> Value {
    json!({"namespace": "shop", "name": name})
}

fn result(of: &str) -> Value {
    json!({"result": {"key": name(of), "dropped": []}})
}

fn begin(seq: u64) -> Value {
    json!({"uid": "uid-of-east", "version": {"term": "1", "seq": seq.to_string()}})
}

/// A body that is sent value by value.
fn body() -> (mpsc::Sender<Value>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let lines = ReceiverStream::new(receiver)
        .map(|value: Value| Ok::<_, std::convert::Infallible>(Bytes::from(format!("{value}\n"))));
    (sender, Body::from_stream(lines))
}

/// Reads to the first line that tells this, and checks each against the document.
async fn told(lines: &mut Lines, what: &str) -> Vec<Value> {
    let schema = json!({"anyOf": [
        {"$ref": "#/components/schemas/WatchResponse"},
        {"$ref": "#/components/schemas/SyncResponse"},
        {"$ref": "#/components/schemas/StreamError"},
    ]});
    let mut all = Vec::new();
    loop {
        let line = lines.next().await.unwrap();
        schema::conforms(&line, &schema).unwrap();
        let is_last = line[what].is_object();
        all.push(line);
        if is_last {
            return all;
        }
    }
}

/// The epoch of a registry as JSON.
async fn epoch(registry: &Started, east: &Exporter) -> Value {
    let registration = crate::started::registration(&east.member, east.version(), east.sum);
    let epoch = registry.client.register(&east.member, &registration).await.unwrap().by.epoch.unwrap();
    let begin = pb::WatchBegin { epoch: epoch.0.to_be_bytes().to_vec(), ..Default::default() };
    serde_json::to_value(begin).unwrap()["epoch"].clone()
}
