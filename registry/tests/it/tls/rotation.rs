//! Certificates that change while the registry is used (O58): it is never restarted, and nobody notices but by the
//! certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_runtime::tls::testing::{Ca, Issued, serial, shake};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Secret, channel, grpc_client, rest};
use crate::started::{LIMIT, Started, http, id};

const CLUSTERS: &str = "/v1/clustersets/prod/clusters";

/// O58: under load, with links that are swapped, and a bad pair in between.
#[tokio::test]
async fn a_new_certificate_is_used_by_new_connections_and_no_call_fails() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let mut secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Arc::new(Started::with_tls(secret.files(true)).await);
    let own = clients.server(9);
    let load = Load::start(&registry, &ca, &own);
    let mut open = ImportsClient::new(channel(&registry, &grpc_client(&ca, Some(&own))).await.unwrap());
    let list = || pb::ListClustersRequest { clusterset: "prod".to_owned(), ..Default::default() };
    let watch = pb::WatchRequest {
        clusterset: "prod".to_owned(),
        cluster: id("importer").to_string(),
        ..Default::default()
    };
    let mut frames = open.watch(watch).await.unwrap().into_inner();
    frames.message().await.unwrap();

    let client = ca.client(Some(&own), &[]);
    let mut swap = |issued: &Issued| secret.swap(&issued.cert, &issued.key, &clients.pem());
    swap(&ca.server(2));
    until_shown(&registry, &client, "02").await;
    load.goes_on().await;

    let mismatched = Issued { key: ca.server(3).key, ..ca.server(3) };
    swap(&mismatched);
    until_told(&registry, "mcs_registry_tls_reloads_total{outcome=\"refused\"} 1").await;
    until_shown(&registry, &client, "02").await;
    load.goes_on().await;

    swap(&ca.server(4));
    until_shown(&registry, &client, "04").await;
    load.goes_on().await;
    until_told(&registry, "mcs_registry_tls_reloads_total{outcome=\"used\"} 2").await;

    assert_eq!(load.end().await, Vec::<String>::new());
    open.list_clusters(list()).await.unwrap();
    registry.clock.advance(std::time::Duration::from_millis(1));
    assert!(frames.message().await.unwrap().is_some(), "the watch goes on");
}

#[tokio::test]
async fn the_ca_of_clients_changes_without_a_gap() {
    let (ca, old_ca, new_ca) = (Ca::new("ca"), Ca::new("old clients"), Ca::new("new clients"));
    let server = ca.server(1);
    let mut secret = Secret::new(&server, Some(&old_ca.pem()));
    let registry = Arc::new(Started::with_tls(secret.files(true)).await);
    let (old, new) = (old_ca.server(8), new_ca.server(9));
    let old_load = Load::start(&registry, &ca, &old);
    old_load.goes_on().await;

    secret.swap(&server.cert, &server.key, &format!("{}{}", old_ca.pem(), new_ca.pem()));
    until_told(&registry, "mcs_registry_tls_reloads_total{outcome=\"used\"} 1").await;
    let new_load = Load::start(&registry, &ca, &new);
    old_load.goes_on().await;
    new_load.goes_on().await;
    assert_eq!(old_load.end().await, Vec::<String>::new());

    secret.swap(&server.cert, &server.key, &new_ca.pem());
    until_told(&registry, "mcs_registry_tls_reloads_total{outcome=\"used\"} 2").await;
    new_load.goes_on().await;
    assert_eq!(new_load.end().await, Vec::<String>::new());
    let refused = rest(&registry, &ca.client(Some(&old), &[]), "GET", CLUSTERS).await.unwrap_err();
    assert!(refused.to_string().contains("UnknownCA"), "{refused}");
    until_told(&registry, "mcs_registry_tls_handshake_failures_total{port=\"rest\",reason=\"unknown_ca\"} 1")
        .await;
    let refused = list(&registry, &grpc_client(&ca, Some(&old))).await.unwrap_err();
    assert!(refused.contains("UnknownCA"), "{refused}");
}

/// Calls on new connections of both ports, one after another, until it ends.
struct Load {
    calls: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Load {
    fn start(registry: &Arc<Started>, ca: &Ca, own: &Issued) -> Self {
        let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (registry, over_too, calls_too) = (Arc::clone(registry), Arc::clone(&over), Arc::clone(&calls));
        let (plain, grpc) = (ca.client(Some(own), &[]), grpc_client(ca, Some(own)));
        let task = tokio::spawn(async move {
            let mut failed = Vec::new();
            while !over_too.load(Ordering::SeqCst) {
                match rest(&registry, &plain, "GET", CLUSTERS).await {
                    Ok(answer) if answer.starts_with("HTTP/1.1 200 OK") => {}
                    other => failed.push(format!("{other:?}")),
                }
                if let Err(error) = list(&registry, &grpc).await {
                    failed.push(error);
                }
                calls_too.fetch_add(1, Ordering::SeqCst);
            }
            failed
        });
        Self { calls, over, task }
    }

    /// Waits until a call has begun and ended.
    async fn goes_on(&self) {
        let before = self.calls.load(Ordering::SeqCst);
        let going = async {
            while self.calls.load(Ordering::SeqCst) < before + 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, going).await.unwrap();
    }

    /// What failed.
    async fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::SeqCst);
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}

async fn list(registry: &Started, client: &Arc<TlsConnector>) -> Result<(), String> {
    let channel = channel(registry, client).await.map_err(|error| format!("{error:?}"))?;
    let list = pb::ListClustersRequest { clusterset: "prod".to_owned(), ..Default::default() };
    ImportsClient::new(channel).list_clusters(list).await.map_err(|status| format!("{status:?}"))?;
    Ok(())
}

/// Waits until new connections of both ports show this certificate.
async fn until_shown(registry: &Started, client: &TlsConnector, wanted: &str) {
    for address in [registry.grpc, registry.rest] {
        let shown = async {
            loop {
                let stream = TcpStream::connect(address).await.unwrap();
                if serial(&shake(client, stream).await.unwrap()) == wanted {
                    break;
                }
            }
        };
        tokio::time::timeout(LIMIT, shown).await.unwrap();
    }
}

/// Waits until the metrics have a line.
async fn until_told(registry: &Started, line: &str) {
    let told = async {
        while !http(registry.admin, "GET", "/metrics").await.1.lines().any(|found| found == line) {}
    };
    tokio::time::timeout(LIMIT, told).await.unwrap_or_else(|_| panic!("{line} is missing"));
}
