//! Certificate, key and client CA of a server: as they are on disk, and as they are used.

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
use super::follow::Source;

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

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// A file cannot be read.
    #[error("cannot read {}: {problem}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        problem: io::Error,
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
        let (chain, read) = chain(&self.cert, &contents.cert)?;
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
        let Some(certificate) = read.first().cloned() else {
            return Err(unusable(&self.cert)(NO_CERTIFICATE.to_owned()));
        };
        let cert_expires = first_expiry(&read).unwrap_or(certificate.not_after);
        let speaking = |protocols: &[&str]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            Arc::new(config)
        };
        let (http2, any) = (speaking(&["h2"]), speaking(&["h2", "http/1.1"]));
        Ok(Loaded { http2, any, certificate, cert_expires, client_ca_expires })
    }
}

/// A file is not what it should be, for a reason that follows.
pub(super) fn unusable(file: &Path) -> impl FnOnce(String) -> Bad {
    let file = file.to_owned();
    move |problem| Bad::Unusable { file, problem }
}

/// A file could not be read, since the task that should broke.
pub(super) fn broken(file: &Path, error: tokio::task::JoinError) -> Bad {
    Bad::Unreadable { file: file.to_owned(), problem: io::Error::other(error) }
}

/// Why a key and a certificate make no pair.
pub(super) fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> Bad {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Bad::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        other => unusable(key)(other.to_string()),
    }
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

const NO_CERTIFICATE: &str = "it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)";

/// The bytes of a file.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, Bad> {
    let unreadable = |problem| Bad::Unreadable { file: file.to_owned(), problem };
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

/// The key in a file.
pub(super) fn key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "it holds no key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned(),
        // Others may quote the file.
        _ => "it is no PEM".to_owned(),
    })
}

/// The CAs in a file, and when the first of them expires.
pub(super) fn roots(bytes: &[u8]) -> Result<(RootCertStore, WallTime), String> {
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
pub(super) struct Time(pub(super) Arc<dyn Clock>);

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
