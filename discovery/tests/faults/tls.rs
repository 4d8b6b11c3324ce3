//! TLS with real files and flags: what is wrong is refused, and both the client's error and the log name the cause;
//! certificates change under load. What each certificate may register is tested in process.

use crate::program::Program;
use crate::service::{ask, head, registration};
use mcs_runtime::tls::testing::{Ca, GOOD, OVER, Secret, exchange, load, rotation, serial, shake};
use std::process::Command;
use tokio::net::TcpStream;

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

/// A registration.
fn request() -> String {
    let body = registration("chat").to_string();
    format!("{}{body}", head("POST", "/pools", &[], body.len()))
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
        let refused = exchange(&client, program.address, &request()).await.unwrap_err().to_string();
        assert!(refused.contains(told), "{logged}: {refused}");
        program.logged(logged).await;
    }
    let refused = exchange(&ca.client(None, &[]), program.address, &request()).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("HTTP/1.1 403") && refused.contains("no client certificate was shown"),
        "{refused}"
    );
    let told = (400, "this port speaks TLS: use https, not http\n".to_owned());
    assert_eq!(ask(program.address, "GET", "/pools", "").await, told);
    program.logged("does not begin with a TLS handshake").await;
    exchange(&ca.client(Some(&own), &[]), program.address, &request()).await.unwrap();
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

    let mut load = load(&client, address, &request());
    for (issued, logged, shown) in rotation(&ca) {
        secret.swap(&issued.cert, &issued.key, &clients.pem());
        program.logged(logged).await;
        let stream = shake(&client, TcpStream::connect(address).await.unwrap()).await.unwrap();
        assert_eq!(serial(&stream), shown, "{logged}");
        assert!(load.try_join_next().is_none(), "a request failed at {logged}");
    }
    load.shutdown().await;
}
