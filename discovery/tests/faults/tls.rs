//! TLS with real files and flags: what is wrong is refused, and both the client's error and the log name the cause;
//! certificates change under load. What each certificate may register is tested in process.

use crate::program::Program;
use crate::service::{PATIENCE, ask, head, registration};
use mcs_runtime::tls::testing::{Ca, GOOD, Issued, OVER, Secret, serial, shake};
use std::net::SocketAddr;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

fn flags(secret: &Secret) -> Vec<String> {
    [("cert", "tls.crt"), ("key", "tls.key"), ("client-ca-cert", "ca.crt")]
        .iter()
        .map(|(flag, name)| format!("--tls-{flag}-path={}", secret.path(name).display()))
        .chain(["--log-level=debug".to_owned()])
        .collect()
}

async fn start(secret: &Secret) -> Program {
    Program::start(&flags(secret).iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// A registration over a connection of its own.
async fn register(address: SocketAddr, client: &TlsConnector) -> std::io::Result<()> {
    let exchange = async {
        let mut stream = shake(client, TcpStream::connect(address).await?).await?;
        let body = registration("chat").to_string();
        stream.write_all(format!("{}{body}", head("POST", "/pools", &[], body.len())).as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other(answer)) }
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap()
}

#[tokio::test]
async fn what_is_wrong_with_a_client_is_told_to_it_and_in_the_log_and_nothing_is_served() {
    let (ca, clients, other) = (Ca::new("ca"), Ca::new("clients"), Ca::new("other"));
    let own = clients.issue(&["east.prod"], GOOD, 9);
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let program = start(&secret).await;
    let elsewhere = Secret::new(&ca.issue(&["elsewhere.test"], GOOD, 2), Some(&clients.pem()));
    let named_otherwise = start(&elsewhere).await;
    let plaintext = Program::start(&["--log-level=debug"]).await;
    let expired = clients.issue(&["localhost"], OVER, 8);
    let cases = [
        (&program, other.client(Some(&own), &[]), "UnknownIssuer", "UnknownCA"),
        (&named_otherwise, ca.client(Some(&own), &[]), "not valid for name", "BadCertificate"),
        (&program, ca.client(Some(&other.server(7)), &[]), "UnknownCA", "UnknownIssuer"),
        (&program, ca.client(Some(&expired), &[]), "CertificateExpired", "certificate expired"),
        (&plaintext, ca.client(Some(&own), &[]), "corrupt message", "this port is plaintext"),
    ];
    for (program, client, told, logged) in cases {
        let refused = register(program.address, &client).await.unwrap_err().to_string();
        assert!(refused.contains(told), "{logged}: {refused}");
        program.logged(logged).await;
    }
    let refused = register(program.address, &ca.client(None, &[])).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("no client certificate was shown"),
        "{refused}"
    );
    let told = (400, "this port speaks TLS: use https, not http\n".to_owned());
    assert_eq!(ask(program.address, "GET", "/pools", "").await, told);
    program.logged("does not begin with a TLS handshake").await;
    register(program.address, &ca.client(Some(&own), &[])).await.unwrap();
}

#[test]
fn a_certificate_that_cannot_be_used_ends_it_at_the_start_with_the_cause() {
    let ca = Ca::new("ca");
    let secret = Secret::new(&ca.issue(&["localhost"], OVER, 3), Some(&ca.pem()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"));
    let output = command.arg("--listen=127.0.0.1:0").args(flags(&secret)).output().unwrap();
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
    let (address, client) = (program.address, ca.client(Some(&own), &[]));

    let mut load = JoinSet::new();
    for _ in 0..4 {
        let client = client.clone();
        // It never ends well: what fails is shown.
        load.spawn(async move {
            loop {
                if let Err(error) = register(address, &client).await {
                    return error;
                }
            }
        });
    }
    let mismatched = Issued { key: ca.server(5).key, ..ca.server(5) };
    let steps = [
        (ca.server(2), "serial=02", "02"),
        (ca.issue(&["localhost"], OVER, 3), "certificate 03 expired at 2020-01-01", "02"),
        (ca.server(4), "serial=04", "04"),
        (mismatched, "is not that of the certificate", "04"),
        (Issued { cert: String::new(), ..ca.server(6) }, "it holds no certificate in PEM", "04"),
        (ca.server(7), "serial=07", "07"),
    ];
    for (issued, logged, shown) in steps {
        secret.swap(&issued.cert, &issued.key, &clients.pem());
        program.logged(logged).await;
        let stream = shake(&client, TcpStream::connect(address).await.unwrap()).await.unwrap();
        assert_eq!(serial(&stream), shown, "{logged}");
        assert!(load.try_join_next().is_none(), "a request failed at {logged}");
    }
    load.shutdown().await;
}
