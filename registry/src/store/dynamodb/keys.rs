//! Where an item lies: partition key and sort key, made and read in this one place.
//!
//! | pk | sk | item |
//! |---|---|---|
//! | `<clusterset>` | `R#<epoch>`, `N#<epoch>` | what one replica says: its beat, its news |
//! | `<clusterset>#C` | `<cluster>#<uid tag>` | the record of a member |
//! | `<clusterset>#<cluster>#<uid tag>` | `E#<namespace>/<name>` | an export |
//! | the same | `K#<namespace>/<name>#<digest>` | a piece of its endpoints |
//!
//! Names are DNS-1123 labels, which have neither `#` nor `/` nor upper case, so no two things share a key.

use mcs_core::ids::{ClusterId, ClustersetId, Epoch, ServiceKey};
use mcs_core::replicas::UidTag;
use mcs_proto::convert::Member;

use super::pieces::Digest;

/// The sort keys of exports begin so.
pub(super) const EXPORT: &str = "E#";
const PIECE: &str = "K#";
const BEAT: &str = "R#";
const NEWS: &str = "N#";

/// The key of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The partition.
    pub(super) pk: String,
    /// The place in it.
    pub(super) sk: String,
}

/// An item that a replica writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    /// [`mcs_core::replicas::Beat`]
    Beat,
    /// [`mcs_core::replicas::News`]
    News,
}

/// The partition of what replicas say.
pub(super) fn said_in(clusterset: &ClustersetId) -> String {
    clusterset.to_string()
}

/// What a replica says.
pub(super) fn said(clusterset: &ClustersetId, replica: Epoch, what: Said) -> Key {
    let kind = match what {
        Said::Beat => BEAT,
        Said::News => NEWS,
    };
    Key { pk: said_in(clusterset), sk: format!("{kind}{replica}") }
}

/// Reads the sort key of what a replica says; none of another kind of item.
pub(super) fn read_said(sk: &str) -> Option<(Said, Epoch)> {
    let (what, epoch) = match (sk.strip_prefix(BEAT), sk.strip_prefix(NEWS)) {
        (Some(epoch), _) => (Said::Beat, epoch),
        (_, Some(epoch)) => (Said::News, epoch),
        _ => return None,
    };
    Some((what, Epoch(u128::from_str_radix(epoch, 16).ok()?)))
}

/// The partition of the records of members.
pub(super) fn directory_of(clusterset: &ClustersetId) -> String {
    format!("{clusterset}#C")
}

/// The record of a member.
pub(super) fn record(member: &Member) -> Key {
    record_of(&member.clusterset, &member.cluster, UidTag::of(&member.uid))
}

/// The record of a member of which the tag is known.
pub(super) fn record_of(clusterset: &ClustersetId, cluster: &ClusterId, tag: UidTag) -> Key {
    Key { pk: directory_of(clusterset), sk: format!("{cluster}#{}", text_of(tag)) }
}

/// Reads the sort key of the record of a member.
pub(super) fn read_record(sk: &str) -> Option<(ClusterId, UidTag)> {
    let (cluster, uid) = sk.split_once('#')?;
    let [0, 0, uid @ ..] = u64::from_str_radix(uid, 16).ok()?.to_be_bytes() else { return None };
    Some((ClusterId::new(cluster).ok()?, UidTag(uid)))
}

/// The partition of what a member exports.
pub(super) fn exports_of(member: &Member) -> String {
    exports_in(&member.clusterset, &member.cluster, UidTag::of(&member.uid))
}

/// The partition of what a member exports of which the tag is known.
pub(super) fn exports_in(clusterset: &ClustersetId, cluster: &ClusterId, tag: UidTag) -> String {
    format!("{clusterset}#{cluster}#{}", text_of(tag))
}

/// An export.
pub(super) fn export(member: &Member, key: &ServiceKey) -> Key {
    Key { pk: exports_of(member), sk: format!("{EXPORT}{key}") }
}

/// Reads the sort key of an export.
pub(super) fn read_export(sk: &str) -> Option<ServiceKey> {
    let (namespace, name) = sk.strip_prefix(EXPORT)?.split_once('/')?;
    ServiceKey::new(namespace, name).ok()
}

/// A piece of the endpoints of an export.
pub(super) fn piece(member: &Member, key: &ServiceKey, digest: Digest) -> Key {
    Key { pk: exports_of(member), sk: format!("{PIECE}{key}#{digest}") }
}

fn text_of(UidTag([a, b, c, d, e, f]): UidTag) -> String {
    format!("{:012x}", u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member::read("prod".to_owned(), "use1-a".to_owned(), "0b7c".to_owned()).unwrap()
    }

    #[test]
    fn keys_are_as_the_documentation_says_and_read_back() {
        let (prod, epoch) = (&member().clusterset, Epoch(0xabc));
        let beat = said(prod, epoch, Said::Beat);
        assert_eq!((beat.pk.as_str(), beat.sk.as_str()), ("prod", "R#00000000000000000000000000000abc"));
        assert_eq!(read_said(&beat.sk), Some((Said::Beat, epoch)));
        let news = said(prod, epoch, Said::News);
        assert_eq!((news.pk.as_str(), news.sk.as_str()), ("prod", "N#00000000000000000000000000000abc"));
        assert_eq!(read_said(&news.sk), Some((Said::News, epoch)));

        let tag = UidTag::of(&member().uid);
        let of = record(&member());
        assert_eq!((of.pk.as_str(), &of.sk[..7]), ("prod#C", "use1-a#"));
        assert_eq!(read_record(&of.sk), Some((member().cluster, tag)));

        let cart = ServiceKey::new("shop", "cart").unwrap();
        let of = export(&member(), &cart);
        assert_eq!((of.pk.starts_with("prod#use1-a#"), of.sk.as_str()), (true, "E#shop/cart"));
        assert_eq!(read_export(&of.sk), Some(cart.clone()));
        let of = piece(&member(), &cart, Digest([7; 16]));
        assert_eq!(of.sk, "K#shop/cart#07070707070707070707070707070707");
    }

    #[test]
    fn what_no_registry_wrote_is_no_key() {
        for sk in ["", "R#", "R#xyz", "X#00", "R#100000000000000000000000000000000"] {
            assert_eq!(read_said(sk), None, "{sk}");
        }
        for sk in ["", "east", "east#", "east#x", "East#00", "east#1000000000000"] {
            assert_eq!(read_record(sk), None, "{sk}");
        }
        for sk in ["", "E#", "E#shop", "E#Shop/cart", "E#shop/ca/rt", "K#shop/cart"] {
            assert_eq!(read_export(sk), None, "{sk}");
        }
    }

    /// O28, O32: names that lie next to each other do not run into each other, and two UIDs share nothing.
    #[test]
    fn no_two_things_share_a_key() {
        let of = |clusterset: &str, cluster: &str, uid: &str| {
            Member::read(clusterset.to_owned(), cluster.to_owned(), uid.to_owned()).unwrap()
        };
        let members = [of("a", "b-c", "u"), of("a-b", "c", "u"), of("a", "b-c", "v"), of("a", "b", "c-u")];
        let key = |namespace: &str, name: &str| ServiceKey::new(namespace, name).unwrap();
        let exports = [key("x", "y-z"), key("x-y", "z"), key("x", "y")];
        let mut keys = Vec::new();
        for member in &members {
            keys.push(record(member));
            for of in &exports {
                keys.extend([export(member, of), piece(member, of, Digest([1; 16]))]);
            }
        }
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
