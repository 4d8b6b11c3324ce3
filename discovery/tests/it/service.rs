//! The service in this process, and a client of it.

use global_discovery_service::registrations::Storage;
use global_discovery_service::{Config, Discovery, Failed, http, serve};
use mcs_core::pools::Lease;
use mcs_core::time::ManualClock;
use mcs_runtime::shutdown::Shutdown;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<Result<(), Failed>>,
}

impl Service {
    pub(crate) async fn start(discovery: Discovery) -> Self {
        let lease = Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
        Self::start_over(discovery, Storage::Memory, lease, Arc::default()).await
    }

    pub(crate) async fn start_over(
        discovery: Discovery,
        storage: Storage,
        lease: Lease,
        clock: Arc<ManualClock>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
        let config = Config {
            discovery,
            storage,
            lease,
            http: http::Limits {
                listener: mcs_runtime::http::Limits::default(),
                body: 4096,
                request: PATIENCE,
            },
            drain_delay: Duration::from_secs(5),
        };
        let task = tokio::spawn(serve(config, clock.clone(), listener, shutdown.watch()));
        Self { address, clock, shutdown, task }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        ask(self.address, "GET", path, "").await
    }

    /// A list as JSON; it must be there.
    pub(crate) async fn list(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn post(&self, body: &str) -> (u16, String) {
        ask(self.address, "POST", "/pools", body).await
    }

    /// Registers `east/ml/<dgd>`.
    pub(crate) async fn register(&self, dgd: &str) {
        assert_eq!(self.post(&registration(dgd).to_string()).await.0, 200);
    }

    /// Waits until a list is as expected, and shows what it was when it never is.
    pub(crate) async fn until_listed(&self, path: &str, expected: Value) {
        let seen = tokio::sync::Mutex::new(Value::Null);
        let is_listed = tokio::time::timeout(PATIENCE, async {
            loop {
                let (status, body) = self.get(path).await;
                let list = if status == 200 { serde_json::from_str(&body).unwrap() } else { json!(status) };
                if list == expected {
                    return;
                }
                *seen.lock().await = list;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        if is_listed.await.is_err() {
            assert_eq!(*seen.lock().await, expected);
        }
    }
}

pub(crate) fn registration(dgd: &str) -> Value {
    json!({
        "key": {"cluster_id": "east", "namespace": "ml", "dgd_name": dgd},
        "location": {"region": null, "availability_zone": "us-east-2a", "datacenter": null},
        "model": "llama",
        "capabilities": ["chat"],
        "capacity": [{"workers": 4}],
        "frontends": ["http://10.0.0.9:8000"]
    })
}

/// Status and body of one request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut client = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    read_answer(&mut client).await
}

/// What the server answered until it closed the connection.
pub(crate) async fn read_answer(client: &mut TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
