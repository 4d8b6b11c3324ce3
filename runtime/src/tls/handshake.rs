//! From a connection to a client, or why there is none.

use std::io;
use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, Error};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use super::{Certificate, Tls};
use crate::http::Protocol;

/// A client that passed.
pub(crate) struct Passed {
    /// What is exchanged with it.
    pub(crate) stream: TlsStream<TcpStream>,
    /// What it showed, when it was asked.
    pub(crate) certificate: Option<Certificate>,
}

/// A handshake that failed.
pub(crate) struct Failed {
    /// Why, for metrics.
    pub(crate) reason: Reason,
    /// Why, for people.
    pub(crate) why: String,
    /// The connection, for last words.
    pub(crate) stream: Option<TcpStream>,
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It took too long.
    Timeout,
    /// The client does not speak TLS.
    NotTls,
    /// The client showed no certificate.
    NoClientCert,
    /// The client's certificate is of a CA that is not known.
    UnknownCa,
    /// The client's certificate is over, or not good yet.
    Expired,
    /// Something else is wrong with the client's certificate.
    BadClientCert,
    /// The client does not trust the server's certificate.
    Distrusted,
    /// The client speaks no version, cipher or protocol that is spoken here, or breaks the rules.
    Protocol,
    /// The connection broke.
    Io,
}

impl Reason {
    pub(crate) const ALL: [Self; 9] = [
        Self::Timeout,
        Self::NotTls,
        Self::NoClientCert,
        Self::UnknownCa,
        Self::Expired,
        Self::BadClientCert,
        Self::Distrusted,
        Self::Protocol,
        Self::Io,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NotTls => "not_tls",
            Self::NoClientCert => "no_client_cert",
            Self::UnknownCa => "unknown_ca",
            Self::Expired => "expired",
            Self::BadClientCert => "bad_client_cert",
            Self::Distrusted => "distrusted",
            Self::Protocol => "protocol",
            Self::Io => "io",
        }
    }

    fn of(error: &io::Error) -> Self {
        let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
            return Self::Io;
        };
        match error {
            Error::NoCertificatesPresented => Self::NoClientCert,
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Self::UnknownCa,
            Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Self::Expired,
            Error::InvalidCertificate(_) => Self::BadClientCert,
            Error::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate,
            ) => Self::Distrusted,
            _ => Self::Protocol,
        }
    }
}

impl Tls {
    /// Notes that a handshake failed. Each is logged for who looks for it; of many, some for everyone.
    pub(crate) fn failed(&self, port: &'static str, peer: SocketAddr, reason: Reason, why: &str) {
        let shared = &self.shared;
        shared.metrics.handshake_failed(port, reason);
        let reason = reason.label();
        match shared.failures.due(shared.clock.elapsed()) {
            Some(unsaid) => warn!(port, %peer, reason, why, unsaid, "TLS handshake failed"),
            None => debug!(port, %peer, reason, why, "TLS handshake failed"),
        }
    }

    /// Shakes hands until `by`, waiting for its turn included.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        protocol: Protocol,
        by: Instant,
    ) -> Result<Passed, Failed> {
        let accepting = async {
            // It is never closed.
            let _turn = self.shared.handshakes.acquire().await;
            let configs = self.shared.files.current();
            let config = match protocol {
                Protocol::Any => &configs.any,
                Protocol::Http2 => &configs.http2,
            };
            TlsAcceptor::from(std::sync::Arc::clone(config)).accept(stream).into_fallible().await
        };
        let accepted = match timeout_at(by, accepting).await {
            Ok(accepted) => accepted,
            Err(_) => {
                let why = "it is not over in time".to_owned();
                return Err(Failed { reason: Reason::Timeout, why, stream: None });
            }
        };
        let stream = accepted.map_err(|(error, stream)| Failed {
            reason: Reason::of(&error),
            why: error.to_string(),
            stream: Some(stream),
        })?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = match shown.map(|der| Certificate::read(der)).transpose() {
            Ok(certificate) => certificate,
            Err(error) => {
                let stream = Some(stream.into_inner().0);
                return Err(Failed { reason: Reason::BadClientCert, why: error.to_string(), stream });
            }
        };
        Ok(Passed { stream, certificate })
    }
}
