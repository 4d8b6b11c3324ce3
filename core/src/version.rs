//! Which of two statements about a member is newer, and what of two sets differs.
//!
//! A [`Version`] is made by the member's leading controller; nobody else's clock is involved. A [`Leaf`] is the hash
//! of one export over its sorted fields (never over encoded bytes, whose order differs between processes), and a
//! [`Sum`] adds the leaves of all accepted exports, so that a change costs O(1) and two sums tell whether owner and
//! registry hold the same.

use crate::ids::ServiceKey;
use crate::model::{EndpointSet, ExportSpec};
use sha2::{Digest, Sha256};
use std::fmt;
use std::hash::{Hash, Hasher};

/// Orders all that is said of one member: leaders by term, the acts of one leader by sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Raised in the member's Kubernetes Lease with every acquisition of leadership.
    pub term: u64,
    /// Raised by the leader with every act within its term.
    pub seq: u64,
}

impl Version {
    /// The version of `seq` in `term`.
    pub const fn new(term: u64, seq: u64) -> Self {
        Self { term, seq }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.seq)
    }
}

/// A text that is not a [`Version`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a version of the form <term>.<seq>")]
pub struct InvalidVersion {
    /// The text.
    pub value: String,
}

impl std::str::FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once('.')
            .and_then(|(term, seq)| Some(Self { term: term.parse().ok()?, seq: seq.parse().ok()? }));
        parsed.ok_or_else(|| InvalidVersion { value: text.to_owned() })
    }
}

/// The content hash of one export: its key, definition and endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leaf(u128);

impl Leaf {
    /// A leaf as it is carried on the wire.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bytes that carry it on the wire.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The leaf of an export. Equal content gives an equal leaf under any leader and in any process.
    pub fn of(key: &ServiceKey, spec: &ExportSpec, endpoints: &EndpointSet) -> Self {
        let mut hash = Fields::new();
        hash.text(key.namespace.as_str());
        hash.text(key.name.as_str());
        spec.hash_fields(&mut hash);
        endpoints.hash_fields(&mut hash);
        let digest = hash.digest();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The leaves of a set of exports, added modulo 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum(u128);

impl Sum {
    /// The sum of no export.
    pub const EMPTY: Self = Self(0);

    /// A sum as it is carried on the wire.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bytes that carry it on the wire.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Takes `leaf` into the set.
    pub const fn add(&mut self, leaf: Leaf) {
        self.0 = self.0.wrapping_add(leaf.0);
    }

    /// Takes `leaf` out of the set.
    pub const fn remove(&mut self, leaf: Leaf) {
        self.0 = self.0.wrapping_sub(leaf.0);
    }
}

impl FromIterator<Leaf> for Sum {
    fn from_iter<T: IntoIterator<Item = Leaf>>(leaves: T) -> Self {
        let mut sum = Self::EMPTY;
        for leaf in leaves {
            sum.add(leaf);
        }
        sum
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Tells one value from all others, within one process.
pub(crate) fn digest(value: &impl Hash) -> [u8; 16] {
    let mut hasher = Digesting(Sha256::new());
    value.hash(&mut hasher);
    first_bytes(hasher.0)
}

fn first_bytes<const N: usize>(hash: Sha256) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&hash.finalize()[..N]);
    first
}

struct Digesting(Sha256);

impl Hasher for Digesting {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        u64::from_be_bytes(first_bytes(self.0.clone()))
    }
}

/// Feeds fields into a hash so that no two different lists of fields give the same bytes.
pub(crate) struct Fields(Sha256);

impl Fields {
    /// No field yet.
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    /// The SHA-256 of all fields.
    pub(crate) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// A text, with its length before it.
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// A number or the count of what follows.
    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    /// A text that may be absent, which differs from an empty one.
    pub(crate) fn maybe_text(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// A number that may be absent, which differs from zero.
    pub(crate) fn maybe_number(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }
}
