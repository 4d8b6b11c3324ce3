//! TLS on the port: who is let in, what each certificate may register, and certificates that change while they are used.

use crate::events::Events;
use crate::lists::registrations;
use crate::service::{Answer, PATIENCE, Service, head, read_answer, registration};
use mcs_runtime::tls::testing::{Ca, EARLY, GOOD, Issued, OVER, Secret, serial, shake};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

async fn start(secret: &Secret, client_ca: bool) -> Service {
    Service::start_with(registrations(), |config| config.tls = Some(secret.files(client_ca))).await
}

/// The answer, or why there is none.
async fn ask(
    service: &Service,
    client: &TlsConnector,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<Answer> {
    let mut stream = shake(client, TcpStream::connect(service.address).await?).await?;
    stream.write_all(format!("{}{body}", head(method, path, &[], body.len())).as_bytes()).await?;
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap()?;
    Ok(read_answer(&mut &answer[..]).await)
}

async fn get(service: &Service, client: &TlsConnector, path: &str) -> std::io::Result<Answer> {
    ask(service, client, "GET", path, "").await
}

fn of(cluster: &str) -> String {
    let mut body = registration("chat");
    body["key"]["cluster_id"] = json!(cluster);
    body.to_string()
}

#[tokio::test]
async fn a_port_with_certificates_speaks_tls_only() {
    let ca = Ca::new("ca");
    let secret = Secret::new(&ca.server(1), None);
    let service = start(&secret, false).await;
    let client = ca.client(None, &[]);
    assert_eq!(get(&service, &client, "/healthz").await.unwrap().status, 200);
    // Without a client CA anyone registers anything.
    assert_eq!(ask(&service, &client, "POST", "/pools", &of("east")).await.unwrap().status, 200);
    let (status, told) = service.get("/pools").await;
    assert_eq!((status, &*told), (400, "this port speaks TLS: use https, not http\n"));
    let other = Ca::new("other").client(None, &[]);
    assert!(get(&service, &other, "/pools").await.unwrap_err().to_string().contains("UnknownIssuer"));
}

#[tokio::test]
async fn with_a_client_ca_only_its_certificates_are_let_in() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let service = start(&secret, true).await;
    assert_eq!(get(&service, &ca.client(Some(&clients.server(9)), &[]), "/pools").await.unwrap().status, 200);
    for (own, told) in [
        (Ca::new("other").server(7), "UnknownCA"),
        (clients.issue(&["localhost"], OVER, 8), "CertificateExpired"),
        (clients.issue(&["localhost"], EARLY, 8), "alert"),
    ] {
        // Not even to what a client without one may ask.
        let refused = get(&service, &ca.client(Some(&own), &[]), "/livez").await.unwrap_err().to_string();
        assert!(refused.contains(told), "{told}: {refused}");
    }
}

/// The probes of a node are such clients, and must see whether the view is there.
#[tokio::test]
async fn who_shows_no_certificate_may_ask_as_probes_do_and_nothing_else() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let service = start(&secret, true).await;
    let nobody = ca.client(None, &[]);
    let told = "no client certificate was shown, and this needs one signed by a CA of --tls-client-ca-cert-path: without \
                it only GET of /healthz, /readyz and /livez is answered";
    for path in ["/healthz", "/readyz", "/livez"] {
        for (method, status) in [("GET", 200), ("HEAD", 200), ("POST", 403), ("OPTIONS", 403)] {
            let answer = ask(&service, &nobody, method, path, "").await.unwrap();
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    for path in
        ["/pools", "/pools/watch", "/routers", "/routers/watch", "/metrics", "/openapi.json", "/other"]
    {
        let answer = get(&service, &nobody, path).await.unwrap();
        assert_eq!((answer.status, answer.json()), (403, json!({"error": told})), "{path}");
    }
    let answer = ask(&service, &nobody, "POST", "/pools", &of("east")).await.unwrap();
    assert_eq!((answer.status, answer.json()), (403, json!({"error": told})));

    service.shutdown.drain();
    let status = async |path: &str| get(&service, &nobody, path).await.unwrap().status;
    assert_eq!([status("/healthz").await, status("/livez").await], [503, 200]);
}

#[tokio::test]
async fn a_certificate_that_names_a_cluster_registers_pools_of_that_cluster_only() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let service = start(&secret, true).await;
    let statuses = async |name: &str| {
        let client = ca.client(Some(&clients.issue(&[name], GOOD, 9)), &[]);
        let mut statuses = vec![get(&service, &client, "/pools").await.unwrap().status];
        for cluster in ["east", "west"] {
            statuses.push(ask(&service, &client, "POST", "/pools", &of(cluster)).await.unwrap().status);
        }
        statuses
    };
    for name in ["URI:spiffe://prod/cluster/east", "east.prod"] {
        assert_eq!(statuses(name).await, [200, 200, 403], "{name}");
    }
    for name in ["URI:spiffe://prod/admin", "web.example.com", "localhost", "URI:spiffe://prod/ns/x/sa/y"] {
        assert_eq!(statuses(name).await, [200, 403, 403], "{name}");
    }
    let east = ca.client(Some(&clients.issue(&["east.prod"], GOOD, 9)), &[]);
    let refused = ask(&service, &east, "POST", "/pools", &of("west")).await.unwrap();
    let told = "key.cluster_id: is west, and the certificate of cluster east of clusterset prod registers pools of east \
                only";
    assert_eq!(refused.json(), json!({"error": told}));
    // A body that is wrong is told as such, whoever sends it.
    assert_eq!(ask(&service, &east, "POST", "/pools", &of("West")).await.unwrap().status, 422);
    let listed = get(&service, &east, "/pools").await.unwrap().json();
    assert_eq!(listed["pools"].as_array().unwrap().len(), 1);
    assert_eq!(listed["pools"][0]["key"]["cluster_id"], "east");
}

/// Case O58, with a bad pair in between.
#[tokio::test]
async fn new_files_are_used_by_new_connections_bad_ones_are_not_and_no_request_fails() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let mut secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let service = Arc::new(start(&secret, true).await);
    let own = clients.issue(&["east.prod"], GOOD, 9);
    let client = ca.client(Some(&own), &[]);
    let load = Load::start(&service, client.clone());
    let open = shake(&client, TcpStream::connect(service.address).await.unwrap()).await.unwrap();
    let mut open = Events::on(open, "/routers/watch").await;
    open.named("resync").await;

    let mut swap = |issued: &Issued| secret.swap(&issued.cert, &issued.key, &clients.pem());
    swap(&ca.server(2));
    until_shown(&service, &client, "02").await;
    load.goes_on().await;
    swap(&Issued { key: ca.server(3).key, ..ca.server(3) });
    until_told(&service, &client, "global_discovery_tls_reloads_total{outcome=\"refused\"} 1").await;
    until_shown(&service, &client, "02").await;
    load.goes_on().await;
    swap(&ca.server(4));
    until_shown(&service, &client, "04").await;
    load.goes_on().await;
    assert_eq!(load.end().await, Vec::<String>::new());

    // The first connection goes on, to its end in order.
    service.shutdown.drain();
    assert_eq!(open.next().await, None);
}

async fn until_shown(service: &Service, client: &TlsConnector, expected: &str) {
    let shown = async {
        loop {
            let stream = TcpStream::connect(service.address).await.unwrap();
            if serial(&shake(client, stream).await.unwrap()) == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap_or_else(|_| panic!("{expected} is never shown"));
}

async fn until_told(service: &Service, client: &TlsConnector, line: &str) {
    let told = async {
        while !get(service, client, "/metrics").await.unwrap().body.lines().any(|found| found == line) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("{line} is never told"));
}

/// A relay that registers all the time, each time over a connection of its own.
struct Load {
    count: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    failed: JoinHandle<Vec<String>>,
}

impl Load {
    fn start(service: &Arc<Service>, client: TlsConnector) -> Self {
        let (count, ends) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (service, counted, told) = (Arc::clone(service), Arc::clone(&count), Arc::clone(&ends));
        let failed = tokio::spawn(async move {
            let mut failed = Vec::new();
            while !told.load(Ordering::Relaxed) {
                match ask(&service, &client, "POST", "/pools", &of("east")).await {
                    Ok(Answer { status: 200, .. }) => {}
                    other => failed.push(format!("{other:?}")),
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            failed
        });
        Self { count, ends, failed }
    }

    /// Waits for three more requests, of which the last began after this.
    async fn goes_on(&self) {
        let before = self.count.load(Ordering::Relaxed);
        let more = async {
            while self.count.load(Ordering::Relaxed) < before + 3 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, more).await.unwrap();
    }

    async fn end(self) -> Vec<String> {
        self.ends.store(true, Ordering::Relaxed);
        self.failed.await.unwrap()
    }
}
