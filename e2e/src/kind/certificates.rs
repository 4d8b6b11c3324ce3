//! A private authority, with which registries and controllers know each other.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// `tls.crt`.
    pub(crate) certificate: String,
    /// `tls.key`.
    pub(crate) key: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut parameters = named(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?))
    }

    /// Its certificate, as PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of a server.
    pub(crate) fn server(&self, name: &str) -> Result<Pair> {
        self.sign(SanType::DnsName(name.try_into()?), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate of a client with a SPIFFE id.
    pub(crate) fn client(&self, id: &str) -> Result<Pair> {
        self.sign(SanType::URI(id.try_into()?), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, name: SanType, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        let mut parameters = named("e2e");
        parameters.subject_alt_names = vec![name];
        parameters.extended_key_usages = vec![usage];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.0)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}
