//! Certificate, key and client CA of a server: as they are on disk, and as they are used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcs_core::time::{Clock, WallTime};
pub use mcs_pem::Bad;
use mcs_pem::{Time, certificates, key, mismatch, read, unusable};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::certificate::{Certificate, shown};
use super::follow::Source;

/// There is at least one in what was read as certificates.
const NO_CERTIFICATE: &str = "it holds no certificate";

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate of the server, and the intermediate ones.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CAs of clients, when these must show a certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether a client that shows none is let in all the same, and the port decides what it may ask. One that shows a
    /// certificate that is not good never is.
    pub lets_in_without: bool,
}

impl Files {
    /// The files that were given, when TLS is asked for; `flags` are those of certificate, key and client CA.
    ///
    /// # Errors
    /// The flag that is missing.
    pub fn given(
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        client_ca: Option<PathBuf>,
        flags: [&str; 3],
    ) -> Result<Option<Self>, String> {
        let [cert_flag, key_flag, ca_flag] = flags;
        match (cert, key, client_ca) {
            (Some(cert), Some(key), client_ca) => {
                Ok(Some(Self { cert, key, client_ca, lets_in_without: false }))
            }
            (Some(_), None, _) => Err(format!("{cert_flag} needs {key_flag}")),
            (None, Some(_), _) => Err(format!("{key_flag} needs {cert_flag}")),
            (None, None, Some(_)) => Err(format!("{ca_flag} needs {cert_flag} and {key_flag}")),
            (None, None, None) => Ok(None),
        }
    }
}

/// What is in the files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// Keys are not for logs.
impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents")
    }
}

/// What is used of the files.
pub(super) struct Loaded {
    /// For ports that speak HTTP/2 only.
    pub(super) http2: Arc<ServerConfig>,
    /// For ports that speak any version of HTTP.
    pub(super) any: Arc<ServerConfig>,
    /// The certificate of the server.
    pub(super) certificate: Certificate,
    /// When the first of the server's certificates expires.
    pub(super) cert_expires: WallTime,
    /// When the first CA of clients expires.
    pub(super) client_ca_expires: Option<WallTime>,
}

impl Source for Files {
    type Contents = Contents;
    type Loaded = Loaded;

    fn named(&self) -> &Path {
        &self.cert
    }

    fn read_now(&self) -> Result<Contents, Bad> {
        Ok(Contents {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn load(&self, contents: &Contents, clock: &Arc<dyn Clock>) -> Result<Loaded, Bad> {
        let (chain, found) = chain(&self.cert, &contents.cert)?;
        check_times(&found, clock.wall()).map_err(unusable(&self.cert))?;
        let key = key(&contents.key).map_err(unusable(&self.key))?;

        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(Time(Arc::clone(clock))))
                .with_safe_default_protocol_versions()
                .map_err(|error| unusable(&self.cert)(error.to_string()))?;
        let (builder, client_ca_expires) = match (&self.client_ca, &contents.client_ca) {
            (Some(file), Some(bytes)) => {
                let (roots, expires) = roots(bytes).map_err(unusable(file))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if self.lets_in_without { verifier.allow_unauthenticated() } else { verifier };
                let verifier = verifier.build().map_err(|error| unusable(file)(error.to_string()))?;
                (builder.with_client_cert_verifier(verifier), Some(expires))
            }
            _ => (builder.with_no_client_auth(), None),
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| mismatch(&self.cert, &self.key, &error))?;
        if client_ca_expires.is_some() {
            // A session that is resumed shows no certificate anew: one that has expired meanwhile, or whose CA has
            // gone, would still be let in.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let Some(certificate) = found.first().cloned() else {
            return Err(unusable(&self.cert)(NO_CERTIFICATE.to_owned()));
        };
        let cert_expires = first_expiry(&found).unwrap_or(certificate.not_after);
        let speaking = |protocols: &[&str]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            Arc::new(config)
        };
        let (http2, any) = (speaking(&["h2"]), speaking(&["h2", "http/1.1"]));
        Ok(Loaded { http2, any, certificate, cert_expires, client_ca_expires })
    }
}

/// A file could not be read, since the task that should broke.
pub(super) fn broken(file: &Path, error: tokio::task::JoinError) -> Bad {
    Bad::Unreadable { file: file.to_owned(), problem: io::Error::other(error) }
}

/// A certificate with the intermediate ones, as they are used and as they are read.
pub(super) type Chain = (Vec<CertificateDer<'static>>, Vec<Certificate>);

/// The certificates in a file.
pub(super) fn chain(file: &Path, bytes: &[u8]) -> Result<Chain, Bad> {
    let chain = certificates(bytes).map_err(unusable(file))?;
    let read = chain
        .iter()
        .map(|der| Certificate::read(der).map_err(|error| error.to_string()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unusable(file))?;
    Ok((chain, read))
}

/// When the first of some certificates expires.
pub(super) fn first_expiry(read: &[Certificate]) -> Option<WallTime> {
    read.iter().map(|certificate| certificate.not_after).min()
}

/// The CAs in a file, and when the first of them expires.
pub(super) fn roots(bytes: &[u8]) -> Result<(RootCertStore, WallTime), String> {
    let found = certificates(bytes)?;
    let mut expires = Vec::new();
    for der in &found {
        expires.push(Certificate::read(der).map_err(|error| error.to_string())?.not_after);
    }
    let first = expires.into_iter().min().ok_or_else(|| NO_CERTIFICATE.to_owned())?;
    Ok((mcs_pem::roots(found)?, first))
}

/// A certificate that no client would take is as bad as none.
fn check_times(chain: &[Certificate], now: WallTime) -> Result<(), String> {
    for Certificate { serial, not_before, not_after, .. } in chain {
        if *not_after < now {
            return Err(format!("certificate {serial} expired at {}", shown(*not_after)));
        }
        if *not_before > now {
            return Err(format!("certificate {serial} is not good before {}", shown(*not_before)));
        }
    }
    Ok(())
}
