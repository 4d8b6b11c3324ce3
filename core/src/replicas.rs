//! What the replicas of a registry tell each other through a store that they share.
//!
//! Each replica has two small items in each clusterset: its [`Beat`], which says whose leases were renewed through it,
//! and its [`News`], which says what changed. Nobody else writes them, so that no write meets another. A replica
//! reads those of all others in one Query, and from that alone knows who was heard, and what to read anew.
//!
//! Clocks are never compared: a renewal that another replica took is dated by when its item was read here, less the age
//! that the item gives. That is never earlier than it was, so lag lengthens a lease and never shortens it.

use crate::ids::{ClusterUid, Epoch, Region, ServiceKey};
use crate::version::Version;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Stands for a cluster's UID in what is written often, six bytes of it so that a beat of a hundred clusters is small.
/// Two UIDs of one clusterset that share a tag keep each other's lease: with 250 clusters that is one clusterset in
/// 10^10, with 1,000 one in 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UidTag(pub [u8; 6]);

impl UidTag {
    /// The tag of a UID.
    pub fn of(uid: &ClusterUid) -> Self {
        Self(tag(&[uid.as_str()]))
    }
}

/// Stands for a Service in what is written often. Two Services of one member that share a tag are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyTag(pub [u8; 8]);

impl KeyTag {
    /// The tag of a Service.
    pub fn of(key: &ServiceKey) -> Self {
        Self(tag(&[key.namespace.as_str(), key.name.as_str()]))
    }
}

fn tag<const N: usize>(texts: &[&str]) -> [u8; N] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    let hash: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|place| hash[place])
}

/// What one replica says of itself and of the renewals that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The replica.
    pub epoch: Epoch,
    /// The region that it runs in, where that is known.
    pub region: Option<Region>,
    /// Raised with each write of this item, from 1.
    pub number: u64,
    /// The newest beat that it read of each other replica.
    pub echoes: BTreeMap<Epoch, u64>,
    /// Replicas of its own region that it takes for dead.
    pub dead: BTreeSet<Epoch>,
    /// Whether a verdict waits for the others: who reads it writes its own item at once.
    pub is_due: bool,
    /// The newest renewal of each member that it serves.
    pub renewals: BTreeMap<UidTag, Renewal>,
}

/// A renewal that a replica took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The number of the first beat that told of it: another one than in the item before is another renewal, also of a
    /// member that left and came back.
    pub number: u64,
    /// How long it was ago when the item was written, or a little less.
    pub age: Duration,
}

impl Beat {
    /// One that says nothing, as in place of one that cannot be read.
    pub const fn silent(epoch: Epoch, number: u64) -> Self {
        Self {
            epoch,
            region: None,
            number,
            echoes: BTreeMap::new(),
            dead: BTreeSet::new(),
            is_due: false,
            renewals: BTreeMap::new(),
        }
    }
}

/// Bytes of a renewal in a beat.
const RENEWAL: usize = 8;

/// The renewals of a beat as they are written: eight bytes each, as a beat is written all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Ages are told in steps of so many milliseconds: a 255th of the longest in the beat, rounded up. They are cut, so
    /// that a renewal is dated a step late at most, and never early.
    pub step: u64,
    /// Of each renewal the tag, by how many beats its number is less than that of the beat, and its age in steps.
    pub renewals: Vec<[u8; RENEWAL]>,
}

impl Packed {
    /// Those of a beat.
    pub fn of(beat: &Beat) -> Self {
        let longest = beat.renewals.values().map(|renewal| renewal.age).max().unwrap_or_default();
        let step = longest.as_millis().div_ceil(u128::from(u8::MAX)).max(1);
        let pack = |(UidTag(tag), renewal): (&UidTag, &Renewal)| {
            let [a, b, c, d, e, f] = *tag;
            // Of a renewal that holds there are fewer. More are told as so many: as another renewal, and as old.
            let before = u8::try_from(beat.number.saturating_sub(renewal.number)).unwrap_or(u8::MAX);
            [a, b, c, d, e, f, before, u8::try_from(renewal.age.as_millis() / step).unwrap_or(u8::MAX)]
        };
        let renewals = beat.renewals.iter().map(pack).collect();
        Self { step: step.try_into().unwrap_or(u64::MAX), renewals }
    }

    /// The renewals, of a beat of this number.
    pub fn renewals(&self, number: u64) -> BTreeMap<UidTag, Renewal> {
        let unpack = |bytes: &[u8; RENEWAL]| {
            let [a, b, c, d, e, f, before, age] = *bytes;
            let age = Duration::from_millis(self.step.saturating_mul(age.into()));
            (UidTag([a, b, c, d, e, f]), Renewal { number: number.saturating_sub(before.into()), age })
        };
        self.renewals.iter().map(unpack).collect()
    }
}

/// What changed lately, as one replica wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The replica.
    pub epoch: Epoch,
    /// The number of the first entry: entries are counted from 0 over the life of the replica, and the oldest go. Who
    /// read less than this far missed some, and looks at everything.
    pub first: u64,
    /// The entries, oldest first.
    pub entries: Vec<NewsEntry>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewsEntry {
    /// Whose records changed.
    pub member: UidTag,
    /// Which export; none: the member's own record alone, or more than can be named.
    pub key: Option<KeyTag>,
    /// The newest act of the member that is part of the change: who reads less than that reads again, since records may
    /// arrive after the news of them.
    pub version: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_namespace_and_name_apart() {
        let tag = |namespace: &str, name: &str| KeyTag::of(&ServiceKey::new(namespace, name).unwrap());
        assert_eq!(tag("a-b", "c"), tag("a-b", "c"));
        assert_ne!(tag("a-b", "c"), tag("a", "b-c"));
        assert_ne!(tag("ab", "c"), tag("a", "bc"));
    }
}
