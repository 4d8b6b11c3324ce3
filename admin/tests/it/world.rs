//! A registry on loopback whose clock the test moves, and controllers that talk to it.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails its test")]

use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, ExportSpec, GroupKey, HeldImports, IpFamily, Port, Protocol,
};
use mcs_core::registry::{Op, Registration};
use mcs_core::time::{ManualClock, WallTime};
use mcs_core::timing::Timing;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_registry::Listeners;
use mcs_runtime::args::{MCS, try_parse};
use mcs_runtime::shutdown::Shutdown;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::Command;

/// When the registry starts: 2026-11-29T19:00:09Z.
const START: i64 = 1_795_978_809;

/// Below the half lease that a registry takes for a pause of its own.
const STEP: Duration = Duration::from_millis(500);

/// A running registry.
pub(crate) struct World {
    address: String,
    clock: Arc<ManualClock>,
    client: RegistryClient,
    shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.abort();
    }
}

impl World {
    /// Starts a registry with the flags' defaults on free ports.
    pub(crate) async fn start() -> Self {
        let args = try_parse::<mcs_registry::args::Args>(&MCS, ["mcs-registry"]).unwrap();
        let clock = Arc::new(ManualClock::at(WallTime::from_unix_secs(START)));
        let shutdown = Shutdown::manual();
        let listeners =
            Listeners { grpc: listen().await, rest: listen().await, admin: listen().await, tls: None };
        let address = listeners.grpc.local_addr().unwrap().to_string();
        let url = format!("http://{address}").parse().unwrap();
        let client = RegistryClient::new(&url, Timing::default()).unwrap();
        let judged = Arc::clone(&clock);
        let store = Arc::new(mcs_registry::store::Memory::default());
        tokio::spawn(mcs_registry::serve(args.config(), judged, store, listeners, shutdown.watch()));
        Self { address, clock, client, shutdown }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `--registry-url=…`.
    pub(crate) fn url_flag(&self) -> String {
        format!("--registry-url={}", self.url())
    }

    /// `text` with a name for the address, whose port is another one in each run.
    pub(crate) fn without_port(&self, text: &str) -> String {
        text.replace(&self.address, "REGISTRY")
    }

    /// Two clusters export `shop/cart` with one port that they agree on and one that they do not; `east` is the older
    /// and exports `shop/dns` too. Then only `east` renews, for a lease, and tells of three imports that it
    /// holds.
    pub(crate) async fn east_and_west_differ_and_west_falls_silent(&self) {
        let http = mk_port("http", Protocol::Tcp, 80);
        let metrics = |port| mk_port("metrics", Protocol::Tcp, port);
        let mut east = Controller::new("east", Some("us-east-1"));
        let first = ["orders", "returns"].map(|name| ServiceKey::new("web", name).unwrap());
        east.held = HeldImports { total: 3, first: first.into() };
        let west = Controller::new("west", None);
        let east = self
            .export(
                east,
                &[
                    mk_put(
                        "shop",
                        "cart",
                        START - 60,
                        &[http.clone(), metrics(9100)],
                        &["10.1.0.1", "10.1.0.2"],
                    ),
                    mk_put("shop", "dns", START - 50, &[mk_port("", Protocol::Udp, 53)], &["fd00::1"]),
                ],
            )
            .await;
        self.export(west, &[mk_put("shop", "cart", START - 30, &[http, metrics(9200)], &["10.2.0.1"])]).await;
        self.one_lease_passes(&[east]).await;
    }

    /// One lease passes, in which these controllers renew.
    pub(crate) async fn one_lease_passes(&self, renewing: &[Controller]) {
        let clusterset = "prod".parse().unwrap();
        let mut passed = Duration::ZERO;
        loop {
            for controller in renewing {
                let Controller { member, version, sum, held, .. } = controller;
                self.client.renew_holding(member, *version, *sum, held).await.unwrap();
            }
            // A look at the clock after each step, so that none of them is a pause.
            let (_, complete) = self.client.list_clusters(&clusterset).await.unwrap();
            if complete {
                return;
            }
            assert!(passed < Duration::from_secs(300), "the registry did not become complete");
            self.clock.advance(STEP);
            passed += STEP;
            let secs = i64::try_from(passed.as_secs()).unwrap();
            self.clock.set_wall(WallTime::from_unix_secs(START + secs));
        }
    }

    async fn export(&self, mut controller: Controller, ops: &[Op]) -> Controller {
        let registration = Registration {
            uid: controller.member.uid.clone(),
            region: controller.region.map(|region| region.parse().unwrap()),
            instance: format!("mcs-controller-{}", controller.member.cluster).parse().unwrap(),
            build: "0.1.0".parse().unwrap(),
            version: controller.version,
            sum: controller.sum,
        };
        self.client.register(&controller.member, &registration).await.unwrap();
        controller.version.seq += 1;
        let written = self.client.write(&controller.member, controller.version, ops).await.unwrap();
        assert!(written.results.iter().all(|(_, outcome)| outcome.is_ok()), "{written:?}");
        controller.sum = ops.iter().filter_map(leaf).collect();
        controller.version.seq += 1;
        self.client.renew(&controller.member, controller.version, controller.sum).await.unwrap();
        controller
    }
}

/// As much of a controller as a registry sees.
pub(crate) struct Controller {
    member: Member,
    region: Option<&'static str>,
    version: Version,
    sum: Sum,
    held: HeldImports,
}

impl Controller {
    fn new(cluster: &str, region: Option<&'static str>) -> Self {
        let cluster: ClusterId = cluster.parse().unwrap();
        let uid = format!("uid-of-{cluster}").parse().unwrap();
        let member = Member { clusterset: "prod".parse().unwrap(), cluster, uid };
        let held = HeldImports::default();
        Self { member, region, version: Version::new(1, 1), sum: Sum::EMPTY, held }
    }
}

const fn leaf(op: &Op) -> Option<Leaf> {
    match op {
        Op::Put { leaf, .. } | Op::PutEndpoints { leaf, .. } => Some(*leaf),
        Op::Delete { .. } => None,
    }
}

fn mk_put(namespace: &str, name: &str, created_at: i64, ports: &[Port], addresses: &[&str]) -> Op {
    let key = ServiceKey::new(namespace, name).unwrap();
    let mut endpoints = EndpointMap::default();
    for address in addresses {
        let address = address.parse().unwrap();
        let ports = ports.iter().map(|port| EndpointPort {
            name: port.name.clone(),
            protocol: port.protocol,
            port: Some(port.port),
            ..EndpointPort::default()
        });
        endpoints.insert(GroupKey::new(IpFamily::of(address), ports), address, Endpoint::default());
    }
    let spec = ExportSpec {
        created_at: WallTime::from_unix_secs(created_at),
        ports: ports.to_vec(),
        ip_families: endpoints.groups().keys().map(|group| group.family).collect(),
        ..ExportSpec::default()
    };
    let endpoints = endpoints.pack();
    let leaf = Leaf::of(&key, &spec, &endpoints);
    Op::Put { key, leaf, spec: Arc::new(spec), endpoints: Arc::new(endpoints), changed_at: None }
}

fn mk_port(name: &str, protocol: Protocol, port: u16) -> Port {
    Port { name: name.to_owned(), protocol, port, ..Port::default() }
}

async fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// A URL at which nothing listens: the port was free a moment ago.
pub(crate) fn unused_url() -> String {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Runs the program without any variables, and gives its exit code and what it wrote, in the form of the goldens.
pub(crate) async fn run(args: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_mcs-admin")).args(args).env_clear().output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(ran.stdout), text(ran.stderr));
    let code = ran.status.code().unwrap();
    format!("exit code {code}\n--- standard output\n{out}--- standard error\n{err}")
}
