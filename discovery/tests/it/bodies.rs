//! Bodies as no relay sends them: each is refused with a message that names the field, or taken, and nothing is lost.

use crate::lists::registrations;
use crate::service::{PATIENCE, Service, read_answer, registration, request};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A registration in which `from` is replaced.
fn with(from: &str, to: &str) -> String {
    let body = registration("chat").to_string();
    assert!(body.contains(from), "{from} is not in {body}");
    body.replacen(from, to, 1)
}

/// Cases O60, O61 and O63: names, and texts that would be more than a text where they are shown.
#[tokio::test]
async fn what_is_wrong_is_told_with_its_field_and_what_was_registered_stays() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    let before = service.get("/pools").await;
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let long = "a".repeat(64);
    let cases = [
        (with("\"east\"", "\"East\""), "key.cluster_id"),
        (with("\"east\"", "\"a/b\""), "key.cluster_id"),
        (with("\"east\"", "\"\""), "key.cluster_id"),
        (with("\"east\"", &format!("\"{long}\"")), "key.cluster_id"),
        (with("\"ml\"", "\"..\""), "key.namespace"),
        (with("\"dgd_name\":\"chat\"", "\"dgd_name\":\"c\\u0000\""), "key.dgd_name"),
        (with("\"llama\"", "null"), "model"),
        (with("\"llama\"", "\" \\t\""), "model"),
        (with("\"llama\"", "\"a\\u0000b\""), "model"),
        (with("\"llama\"", "\"a\\r\\nb\""), "model"),
        (with("\"llama\"", "\"\\u001b[31m\""), "model"),
        (with("[\"chat\"]", "[\"chat\",\"\\u0007\"]"), "capabilities[1]"),
        (with("[\"chat\"]", "{}"), "capabilities"),
        (with("[\"chat\"]", "[null]"), "capabilities[0]"),
        (with("\"us-east-2a\"", "\"\\u0085\""), "location.availability_zone"),
        (with("\"us-east-2a\"", "7"), "location.availability_zone"),
        (with("{\"workers\":4}", "{\"workers\":-1}"), "capacity[0].workers"),
        (with("{\"workers\":4}", "{\"workers\":1e400}"), "capacity[0].workers"),
        (with("{\"workers\":4}", "{}"), "capacity[0]"),
        (with("http://10.0.0.9:8000", "ftp://10.0.0.9"), "frontends[0]"),
        (with("http://10.0.0.9:8000", "http://"), "frontends[0]"),
        (with("http://10.0.0.9:8000", "http://a b"), "frontends[0]"),
        // Two readers may take different ones of two.
        (with("\"model\":", "\"model\":\"other\",\"model\":"), "model"),
        (with("\"cluster_id\":", "\"cluster_id\":\"west\",\"cluster_id\":"), "key"),
        (deep(1_500), "JSON"),
        (with("\"llama\"", &deep(500)), "model"),
        ("".to_owned(), "JSON"),
        ("[]".to_owned(), "expected a JSON object"),
        ("null".to_owned(), "null"),
        (format!("{} {{}}", registration("chat")), "trailing"),
    ];
    for (body, field) in cases {
        let (status, answer) = service.post(&body).await;
        let error: Value = serde_json::from_str(&answer).unwrap();
        let told = error["error"].as_str().unwrap();
        assert!(status == 422 && told.contains(field), "{field} of {body}: {status} {told}");
        assert!(!told.contains(char::is_control), "{told:?}");
    }
    assert_eq!(service.get("/pools").await, before);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let service = Service::start(registrations()).await;
    let body = registration("chat").to_string();
    let (before, after) = body.split_once("llama").unwrap();
    for bad in [&b"\xff"[..], b"a\xc0\xafb", b"\xed\xa0\x80", b"caf\xc3", b"\0", b"\n"] {
        let body = [before.as_bytes(), bad, after.as_bytes()].concat();
        let answer = request(service.address, "POST", "/pools", &[], &body).await;
        assert_eq!(answer.status, 422, "{bad:?}: {answer:?}");
        answer.json();
    }
    assert_eq!(service.list("/pools").await["pools"], json!([]));
}

/// Case O62, and what relays of other versions leave out.
#[tokio::test]
async fn unknown_fields_are_ignored_whatever_they_are_and_missing_lists_are_empty() {
    let service = Service::start(registrations()).await;
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let unknown = format!(
        "\"weight\":5,\"future\":{{\"key\":{{\"cluster_id\":7}},\"x\":{deep}}},\"\\u0000\":null,\"a\":1,\"a\":2,\"model\":"
    );
    for body in [
        with("\"model\":", &unknown),
        with("\"dgd_name\":", "\"tenant\":[],\"dgd_name\":"),
        with("{\"workers\":4}", "{\"workers\":4,\"gpus\":8}"),
    ] {
        assert_eq!(service.post(&body).await.0, 200, "{body}");
    }
    let short =
        json!({"key": {"cluster_id": "east", "namespace": "ml", "dgd_name": "chat"}, "model": "llama"});
    assert_eq!(service.post(&short.to_string()).await.0, 200);
    let listed = service.list("/pools").await["pools"][0].clone();
    let empty = json!([]);
    let lists = ["capabilities", "capacity", "frontends", "relay_identities"].map(|list| &listed[list]);
    assert_eq!(lists, [&empty; 4]);
    assert_eq!(listed["location"], json!({"region": null, "availability_zone": null, "datacenter": null}));
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
    let service = Service::start(registrations()).await;
    let mut body = registration("chat").to_string();
    body.push_str(&" ".repeat(4096 - body.len()));
    assert_eq!(service.post(&body).await.0, 200);
    body.push(' ');
    let (status, answer) = service.post(&body).await;
    assert!(status == 413 && answer.contains("4096"), "{status} {answer}");
}

/// Case O64, in little: the limit of the program is nine seconds for a window, and thirty for the whole.
#[tokio::test]
async fn a_body_that_does_not_come_is_given_up_in_json() {
    let late =
        |config: &mut global_discovery_service::Config| config.http.request = Duration::from_millis(50);
    let service = Service::start_with(registrations(), late).await;
    let mut client = TcpStream::connect(service.address).await.unwrap();
    client.write_all(b"POST /pools HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, read_answer(&mut client)).await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (408, "close"));
    answer.json();
}
