//! TLS with real files and flags: what is wrong is refused, and both the client's error and the log name the cause. What
//! each port makes of each certificate is tested in process.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::pb::members_client::MembersClient;
use mcs_runtime::tls::testing::{Ca, GOOD, OVER, Secret, exchange, load, rotation, serial, shake};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::program::Program;
use crate::started::{LIMIT, http};

const CLUSTERS: &str = "/v1/clustersets/prod/clusters";

/// A list.
const REQUEST: &str =
    "GET /v1/clustersets/prod/clusters HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn what_is_wrong_with_a_client_is_told_to_it_and_in_the_log_and_nothing_is_served() {
    let (ca, clients, other) = (Ca::new("ca"), Ca::new("clients"), Ca::new("other"));
    let own = clients.server(9);
    let elsewhere = ca.issue(&["elsewhere.test"], GOOD, 2);
    let wrong_name = Secret::new(&elsewhere, Some(&clients.pem()));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let program = start(&secret).await;
    let named_otherwise = start(&wrong_name).await;
    let plaintext = Program::start(&["--log-level=debug"]).await;
    let expired = clients.issue(&["localhost"], OVER, 8);
    let cases = [
        (&program, other.client(Some(&own), &[]), "UnknownIssuer", "UnknownCA"),
        (&named_otherwise, ca.client(Some(&own), &[]), "not valid for name", "BadCertificate"),
        (&program, ca.client(None, &[]), "CertificateRequired", "peer sent no certificates"),
        (&program, ca.client(Some(&other.server(7)), &[]), "UnknownCA", "UnknownIssuer"),
        (&program, ca.client(Some(&expired), &[]), "CertificateExpired", "certificate expired"),
        (&plaintext, ca.client(Some(&own), &[]), "corrupt message", "this port is plaintext"),
    ];
    for (program, client, told, logged) in cases {
        let refused = exchange(&client, program.rest, REQUEST).await.unwrap_err().to_string();
        assert!(refused.contains(told), "{logged}: {refused}");
        program.logged(logged).await;
    }
    let (status, text) = http(program.rest, "GET", CLUSTERS).await;
    assert_eq!((&*status, &*text), ("400 Bad Request", "this port speaks TLS: use https, not http\n"));
    program.logged("does not begin with a TLS handshake").await;
    exchange(&ca.client(Some(&own), &[]), program.rest, REQUEST).await.unwrap();
}

#[test]
fn an_expired_certificate_ends_it_at_the_start_with_the_cause() {
    let ca = Ca::new("ca");
    let secret = Secret::new(&ca.issue(&["localhost"], OVER, 3), Some(&ca.pem()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcs-registry"));
    for port in ["grpc", "rest", "admin"] {
        command.arg(format!("--{port}-listen=127.0.0.1:0"));
    }
    let output = command.args(flags(&secret)).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("tls.crt cannot be used: certificate 03 expired at 2020-01-01"), "{log}");
}

/// O58: links are swapped as kubelet does, with bad files between the good ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make faults"]
async fn certificates_change_under_load_and_bad_ones_are_told_and_not_used() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let own = clients.issue(&["URI:spiffe://prod/cluster/east"], GOOD, 9);
    let mut secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let program = start(&secret).await;
    let (rest, client) = (program.rest, ca.client(Some(&own), &[]));
    let files = program.handles();

    let grpc_client = Arc::new(ca.client(Some(&own), &["h2"]));
    let channel = channel(program.grpc, &grpc_client).await;
    let watch = pb::WatchRequest {
        clusterset: "prod".to_owned(),
        cluster: "importer".to_owned(),
        ..pb::WatchRequest::default()
    };
    let mut watch = ImportsClient::new(channel.clone()).watch(watch).await.unwrap().into_inner();

    let mut load = load(&client, rest, REQUEST);
    let both = ca.client(Some(&own), &["h2", "http/1.1"]);
    for (issued, logged, shown) in rotation(&ca) {
        secret.swap(&issued.cert, &issued.key, &clients.pem());
        program.logged(logged).await;
        for address in [program.rest, program.grpc] {
            let stream = shake(&both, TcpStream::connect(address).await.unwrap()).await.unwrap();
            assert_eq!(serial(&stream), shown, "{logged}");
        }
        assert!(load.try_join_next().is_none(), "a request failed at {logged}");
    }
    load.shutdown().await;

    let register = pb::RegisterRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: "uid-of-east".to_owned(),
        version: Some(pb::Version { term: 1, seq: 1 }),
        sum: vec![0; 16],
        ..pb::RegisterRequest::default()
    };
    MembersClient::new(channel).register(register).await.unwrap();
    let told = async {
        loop {
            if let Some(pb::watch_response::Step::Section(section)) =
                watch.message().await.unwrap().unwrap().step
            {
                return section.cluster;
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, told).await.unwrap(), "east", "the first connection lives");
    // That connection is still there.
    program.gives_back(files + 1).await;
}

async fn start(secret: &Secret) -> Program {
    let flags = flags(secret);
    Program::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

fn flags(secret: &Secret) -> Vec<String> {
    [("cert", "tls.crt"), ("key", "tls.key"), ("client-ca", "ca.crt")]
        .iter()
        .map(|(flag, name)| format!("--tls-{flag}-file={}", secret.path(name).display()))
        .chain(["--log-level=debug".to_owned()])
        .collect()
}

async fn channel(grpc: SocketAddr, client: &Arc<TlsConnector>) -> Channel {
    let client = Arc::clone(client);
    let connect = tower::service_fn(move |_| {
        let client = Arc::clone(&client);
        async move {
            Ok::<_, std::io::Error>(TokioIo::new(shake(&client, TcpStream::connect(grpc).await?).await?))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap()
}
