//! Wire ↔ domain: the one place where a message becomes something that can be trusted.
//!
//! Reading checks what the wire cannot express (names, numbers, lengths, enums) and names the field that is wrong, as
//! JSON and Kubernetes spell it (`spec.ipFamilies[1]`), also to callers of gRPC: a field has one name. The rules of
//! Kubernetes objects are [`mcs_core::validate`]'s. Writing cannot fail. What is written reads back equal.
//!
//! Unknown fields are ignored; an enum value of a later release is refused, since its meaning cannot be guessed.

mod acts;
mod endpoints;
mod merged;
mod report;
mod spec;

pub use acts::{
    Member, OpReader, OpResult, ReadOp, held_export, op, read_registration, read_result, read_write_head,
    registration, result, results,
};
pub use endpoints::{empty_group, endpoint, read_endpoints};
pub use merged::{part_set, part_sets, read_header, read_part_set, read_part_sets, read_section, section};
pub use report::{held_imports, read_report, refused_exports};

use crate::pb;
use mcs_core::ids::ServiceKey;
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};

/// The value of a field that must be there.
pub(crate) fn required<T>(value: Option<T>, field: &str) -> Result<T, Refusal> {
    value.ok_or_else(|| Refusal::missing(field))
}

/// The 16 bytes of a hash, a sum or an epoch.
///
/// # Errors
/// When there are not 16.
pub fn read_sixteen(bytes: &[u8], field: &str) -> Result<[u8; 16], Refusal> {
    bytes.try_into().map_err(|_| Refusal::new(field, format!("has {} bytes, must have 16", bytes.len())))
}

/// A content hash.
///
/// # Errors
/// When it has not 16 bytes.
pub fn read_leaf(bytes: &[u8]) -> Result<Leaf, Refusal> {
    Ok(Leaf::from_bytes(read_sixteen(bytes, "leaf")?))
}

/// A sum of content hashes.
///
/// # Errors
/// When it has not 16 bytes.
pub fn read_sum(bytes: &[u8]) -> Result<Sum, Refusal> {
    Ok(Sum::from_bytes(read_sixteen(bytes, "sum")?))
}

/// A version that must be there.
///
/// # Errors
/// When it is missing.
pub fn read_version(version: Option<pb::Version>) -> Result<Version, Refusal> {
    required(version, "version").map(Into::into)
}

/// A key that must be there.
///
/// # Errors
/// When it is missing, or its namespace or name is invalid.
pub fn read_key(key: Option<&pb::ServiceKey>) -> Result<ServiceKey, Refusal> {
    let key = required(key, "key")?;
    Ok(ServiceKey::new(&key.namespace, &key.name)?)
}

impl From<&ServiceKey> for pb::ServiceKey {
    fn from(key: &ServiceKey) -> Self {
        Self { namespace: key.namespace.to_string(), name: key.name.to_string() }
    }
}

impl From<Version> for pb::Version {
    fn from(version: Version) -> Self {
        Self { term: version.term, seq: version.seq }
    }
}

impl From<pb::Version> for Version {
    fn from(version: pb::Version) -> Self {
        Self { term: version.term, seq: version.seq }
    }
}

/// Implements both directions of an enum. `unspecified` is what the wire's zero stands for, where it stands for
/// something.
macro_rules! enumeration {
    ($core:ty, $pb:ty, $field:literal, unspecified: $unspecified:expr, { $($inner:ident = $outer:ident),+ $(,)? }) => {
        impl From<$core> for $pb {
            fn from(value: $core) -> Self {
                match value {
                    $(<$core>::$inner => Self::$outer,)+
                }
            }
        }

        impl $crate::convert::WireEnum for $core {
            fn from_wire(number: i32) -> Result<Self, mcs_core::validate::Refusal> {
                let unspecified: Option<Self> = $unspecified;
                let value = match <$pb>::try_from(number) {
                    $(Ok(<$pb>::$outer) => Some(Self::$inner),)+
                    Ok(<$pb>::Unspecified) => unspecified,
                    Err(_) => None,
                };
                value.ok_or_else(|| {
                    mcs_core::validate::Refusal::new($field, format!("has the unknown value {number}"))
                })
            }
        }
    };
}
use enumeration;

/// A core enum that the wire carries as a number.
pub(crate) trait WireEnum: Sized {
    /// Reads the number.
    fn from_wire(number: i32) -> Result<Self, Refusal>;
}
