//! TLS to the service: which CAs are believed, and the certificate that is shown.
//!
//! The files are read again for each new connection, so a renewed certificate is used by the next one, without a task
//! that looks. Bad files at the start are an error; later ones keep what was read last, and are told once.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use mcs_core::time::Clock;
use mcs_pem::ClientContents;
pub use mcs_pem::{Bad as BadFiles, ClientFiles as TlsFiles};
use rustls::ClientConfig;
use tracing::{info, warn};

/// What is spoken.
const PROTOCOLS: &[&str] = &["http/1.1"];
/// What to do where the system believes no CA.
const WITHOUT_ROOTS: &str = "give the file of the CAs of the service";

/// TLS with the newest good files.
pub(crate) struct Tls {
    files: TlsFiles,
    clock: Arc<dyn Clock>,
    used: Mutex<Used>,
}

struct Used {
    contents: ClientContents,
    config: Arc<ClientConfig>,
    /// What is wrong with the files as they are now.
    told: Option<String>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Self, BadFiles> {
        let contents = files.read()?;
        let config = Arc::new(files.config(&contents, &clock, PROTOCOLS, WITHOUT_ROOTS)?.0);
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
            Ok(contents) => {
                let made = self.files.config(&contents, &self.clock, PROTOCOLS, WITHOUT_ROOTS);
                made.map(|(config, _)| Some((contents, Arc::new(config))))
            }
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
