//! What a certificate says: its names, and how long it is good.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use mcs_core::time::WallTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate, as far as it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its serial number, as hexadecimal digits.
    pub serial: String,
    /// It is good from this moment on.
    pub not_before: WallTime,
    /// It is good up to this moment.
    pub not_after: WallTime,
    /// The names of its holder; none when they cannot be read.
    pub names: Option<Names>,
}

/// The subject alternative names of a certificate: those kinds that identify programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// URIs, as they are written.
    pub uris: Vec<String>,
    /// DNS names, as they are written.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
}

/// A certificate that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no X.509 certificate: {problem}")]
pub struct Unreadable {
    problem: String,
}

impl Certificate {
    /// Reads a certificate in DER. Nothing is verified.
    ///
    /// # Errors
    /// What is wrong with its form.
    pub fn read(der: &[u8]) -> Result<Self, Unreadable> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| Unreadable { problem: error.to_string() })?;
        if !rest.is_empty() {
            return Err(Unreadable { problem: format!("{} bytes follow it", rest.len()) });
        }
        let validity = certificate.validity();
        Ok(Self {
            serial: certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            not_before: WallTime::from_unix_secs(validity.not_before.timestamp()),
            not_after: WallTime::from_unix_secs(validity.not_after.timestamp()),
            names: names(&certificate),
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Option<Names> {
    let mut names = Names::default();
    // One that is there twice is an error.
    let Some(extension) = certificate.subject_alternative_name().ok()? else { return Some(names) };
    for name in &extension.value.general_names {
        match name {
            GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
            GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => names.ips.extend(address(bytes)),
            GeneralName::Invalid(..) => return None,
            _ => {}
        }
    }
    Some(names)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// A moment as people read it.
pub(super) fn shown(time: WallTime) -> impl fmt::Display {
    let seconds = Duration::from_secs(u64::try_from(time.unix_secs()).unwrap_or_default());
    humantime::format_rfc3339_seconds(UNIX_EPOCH + seconds.min(LAST_SHOWN))
}

/// The end of the year 9999: what is good for ever in certificates.
const LAST_SHOWN: Duration = Duration::from_secs(253_402_300_799);
