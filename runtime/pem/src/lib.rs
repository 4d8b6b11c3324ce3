//! Certificates and keys in files, as they are on disk and as rustls takes them, with errors that name the file and the
//! cause and never quote a key.
//!
//! - [`read`], [`certificates`], [`key`], [`roots`]: from a file to what is in it
//! - [`ClientFiles`]: those of a caller, and the configuration that they make
//! - [`Time`]: the program's clock, as rustls asks for it
//!
//! When the files are read again, and what becomes of bad ones, is for who uses them: the programs look every few
//! seconds (`mcs_runtime::tls`), a library reads them for each new connection (`global_discovery_client`). That is why
//! this is a crate of its own: a library must not bring the shell of a program, with its flags, ports and metrics.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mcs_core::time::Clock;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

/// The most bytes of a file: a bundle of CAs is a tenth of it.
const MOST_BYTES: u64 = 1024 * 1024;

const NO_CERTIFICATE: &str = "it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)";

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

/// A file is not what it should be, for a reason that follows.
pub fn unusable(file: &Path) -> impl FnOnce(String) -> Bad + use<> {
    let file = file.to_owned();
    move |problem| Bad::Unusable { file, problem }
}

/// Why a key and a certificate make no pair.
pub fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> Bad {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Bad::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        other => unusable(key)(other.to_string()),
    }
}

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is larger than any such file.
pub fn read(file: &Path) -> Result<Vec<u8>, Bad> {
    let unreadable = |problem| Bad::Unreadable { file: file.to_owned(), problem };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unusable(file)(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The certificates in a file; at least one.
///
/// # Errors
/// What is wrong with it.
pub fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("it is no PEM: {error}"))?;
    if found.is_empty() { Err(NO_CERTIFICATE.to_owned()) } else { Ok(found) }
}

/// The key in a file.
///
/// # Errors
/// What is wrong with it.
pub fn key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "it holds no key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned(),
        // Others may quote the file.
        _ => "it is no PEM".to_owned(),
    })
}

/// These certificates as CAs.
///
/// # Errors
/// One is none.
pub fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("a certificate is no CA: {error}"))?;
    }
    Ok(roots)
}

/// Where the files of a caller are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs of servers; those of the system when none.
    pub ca: Option<PathBuf>,
    /// The certificate that servers are shown with the intermediate ones, and its key; none is shown without.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// What is in the files of a caller.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientContents {
    /// Of the file of CAs.
    pub ca: Option<Vec<u8>>,
    /// Of the files of certificate and key.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// Keys are not for logs.
impl fmt::Debug for ClientContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientContents")
    }
}

impl ClientFiles {
    /// The file that is named where none can be.
    pub fn named(&self) -> &Path {
        let own = self.own.as_ref().map(|(cert, _)| cert.as_path());
        self.ca.as_deref().or(own).unwrap_or_else(|| Path::new("the system's CA certificates"))
    }

    /// Reads the files, without looking at what is in them.
    ///
    /// # Errors
    /// The file that cannot be read.
    pub fn read(&self) -> Result<ClientContents, Bad> {
        let pair = |(cert, key): &(PathBuf, PathBuf)| Ok((read(cert)?, read(key)?));
        Ok(ClientContents {
            ca: self.ca.as_deref().map(read).transpose()?,
            own: self.own.as_ref().map(pair).transpose()?,
        })
    }

    /// What connections use, and what looks at the certificates of servers for them. `protocols` are the names of what is
    /// spoken, best first; `without_roots` says what to do where the system believes no CA.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn config(
        &self,
        contents: &ClientContents,
        clock: &Arc<dyn Clock>,
        protocols: &[&str],
        without_roots: &str,
    ) -> Result<(ClientConfig, Arc<WebPkiServerVerifier>), Bad> {
        let roots = match (&self.ca, &contents.ca) {
            (Some(file), Some(bytes)) => certificates(bytes).and_then(roots).map_err(unusable(file))?,
            _ => system_roots(without_roots).map_err(unusable(Path::new("the system's CA certificates")))?,
        };
        let other = |error: String| unusable(self.named())(error);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| other(error.to_string()))?;
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Time(Arc::clone(clock))))
            .with_safe_default_protocol_versions()
            .map_err(|error| other(error.to_string()))?
            .with_webpki_verifier(Arc::clone(&verifier));
        let mut config = match (&self.own, &contents.own) {
            (Some((cert, key)), Some((cert_bytes, key_bytes))) => {
                let chain = certificates(cert_bytes).map_err(unusable(cert))?;
                let private = self::key(key_bytes).map_err(unusable(key))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| mismatch(cert, key, &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok((config, verifier))
    }
}

/// The CAs that the system believes.
fn system_roots(without: &str) -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (used, _) = roots.add_parsable_certificates(found.certs);
    match (used, found.errors.first()) {
        (0, Some(error)) => Err(format!("{error}; {without}")),
        (0, None) => Err(format!("there are none; {without}")),
        _ => Ok(roots),
    }
}

/// The program's clock, as rustls asks for it.
pub struct Time(pub Arc<dyn Clock>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_file_that_is_not_what_it_should_be_is_told_and_not_quoted() {
        assert_eq!(certificates(b"").unwrap_err(), NO_CERTIFICATE);
        assert_eq!(key(b"").unwrap_err(), "it holds no key in PEM (-----BEGIN PRIVATE KEY-----)");
        let cut = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n";
        assert_eq!(key(cut).unwrap_err(), "it is no PEM");
        assert!(certificates(b"-----BEGIN CERTIFICATE-----\n").unwrap_err().starts_with("it is no PEM"));
        let no_certificate = vec![CertificateDer::from(vec![0; 3])];
        assert!(roots(no_certificate).unwrap_err().starts_with("a certificate is no CA"));
    }

    #[test]
    fn a_file_is_read_up_to_the_largest_that_there_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tls.crt");
        let most = usize::try_from(MOST_BYTES).unwrap();
        for (bytes, told) in
            [(most, None), (most + 1, Some("tls.crt cannot be used: it has more than 1048576 bytes"))]
        {
            std::fs::write(&file, vec![b' '; bytes]).unwrap();
            let refused = read(&file).err().map(|bad| bad.to_string());
            assert_eq!(refused.is_some(), told.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().ends_with(told.unwrap_or_default()));
        }
        let missing = read(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(
            missing.starts_with("cannot read ") && missing.contains("missing: No such file"),
            "{missing}"
        );
    }
}
