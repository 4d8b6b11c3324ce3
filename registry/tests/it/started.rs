//! A registry in process, on ports of its own and on a clock that moves only when a test says so.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, Region, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, Frame, GroupKey, IpFamily, Port, Since,
};
use mcs_core::registry::{Op, Policy, Registration};
use mcs_core::time::{ManualClock, WallTime};
use mcs_core::timing::{MAX_TICK, Timing};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::chunks::SetReader;
use mcs_proto::client::{RegistryClient, WatchStream, Written};
use mcs_proto::convert::Member;
use mcs_registry::store::{Memory, Store};
use mcs_registry::{Config, Listeners, Replication, serve};
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tls::Files;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Nothing that is waited for takes this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The lease of the registry; counted on the manual clock.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// 2026-11-29T19:00:09Z.
pub(crate) const STARTED_AT: WallTime = WallTime::from_unix_secs(1_795_978_809);

pub(crate) struct Started {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) shutdown: Shutdown,
    pub(crate) client: RegistryClient,
    pub(crate) grpc: SocketAddr,
    pub(crate) rest: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) program: JoinHandle<anyhow::Result<()>>,
}

impl Started {
    /// Starts a registry.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a registry with another policy.
    pub(crate) async fn with(change: impl FnOnce(&mut Policy)) -> Self {
        Self::over(Arc::new(Memory::default()), change).await
    }

    /// Starts a registry with another configuration.
    pub(crate) async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(Arc::new(Memory::default()), None, change).await
    }

    /// Starts a registry with these certificates.
    pub(crate) async fn with_tls(files: Files) -> Self {
        Self::start(Arc::new(Memory::default()), Some(files), |_| {}).await
    }

    /// Starts a registry over a store, with another policy.
    pub(crate) async fn over(store: Arc<dyn Store>, change: impl FnOnce(&mut Policy)) -> Self {
        Self::start(store, None, |config| change(&mut config.policy)).await
    }

    async fn start(store: Arc<dyn Store>, tls: Option<Files>, change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Arc::new(ManualClock::at(STARTED_AT)), store, tls, change).await
    }

    /// Starts a registry on a clock.
    pub(crate) async fn on(
        clock: Arc<ManualClock>,
        store: Arc<dyn Store>,
        tls: Option<Files>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let limits = Policy::of_lease(LEASE);
        let policy = Policy { max_exports: 1_000, max_writes_per_second: 1_000, ..limits };
        let mut config = Config {
            policy,
            replication: Replication::default(),
            max_connection_age: Duration::from_secs(1_800),
            max_message_bytes: 4 * 1024 * 1024,
            max_connections: 1_000,
            max_streams: 1_000,
            max_request_bytes: 256 * 1024 * 1024,
        };
        change(&mut config);
        let shutdown = Shutdown::manual();
        let listen = || TcpListener::bind("127.0.0.1:0");
        let listeners = Listeners {
            grpc: listen().await.unwrap(),
            rest: listen().await.unwrap(),
            admin: listen().await.unwrap(),
            tls,
        };
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let (grpc, rest, admin) =
            (address(&listeners.grpc), address(&listeners.rest), address(&listeners.admin));
        let program = tokio::spawn(serve(config, clock.clone(), store, listeners, shutdown.watch()));
        Self { clock, shutdown, client: client(grpc), grpc, rest, admin, program }
    }

    /// Lets time pass as a running registry sees it: never much at once.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(MAX_TICK);
            self.clock.advance(step);
            left -= step;
            self.client.list_clusters(&prod()).await.unwrap();
        }
    }

    /// Registers a cluster that exports nothing yet.
    pub(crate) async fn register(&self, cluster: &str) -> Exporter {
        let member = member(cluster, &format!("uid-of-{cluster}"));
        let registered = self
            .client
            .register(&member, &registration(&member, Version::new(1, 1), Sum::EMPTY))
            .await
            .unwrap();
        assert!(!registered.differs);
        Exporter { client: self.client.clone(), member, seq: 1, sum: Sum::EMPTY }
    }

    /// Watches anew, and reads the snapshot.
    pub(crate) async fn watch(&self) -> (WatchStream, Vec<Frame>) {
        let mut stream = self.client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
        let mut frames = Vec::new();
        loop {
            let frame = stream.next().await.unwrap();
            let ended = matches!(frame, Frame::End { .. });
            frames.push(frame);
            if ended {
                return (stream, frames);
            }
        }
    }
}

/// The controller of a cluster, as far as its registry sees it.
pub(crate) struct Exporter {
    pub(crate) client: RegistryClient,
    pub(crate) member: Member,
    pub(crate) seq: u64,
    pub(crate) sum: Sum,
}

impl Exporter {
    /// The version of the next act.
    pub(crate) fn next(&mut self) -> Version {
        self.seq += 1;
        Version::new(1, self.seq)
    }

    /// The version of the last act.
    pub(crate) const fn version(&self) -> Version {
        Version::new(1, self.seq)
    }

    /// Writes ops, which are all new.
    pub(crate) async fn write(&mut self, ops: &[Op]) -> Written {
        let version = self.next();
        for op in ops {
            if let Op::Put { leaf, .. } = op {
                self.sum.add(*leaf);
            }
        }
        self.client.write(&self.member, version, ops).await.unwrap()
    }
}

/// A client with long limits: the machine of a test may be busy.
pub(crate) fn client(grpc: SocketAddr) -> RegistryClient {
    RegistryClient::new(&format!("http://{grpc}").parse().unwrap(), Timing::of_lease(LIMIT * 10)).unwrap()
}

pub(crate) fn prod() -> ClustersetId {
    ClustersetId::new("prod").unwrap()
}

pub(crate) fn id(cluster: &str) -> ClusterId {
    ClusterId::new(cluster).unwrap()
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

pub(crate) fn member(cluster: &str, uid: &str) -> Member {
    Member { clusterset: prod(), cluster: id(cluster), uid: ClusterUid::new(uid).unwrap() }
}

pub(crate) fn registration(member: &Member, version: Version, sum: Sum) -> Registration {
    Registration {
        uid: member.uid.clone(),
        region: Some(Region::new("eu-west-1").unwrap()),
        instance: "mcs-controller-0".parse().unwrap(),
        build: "0.1.0".parse().unwrap(),
        version,
        sum,
    }
}

pub(crate) fn spec() -> ExportSpec {
    ExportSpec {
        created_at: WallTime::from_unix_secs(1_700_000_000),
        ports: vec![Port { name: "http".to_owned(), port: 80, ..Port::default() }],
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    }
}

/// Endpoints 10.0.0.0 and on, on port 8080.
pub(crate) fn endpoints(count: u32) -> EndpointSet {
    endpoints_and_loopback(count, 0)
}

/// [`endpoints`], and 127.0.0.1 and on, which no other cluster could use.
pub(crate) fn endpoints_and_loopback(count: u32, loopback: u8) -> EndpointSet {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut set = EndpointMap::default();
    let addresses = (0..count).map(|index| Ipv4Addr::from(0x0a00_0000 + index));
    for address in addresses.chain((1..=loopback).map(|last| Ipv4Addr::new(127, 0, 0, last))) {
        let endpoint =
            Endpoint { ready: Some(true), zone: Some("eu-west-1a".to_owned()), ..Endpoint::default() };
        set.insert(group.clone(), IpAddr::V4(address), endpoint);
    }
    set.pack()
}

/// A set as it was told, all of it readable.
pub(crate) fn read_set(told: Option<mcs_proto::pb::EndpointSet>) -> EndpointSet {
    let mut reader = SetReader::default();
    assert!(reader.push(Some(told.unwrap())), "the set has no end");
    let (set, dropped) = reader.finish().unwrap();
    assert_eq!(dropped, []);
    set
}

pub(crate) fn put(name: &str, count: u32) -> Op {
    let (spec, endpoints) = (Arc::new(spec()), Arc::new(endpoints(count)));
    Op::Put {
        key: key(name),
        leaf: Leaf::of(&key(name), &spec, &endpoints),
        spec,
        endpoints,
        changed_at: None,
    }
}

pub(crate) fn leaf(op: &Op) -> Leaf {
    match op {
        Op::Put { leaf, .. } | Op::PutEndpoints { leaf, .. } => *leaf,
        Op::Delete { .. } => Leaf::default(),
    }
}

/// Status line and body of a request.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().trim_start_matches("HTTP/1.1 ").to_owned(), body.to_owned())
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap()
}
