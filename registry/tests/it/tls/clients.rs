//! The client of controllers against a registry with certificates: what it believes, what it shows, and that it names
//! the cause where either does not do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcs_core::ids::ClusterId;
use mcs_core::model::Since;
use mcs_core::time::{Clock, ManualClock, WallTime};
use mcs_core::timing::Timing;
use mcs_core::version::{Sum, Version};
use mcs_proto::client::{Registered, RegistryClient};
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::tls::Metrics;
use mcs_runtime::tls::client::{ClientFiles, ClientTls};
use mcs_runtime::tls::testing::{Ca, GOOD, Issued, OVER, Years};
use tempfile::TempDir;

use super::Secret;
use crate::started::{LIMIT, Started, client as plaintext, member, prod, registration};

/// Faults 19 and 20, from the side of a controller.
#[tokio::test]
async fn what_is_wrong_between_a_controller_and_a_registry_is_named() {
    let (ca, clients, other) = (Ca::new("ca"), Ca::new("clients"), Ca::new("other"));
    let (asking, _files) = start(&ca.server(1), Some(&clients)).await;
    let (open, _files) = start(&ca.server(1), None).await;
    let (elsewhere, _files) = start(&ca.issue(&["elsewhere.test"], GOOD, 2), None).await;
    let (short, _files) = start(&ca.issue(&["localhost"], Years(2000, 2027), 3), None).await;
    let plain = Started::new().await;
    let own = east(&clients);
    let cases = [
        ("unknown_ca", "UnknownIssuer", &open, Disk::new(&other, None)),
        ("wrong_name", "localhost", &elsewhere, Disk::new(&ca, None)),
        ("no_client_certificate", "CertificateRequired", &asking, Disk::new(&ca, None)),
        ("client_certificate_refused", "UnknownCA", &asking, Disk::new(&ca, Some(&east(&other)))),
        (
            "client_certificate_refused",
            "CertificateExpired",
            &asking,
            Disk::new(&ca, Some(&clients.issue(&["URI:spiffe://prod/cluster/east"], OVER, 4))),
        ),
        ("not_tls", "does not speak TLS", &plain, Disk::new(&ca, Some(&own))),
        ("denied", "west", &asking, Disk::new(&ca, Some(&clients.issue(&["west.prod"], GOOD, 5)))),
    ];
    for (label, why, registry, disk) in cases {
        let failed = register(&client(registry, &disk.load(Arc::new(SystemClock)))).await.unwrap_err();
        assert_eq!(failed.label(), label, "{failed}");
        assert!(failed.to_string().contains(why), "{why}: {failed}");
    }

    let late = Arc::new(ManualClock::at(WallTime::from_unix_secs(1_900_000_000)));
    let failed = register(&client(&short, &Disk::new(&ca, None).load(late))).await.unwrap_err();
    assert_eq!(failed.label(), "certificate_expired", "{failed}");

    let failed = register(&plaintext(open.grpc)).await.unwrap_err();
    assert_eq!(failed.label(), "not_http2", "{failed}");
    assert!(failed.to_string().contains("HTTP/1.1 400"), "{failed}");

    for (registry, disk) in [(&open, Disk::new(&ca, None)), (&asking, Disk::new(&ca, Some(&own)))] {
        register(&client(registry, &disk.load(Arc::new(SystemClock)))).await.unwrap();
    }
    register(&plaintext(plain.grpc)).await.unwrap();
}

/// O58: both sides change everything while they are connected. What is open goes on, what is new uses the new files.
#[tokio::test]
async fn certificates_of_both_sides_change_while_they_are_connected() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let mut secret = Secret::new(&old.server(1), Some(&old.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let disk = Disk::new(&old, Some(&east(&old)));
    let tls = disk.load(Arc::new(SystemClock));
    let following = tokio::spawn(tls.clone().follow());
    let connected = client(&registry, &tls);
    register(&connected).await.unwrap();
    let mut watch = connected.watch(&prod(), &importer(), None, Since::default()).await.unwrap();
    watch.next().await.unwrap();

    // First all believe both, then each shows the new one.
    let both = format!("{}{}", old.pem(), new.pem());
    secret.swap(&old.server(1).cert, &old.server(1).key, &both);
    let pair = new.server(2);
    let first = tls.config();
    disk.write(&both, Some(&east(&new)));
    until(|| !Arc::ptr_eq(&first, &tls.config())).await;
    secret.swap(&pair.cert, &pair.key, &new.pem());
    let second = tls.config();
    disk.write(&new.pem(), Some(&east(&new)));
    until(|| !Arc::ptr_eq(&second, &tls.config())).await;
    let old_client = client(&registry, &Disk::new(&old, Some(&east(&old))).load(Arc::new(SystemClock)));
    let refused = async {
        while old_client.list_clusters(&prod()).await.is_ok() {
            old_client.set_timing(Timing::of_lease(LIMIT * 11));
            old_client.set_timing(Timing::of_lease(LIMIT * 10));
        }
    };
    tokio::time::timeout(LIMIT, refused).await.unwrap();

    // The connection that is open goes on; so does a new one of the same client.
    register(&connected).await.unwrap();
    connected.set_timing(Timing::of_lease(LIMIT * 9));
    register(&connected).await.unwrap();
    registry.clock.advance(Duration::from_millis(1));
    watch.next().await.unwrap();
    following.abort();
}

/// A registry with its files, which it reads as long as it runs.
async fn start(server: &Issued, clients: Option<&Ca>) -> (Started, Secret) {
    let pem = clients.map(Ca::pem);
    let secret = Secret::new(server, pem.as_deref());
    (Started::with_tls(secret.files(clients.is_some())).await, secret)
}

fn east(ca: &Ca) -> Issued {
    ca.issue(&["URI:spiffe://prod/cluster/east"], GOOD, 9)
}

fn importer() -> ClusterId {
    "importer".parse().unwrap()
}

fn client(registry: &Started, tls: &ClientTls) -> RegistryClient {
    let url = format!("https://localhost:{}", registry.grpc.port()).parse().unwrap();
    RegistryClient::secure(&url, Timing::of_lease(LIMIT * 10), tls.configs()).unwrap()
}

async fn register(client: &RegistryClient) -> Result<Registered, CallFailed> {
    let member = member("east", "uid-of-east");
    client.register(&member, &registration(&member, Version::new(1, 1), Sum::default())).await
}

async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, holds).await.unwrap();
}

/// The files of a controller.
struct Disk(TempDir);

impl Disk {
    fn new(ca: &Ca, own: Option<&Issued>) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        disk.write(&ca.pem(), own);
        disk
    }

    fn write(&self, ca: &str, own: Option<&Issued>) {
        std::fs::write(self.path("ca.crt"), ca).unwrap();
        if let Some(Issued { cert, key }) = own {
            std::fs::write(self.path("tls.crt"), cert).unwrap();
            std::fs::write(self.path("tls.key"), key).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, clock: Arc<dyn Clock>) -> ClientTls {
        let own = |cert: &Path| (cert.to_owned(), self.path("tls.key"));
        let cert = self.path("tls.crt");
        let files = ClientFiles { ca: Some(self.path("ca.crt")), own: cert.exists().then(|| own(&cert)) };
        ClientTls::load(files, clock, Metrics::default()).unwrap()
    }
}
