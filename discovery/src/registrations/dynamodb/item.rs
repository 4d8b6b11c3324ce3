//! Registrations as items of the table: the one place that knows keys and attributes.
//!
//! | pk | sk | attributes |
//! |---|---|---|
//! | `POOLS#<0…3>` | `<cluster>/<namespace>/<dgd>` | `registration` (S): the body of its `POST /pools` · `renewed_at` (N): milliseconds since 1970, by its writer's clock · `lease_ms` (N): the lease its writer granted · `written_in` (S): the region it was written through · `expires_at` (N): seconds since 1970, for TTL |
//!
//! A pool's partition follows from its key. Their number is fixed: who reads them all must know them, and each costs a
//! read at every poll, however few pools there are (docs/decisions/0031-pools-lie-in-four-partitions.md).

use crate::wire;
use aws_sdk_dynamodb::types::AttributeValue;
use mcs_core::ids::Region;
use mcs_core::pools::stored::{StoredItem, Unreadable, WallMoment};
use mcs_core::pools::{PackedRegistration, PoolKey, PoolRegistration};
use mcs_core::text::shown;
use mcs_runtime::dynamodb::{EXPIRES_AT, Item};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many partitions pools are spread over.
pub const PARTITIONS: usize = 4;

/// Items are deleted this long after their last renewal, some time.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A longer lease in an item is not believed: nobody may grant it.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// An item of DynamoDB has at most 400 KB; with keys and other attributes a registration may have this much.
pub(super) const MAX_REGISTRATION: usize = 390 * 1024;

/// What is wrong with an item, and the name it has, are told in at most about so many bytes each.
const SHOWN: usize = 500;

/// The key of a partition.
pub fn partition(number: usize) -> String {
    format!("POOLS#{number}")
}

/// The partition key and the sort key of a pool.
pub fn key(pool: &PoolKey) -> (String, String) {
    let sk = pool.to_string();
    (partition(number_of(&sk)), sk)
}

fn number_of(sk: &str) -> usize {
    usize::from(Sha256::digest(sk)[0]) % PARTITIONS
}

/// The attributes of an item besides its key.
pub(super) struct Attributes {
    /// What a renewal sets, by attribute.
    pub(super) values: [(&'static str, AttributeValue); 5],
    /// How large the registration is, in bytes.
    pub(super) registration_bytes: usize,
}

/// What a renewal writes.
pub(super) fn attributes(
    registration: &PoolRegistration,
    renewed_at: WallMoment,
    lease: Duration,
    region: &Region,
) -> Attributes {
    let text = String::from_utf8(wire::registered(registration)).unwrap_or_default();
    let expires_at = renewed_at.unix_millis().div_euclid(1000).saturating_add_unsigned(KEPT.as_secs());
    let number = |number: String| AttributeValue::N(number);
    Attributes {
        registration_bytes: text.len(),
        values: [
            ("registration", AttributeValue::S(text)),
            ("renewed_at", number(renewed_at.unix_millis().to_string())),
            ("lease_ms", number(lease.as_millis().to_string())),
            ("written_in", AttributeValue::S(region.to_string())),
            (EXPIRES_AT, number(expires_at.to_string())),
        ],
    }
}

/// What was read of a partition, by sort key.
pub(super) type Known = BTreeMap<String, StoredItem>;

/// Reads an item. Attributes that it does not know are ignored. One that was not renewed since it was read is not parsed
/// again: a poll is more frequent than a heartbeat, and what is dead lies there for days.
pub(super) fn read(item: &Item, known: &Known) -> Result<StoredItem, Unreadable> {
    decode(item, known).map_err(|problem| {
        let part = |name: &str| match item.get(name) {
            Some(AttributeValue::S(text)) => shown(text, SHOWN),
            _ => "?".to_owned(),
        };
        let item = format!("{} {}", part("pk"), part("sk"));
        Unreadable { item, problem: shown(&problem, SHOWN) }
    })
}

fn decode(item: &Item, known: &Known) -> Result<StoredItem, String> {
    let (found, renewed_at) = (text(item, "sk")?, WallMoment::from_unix_millis(number(item, "renewed_at")?));
    let lease = Duration::from_millis(number(item, "lease_ms")?);
    if lease.is_zero() || lease > MAX_LEASE {
        return Err(format!("lease_ms: must be above 0 and at most {}", MAX_LEASE.as_millis()));
    }
    let written_in = text(item, "written_in")?;
    let known = known.get(found);
    if let Some(known) = known
        && (known.renewed_at, known.lease, known.region.as_str()) == (renewed_at, lease, written_in)
    {
        return Ok(known.clone());
    }
    let region = Region::new(written_in.as_str()).map_err(|error| format!("written_in: {error}"))?;
    let registration = wire::registration(text(item, "registration")?.as_bytes())
        .map_err(|error| format!("registration: {error}"))?;
    let expected = registration.key.to_string();
    if *found != expected {
        return Err(format!("registration: is of pool {expected}, which is not the sort key"));
    }
    let read = PackedRegistration::from(registration);
    // What says the same is held once.
    let registration =
        known.map(|known| &known.registration).filter(|known| **known == read).cloned().unwrap_or(read);
    Ok(StoredItem { registration, renewed_at, lease, region })
}

fn text<'a>(item: &'a Item, name: &str) -> Result<&'a String, String> {
    match item.get(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        Some(_) => Err(format!("{name}: is no text")),
        None => Err(format!("{name}: is missing")),
    }
}

fn number<T: std::str::FromStr>(item: &Item, name: &str) -> Result<T, String> {
    match item.get(name) {
        Some(AttributeValue::N(number)) => {
            number.parse().map_err(|_| format!("{name}: {} is out of range", shown(number, SHOWN)))
        }
        Some(_) => Err(format!("{name}: is no number")),
        None => Err(format!("{name}: is missing")),
    }
}

#[cfg(test)]
mod tests;
