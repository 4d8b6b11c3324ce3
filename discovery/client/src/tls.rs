//! TLS to the service: which CAs are believed, and the certificate that is shown.
//!
//! The files are read again for each new connection, so a renewed certificate is used by the next one, without a task
//! that looks. Bad files at the start are an error; later ones keep what was read last, and are told once.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mcs_core::time::Clock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use tracing::{info, warn};

/// Where the files are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CAs by which the service must be signed; those of the system when none.
    pub ca: Option<PathBuf>,
    /// The certificate that the service is shown with the intermediate ones, and its key; none is shown without.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFiles {
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
    /// There is no CA to believe.
    #[error("the system has no CA certificate that can be used; give the file of one")]
    NoSystemRoots,
    /// The key belongs to another certificate.
    #[error("the key in {} is not that of the certificate in {}", .key.display(), .cert.display())]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

/// TLS with the newest good files.
pub(crate) struct Tls {
    files: TlsFiles,
    clock: Arc<dyn Clock>,
    used: Mutex<Used>,
}

struct Used {
    contents: Contents,
    config: Arc<ClientConfig>,
    /// What is wrong with the files as they are now.
    told: Option<String>,
}

/// What is in the files. It has a key, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Self, BadFiles> {
        let contents = files.read()?;
        let config = files.config(&contents, &clock)?;
        Ok(Self { files, clock, used: Mutex::new(Used { contents, config, told: None }) })
    }

    /// What a new connection uses.
    pub(crate) async fn config(self: &Arc<Self>) -> io::Result<Arc<ClientConfig>> {
        let tls = Arc::clone(self);
        tokio::task::spawn_blocking(move || tls.read_again()).await.map_err(io::Error::other)
    }

    fn read_again(&self) -> Arc<ClientConfig> {
        let read = self.files.read();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match read {
            // Sessions that can be resumed stay with the configuration.
            Ok(contents) if contents == used.contents => Ok(None),
            Ok(contents) => self.files.config(&contents, &self.clock).map(|config| Some((contents, config))),
            Err(bad) => Err(bad),
        };
        let problem = loaded.as_ref().err().map(ToString::to_string);
        match (loaded, &problem) {
            (Ok(Some((contents, config))), _) => {
                info!("the files of TLS to the discovery service have changed and are used");
                (used.contents, used.config) = (contents, config);
            }
            (_, Some(problem)) if used.told.as_ref() != Some(problem) => {
                warn!(problem, "the files of TLS to the discovery service cannot be used: the old ones stay");
            }
            _ => {}
        }
        used.told = problem;
        Arc::clone(&used.config)
    }
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, BadFiles> {
        let read = |file: &Path| {
            fs::read(file).map_err(|problem| BadFiles::Unreadable { file: file.to_owned(), problem })
        };
        let own = self.own.as_ref().map(|(cert, key)| Ok((read(cert)?, read(key)?))).transpose()?;
        Ok(Contents { ca: self.ca.as_deref().map(read).transpose()?, own })
    }

    fn config(&self, contents: &Contents, clock: &Arc<dyn Clock>) -> Result<Arc<ClientConfig>, BadFiles> {
        let roots = match (&self.ca, &contents.ca) {
            (Some(file), Some(bytes)) => roots(bytes).map_err(unusable(file))?,
            _ => system_roots()?,
        };
        let any = Path::new("TLS");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Time(Arc::clone(clock))))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(any)(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match (&self.own, &contents.own) {
            (Some((cert, key)), Some((cert_bytes, key_bytes))) => {
                let chain = certificates(cert_bytes).map_err(unusable(cert))?;
                let private = private_key(key_bytes).map_err(unusable(key))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| mismatch(cert, key, &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn unusable(file: &Path) -> impl FnOnce(String) -> BadFiles {
    let file = file.to_owned();
    move |problem| BadFiles::Unusable { file, problem }
}

fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> BadFiles {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            BadFiles::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        other => unusable(key)(other.to_string()),
    }
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("it is no PEM: {error}"))?;
    if found.is_empty() {
        return Err("it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    Ok(found)
}

fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "it holds no key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned(),
        // Others may quote the file.
        _ => "it is no PEM".to_owned(),
    })
}

fn roots(bytes: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bytes)? {
        roots.add(certificate).map_err(|error| format!("a certificate is no CA: {error}"))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, BadFiles> {
    let mut roots = RootCertStore::empty();
    let (used, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if used == 0 { Err(BadFiles::NoSystemRoots) } else { Ok(roots) }
}

/// The caller's clock, as rustls asks for it.
struct Time(Arc<dyn Clock>);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.wall().unix_secs()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}
