//! TLS of the ports and of calls to others: rustls with aws-lc, TLS 1.2 and 1.3, and certificates that change without a
//! restart.
//!
//! - [`TlsArgs`]: the flags of a server
//! - [`client`]: the side of a caller: its flags, the CAs it trusts and the certificate it shows
//! - `files`: certificate, key and client CA as they are on disk, checked before they are used
//! - `follow`: they are read again every few seconds; a bad new pair keeps the old one, and is told once
//! - `certificate`: what a certificate says of its holder
//! - [`Holder`]: whom its names stand for
//! - `handshake`: from a connection to a client, or why not, in a closed set of reasons
//!
//! What a handshake uses is one [`rustls::ServerConfig`], the client CA included, which is swapped as a whole: a new handshake
//! uses the new files, connections that are open go on. Everything fails closed.
//!
//! Rejected: a certificate resolver in one lasting configuration (it would not change the client CA); watching the
//! files by inotify (kubelet swaps symbolic links two folders up, and some file systems tell nothing).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mcs_core::rate::Rate;
use mcs_core::time::Clock;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use crate::args::Check;
use crate::logs::Sparse;

pub use self::certificate::{Certificate, Names, Unreadable};
pub use self::files::{Bad, Files};
use self::follow::{Followed, Then};
pub use self::holder::Holder;
pub use self::metrics::Metrics;

mod certificate;
pub mod client;
mod files;
mod follow;
pub(crate) mod handshake;
mod holder;
mod metrics;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

/// How often the files are read: new ones are used after two looks at the latest. A certificate is renewed days, or at
/// the least minutes, before it expires.
const LOOK: Duration = Duration::from_secs(2);

/// Handshakes at once: a thousand clients that come back together do not wait for each other, and more cannot hold the
/// memory of a handshake each.
const HANDSHAKES: usize = 1024;

/// A handshake that failed is logged for everyone at most this often: anyone can cause it, and who sets up a client
/// wants to see why.
const FAILURES_LOGGED: Rate = Rate::once_in(Duration::from_secs(10));

/// The flags of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// PEM file with the server's certificate and the intermediate ones, read again when it changes. With
    /// --tls-key-file, else the ports are plaintext
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of --tls-cert-file, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with the CA certificates by which clients must be signed, read again when it changes. Without it no
    /// client is asked for a certificate
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca_file: Option<PathBuf>,
}

impl Check for TlsArgs {
    fn check(&self) -> Result<(), String> {
        self.clone().given().map(drop)
    }
}

impl TlsArgs {
    /// The files, when TLS is asked for.
    pub fn files(self) -> Option<Files> {
        self.given().ok().flatten()
    }

    fn given(self) -> Result<Option<Files>, String> {
        let Self { tls_cert_file, tls_key_file, tls_client_ca_file } = self;
        let flags = ["--tls-cert-file", "--tls-key-file", "--tls-client-ca-file"];
        Files::given(tls_cert_file, tls_key_file, tls_client_ca_file, flags)
    }
}

/// TLS with the newest good files. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
}

struct Shared {
    files: Followed<Files>,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    handshakes: Semaphore,
    /// Lets some failures be logged for everyone.
    failures: Sparse,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", self.shared.files.source()).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn load(files: Files, clock: Arc<dyn Clock>, metrics: Metrics) -> Result<Self, Bad> {
        let shared = Shared {
            files: Followed::load(files, Arc::clone(&clock))?,
            metrics,
            clock,
            handshakes: Semaphore::new(HANDSHAKES),
            failures: Sparse::new(FAILURES_LOGGED),
        };
        let tls = Self { shared: Arc::new(shared) };
        tls.tell(&tls.shared.files.current());
        Ok(tls)
    }

    /// Whether clients are asked for a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.shared.files.source().client_ca.is_some()
    }

    /// Follows the files; it has no end of its own.
    pub async fn follow(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.note(self.shared.files.look().await);
        }
    }

    fn note(&self, then: Then<Arc<files::Loaded>>) {
        let metrics = &self.shared.metrics;
        match then {
            Then::Nothing => {}
            Then::Use(loaded) => {
                metrics.reloaded(true);
                self.tell(&loaded);
            }
            Then::TellBad(why) => {
                metrics.reloaded(false);
                warn!(why, "the new files of TLS cannot be used: the old ones stay");
            }
            Then::TellGood => info!("the files of TLS are again those that are used"),
        }
    }

    fn tell(&self, loaded: &files::Loaded) {
        let Certificate { serial, not_after, .. } = &loaded.certificate;
        self.shared.metrics.loaded(loaded);
        info!(
            file = %self.shared.files.source().cert.display(), %serial, expires = %certificate::shown(*not_after),
            client_certificates = self.asks_for_certificates(), "TLS certificate loaded"
        );
    }
}

#[cfg(test)]
mod tests;
