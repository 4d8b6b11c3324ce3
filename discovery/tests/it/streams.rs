//! Watches of both lists: server-sent events, each a step of the list.

use crate::events::Events;
use crate::lists::registrations;
use crate::objects::{frontend, relay, router};
use crate::service::{Answer, PATIENCE, Service, head, registration, request};
use crate::slices::start;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

fn key(dgd: &str) -> Value {
    json!({"cluster_id": "east", "namespace": "ml", "dgd_name": dgd})
}

fn listing(dgd: &str, model: &str) -> Value {
    json!({
        "key": key(dgd),
        "location": {"region": null, "availability_zone": "us-east-2a", "datacenter": null},
        "model": model, "capabilities": ["chat"], "capacity": [{"workers": 4}],
        "frontends": ["http://10.0.0.9:8000/"], "relay_identities": []
    })
}

fn changed(dgd: &str, model: &str) -> String {
    let mut changed = registration(dgd);
    changed["model"] = json!(model);
    changed.to_string()
}

#[tokio::test]
async fn a_watch_tells_the_whole_list_and_then_each_change() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    let mut pools = Events::open(service.address, "/pools/watch").await;
    let whole = json!({"pools": [listing("chat", "llama")], "complete": false});
    assert_eq!(pools.named("resync").await, whole);

    service.register("code").await;
    // A heartbeat is no event, as the next one shows.
    service.register("chat").await;
    service.post(&changed("chat", "mixtral")).await;
    assert_eq!(pools.named("upserted").await, listing("code", "llama"));
    assert_eq!(pools.named("upserted").await, listing("chat", "mixtral"));

    // After a lease the list is complete; what did not register again is gone.
    service.pass(Duration::from_millis(14_999)).await;
    service.post(&changed("chat", "mixtral")).await;
    service.pass(Duration::from_millis(1)).await;
    let mut seen = vec![pools.next().await.unwrap()];
    if seen[0].0 == "removed" {
        assert_eq!(seen[0].1, json!({"key": key("code")}));
        seen.push(pools.next().await.unwrap());
    }
    let whole = json!({"pools": [listing("chat", "mixtral")], "complete": true});
    assert!(seen.contains(&("resync".to_owned(), whole)), "{seen:?}");
    service.pass(Duration::from_secs(15)).await;
    assert_eq!(pools.named("removed").await, json!({"key": key("chat")}));
}

#[tokio::test]
async fn a_watch_of_routers_tells_their_replicas() {
    let service = Service::start(registrations()).await;
    let mut routers = Events::open(service.address, "/routers/watch").await;
    let replica = json!({"id": "aws-ohio/global-router-0", "url": "http://10.42.0.5:50051/"});
    assert_eq!(routers.named("resync").await, json!({"routers": [replica], "complete": true}));
}

#[tokio::test]
async fn changes_of_slices_are_told_to_both_watches() {
    let (service, mut api) = start().await;
    api.list().await.listed("70", json!([relay(&["10.43.1.2"]), frontend(&["10.43.1.9"])]));
    let watch = api.watch("70").await;
    service.until_listed("/routers", json!({"routers": [], "complete": true})).await;
    let mut routers = Events::open(service.address, "/routers/watch").await;
    let mut pools = Events::open(service.address, "/pools/watch").await;
    assert_eq!(routers.named("resync").await, json!({"routers": [], "complete": true}));
    assert_eq!(pools.named("resync").await, json!({"pools": [], "complete": false}));

    watch.event("ADDED", &router(&["10.43.1.5"]));
    let replica = json!({"id": "east/10.43.1.5", "url": "http://10.43.1.5:50051/"});
    assert_eq!(routers.named("upserted").await, replica);
    watch.event("DELETED", &router(&["10.43.1.5"]));
    assert_eq!(routers.named("removed").await, json!({"id": "east/10.43.1.5"}));

    service.register("chat").await;
    assert_eq!(pools.named("upserted").await["relay_identities"], json!(["ip:10.43.1.2"]));
    watch.event("DELETED", &relay(&["10.43.1.2"]));
    assert_eq!(pools.named("removed").await, json!({"key": key("chat")}));
}

/// What is told is what is listed, in whatever order it came.
#[tokio::test]
async fn the_events_applied_in_order_give_the_list() {
    let service = Service::start(registrations()).await;
    let mut events = Events::open(service.address, "/pools/watch").await;
    let mut listed: Vec<Value> = Vec::new();
    events.named("resync").await;
    for round in 0..20 {
        for dgd in ["a", "b-1", "b", "c"] {
            service.post(&changed(dgd, &format!("model-{}", round % 3))).await;
        }
    }
    service.register("last").await;
    loop {
        let pool = events.named("upserted").await;
        let is_last = pool["key"] == key("last");
        match listed.iter_mut().find(|known| known["key"] == pool["key"]) {
            Some(known) => *known = pool,
            None => listed.push(pool),
        }
        if is_last {
            break;
        }
    }
    listed.sort_by_key(|pool| pool["key"]["dgd_name"].as_str().unwrap().to_owned());
    assert_eq!(service.list("/pools").await["pools"], json!(listed));
}

#[tokio::test]
async fn a_reader_that_is_slow_is_told_the_whole_list_again_and_harms_nobody() {
    const ROUNDS: usize = 1_200;
    let limits = |config: &mut global_discovery_service::Config| config.http.body = 1 << 16;
    let service = Service::start_with(registrations(), limits).await;
    // It takes little, and then nothing: what is sent fills the buffers of the system, and no other.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = Events::on(socket.connect(service.address).await.unwrap(), "/pools/watch").await;
    let mut fast = Events::open(service.address, "/pools/watch").await;
    slow.named("resync").await;
    fast.named("resync").await;

    let reading = tokio::spawn(async move {
        for round in 0..ROUNDS {
            let pool = fast.named("upserted").await;
            assert!(pool["model"].as_str().unwrap().starts_with(&format!("{round}-")), "{round} is missing");
        }
        fast
    });
    // 36 MB of events: more than any buffer holds, and more events than are kept.
    for round in 0..ROUNDS {
        let body = changed("busy", &format!("{round}-{}", "x".repeat(30_000)));
        assert_eq!(service.post(&body).await.0, 200);
    }
    let mut fast = timeout(PATIENCE, reading).await.unwrap().unwrap();

    let mut told = Vec::new();
    let whole = loop {
        let (name, data) = slow.next().await.expect("the stream has ended");
        if name == "resync" {
            break data;
        }
        let model = data["model"].as_str().unwrap();
        told.push(model.split('-').next().unwrap().parse::<usize>().unwrap());
    };
    assert!(told.len() < ROUNDS && told.iter().copied().eq(0..told.len()), "a gap before the list: {told:?}");
    assert_eq!(whole, service.list("/pools").await);
    service.register("after").await;
    assert_eq!(slow.named("upserted").await, listing("after", "llama"));
    assert_eq!(fast.named("upserted").await, listing("after", "llama"));
    let (_, metrics) = service.get("/metrics").await;
    for line in [
        r#"global_discovery_resyncs_total{cause="behind",list="pools"} 1"#,
        r#"global_discovery_resyncs_total{cause="begin",list="pools"} 2"#,
        r#"global_discovery_watchers{list="pools"} 2"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn watches_above_the_limit_are_told_so_and_one_that_ends_makes_room() {
    let service = Service::start_with(registrations(), |config| config.http.streams = 2).await;
    let held = [
        Events::open(service.address, "/pools/watch").await,
        Events::open(service.address, "/routers/watch").await,
    ];
    let refused = service.ask("GET", "/pools/watch", &[]).await;
    let told =
        "2 watches are open, the most that there may be (--max-streams): watch another replica, or list";
    assert_eq!((refused.status, refused.json()), (503, json!({"error": told})));
    assert_eq!(refused.header("retry-after"), "1");
    // HEAD opens none, and lists are answered.
    assert_eq!(service.ask("HEAD", "/pools/watch", &[]).await.status, 200);
    assert_eq!(service.get("/pools").await.0, 200);
    drop(held);
    // The server learns of the end of a connection a little later.
    let opened = async { while !watches(&service).await {} };
    timeout(PATIENCE, opened).await.unwrap();
}

/// Whether one more watch is taken.
async fn watches(service: &Service) -> bool {
    let mut client = TcpStream::connect(service.address).await.unwrap();
    client.write_all(head("GET", "/pools/watch", &[], 0).as_bytes()).await.unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    &status == b"HTTP/1.1 200"
}

#[tokio::test]
async fn watches_end_when_the_drain_begins_and_lists_are_answered_on() {
    let service = Service::start(registrations()).await;
    let mut watches = Vec::new();
    for path in ["/pools/watch", "/routers/watch"] {
        let mut events = Events::open(service.address, path).await;
        events.named("resync").await;
        watches.push(events);
    }
    service.shutdown.drain();
    for mut events in watches {
        assert_eq!(events.next().await, None);
    }
    let Answer { status, body, .. } = request(service.address, "GET", "/pools/watch", &[], b"").await;
    assert!(status == 503 && body.contains("shuts down"), "{status} {body}");
    assert_eq!(service.get("/pools").await.0, 200);

    service.pass(Duration::from_secs(5)).await;
    timeout(PATIENCE, service.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_watch_over_http2_is_the_same() {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let service = Service::start(registrations()).await;
    let stream = TcpStream::connect(service.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::get("http://test/pools/watch").body(String::new()).unwrap();
    let mut answer = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        let frame = timeout(PATIENCE, http_body_util::BodyExt::frame(&mut answer)).await.unwrap();
        text.push_str(std::str::from_utf8(frame.unwrap().unwrap().data_ref().unwrap()).unwrap());
    }
    assert_eq!(text, "event: resync\ndata: {\"pools\":[],\"complete\":false}\n\n");
    connection.abort();
}
