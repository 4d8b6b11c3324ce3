//! TLS: who is believed, what is shown, and files that change.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use global_discovery_client::{Client, RouterReplica, Settings, TlsFiles};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::tls::testing::{Ca, Issued};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::server::{Server, of, routers};

/// A server with a certificate of `ca` that asks for one of it.
fn acceptor(ca: &Ca) -> TlsAcceptor {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(der(&ca.pem())).expect("a CA");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let Issued { cert, key } = ca.server(1);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![der(&cert)], PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"));
    TlsAcceptor::from(Arc::new(config.expect("a certificate")))
}

fn write(folder: &Path, own: &Issued, ca: &Ca) -> TlsFiles {
    let path = |name: &str| folder.join(name);
    fs::write(path("ca.pem"), ca.pem()).expect("a file");
    fs::write(path("tls.crt"), &own.cert).expect("a file");
    fs::write(path("tls.key"), &own.key).expect("a file");
    TlsFiles { ca: Some(path("ca.pem")), own: Some((path("tls.crt"), path("tls.key"))) }
}

async fn listed(client: &Client) -> Result<usize, String> {
    client.list::<RouterReplica>().await.map(|list| list.items.len()).map_err(|error| error.to_string())
}

/// Answers every request with one router, each on a connection of its own.
async fn serve(mut server: Server) {
    loop {
        let asked = server.asked().await;
        asked.answer_with(200, "connection: close\r\n", &routers(&["a"], true).to_string()).await;
    }
}

#[tokio::test]
async fn a_service_is_believed_by_its_ca_and_shown_the_newest_good_certificate() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let folder = tempfile::tempdir().expect("a folder");
    let files =
        write(folder.path(), &other.issue(&["URI:spiffe://x/y"], mcs_runtime::tls::testing::GOOD, 2), &ca);
    let server = Server::secure(acceptor(&ca)).await;
    let client = of(&Settings { tls: files, ..Settings::of([server.url.clone()]) });
    let serving = tokio::spawn(serve(server));

    let refused = listed(&client).await.expect_err("a certificate of another CA is taken");
    assert!(refused.contains("does not answer"), "{refused}");
    write(folder.path(), &ca.server(3), &ca);
    assert_eq!(listed(&client).await, Ok(1));
    // A bad new file keeps what was read last.
    fs::write(folder.path().join("tls.key"), "nonsense").expect("a file");
    assert_eq!(listed(&client).await, Ok(1));
    write(folder.path(), &ca.server(4), &other);
    let refused = listed(&client).await.expect_err("a service of another CA is believed");
    assert!(refused.contains("certificate"), "{refused}");
    serving.abort();
}

#[tokio::test]
async fn files_that_cannot_be_used_at_the_start_are_named() {
    let (ca, folder) = (Ca::new("ca"), tempfile::tempdir().expect("a folder"));
    let good = write(folder.path(), &ca.server(1), &ca);
    fs::write(folder.path().join("empty.pem"), "").expect("a file");
    fs::write(folder.path().join("other.key"), &ca.server(2).key).expect("a file");
    let (empty, missing, other) =
        (folder.path().join("empty.pem"), folder.path().join("missing.pem"), folder.path().join("other.key"));
    let cert = folder.path().join("tls.crt");
    let cases = [
        (
            TlsFiles { ca: Some(missing.clone()), ..good.clone() },
            format!("cannot read {}: ", missing.display()),
        ),
        (
            TlsFiles { ca: Some(empty.clone()), ..good.clone() },
            format!("{} cannot be used: it holds no certificate", empty.display()),
        ),
        (
            TlsFiles { own: Some((cert.clone(), empty.clone())), ..good.clone() },
            format!("{} cannot be used: it holds no key", empty.display()),
        ),
        (
            TlsFiles { own: Some((cert.clone(), other.clone())), ..good },
            format!("the key in {} is not that of the certificate in {}", other.display(), cert.display()),
        ),
    ];
    for (tls, expected) in cases {
        let settings = |url: &str| Settings { tls: tls.clone(), ..Settings::of([url]) };
        let refused = Client::new(&settings("https://localhost"), Arc::new(SystemClock)).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with(&expected), "{refused}");
        // Nobody needs them for plain HTTP.
        assert!(Client::new(&settings("http://localhost"), Arc::new(SystemClock)).is_ok());
    }
}
