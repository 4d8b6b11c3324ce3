//! The side of a caller: which servers it believes, and the certificate that it shows them.
//!
//! What a new connection uses is one [`ClientConfig`] of the newest good files; connections that are open go on. Files
//! that cannot be read or make no pair end the program at its start, and later keep the old ones. When a certificate is
//! good is for the server to judge: a controller must serve its cluster also while no registry would let it in, so an
//! expired one is logged and shown in a metric, and every handshake names it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcs_core::time::{Clock, WallTime};
pub use mcs_pem::ClientFiles;
use mcs_pem::{Bad, ClientContents, unusable};
use rustls::ClientConfig;
use rustls::client::{Resumption, WebPkiServerVerifier};
use tracing::{info, warn};

use super::certificate::{self, Certificate};
use super::files;
use super::follow::{Followed, Source, Then};
use super::{LOOK, Metrics};
use crate::args::Check;

mod seen;

use self::seen::Noting;
pub use self::seen::Seen;

/// The flags of TLS to registries.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "TLS to registries")]
pub struct RegistryTlsArgs {
    /// PEM file with the CA certificates by which registries must be signed, read again when it changes. Without it the
    /// CAs of the system are believed, since a registry with a public name has a public certificate
    #[arg(long, value_name = "FILE")]
    pub registry_tls_ca_file: Option<PathBuf>,
    /// PEM file with the certificate that registries are shown, and the intermediate ones, read again when it changes.
    /// With --registry-tls-key-file; without both none is shown, and a registry that asks for one refuses
    #[arg(long, value_name = "FILE")]
    pub registry_tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of --registry-tls-cert-file, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub registry_tls_key_file: Option<PathBuf>,
}

impl Check for RegistryTlsArgs {
    fn check(&self) -> Result<(), String> {
        match (&self.registry_tls_cert_file, &self.registry_tls_key_file) {
            (Some(_), None) => Err("--registry-tls-cert-file needs --registry-tls-key-file".to_owned()),
            (None, Some(_)) => Err("--registry-tls-key-file needs --registry-tls-cert-file".to_owned()),
            _ => Ok(()),
        }
    }
}

impl RegistryTlsArgs {
    /// The files.
    pub fn files(self) -> ClientFiles {
        let Self { registry_tls_ca_file, registry_tls_cert_file, registry_tls_key_file } = self;
        ClientFiles { ca: registry_tls_ca_file, own: registry_tls_cert_file.zip(registry_tls_key_file) }
    }

    /// The first flag that is given; none of them means anything without TLS.
    pub const fn first_given(&self) -> Option<&'static str> {
        match self {
            Self { registry_tls_ca_file: Some(_), .. } => Some("--registry-tls-ca-file"),
            Self { registry_tls_cert_file: Some(_), .. } => Some("--registry-tls-cert-file"),
            Self { registry_tls_key_file: Some(_), .. } => Some("--registry-tls-key-file"),
            Self {
                registry_tls_ca_file: None,
                registry_tls_cert_file: None,
                registry_tls_key_file: None,
            } => None,
        }
    }
}

/// What to do where the system believes no CA.
const WITHOUT_ROOTS: &str = "give the CAs of registries with --registry-tls-ca-file";

/// What is used of the files.
pub(super) struct Loaded {
    config: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
    own: Option<Certificate>,
    ca_expires: Option<WallTime>,
    own_expires: Option<WallTime>,
}

impl Source for ClientFiles {
    type Contents = ClientContents;
    type Loaded = Loaded;

    fn named(&self) -> &Path {
        self.named()
    }

    fn read_now(&self) -> Result<ClientContents, Bad> {
        self.read()
    }

    fn load(&self, contents: &ClientContents, clock: &Arc<dyn Clock>) -> Result<Loaded, Bad> {
        let ca_expires = match (&self.ca, &contents.ca) {
            (Some(file), Some(bytes)) => Some(files::roots(bytes).map_err(unusable(file))?.1),
            _ => None,
        };
        let (config, verifier) = self.config(contents, clock, &["h2"], WITHOUT_ROOTS)?;
        let read = match (&self.own, &contents.own) {
            (Some((cert, _)), Some((bytes, _))) => files::chain(cert, bytes)?.1,
            _ => Vec::new(),
        };
        let own_expires = files::first_expiry(&read);
        Ok(Loaded {
            config: Arc::new(config),
            verifier,
            own: read.into_iter().next(),
            ca_expires,
            own_expires,
        })
    }
}

/// TLS of a caller with the newest good files. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    shared: Arc<Shared>,
}

struct Shared {
    files: Followed<ClientFiles>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("files", self.shared.files.source()).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn load(files: ClientFiles, clock: Arc<dyn Clock>, metrics: Metrics) -> Result<Self, Bad> {
        let files = Followed::load(files, Arc::clone(&clock))?;
        let tls = Self { shared: Arc::new(Shared { files, clock, metrics }) };
        tls.tell(&tls.shared.files.current());
        Ok(tls)
    }

    /// What a new connection uses; it speaks HTTP/2.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.shared.files.current().config)
    }

    /// [`ClientTls::config`], for who keeps on asking.
    pub fn configs(&self) -> Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync> {
        let tls = self.clone();
        Arc::new(move || tls.config())
    }

    /// What connections use of which one wants to see the certificate that the server shows, believed or not.
    pub fn looking(&self) -> (Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync>, Seen) {
        let (tls, seen) = (self.clone(), Seen::default());
        let noted = seen.clone();
        let configs = move || {
            let loaded = tls.shared.files.current();
            let mut config = (*loaded.config).clone();
            // A session that goes on shows no certificate.
            config.resumption = Resumption::disabled();
            let noting = Noting::new(Arc::clone(&loaded.verifier), noted.clone());
            config.dangerous().set_certificate_verifier(Arc::new(noting));
            Arc::new(config)
        };
        (Arc::new(configs), seen)
    }

    /// The certificate that servers are shown, where there is one.
    pub fn own(&self) -> Option<Certificate> {
        self.shared.files.current().own.clone()
    }

    /// Follows the files; it has no end of its own.
    pub async fn follow(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.note(self.shared.files.look().await);
        }
    }

    fn note(&self, then: Then<Arc<Loaded>>) {
        let metrics = &self.shared.metrics;
        match then {
            Then::Nothing => {}
            Then::Use(loaded) => {
                metrics.reloaded(true);
                self.tell(&loaded);
            }
            Then::TellBad(why) => {
                metrics.reloaded(false);
                warn!(why, "the new files of TLS to registries cannot be used: the old ones stay");
            }
            Then::TellGood => info!("the files of TLS to registries are again those that are used"),
        }
    }

    fn tell(&self, loaded: &Loaded) {
        let Shared { files, clock, metrics } = &*self.shared;
        metrics.client_loaded(loaded.own_expires, loaded.ca_expires);
        let ClientFiles { ca, own } = files.source();
        let ca = ca.as_deref().map_or_else(|| "those of the system".into(), Path::to_string_lossy);
        let (Some((cert, _)), Some(Certificate { serial, not_after, .. })) = (own, &loaded.own) else {
            info!(%ca, "TLS to registries: CAs loaded, no certificate is shown");
            return;
        };
        let (cert, expires) = (cert.display(), certificate::shown(*not_after));
        if *not_after < clock.wall() {
            warn!(%ca, %cert, %serial, %expires, "TLS to registries: the certificate has expired, those that look at it will refuse it");
        } else {
            info!(%ca, %cert, %serial, %expires, "TLS to registries: CAs and certificate loaded");
        }
    }
}

#[cfg(test)]
mod tests;
