//! What is counted of certificates.

use mcs_core::time::WallTime;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use super::files::Loaded;
use super::handshake::Reason;

/// Metrics of the files. Cheap to clone; the default counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    counted: Option<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    expiry: IntGaugeVec,
    reloads: IntCounterVec,
    handshakes: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics, for all ports of a program; a program that only calls others has none. Without TLS there is nothing to register: an expiry that is not
    /// there is no reason for an alert.
    ///
    /// # Errors
    /// The prefix makes no names of metrics, or they are registered.
    pub fn register(registry: &Registry, prefix: &str, ports: &[&str]) -> Result<Self, prometheus::Error> {
        let expiry = Opts::new(
            format!("{prefix}tls_certificate_expiry_timestamp_seconds"),
            "When the first certificate in a file that is used expires, in seconds since 1970",
        );
        let expiry = IntGaugeVec::new(expiry, &["file"])?;
        let reloads = Opts::new(
            format!("{prefix}tls_reloads_total"),
            "Changes of the files of TLS: used, or refused so that the old ones stay",
        );
        let reloads = IntCounterVec::new(reloads, &["outcome"])?;
        registry.register(Box::new(expiry.clone()))?;
        registry.register(Box::new(reloads.clone()))?;
        let handshakes =
            Opts::new(format!("{prefix}tls_handshake_failures_total"), "TLS handshakes that failed");
        let handshakes = IntCounterVec::new(handshakes, &["port", "reason"])?;
        registry.register(Box::new(handshakes.clone()))?;
        for port in ports {
            for reason in Reason::ALL {
                handshakes.with_label_values(&[*port, reason.label()]);
            }
        }
        for outcome in [USED, REFUSED] {
            reloads.with_label_values(&[outcome]);
        }
        Ok(Self { counted: Some(Counted { expiry, reloads, handshakes }) })
    }

    /// These files are used from now on.
    pub(super) fn loaded(&self, loaded: &Loaded) {
        let Some(Counted { expiry, .. }) = &self.counted else { return };
        let tell = |file, time: WallTime| expiry.with_label_values(&[file]).set(time.unix_secs());
        tell("cert", loaded.cert_expires);
        if let Some(expires) = loaded.client_ca_expires {
            tell("client_ca", expires);
        }
    }

    /// These files of a caller are used from now on: its own certificate, and the CAs of servers, as far as there are.
    pub(super) fn client_loaded(&self, own: Option<WallTime>, ca: Option<WallTime>) {
        let Some(Counted { expiry, .. }) = &self.counted else { return };
        for (file, time) in [("cert", own), ("ca", ca)] {
            if let Some(time) = time {
                expiry.with_label_values(&[file]).set(time.unix_secs());
            }
        }
    }

    /// Files that changed were used, or refused.
    pub(super) fn reloaded(&self, used: bool) {
        if let Some(Counted { reloads, .. }) = &self.counted {
            reloads.with_label_values(&[if used { USED } else { REFUSED }]).inc();
        }
    }

    /// A handshake failed for this.
    pub(super) fn handshake_failed(&self, port: &str, reason: Reason) {
        if let Some(Counted { handshakes, .. }) = &self.counted {
            handshakes.with_label_values(&[port, reason.label()]).inc();
        }
    }
}

const USED: &str = "used";
const REFUSED: &str = "refused";
