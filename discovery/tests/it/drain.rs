//! The end of the process: unready first, answers for its delay, and no request under way is cut or waited for in vain.

use crate::lists::{OK, registrations};
use crate::service::{Answer, PATIENCE, Service, head, read_answer, registration};
use mcs_runtime::shutdown::Shutdown;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than a test may take: what waits for its end fails.
const GRACE: Duration = Duration::from_secs(3600);

async fn start(delay: Duration) -> Service {
    let change = |config: &mut global_discovery_service::Config| {
        config.http.listener.grace = GRACE;
        config.drain_delay = delay;
    };
    Service::start_with(registrations(), change).await
}

/// A request that has begun, and of which the body is not there yet.
async fn begun(service: &Service) -> (TcpStream, String) {
    let body = registration("late").to_string();
    let mut client = TcpStream::connect(service.address).await.unwrap();
    let head = head("POST", "/pools", &["expect: 100-continue"], body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    // It is asked for when the handler reads it.
    let mut asked = [0; 25];
    timeout(PATIENCE, client.read_exact(&mut asked)).await.unwrap().unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    (client, body)
}

#[tokio::test]
async fn the_drain_is_unready_first_answers_for_its_delay_and_then_ends() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    service.shutdown.drain();
    let while_draining =
        [service.get("/healthz").await, service.get("/readyz").await, service.get("/livez").await];
    let not_ready = || (503, r#"{"error":"not ready: shutting down"}"#.to_owned());
    assert_eq!(while_draining, [not_ready(), not_ready(), (200, OK.to_owned())]);
    service.clock.advance(Duration::from_millis(4999));
    assert_eq!(service.get("/pools").await.0, 200);
    service.register("late").await;

    service.clock.advance(Duration::from_millis(1));
    tokio::time::timeout(PATIENCE, service.task).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(service.address).await.is_err());
}

#[tokio::test]
async fn a_request_under_way_is_finished_and_then_the_process_ends_at_once() {
    let service = start(Duration::from_secs(5)).await;
    let (mut client, body) = begun(&service).await;
    service.shutdown.drain();
    // Its delay has begun when it is told.
    assert_eq!(service.get("/healthz").await.0, 503);
    service.clock.advance(Duration::from_secs(5));
    let closed = async { while TcpStream::connect(service.address).await.is_ok() {} };
    timeout(PATIENCE, closed).await.expect("connections are still accepted");
    assert!(!service.task.is_finished(), "a request is under way");

    client.write_all(body.as_bytes()).await.unwrap();
    let Answer { status, .. } = read_answer(&mut client).await;
    assert_eq!(status, 200);
    timeout(PATIENCE, service.task).await.expect("it waits for a grace").unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_after_the_grace() {
    let change = |config: &mut global_discovery_service::Config| {
        config.http.listener.grace = Duration::from_millis(50);
        config.drain_delay = Duration::ZERO;
    };
    let service = Service::start_with(registrations(), change).await;
    let (mut client, _) = begun(&service).await;
    service.shutdown.drain();
    timeout(PATIENCE, service.task).await.unwrap().unwrap().unwrap();
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"", "it is not answered");
}

/// The last request ends while the port closes, again and again, on threads of their own: were its wake-up lost once,
/// the process would wait for its grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_last_request_is_noticed_however_it_meets_the_drain() {
    for round in 0..100 {
        let service = start(Duration::ZERO).await;
        let (mut client, body) = begun(&service).await;
        let shutdown: Shutdown = service.shutdown.clone();
        let ending = tokio::spawn(async move {
            for _ in 0..round % 10 {
                tokio::task::yield_now().await;
            }
            shutdown.drain();
        });
        client.write_all(body.as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut client).await.status, 200);
        ending.await.unwrap();
        timeout(PATIENCE, service.task).await.expect("it waits for a grace").unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_idle_connection_holds_nothing_up() {
    let service = start(Duration::ZERO).await;
    let mut idle = TcpStream::connect(service.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    idle.read_u8().await.unwrap();
    let silent = TcpStream::connect(service.address).await.unwrap();
    service.shutdown.drain();
    timeout(PATIENCE, service.task).await.expect("it waits for a grace").unwrap().unwrap();
    drop((idle, silent));
}
