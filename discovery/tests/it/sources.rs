//! What is served is looked for while the port answers already: a region of AWS takes seconds where nobody tells it.

use crate::lists::registrations;
use crate::service::{ANY, LEASE, PATIENCE, ask, config};
use global_discovery_service::registrations::Storage;
use global_discovery_service::{Config, Failed, Sources, serve};
use mcs_core::time::ManualClock;
use mcs_runtime::shutdown::Shutdown;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot::{self, Sender};
use tokio::task::JoinHandle;

/// What came of looking.
type Found = Result<Sources, &'static str>;

/// A service that looks for what it serves until it is told.
async fn looking() -> (SocketAddr, Sender<Found>, Shutdown, JoinHandle<Result<(), Failed>>) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
    let (tell, told) = oneshot::channel();
    let config = Config { drain_delay: Duration::ZERO, ..config(LEASE) };
    let sources = async { told.await.unwrap() };
    let clock = Arc::new(ManualClock::default());
    let task = tokio::spawn(serve(config, sources, clock, listener, shutdown.watch()));
    (address, tell, shutdown, task)
}

async fn ended(task: JoinHandle<Result<(), Failed>>) -> Result<(), String> {
    let ended = tokio::time::timeout(PATIENCE, task).await.expect("it does not end").unwrap();
    ended.map_err(|failed| failed.to_string())
}

#[tokio::test]
async fn the_process_says_that_it_lives_while_it_looks_for_what_it_serves() {
    let (address, tell, _shutdown, _task) = looking().await;
    let get = async |path: &str| ask(address, "GET", path, "").await;
    assert_eq!(get("/livez").await.0, 200);
    let (status, missing) = get("/readyz").await;
    assert_eq!((status, &*missing), (503, "{\"error\":\"not ready: what lists are made of\"}"));
    assert_eq!([get("/healthz").await.0, get("/pools").await.0, get("/none").await.0], [503; 3]);

    tell.send(Ok(Sources { discovery: registrations(), storage: Storage::Memory })).ok().unwrap();
    let ready = async { while get("/readyz").await.0 != 200 {} };
    tokio::time::timeout(PATIENCE, ready).await.expect("never ready");
    assert_eq!(get("/pools").await.0, 200);
}

#[tokio::test]
async fn what_is_not_found_ends_it_with_the_cause() {
    let (_, tell, _shutdown, task) = looking().await;
    tell.send(Err("no AWS region is known")).ok().unwrap();
    assert_eq!(ended(task).await, Err("no AWS region is known".to_owned()));
}

#[tokio::test]
async fn a_drain_ends_it_while_it_looks() {
    let (address, tell, shutdown, task) = looking().await;
    assert_eq!(ask(address, "GET", "/livez", "").await.0, 200);
    shutdown.drain();
    assert_eq!(ended(task).await, Ok(()));
    drop(tell);
}
