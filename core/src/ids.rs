//! Identities: parsed once, at the edge, and never raw strings afterwards.
//!
//! Clusterset, cluster, namespace and Service names are DNS-1123 labels of at most 63 characters (docs/registry.md,
//! What it holds). They are never lower-cased silently: two ids that differ only in case would become one.

use crate::text::quoted;
use std::fmt;
use std::str::FromStr;

/// Why a text is not the identity it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value}: {problem}")]
pub struct InvalidId {
    /// The name of the field, as users know it.
    pub field: &'static str,
    /// The refused text as [`quoted`].
    pub value: String,
    /// The rule it breaks.
    pub problem: IdProblem,
}

impl InvalidId {
    /// `text` breaks a rule of `field`.
    pub fn new(field: &'static str, text: &str, problem: IdProblem) -> Self {
        Self { field, value: quoted(text), problem }
    }
}

/// The rule that an identity breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    /// It has no character.
    #[error("must not be empty")]
    Empty,
    /// It is longer than allowed.
    #[error("must be at most {0} characters")]
    TooLong(usize),
    /// It is not a DNS-1123 label.
    #[error(
        "must consist of lower case letters, digits and '-', and begin and end with a letter or digit (DNS-1123 label)"
    )]
    NotALabel,
    /// It is not a Kubernetes label value.
    #[error(
        "must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit (label value)"
    )]
    NotALabelValue,
    /// It has characters that a UID cannot have.
    #[error("must consist of letters, digits and '-'")]
    NotAUid,
    /// It has characters that do more than show themselves, or that not every terminal shows.
    #[error("must consist of printable ASCII characters")]
    NotPrintable,
}

/// The most characters of a DNS-1123 label and of a label value.
pub const MAX_LABEL: usize = 63;

/// The most characters of a text that only people read: a Pod's name may have as many.
pub const MAX_WORDS: usize = 253;

/// Checks a DNS-1123 label of at most 63 characters.
///
/// # Errors
/// The rule that `text` breaks.
pub fn check_dns_label(text: &str) -> Result<(), IdProblem> {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    check_length(text, MAX_LABEL)?;
    if text.bytes().all(|byte| inner(&byte)) && !text.starts_with('-') && !text.ends_with('-') {
        Ok(())
    } else {
        Err(IdProblem::NotALabel)
    }
}

/// Checks a Kubernetes label value of 1 to 63 characters.
///
/// # Errors
/// The rule that `text` breaks.
pub fn check_label_value(text: &str) -> Result<(), IdProblem> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    check_length(text, MAX_LABEL)?;
    let bytes = text.as_bytes();
    if bytes.iter().all(|byte| inner(*byte)) && edge(bytes.first()) && edge(bytes.last()) {
        Ok(())
    } else {
        Err(IdProblem::NotALabelValue)
    }
}

fn check_uid(text: &str) -> Result<(), IdProblem> {
    check_length(text, MAX_LABEL)?;
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        Ok(())
    } else {
        Err(IdProblem::NotAUid)
    }
}

/// Checks a text that only people read. It ends in logs and tables, so it is one line of characters that show
/// themselves. It may be empty.
fn check_words(text: &str) -> Result<(), IdProblem> {
    match text.len() {
        length if length > MAX_WORDS => Err(IdProblem::TooLong(MAX_WORDS)),
        _ if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Ok(()),
        _ => Err(IdProblem::NotPrintable),
    }
}

fn check_length(text: &str, most: usize) -> Result<(), IdProblem> {
    match text.len() {
        0 => Err(IdProblem::Empty),
        length if length > most => Err(IdProblem::TooLong(most)),
        _ => Ok(()),
    }
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks and takes `text`.
            ///
            /// # Errors
            /// The field's name, the text and the rule it breaks.
            pub fn new(text: impl Into<std::sync::Arc<str>>) -> Result<Self, InvalidId> {
                let text = text.into();
                match $check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(problem) => Err(InvalidId::new($field, &text, problem)),
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }
    };
}

identity!(
    /// The name of a clusterset: the clusters that import from each other.
    ClustersetId,
    "clusterset",
    check_dns_label
);
identity!(
    /// The name of a cluster within its clusterset; the value of `multicluster.kubernetes.io/source-cluster`.
    ClusterId,
    "cluster",
    check_dns_label
);
identity!(
    /// The UID of a cluster's `kube-system` Namespace, which tells two clusters with one id apart.
    ClusterUid,
    "uid",
    check_uid
);
identity!(
    /// A cluster's region, a Kubernetes label value.
    Region,
    "region",
    check_label_value
);
identity!(
    /// The controller instance that speaks for a cluster, for people to read; may be empty.
    Instance,
    "instance",
    check_words
);
identity!(
    /// The version of a program, for people to read; may be empty.
    Build,
    "build",
    check_words
);
identity!(
    /// The name of a namespace.
    Namespace,
    "namespace",
    check_dns_label
);
identity!(
    /// The name of a Service, a ServiceExport and a ServiceImport.
    ServiceName,
    "name",
    check_dns_label
);

impl Default for Instance {
    /// None that is known.
    fn default() -> Self {
        Self("".into())
    }
}

impl Default for Build {
    /// None that is known.
    fn default() -> Self {
        Self("".into())
    }
}

/// What one Service is called in every cluster of the set: KEP-1645's namespace sameness.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: ServiceName,
}

impl ServiceKey {
    /// The key of `namespace`/`name`.
    ///
    /// # Errors
    /// The field that is invalid.
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidId> {
        Ok(Self { namespace: Namespace::new(namespace)?, name: ServiceName::new(name)? })
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A random number made by each registry process; it names the process's state log and orders nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u128);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_people_read_is_one_line_of_printable_characters() {
        for good in ["", "VM-0-127-ubuntu_00f3", "0.1.0+build (a b)", &"~".repeat(MAX_WORDS)] {
            assert_eq!(Instance::new(good).unwrap().as_str(), good);
        }
        let problem = |text: &str| Build::new(text).unwrap_err().problem;
        assert_eq!(problem(&"1".repeat(MAX_WORDS + 1)), IdProblem::TooLong(MAX_WORDS));
        for bad in ["a\nb", "a\0", "\u{7f}", "\u{1b}[31m", "caf\u{e9}", "\u{202e}1.0"] {
            assert_eq!(problem(bad), IdProblem::NotPrintable, "{bad:?}");
        }
    }
}
