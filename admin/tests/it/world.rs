//! A registry on loopback whose clock the test moves, and controllers that talk to it.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails its test")]

use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, ExportSpec, GroupKey, HeldImports, IpFamily, Port, Protocol,
    RefusedExports, Report,
};
use mcs_core::registry::{Op, Registration};
use mcs_core::time::{Clock, ManualClock, WallTime};
use mcs_core::timing::Timing;
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_registry::Listeners;
use mcs_registry::store::{Memory, Store};
use mcs_runtime::args::{MCS, try_parse};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tls::client::{ClientFiles, ClientTls};
use mcs_runtime::tls::testing::{Ca, Issued};
use mcs_runtime::tls::{Files, Metrics};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// When the registry starts: 2026-11-29T19:00:09Z.
pub(crate) const START: i64 = 1_795_978_809;

/// In the place of an address on loopback, and as long.
pub(crate) const REGISTRY: &str = "registry.a:9090";

/// Below the half lease that a registry takes for a pause of its own.
const STEP: Duration = Duration::from_millis(500);

/// A running registry.
pub(crate) struct World {
    scheme: &'static str,
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
        Self::over(Arc::new(Memory::default())).await
    }

    /// Starts one over a store.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::with(START, store, None, |address| {
            let url = format!("http://{address}").parse().unwrap();
            RegistryClient::new(&url, Timing::default()).unwrap()
        })
        .await
    }

    /// Starts a registry that shows a certificate and asks for those of a CA.
    pub(crate) async fn with_tls(secret: &Secret) -> Self {
        Self::with_tls_since(START, secret).await
    }

    /// The same, at another time: a registry does not start with a certificate that has expired.
    pub(crate) async fn with_tls_since(start: i64, secret: &Secret) -> Self {
        Self::with(start, Arc::new(Memory::default()), Some(secret.of_registry()), |address| {
            let url = format!("https://{address}").parse().unwrap();
            let tls = ClientTls::load(secret.of_caller(), Arc::new(SystemClock), Metrics::default()).unwrap();
            RegistryClient::secure(&url, Timing::default(), tls.configs()).unwrap()
        })
        .await
    }

    async fn with(
        start: i64,
        store: Arc<dyn Store>,
        tls: Option<Files>,
        client: impl FnOnce(&str) -> RegistryClient,
    ) -> Self {
        let args = try_parse::<mcs_registry::args::Args>(&MCS, ["mcs-registry"]).unwrap();
        let clock = Arc::new(ManualClock::at(WallTime::from_unix_secs(start)));
        let shutdown = Shutdown::manual();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listeners = Listeners { grpc: listen().await, rest: listen().await, admin: listen().await, tls };
        let address = listeners.grpc.local_addr().unwrap().to_string();
        let admin = listeners.admin.local_addr().unwrap();
        let client = client(&address);
        let judged = Arc::clone(&clock);
        tokio::spawn(mcs_registry::serve(args.config(), judged, store, listeners, shutdown.watch()));
        // Its certificates are read by then: they are judged by the clock that the test may now set.
        let mut probe = TcpStream::connect(admin).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        probe.read_u8().await.unwrap();
        Self { scheme, address, clock, client, shutdown }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Its wall clock says from now on what that of this machine says.
    pub(crate) fn has_the_time(&self) {
        self.clock.set_wall(SystemClock.wall());
    }

    /// `--registry-url=…`.
    pub(crate) fn url_flag(&self) -> String {
        format!("--registry-url={}", self.url())
    }

    /// `text` with a name for the address, whose port is another one in each run.
    pub(crate) fn without_port(&self, text: &str) -> String {
        text.replace(&self.address, REGISTRY)
    }

    /// Two clusters export `shop/cart` with one port that they agree on and one that they do not; `east` is the older
    /// and exports `shop/dns` too. Then only `east` renews, for a lease, and tells of three imports that it
    /// holds and of two exports that are refused.
    pub(crate) async fn east_and_west_differ_and_west_falls_silent(&self) {
        let http = mk_port("http", Protocol::Tcp, 80);
        let metrics = |port| mk_port("metrics", Protocol::Tcp, port);
        let mut east = Controller::new("east", Some("us-east-1"));
        let first = ["orders", "returns"].map(|name| ServiceKey::new("web", name).unwrap());
        east.report.held_imports = HeldImports { total: 3, first: first.into() };
        let refusal = Refusal::new("ports[0].name", "must be no more than 15 characters");
        let first = vec![(ServiceKey::new("shop", "till").unwrap(), refusal)];
        east.report.refused_exports = RefusedExports { total: 2, first };
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

    /// One cluster exports a Service, and then nobody renews for a lease.
    pub(crate) async fn east_falls_silent(&self) {
        let http = mk_port("http", Protocol::Tcp, 80);
        let cart = mk_put("shop", "cart", START - 60, &[http], &["10.1.0.1"]);
        self.export(Controller::new("east", None), &[cart]).await;
        self.one_lease_passes(&[]).await;
    }

    /// One lease passes, in which these controllers renew.
    pub(crate) async fn one_lease_passes(&self, renewing: &[Controller]) {
        let clusterset = "prod".parse().unwrap();
        let mut passed = Duration::ZERO;
        loop {
            for controller in renewing {
                let Controller { member, version, sum, report, .. } = controller;
                self.client.renew_reporting(member, *version, *sum, report).await.unwrap();
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
    report: Report,
}

impl Controller {
    fn new(cluster: &str, region: Option<&'static str>) -> Self {
        let cluster: ClusterId = cluster.parse().unwrap();
        let uid = format!("uid-of-{cluster}").parse().unwrap();
        let member = Member { clusterset: "prod".parse().unwrap(), cluster, uid };
        let report = Report::default();
        Self { member, region, version: Version::new(1, 1), sum: Sum::EMPTY, report }
    }
}

const fn leaf(op: &Op) -> Option<Leaf> {
    match op {
        Op::Put { leaf, .. } | Op::PutEndpoints { leaf, .. } => Some(*leaf),
        Op::Delete { .. } => None,
    }
}

pub(crate) fn mk_put(namespace: &str, name: &str, created_at: i64, ports: &[Port], addresses: &[&str]) -> Op {
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

pub(crate) fn mk_port(name: &str, protocol: Protocol, port: u16) -> Port {
    Port { name: name.to_owned(), protocol, port, ..Port::default() }
}

async fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// The files of a registry and of who calls it: its CA, and the certificates that both show.
pub(crate) struct Secret {
    folder: TempDir,
}

impl Secret {
    /// The registry shows `server`, and the caller `client`; each believes the CA of the other.
    pub(crate) fn new(server: (&Ca, &Issued), client: (&Ca, &Issued)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        for (name, (ca, Issued { cert, key })) in [("server", server), ("client", client)] {
            write(&format!("{name}-ca.crt"), &ca.pem());
            write(&format!("{name}.crt"), cert);
            write(&format!("{name}.key"), key);
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn of_registry(&self) -> Files {
        let client_ca = Some(self.path("client-ca.crt"));
        Files {
            cert: self.path("server.crt"),
            key: self.path("server.key"),
            client_ca,
            lets_in_without: false,
        }
    }

    fn of_caller(&self) -> ClientFiles {
        let own = Some((self.path("client.crt"), self.path("client.key")));
        ClientFiles { ca: Some(self.path("server-ca.crt")), own }
    }

    /// `--registry-tls-ca-file`, `--registry-tls-cert-file` and `--registry-tls-key-file` of a caller.
    pub(crate) fn flags(&self) -> [String; 3] {
        [("ca", "server-ca.crt"), ("cert", "client.crt"), ("key", "client.key")]
            .map(|(flag, name)| format!("--registry-tls-{flag}-file={}", self.path(name).display()))
    }
}

/// `text` with a word for each moment, which is another one in each run.
pub(crate) fn without_times(text: &str) -> String {
    let is_time = |word: &str| {
        word.len() == "2026-11-29T19:00:09Z".len()
            && word.ends_with('Z')
            && word.chars().all(|c| c.is_ascii_digit() || "-T:Z".contains(c))
    };
    let words = text.split_inclusive([' ', ',', '\n', '"', ';']);
    let masked = words.map(|word| {
        let bare = word.trim_end_matches([' ', ',', '\n', '"', ';']);
        if is_time(bare) { word.replace(bare, "TIME") } else { word.to_owned() }
    });
    masked.collect()
}

/// A URL at which nothing listens: the port was free a moment ago.
pub(crate) fn unused_url() -> String {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Runs the program without any variables and without a terminal, and gives its exit code and what it wrote, in the form of the goldens.
pub(crate) async fn run(args: &[&str]) -> String {
    run_in(&[], args).await
}

/// The same, with these variables.
pub(crate) async fn run_in(variables: &[(&str, String)], args: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_mcs-admin"));
    let program = program.args(args).env_clear().envs(variables.iter().cloned());
    let ran = program.stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(ran.stdout), text(ran.stderr));
    let code = ran.status.code().unwrap();
    format!("exit code {code}\n--- standard output\n{out}--- standard error\n{err}")
}
