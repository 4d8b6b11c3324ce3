//! Keys, certificates and kubeconfigs of one cluster.
//!
//! Each cluster has an authority of its own, so that credentials of one are refused by every other.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

/// The group that RBAC never refuses.
const ADMINISTRATORS: &str = "system:masters";

/// Paths of the files in the cluster's folder.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    cluster: String,
    folder: PathBuf,
    server: String,
}

impl Credentials {
    /// Makes all of them for the cluster of a name. `service_address` is that of the Service `kubernetes`.
    pub(crate) fn create(cluster: &str, folder: &Path, port: u16, service_address: Ipv4Addr) -> Result<Self> {
        let server = format!("https://127.0.0.1:{port}");
        let made = Self { cluster: cluster.to_owned(), folder: folder.to_owned(), server };
        made.write_certificates(service_address)?;
        made.write_kubeconfig(
            &made.admin_kubeconfig(),
            json!({ "client-certificate": made.file("admin.crt"), "client-key": made.file("admin.key") }),
        )?;
        Ok(made)
    }

    fn write_certificates(&self, service_address: Ipv4Addr) -> Result<()> {
        let mut authority = named("e2e cluster authority", None);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        self.write(&self.authority(), &authority.pem())?;

        let mut server = named("kube-apiserver", None);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for address in [Ipv4Addr::LOCALHOST, service_address] {
            server.subject_alt_names.push(SanType::IpAddress(address.into()));
        }
        for name in ["localhost", "kubernetes.default.svc"] {
            server.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        let mut admin = named("e2e-admin", Some(ADMINISTRATORS));
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for (name, mut parameters) in [("server", server), ("admin", admin)] {
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            let key = KeyPair::generate()?;
            let certificate = parameters.signed_by(&key, &authority)?;
            self.write(&self.file(&format!("{name}.crt")), &certificate.pem())?;
            self.write(&self.file(&format!("{name}.key")), &key.serialize_pem())?;
        }

        let tokens = KeyPair::generate()?;
        self.write(&self.token_key(), &tokens.serialize_pem())?;
        self.write(&self.token_public_key(), &tokens.public_key_pem())
    }

    /// Writes a kubeconfig that names a bearer token; answers its path.
    pub(crate) fn write_token_kubeconfig(&self, user: &str, token: &str) -> Result<PathBuf> {
        let path = self.file(&format!("kubeconfig-{user}"));
        self.write_kubeconfig(&path, json!({ "token": token }))?;
        Ok(path)
    }

    /// JSON, which every reader of YAML takes. All names are the cluster's, so that those of several can be joined.
    fn write_kubeconfig(&self, path: &Path, user: Value) -> Result<()> {
        let name = &self.cluster;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": name,
                "cluster": { "server": self.server, "certificate-authority": self.authority() },
            }],
            "users": [{ "name": name, "user": user }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
            "current-context": name,
        });
        self.write(path, &serde_json::to_string_pretty(&kubeconfig)?)
    }

    fn write(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.file("ca.crt")
    }

    pub(crate) fn server_certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    pub(crate) fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    pub(crate) fn token_key(&self) -> PathBuf {
        self.file("service-account.key")
    }

    pub(crate) fn token_public_key(&self) -> PathBuf {
        self.file("service-account.pub")
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        parameters.distinguished_name.push(DnType::OrganizationName, group);
    }
    parameters
}
