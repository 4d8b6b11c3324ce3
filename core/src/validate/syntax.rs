//! Kubernetes' rules for names and values, beyond those of identities ([`crate::ids`]).

use crate::ids::{IdProblem, check_dns_label, check_label_value};
use crate::limits::MAX_SUBDOMAIN;

/// The rule that a text breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// A rule that identities have too.
    #[error(transparent)]
    Id(#[from] IdProblem),
    /// It is not a DNS-1123 subdomain.
    #[error("must be DNS-1123 labels joined by dots, at most {MAX_SUBDOMAIN} characters")]
    NotASubdomain,
    /// What stands before its `/` is not a DNS-1123 subdomain.
    #[error(
        "must have a DNS-1123 subdomain of at most {MAX_SUBDOMAIN} characters before its only '/' (qualified name)"
    )]
    BadPrefix,
}

/// A DNS-1123 label of at most 63 characters.
pub(super) fn dns_label(text: &str) -> Result<(), Broken> {
    Ok(check_dns_label(text)?)
}

/// A label value of 1 to 63 characters.
pub(super) fn label_value(text: &str) -> Result<(), Broken> {
    Ok(check_label_value(text)?)
}

/// A DNS-1123 subdomain. Unlike a label, a part of it may be longer than 63 characters: so Kubernetes has it.
pub(super) fn dns_subdomain(text: &str) -> Result<(), Broken> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    if text.len() <= MAX_SUBDOMAIN && text.split('.').all(part) { Ok(()) } else { Err(Broken::NotASubdomain) }
}

/// A qualified name: a name like a label value, after an optional DNS-1123 subdomain and a `/`.
pub(super) fn qualified_name(text: &str) -> Result<(), Broken> {
    let name = match text.split_once('/') {
        Some((prefix, name)) => {
            dns_subdomain(prefix).map_err(|_| Broken::BadPrefix)?;
            if name.contains('/') {
                return Err(Broken::BadPrefix);
            }
            name
        }
        None => text,
    };
    label_value(name)
}
