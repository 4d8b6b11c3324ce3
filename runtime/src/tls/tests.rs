use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::follow::Source;
use super::testing::{Ca, EARLY, GOOD, Issued, OVER, serial, shake};
use super::*;
use crate::clock::SystemClock;
use crate::http::{Limits, Peer, Port, Protocol};

/// Longer than any wait of these tests on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_certificate_needs_its_key_and_a_client_ca_both() {
    let check = |cert: bool, key: bool, ca: bool| {
        let file = |is_there: bool| is_there.then(|| PathBuf::from("x"));
        TlsArgs { tls_cert_file: file(cert), tls_key_file: file(key), tls_client_ca_file: file(ca) }.check()
    };
    let (cert, key) = ("--tls-cert-file needs --tls-key-file", "--tls-key-file needs --tls-cert-file");
    let ca = "--tls-client-ca-file needs --tls-cert-file and --tls-key-file";
    let refused = |why: &str| Err(why.to_owned());
    assert_eq!(
        [check(false, false, false), check(true, true, false), check(true, true, true)],
        [Ok(()), Ok(()), Ok(())]
    );
    assert_eq!([check(true, false, false), check(true, false, true)], [refused(cert), refused(cert)]);
    assert_eq!([check(false, true, false), check(false, true, true)], [refused(key), refused(key)]);
    assert_eq!(check(false, false, true), refused(ca));
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_cause() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let good = ca.server(1);
    let of = |cert: &str, key: &str, client_ca: &str| Disk::new(cert, key, Some(client_ca));
    let pem = ca.pem();
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases = [
        (of("", &good.key, &pem), "tls.crt", "it holds no certificate in PEM"),
        (of("-----BEGIN CERTIFICATE-----\n", &good.key, &pem), "tls.crt", "it is no PEM"),
        (of(garbage, &good.key, &pem), "tls.crt", "it is no X.509 certificate"),
        (of(&good.cert, "", &pem), "tls.key", "it holds no key in PEM"),
        (of(&good.cert, &good.cert, &pem), "tls.key", "it holds no key in PEM"),
        (of(&good.cert, &other.server(1).key, &pem), "tls.key", "is not that of the certificate"),
        (
            of(&ca.issue(&["localhost"], OVER, 7).cert, &good.key, &pem),
            "tls.crt",
            "certificate 07 expired at 2020-01-01T00:00:00Z",
        ),
        (
            of(&ca.issue(&["localhost"], EARLY, 7).cert, &good.key, &pem),
            "tls.crt",
            "certificate 07 is not good before 2099-01-01T00:00:00Z",
        ),
        (of(&good.cert, &good.key, ""), "ca.crt", "it holds no certificate in PEM"),
        (of(&good.cert, &good.key, garbage), "ca.crt", "it is no X.509 certificate"),
        (of(&" ".repeat(1024 * 1024 + 1), &good.key, &pem), "tls.crt", "it has more than 1048576 bytes"),
    ];
    for (disk, file, cause) in cases {
        let error = disk.load().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(cause), "{cause}: {error}");
    }
    let disk = of(&good.cert, &good.key, &pem);
    std::fs::remove_file(disk.files.key.as_path()).unwrap();
    // As a program shows it, with all its causes.
    let error = format!("{:#}", anyhow::Error::from(disk.load().map(|_| ()).unwrap_err()));
    assert!(error.starts_with("cannot read ") && error.contains("tls.key: No such file"), "{error}");
    assert_eq!(error.matches("No such file").count(), 1, "{error}");
}

#[tokio::test]
async fn each_port_agrees_on_what_it_speaks() {
    let ca = Ca::new("ca");
    let disk = Disk::of(&ca.server(1), None);
    let both = ["h2", "http/1.1"];
    for (protocol, offered, agreed) in [
        (Protocol::Any, both.as_slice(), Some("h2")),
        (Protocol::Any, &["http/1.1"], Some("http/1.1")),
        (Protocol::Any, &[], None),
        (Protocol::Http2, &both, Some("h2")),
    ] {
        let server = Server::start(&disk, |port| port.protocol(protocol)).await;
        let stream = server.shake(&ca.client(None, offered)).await.unwrap();
        let told = stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
        assert_eq!(told.as_deref(), agreed, "{offered:?}");
    }
    let server = Server::start(&disk, |port| port.protocol(Protocol::Http2)).await;
    let error = server.shake(&ca.client(None, &["http/1.1"])).await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    server.failed("protocol", 1).await;
}

/// What is wrong fails closed, and the error names the cause.
#[tokio::test]
async fn a_client_without_a_good_certificate_is_refused_and_told_why() {
    let (ca, clients, other) = (Ca::new("ca"), Ca::new("clients"), Ca::new("other"));
    let server = Server::start(&Disk::of(&ca.server(1), Some(&clients)), |port| port).await;
    let (over, early) = (clients.issue(&["x"], OVER, 1), clients.issue(&["x"], EARLY, 1));
    let foreign = other.server(1);
    for (shown, reason, alert, count) in [
        (None, "no_client_cert", "CertificateRequired", 1),
        (Some(&foreign), "unknown_ca", "UnknownCA", 1),
        (Some(&over), "expired", "CertificateExpired", 1),
        (Some(&early), "expired", "CertificateExpired", 2),
    ] {
        // In TLS 1.3 a client learns with its first read that it was refused.
        let error = match server.shake(&ca.client(shown, &[])).await {
            Ok(stream) => ask(stream).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(alert), "{reason}: {error}");
        server.failed(reason, count).await;
    }
    let answer = ask(server.shake(&ca.client(Some(&clients.server(9)), &[])).await.unwrap()).await.unwrap();
    assert_eq!(answer, "09");
}

/// What it may ask is for the port to say.
#[tokio::test]
async fn where_it_need_not_a_client_shows_no_certificate_or_a_good_one() {
    let (ca, clients, other) = (Ca::new("ca"), Ca::new("clients"), Ca::new("other"));
    let mut disk = Disk::of(&ca.server(1), Some(&clients));
    disk.files.lets_in_without = true;
    let server = Server::start(&disk, |port| port).await;
    for (shown, serial) in [(None, ""), (Some(clients.server(9)), "09")] {
        let stream = server.shake(&ca.client(shown.as_ref(), &[])).await.unwrap();
        assert_eq!(ask(stream).await.unwrap(), serial);
    }
    let (foreign, over) = (other.server(1), clients.issue(&["x"], OVER, 1));
    for (shown, reason) in [(&foreign, "unknown_ca"), (&over, "expired")] {
        let error = match server.shake(&ca.client(Some(shown), &[])).await {
            Ok(stream) => ask(stream).await.unwrap_err(),
            Err(error) => error,
        };
        server.failed(reason, 1).await;
        assert!(error.to_string().contains("alert"), "{reason}: {error}");
    }
}

#[tokio::test]
async fn a_client_that_trusts_another_ca_or_wants_another_name_says_so() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let server = Server::start(&Disk::of(&ca.server(1), None), |port| port).await;
    let error = server.shake(&other.client(None, &[])).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    server.failed("distrusted", 1).await;

    let server = Server::start(&Disk::of(&ca.issue(&["registry.example"], GOOD, 1), None), |port| port).await;
    let error = server.shake(&ca.client(None, &[])).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    server.failed("distrusted", 1).await;
}

#[tokio::test]
async fn a_client_of_plain_http_is_told_that_the_port_speaks_tls() {
    let server = Server::start(&Disk::of(&Ca::new("ca").server(1), None), |port| port).await;
    let answer = ask_plainly(server.address).await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request"), "{answer}");
    assert!(answer.ends_with("this port speaks TLS: use https, not http\n"), "{answer}");
    server.failed("not_tls", 1).await;
}

#[tokio::test]
async fn a_client_that_is_silent_in_its_handshake_is_closed() {
    let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(&Disk::of(&Ca::new("ca").server(1), None), limits, |port| port).await;
    for (count, opening) in [[].as_slice(), &[0x16], &[0x16, 3, 1, 2, 0, 1]].into_iter().enumerate() {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(opening).await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, client.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, [0; 0]);
        server.failed("timeout", count + 1).await;
    }
}

/// Who was let in once must not be let in by that alone: its certificate may be over, or its CA gone.
#[tokio::test]
async fn a_client_that_must_show_a_certificate_resumes_no_session() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let server = Server::start(&Disk::of(&ca.server(1), Some(&clients)), |port| port).await;
    let client = ca.client(Some(&clients.server(9)), &[]);
    for _ in 0..2 {
        let mut stream = server.shake(&client).await.unwrap();
        let kind = stream.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::Full));
        ask_on(&mut stream).await.unwrap();
    }
}

/// O58: new handshakes use the new files, connections that are open go on.
#[tokio::test]
async fn new_files_are_used_for_new_handshakes() {
    let (ca, old_clients, new_clients) = (Ca::new("ca"), Ca::new("clients"), Ca::new("new clients"));
    let disk = Disk::of(&ca.server(1), Some(&old_clients));
    let server = Server::start(&disk, |port| port).await;
    let (old, new) = (old_clients.server(8), new_clients.server(9));
    let (old, new) = (ca.client(Some(&old), &[]), ca.client(Some(&new), &[]));
    let mut open = server.shake(&old).await.unwrap();
    assert_eq!((serial(&open).as_str(), ask_on(&mut open).await.unwrap().as_str()), ("01", "08"));
    let refused = ask(server.shake(&new).await.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("UnknownCA"), "{refused}");

    disk.write(&ca.server(2), Some(&new_clients));
    server.tls.note(server.tls.shared.files.take(disk.files.read_now()));
    server.tls.note(server.tls.shared.files.take(disk.files.read_now()));
    let stream = server.shake(&new).await.unwrap();
    assert_eq!((serial(&stream).as_str(), ask(stream).await.unwrap().as_str()), ("02", "09"));
    let refused = ask(server.shake(&old).await.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("UnknownCA"), "{refused}");
    assert_eq!(ask_on(&mut open).await.unwrap(), "08");
}

#[tokio::test]
async fn bad_new_files_keep_the_old_ones_and_are_counted() {
    let ca = Ca::new("ca");
    let disk = Disk::of(&ca.server(1), None);
    let server = Server::start(&disk, |port| port).await;
    let look = || server.tls.note(server.tls.shared.files.take(disk.files.read_now()));
    std::fs::write(&disk.files.cert, ca.server(2).cert).unwrap();
    for _ in 0..5 {
        look();
    }
    let stream = server.shake(&ca.client(None, &[])).await.unwrap();
    assert_eq!(serial(&stream), "01");
    server.told("test_tls_reloads_total{outcome=\"refused\"} 1").await;
    server.told("test_tls_certificate_expiry_timestamp_seconds{file=\"cert\"} 4102444800").await;

    disk.write(&ca.issue(&["localhost"], super::testing::Years(2000, 2090), 3), None);
    look();
    look();
    assert_eq!(serial(&server.shake(&ca.client(None, &[])).await.unwrap()), "03");
    server.told("test_tls_reloads_total{outcome=\"used\"} 1").await;
    server.told("test_tls_reloads_total{outcome=\"refused\"} 1").await;
    server.told("test_tls_certificate_expiry_timestamp_seconds{file=\"cert\"} 3786912000").await;
}

/// A folder with the files.
struct Disk {
    _folder: TempDir,
    files: Files,
}

impl Disk {
    fn of(issued: &Issued, client_ca: Option<&Ca>) -> Self {
        Self::new(&issued.cert, &issued.key, client_ca.map(Ca::pem).as_deref())
    }

    fn new(cert: &str, key: &str, client_ca: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = Files {
            cert: path("tls.crt"),
            key: path("tls.key"),
            client_ca: client_ca.map(|_| path("ca.crt")),
            lets_in_without: false,
        };
        let disk = Self { _folder: folder, files };
        disk.put(cert, key, client_ca);
        disk
    }

    fn write(&self, issued: &Issued, client_ca: Option<&Ca>) {
        self.put(&issued.cert, &issued.key, client_ca.map(Ca::pem).as_deref());
    }

    fn put(&self, cert: &str, key: &str, client_ca: Option<&str>) {
        let write = |file: &Path, text: &str| std::fs::write(file, text).unwrap();
        write(&self.files.cert, cert);
        write(&self.files.key, key);
        if let (Some(file), Some(text)) = (&self.files.client_ca, client_ca) {
            write(file, text);
        }
    }

    fn load(&self) -> Result<Tls, Bad> {
        Tls::load(self.files.clone(), Arc::new(SystemClock), Metrics::default())
    }
}

/// A server that answers with the serial number of the client's certificate.
struct Server {
    address: SocketAddr,
    tls: Tls,
    counted: prometheus::Registry,
    _task: tokio_util::task::AbortOnDropHandle<()>,
}

impl Server {
    async fn start(disk: &Disk, change: impl FnOnce(Port) -> Port) -> Self {
        Self::with(disk, Limits::default(), change).await
    }

    async fn with(disk: &Disk, limits: Limits, change: impl FnOnce(Port) -> Port) -> Self {
        let counted = prometheus::Registry::new();
        let metrics = Metrics::register(&counted, "test_", &["test"]).unwrap();
        let tls = Tls::load(disk.files.clone(), Arc::new(SystemClock), metrics).unwrap();
        let identify = |peer: &Peer| peer.certificate.as_ref().map(|shown| shown.serial.clone());
        let show = |Extension(serial): Extension<Option<String>>| async { serial.unwrap_or_default() };
        let port = Port::new("test", Router::new().route("/", get(show)), limits, Arc::new(SystemClock))
            .tls(Some(tls.clone()))
            .identify(identify)
            .metrics(crate::http::Metrics::register(&counted, "test_", &["test"]).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(change(port).serve(listener, std::future::pending()));
        Self { address, tls, counted, _task: tokio_util::task::AbortOnDropHandle::new(task) }
    }

    async fn shake(
        &self,
        client: &TlsConnector,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        tokio::time::timeout(PATIENCE, shake(client, stream)).await.unwrap()
    }

    /// Waits until so many handshakes failed for this.
    async fn failed(&self, reason: &str, count: usize) {
        self.told(&format!("test_tls_handshake_failures_total{{port=\"test\",reason=\"{reason}\"}} {count}"))
            .await;
    }

    /// Waits until the metrics have a line.
    async fn told(&self, line: &str) {
        let counted = || prometheus::TextEncoder::new().encode_to_string(&self.counted.gather()).unwrap();
        let counting = async {
            while !counted().lines().any(|found| found == line) {
                tokio::task::yield_now().await;
            }
        };
        let limited = tokio::time::timeout(PATIENCE, counting).await;
        limited.unwrap_or_else(|_| panic!("{line} is missing in\n{}", counted()));
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// The body of one answer, on a connection that stays.
async fn ask_on(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> std::io::Result<String> {
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    loop {
        if tokio::time::timeout(PATIENCE, stream.read_buf(&mut answer)).await.unwrap()? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8(answer.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return Ok(body.to_owned());
        }
    }
}

async fn ask(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) -> std::io::Result<String> {
    ask_on(&mut stream).await
}

async fn ask_plainly(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}
