//! The certificate of a server as it was shown: who asks why a connection fails wants to see also one that is not believed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::tls::Certificate;

/// What a server showed last. Cheap to clone; clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<Option<Certificate>>>);

impl Seen {
    /// The server's own certificate, not those of its CAs; none where no server showed one that can be read.
    pub fn certificate(&self) -> Option<Certificate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, certificate: &CertificateDer<'_>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Certificate::read(certificate).ok();
    }
}

/// Believes what another verifier believes, and notes what it was shown.
#[derive(Debug)]
pub(super) struct Noting {
    verifier: Arc<WebPkiServerVerifier>,
    seen: Seen,
}

impl Noting {
    pub(super) const fn new(verifier: Arc<WebPkiServerVerifier>, seen: Seen) -> Self {
        Self { verifier, seen }
    }
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.seen.note(end_entity);
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
