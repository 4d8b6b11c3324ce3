//! The service in this process, and a client of it.

use global_discovery_service::registrations::Storage;
use global_discovery_service::{Config, Discovery, Failed, Sources, http, serve};
use mcs_core::pools::Lease;
use mcs_core::time::{ManualClock, WallTime};
use mcs_runtime::shutdown::Shutdown;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// When the service starts: certificates are good then.
const NOW: WallTime = WallTime::from_unix_secs(1_795_978_809);

/// Of most tests.
pub(crate) const LEASE: Lease =
    Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };
/// Any free port.
pub(crate) const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<Result<(), Failed>>,
}

impl Service {
    pub(crate) async fn start(discovery: Discovery) -> Self {
        Self::start_with(discovery, |_| ()).await
    }

    /// Where another one was.
    pub(crate) async fn start_at(address: SocketAddr, discovery: Discovery) -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self::started(address, discovery, Storage::Memory, LEASE, clock, |_| ()).await
    }

    /// With another configuration than most tests need.
    pub(crate) async fn start_with(discovery: Discovery, change: impl FnOnce(&mut Config)) -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self::started(ANY, discovery, Storage::Memory, LEASE, clock, change).await
    }

    pub(crate) async fn start_over(
        discovery: Discovery,
        storage: Storage,
        lease: Lease,
        clock: Arc<ManualClock>,
    ) -> Self {
        Self::started(ANY, discovery, storage, lease, clock, |_| ()).await
    }

    async fn started(
        address: SocketAddr,
        discovery: Discovery,
        storage: Storage,
        lease: Lease,
        clock: Arc<ManualClock>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::manual());
        let mut config = config(lease);
        change(&mut config);
        let sources = async { Ok::<_, Infallible>(Sources { discovery, storage }) };
        let task = tokio::spawn(serve(config, sources, clock.clone(), listener, shutdown.watch()));
        Self { address, clock, shutdown, task }
    }

    /// Ends it where it stands.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Lets time pass while the service runs; a longer step would be a pause of the process.
    pub(crate) async fn pass(&self, mut time: Duration) {
        while !time.is_zero() {
            let step = time.min(Duration::from_secs(5));
            self.clock.advance(step);
            self.get("/pools").await;
            time -= step;
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        ask(self.address, "GET", path, "").await
    }

    /// A request without a body, with these headers.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        request(self.address, method, path, headers, b"").await
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

/// Of most tests, with this lease.
pub(crate) fn config(lease: Lease) -> Config {
    Config {
        lease,
        most_pools: 100_000,
        http: http::Limits {
            listener: mcs_runtime::http::Limits::default(),
            body: 4096,
            request: PATIENCE,
            streams: 8,
        },
        tls: None,
        drain_delay: Duration::from_secs(5),
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Status and body of one request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let Answer { status, body, .. } = request(address, method, path, &[], body.as_bytes()).await;
    (status, body)
}

/// One request on a connection of its own, with these headers besides those that it needs.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> Answer {
    let mut client = TcpStream::connect(address).await.unwrap();
    exchange(&mut client, &head(method, path, headers, body.len()), body).await
}

/// The head of a request after which the connection is closed.
pub(crate) fn head(method: &str, path: &str, headers: &[&str], length: usize) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    )
}

/// Sends a request, and reads until the server closes the connection.
pub(crate) async fn exchange(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &str,
    body: &[u8],
) -> Answer {
    // What is refused early may not be taken to its end.
    let _ = client.write_all(&[head.as_bytes(), body].concat()).await;
    read_answer(client).await
}

/// What the server answered until it closed the connection.
pub(crate) async fn read_answer(client: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let (status, headers) = read_head(head);
    Answer { status, headers, body: body.to_owned() }
}

pub(crate) fn read_head(head: &str) -> (u16, BTreeMap<String, String>) {
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    };
    (status, lines.map(header).collect())
}
