//! Certificates and clients for tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType, SerialNumber, date_time_ymd,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Files;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A CA that signs for servers and clients.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

/// When a certificate is good: from the begin of one year to that of another.
#[derive(Clone, Copy, Debug)]
pub struct Years(pub i32, pub i32);

/// Good today.
pub const GOOD: Years = Years(2000, 2100);
/// Good no more.
pub const OVER: Years = Years(2000, 2020);
/// Not good yet.
pub const EARLY: Years = Years(2099, 2100);

impl Ca {
    /// A CA of this name.
    pub fn new(name: &str) -> Self {
        let mut params = params(GOOD, 1);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate with these names: `URI:…`, or a DNS name or address as it is.
    pub fn issue(&self, names: &[&str], years: Years, serial: u8) -> Issued {
        let mut params = params(years, serial);
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.strip_prefix("URI:") {
                Some(uri) => SanType::URI(uri.try_into().unwrap()),
                None => name
                    .parse()
                    .map_or_else(|_| SanType::DnsName((*name).try_into().unwrap()), SanType::IpAddress),
            })
            .collect();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Issued { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A good certificate for `localhost`.
    pub fn server(&self, serial: u8) -> Issued {
        self.issue(&["localhost"], GOOD, serial)
    }

    /// A client that trusts this CA, shows `own`, and speaks `protocols`.
    pub fn client(&self, own: Option<&Issued>, protocols: &[&str]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(Issued { cert, key }) => {
                let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

/// The files of a server, as kubelet keeps those of a Secret: links to links, of which one is swapped.
pub struct Secret {
    folder: TempDir,
    version: usize,
}

impl Secret {
    /// With this pair, and this client CA.
    pub fn new(issued: &Issued, client_ca: Option<&str>) -> Self {
        let mut secret = Self { folder: tempfile::tempdir().unwrap(), version: 0 };
        secret.swap(&issued.cert, &issued.key, client_ca.unwrap_or_default());
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            std::os::unix::fs::symlink(Path::new("..data").join(name), secret.path(name)).unwrap();
        }
        secret
    }

    /// Where a file is: `tls.crt`, `tls.key` or `ca.crt`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files, with the client CA or without.
    pub fn files(&self, client_ca: bool) -> Files {
        Files {
            cert: self.path("tls.crt"),
            key: self.path("tls.key"),
            client_ca: client_ca.then(|| self.path("ca.crt")),
            lets_in_without: false,
        }
    }

    /// Puts other texts in their place, all at once.
    pub fn swap(&mut self, cert: &str, key: &str, client_ca: &str) {
        self.version += 1;
        let version = format!("..version-{}", self.version);
        std::fs::create_dir(self.path(&version)).unwrap();
        for (name, text) in [("tls.crt", cert), ("tls.key", key), ("ca.crt", client_ca)] {
            std::fs::write(self.path(&version).join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(&version, self.path("..new")).unwrap();
        std::fs::rename(self.path("..new"), self.path("..data")).unwrap();
    }
}

/// Certificates as a careless hand changes them, each with what the program logs of it, and the serial number of the one
/// that it shows then.
pub fn rotation(ca: &Ca) -> [(Issued, &'static str, &'static str); 6] {
    [
        (ca.server(2), "serial=02", "02"),
        (ca.issue(&["localhost"], OVER, 3), "certificate 03 expired at 2020-01-01", "02"),
        (ca.server(4), "serial=04", "04"),
        (Issued { key: ca.server(5).key, ..ca.server(5) }, "is not that of the certificate", "04"),
        (Issued { cert: String::new(), ..ca.server(6) }, "it holds no certificate in PEM", "04"),
        (ca.server(7), "serial=07", "07"),
    ]
}

/// One request over a connection of its own.
///
/// # Errors
/// What the client makes of the handshake, or an answer that is not 200.
pub async fn exchange(client: &TlsConnector, address: SocketAddr, request: &str) -> std::io::Result<()> {
    let exchange = async {
        let mut stream = shake(client, TcpStream::connect(address).await?).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other(answer)) }
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap()
}

/// Sends a request again and again, over four connections at once, until one fails; that one is given.
pub fn load(client: &TlsConnector, address: SocketAddr, request: &str) -> JoinSet<std::io::Error> {
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (client, request) = (client.clone(), request.to_owned());
        load.spawn(async move {
            loop {
                if let Err(error) = exchange(&client, address, &request).await {
                    return error;
                }
            }
        });
    }
    load
}

/// Shakes hands with the server at the other end as `localhost`.
///
/// # Errors
/// What the client makes of it.
pub async fn shake(client: &TlsConnector, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    client.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// The serial number of the certificate that the server showed.
pub fn serial(stream: &TlsStream<TcpStream>) -> String {
    let shown = stream.get_ref().1.peer_certificates().unwrap();
    super::Certificate::read(&shown[0]).unwrap().serial
}

fn params(Years(from, to): Years, serial: u8) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params.serial_number = Some(SerialNumber::from_slice(&[serial]));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}
