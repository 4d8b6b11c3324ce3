//! Registrations, lists, probes and refusals.

use crate::service::{Service, read_answer, registration};
use global_discovery_service::Discovery;
use mcs_core::ids::ClusterId;
use mcs_core::pools::{ReplicaId, RouterReplica};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

pub(crate) const OK: &str = r#"{"status":"ok"}"#;

pub(crate) fn registrations() -> Discovery {
    let id = ReplicaId { cluster: ClusterId::new("aws-ohio").unwrap(), replica: "global-router-0".into() };
    Discovery::Registrations(vec![RouterReplica { id, url: "http://10.42.0.5:50051/".into() }])
}

#[tokio::test]
async fn a_registered_pool_is_listed_until_its_lease_ends() {
    let service = Service::start(registrations()).await;
    let lease = service.post(&registration("chat").to_string()).await;
    assert_eq!(lease, (200, r#"{"lease_duration_secs":15,"heartbeat_interval_secs":5}"#.to_owned()));

    let mut seen = vec![service.get("/pools").await.1];
    for millis in [14_999, 1] {
        service.pass(Duration::from_millis(millis)).await;
        seen.push(service.get("/pools").await.1);
    }
    let pool = concat!(
        r#"{"key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"},"#,
        r#""location":{"region":null,"availability_zone":"us-east-2a","datacenter":null},"#,
        r#""model":"llama","capabilities":["chat"],"frontends":["http://10.0.0.9:8000/"],"#,
        r#""capacity":[{"workers":4}],"relay_identities":[]}"#,
    );
    let listed = format!(r#"{{"pools":[{pool}],"complete":false}}"#);
    assert_eq!(seen, [listed.clone(), listed, r#"{"pools":[],"complete":true}"#.to_owned()]);
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease() {
    let service = Service::start(registrations()).await;
    for _ in 0..4 {
        service.register("chat").await;
        service.pass(Duration::from_secs(14)).await;
    }
    let list = service.list("/pools").await;
    assert_eq!((list["pools"].as_array().unwrap().len(), &list["complete"]), (1, &json!(true)));
}

#[tokio::test]
async fn pools_are_sorted_by_key_and_changes_replace_them() {
    let service = Service::start(registrations()).await;
    for dgd in ["b", "c", "a-1", "a", "b"] {
        service.register(dgd).await;
    }
    let mut changed = registration("b");
    changed["model"] = json!("mixtral");
    service.post(&changed.to_string()).await;
    let list = service.list("/pools").await;
    let entry = |pool: &serde_json::Value| (pool["key"]["dgd_name"].clone(), pool["model"].clone());
    let listed: Vec<_> = list["pools"].as_array().unwrap().iter().map(entry).collect();
    let expected = [("a", "llama"), ("a-1", "llama"), ("b", "mixtral"), ("c", "llama")];
    assert_eq!(listed, expected.map(|(dgd, model)| (json!(dgd), json!(model))));
}

#[tokio::test]
async fn the_given_routers_are_listed() {
    let service = Service::start(registrations()).await;
    let routers =
        r#"{"routers":[{"id":"aws-ohio/global-router-0","url":"http://10.42.0.5:50051/"}],"complete":true}"#;
    assert_eq!(service.get("/routers").await, (200, routers.to_owned()));
    let none = Service::start(Discovery::Registrations(vec![])).await;
    assert_eq!(none.get("/routers").await, (200, r#"{"routers":[],"complete":true}"#.to_owned()));
}

#[tokio::test]
async fn a_body_that_is_no_registration_is_refused_with_the_field() {
    let service = Service::start(registrations()).await;
    let mut upper_case = registration("chat");
    upper_case["key"]["cluster_id"] = json!("East");
    let mut blank = registration("chat");
    blank["model"] = json!("  ");
    let mut text = registration("chat");
    text["capacity"] = json!([{"workers": "four"}]);
    for (body, field) in [
        (upper_case.to_string(), "key.cluster_id"),
        (blank.to_string(), "model"),
        (text.to_string(), "capacity[0].workers"),
        ("{}".to_owned(), "key"),
        ("nonsense".to_owned(), "JSON"),
    ] {
        let (status, answer) = service.post(&body).await;
        assert!(status == 422 && answer.contains(field), "{field}: {status} {answer}");
    }
    assert_eq!(service.list("/pools").await["pools"], json!([]));
}

/// Case O63: a body above the limit is refused before it is read.
#[tokio::test]
async fn a_body_above_the_limit_is_refused_before_it_is_read() {
    let service = Service::start(registrations()).await;
    let mut client = TcpStream::connect(service.address).await.unwrap();
    let head = "POST /pools HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 200000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let refused = read_answer(&mut client).await;
    assert_eq!((refused.status, refused.header("connection")), (413, "close"));
    assert!(refused.body.contains("4096 bytes"), "{refused:?}");

    let mut client = TcpStream::connect(service.address).await.unwrap();
    let chunk = format!("1001\r\n{}\r\n0\r\n\r\n", " ".repeat(0x1001));
    let head =
        "POST /pools HTTP/1.1\r\nhost: test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    client.write_all(format!("{head}{chunk}").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut client).await.status, 413);
}

#[tokio::test]
async fn probes_and_metrics_answer() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    let probes = [service.get("/healthz").await, service.get("/readyz").await, service.get("/livez").await];
    assert_eq!(probes, [(); 3].map(|()| (200, OK.to_owned())));
    let (status, metrics) = service.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        r#"global_discovery_listed{list="pools"} 1"#,
        r#"global_discovery_listed{list="routers"} 1"#,
        r#"global_discovery_complete{list="pools"} 0"#,
        "global_discovery_registrations 1",
        r#"global_discovery_request_seconds_count{method="POST",path="/pools",status="200"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_new_pool_is_refused_above_the_most_and_those_that_are_registered_go_on() {
    let service = Service::start_with(registrations(), |config| config.most_pools = 2).await;
    for pool in ["chat", "embed"] {
        service.register(pool).await;
    }
    let full = "2 pools are registered, the most that there may be (--max-pools): those that are go on";
    let refused = (503, json!({"error": full}).to_string());
    assert_eq!(service.post(&registration("rank").to_string()).await, refused);
    service.pass(Duration::from_secs(5)).await;
    service.register("chat").await;
    assert_eq!(service.post(&registration("rank").to_string()).await, refused);
    // The other one lapses.
    service.pass(Duration::from_secs(10)).await;
    service.register("rank").await;
    let list = service.list("/pools").await;
    let names: Vec<_> =
        list["pools"].as_array().unwrap().iter().map(|pool| &pool["key"]["dgd_name"]).collect();
    assert_eq!(names, ["chat", "rank"]);
}
