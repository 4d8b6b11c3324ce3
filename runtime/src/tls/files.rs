//! Certificate, key and client CA: as they are on disk, and as they are used.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcs_core::time::{Clock, WallTime};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::certificate::{Certificate, shown};

/// The most bytes of a file: a bundle of CAs is a tenth of it.
const MOST_BYTES: u64 = 1024 * 1024;

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate of the server, and the intermediate ones.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CAs of clients, when these must show a certificate.
    pub client_ca: Option<PathBuf>,
}

/// What is in the files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

#[cfg(test)]
impl Contents {
    /// Files with these bytes.
    pub(super) fn of(cert: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> Self {
        Self { cert: cert.to_vec(), key: key.to_vec(), client_ca: client_ca.map(<[u8]>::to_vec) }
    }
}

/// Keys are not for logs.
impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents")
    }
}

/// What is used of the files.
pub(super) struct Loaded {
    /// Without protocols, which are for each port to say.
    pub(super) config: ServerConfig,
    /// The certificate of the server.
    pub(super) certificate: Certificate,
    /// When the first of the server's certificates expires.
    pub(super) cert_expires: WallTime,
    /// When the first CA of clients expires.
    pub(super) client_ca_expires: Option<WallTime>,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} cannot be used: {problem}", .file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} is not that of the certificate in {}", .key.display(), .cert.display())]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

impl Files {
    /// Reads the files, without looking at what is in them.
    pub(super) fn read_now(&self) -> Result<Contents, Bad> {
        Ok(Contents {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }

    /// As [`Files::read_now`], while other tasks go on.
    pub(super) async fn read(&self) -> Result<Contents, Bad> {
        let files = self.clone();
        let reading = tokio::task::spawn_blocking(move || files.read_now());
        let aborted = |error| Bad::Unreadable { file: self.cert.clone(), source: io::Error::other(error) };
        reading.await.map_err(aborted)?
    }

    /// Checks contents, and makes of them what a handshake uses.
    pub(super) fn load(&self, contents: &Contents, clock: &Arc<dyn Clock>) -> Result<Loaded, Bad> {
        let unusable = |file: &Path| {
            let file = file.to_owned();
            move |problem: String| Bad::Unusable { file, problem }
        };
        let chain = certificates(&contents.cert).map_err(unusable(&self.cert))?;
        let read = chain
            .iter()
            .map(|der| Certificate::read(der).map_err(|error| error.to_string()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable(&self.cert))?;
        check_times(&read, clock.wall()).map_err(unusable(&self.cert))?;
        let key = key(&contents.key).map_err(unusable(&self.key))?;

        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(Time(Arc::clone(clock))))
                .with_safe_default_protocol_versions()
                .map_err(|error| unusable(&self.cert)(error.to_string()))?;
        let (builder, client_ca_expires) = match (&self.client_ca, &contents.client_ca) {
            (Some(file), Some(bytes)) => {
                let (roots, expires) = roots(bytes).map_err(unusable(file))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| unusable(file)(error.to_string()))?;
                (builder.with_client_cert_verifier(verifier), Some(expires))
            }
            _ => (builder.with_no_client_auth(), None),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Bad::Mismatch { cert: self.cert.clone(), key: self.key.clone() }
            }
            other => unusable(&self.key)(other.to_string()),
        })?;
        if client_ca_expires.is_some() {
            // A session that is resumed shows no certificate anew: one that has expired meanwhile, or whose CA has
            // gone, would still be let in.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let Some(certificate) = read.first().cloned() else {
            return Err(unusable(&self.cert)(NO_CERTIFICATE.to_owned()));
        };
        let cert_expires = read.iter().map(|certificate| certificate.not_after).min();
        let cert_expires = cert_expires.unwrap_or(certificate.not_after);
        Ok(Loaded { config, certificate, cert_expires, client_ca_expires })
    }
}

const NO_CERTIFICATE: &str = "it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)";

fn read(file: &Path) -> Result<Vec<u8>, Bad> {
    let unreadable = |source| Bad::Unreadable { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        let problem = format!("it has more than {MOST_BYTES} bytes");
        return Err(Bad::Unusable { file: file.to_owned(), problem });
    }
    Ok(bytes)
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("it is no PEM: {error}"))?;
    if found.is_empty() { Err(NO_CERTIFICATE.to_owned()) } else { Ok(found) }
}

fn key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "it holds no key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned(),
        // Others may quote the file.
        _ => "it is no PEM".to_owned(),
    })
}

fn roots(bytes: &[u8]) -> Result<(RootCertStore, WallTime), String> {
    let mut roots = RootCertStore::empty();
    let mut expires = Vec::new();
    for der in certificates(bytes)? {
        expires.push(Certificate::read(&der).map_err(|error| error.to_string())?.not_after);
        roots.add(der).map_err(|error| format!("a certificate is no CA: {error}"))?;
    }
    let first = expires.into_iter().min().ok_or_else(|| NO_CERTIFICATE.to_owned())?;
    Ok((roots, first))
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

/// The program's clock, as rustls asks for it.
struct Time(Arc<dyn Clock>);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.wall().unix_secs()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
