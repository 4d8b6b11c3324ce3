//! Answers whatever is asked: paths, methods, HEAD, and the form of errors.

use crate::lists::registrations;
use crate::service::{Answer, Service, registration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The paths, with the methods that each takes.
const PATHS: [(&str, &str); 9] = [
    ("/pools", "GET, POST, HEAD, OPTIONS"),
    ("/pools/watch", "GET, HEAD, OPTIONS"),
    ("/routers", "GET, HEAD, OPTIONS"),
    ("/routers/watch", "GET, HEAD, OPTIONS"),
    ("/healthz", "GET, HEAD, OPTIONS"),
    ("/readyz", "GET, HEAD, OPTIONS"),
    ("/livez", "GET, HEAD, OPTIONS"),
    ("/metrics", "GET, HEAD, OPTIONS"),
    ("/openapi.json", "GET, HEAD, OPTIONS"),
];

fn assert_error(answer: &Answer, status: u16) {
    assert_eq!((answer.status, answer.header("content-type")), (status, "application/json"), "{answer:?}");
    let error = answer.json();
    assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()), "{answer:?}");
    assert_eq!(error.as_object().unwrap().len(), 1, "{answer:?}");
}

#[tokio::test]
async fn a_path_that_is_not_there_is_404_as_json() {
    let service = Service::start(registrations()).await;
    let long = format!("/{}", "a".repeat(5_000));
    for path in [
        "/",
        "/pool",
        "/pools/",
        "/pools/x",
        "/pools/watch/",
        "//pools",
        "/Pools",
        "/%70ools",
        "/pools%2fwatch",
        "/pools/../routers",
        "/./pools",
        "/pools;x=1",
        "/%00",
        "/%ff",
        "/%0d%0aset-cookie:x",
        &long,
    ] {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            assert_error(&service.ask(method, path, &[]).await, 404);
        }
    }
}

#[tokio::test]
async fn a_query_is_ignored() {
    let service = Service::start(registrations()).await;
    for query in ["?", "?x=1", "?complete=false&complete=true", "?%00%ff=%zz", "?a/../b"] {
        assert_eq!(service.get(&format!("/pools{query}")).await, service.get("/pools").await);
    }
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_405_with_those_that_it_takes() {
    let service = Service::start(registrations()).await;
    for (path, allowed) in PATHS {
        for method in ["PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "get"] {
            let answer = service.ask(method, path, &[]).await;
            assert_error(&answer, 405);
            assert_eq!(answer.header("allow"), allowed, "{path}");
        }
        if path != "/pools" {
            assert_error(&service.ask("POST", path, &[]).await, 405);
        }
        let answer = service.ask("OPTIONS", path, &[]).await;
        assert_eq!((answer.status, answer.header("allow"), &*answer.body), (204, allowed, ""));
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    for (path, _) in PATHS.into_iter().filter(|(path, _)| !path.ends_with("/watch") && *path != "/metrics") {
        let (head, get) = (service.ask("HEAD", path, &[]).await, service.ask("GET", path, &[]).await);
        assert_eq!((head.status, &*head.body), (200, ""), "{path}");
        let without_date = |answer: &Answer| {
            let mut headers = answer.headers.clone();
            headers.remove("date");
            headers
        };
        assert_eq!(without_date(&head), without_date(&get), "{path}");
        assert_eq!(head.header("content-length"), get.body.len().to_string(), "{path}");
    }
    for path in ["/pools/watch", "/routers/watch"] {
        let head = service.ask("HEAD", path, &[]).await;
        assert_eq!((head.status, head.header("content-type"), &*head.body), (200, "text/event-stream", ""));
    }
}

#[tokio::test]
async fn every_answer_is_json_but_metrics_and_streams() {
    let service = Service::start(registrations()).await;
    for (path, _) in PATHS.into_iter().filter(|(path, _)| !path.ends_with("/watch")) {
        let answer = service.ask("GET", path, &[]).await;
        if path == "/metrics" {
            assert!(answer.header("content-type").starts_with("text/plain"), "{answer:?}");
        } else {
            assert_eq!(answer.header("content-type"), "application/json", "{path}");
            answer.json();
        }
    }
}

#[tokio::test]
async fn connections_above_the_limit_are_told_so_in_json() {
    let service = Service::start_with(registrations(), |config| config.http.listener.connections = 1).await;
    let mut held = TcpStream::connect(service.address).await.unwrap();
    held.write_all(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    held.read_u8().await.unwrap();
    let answer = service.ask("GET", "/pools", &[]).await;
    assert_error(&answer, 503);
    assert!(answer.body.contains("--max-connections") && answer.header("retry-after") == "1", "{answer:?}");
}

/// What is left of the body of a refused request would be taken for the next one.
#[tokio::test]
async fn a_refusal_before_the_body_was_read_closes_the_connection_and_one_after_it_does_not() {
    let service = Service::start(registrations()).await;
    let body = registration("chat").to_string();
    let closes = async |request: String| {
        let mut client = TcpStream::connect(service.address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(client.read_u8().await.unwrap());
        }
        String::from_utf8(answer).unwrap().contains("connection: close")
    };
    let with_body = |method: &str, path: &str, body: &str| {
        format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let cases = [
        (with_body("POST", "/pools", &body), false),
        (with_body("POST", "/pools", "{}"), false),
        (with_body("POST", "/pools", &" ".repeat(5_000)), true),
        (with_body("PUT", "/pools", &body), true),
        (with_body("POST", "/elsewhere", &body), true),
        (with_body("GET", "/pools", &body), true),
        ("GET /pools HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(), false),
    ];
    for (request, expected) in cases {
        assert_eq!(closes(request.clone()).await, expected, "{request}");
    }
}
