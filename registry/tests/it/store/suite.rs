//! What every store does, whatever it is made of.
//!
//! [`passes`] makes one test of each story, and more of a store that several registries share; a new store is one more
//! line in `store.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcs_core::ids::{ClusterUid, ClustersetId, Region, ServiceKey};
use mcs_core::model::{Export, MemberState};
use mcs_core::time::WallMillis;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::Member;
use mcs_registry::store::{
    Erased, Exports, Failed, Found, Held, Known, MemberRecord, Members, Store, Write, Wrote,
};

use crate::started::{endpoints, id, key, prod, spec};

/// Tests that what the expression makes is a store.
macro_rules! passes {
    ($store:expr; $($story:ident)*) => {
        $(
            #[tokio::test]
            async fn $story() {
                crate::store::suite::$story(&$store).await;
            }
        )*
    };
    ($store:expr, shared) => {
        crate::store::suite::passes! { $store;
            what_was_removed_is_brought_back_by_its_owner_and_by_no_verdict
        }
        crate::store::suite::passes!($store);
    };
    ($store:expr) => {
        crate::store::suite::passes! { $store;
            what_was_written_is_read_back_whole
            an_export_is_never_replaced_by_an_older_one
            a_write_that_is_repeated_is_taken_again
            a_delete_takes_nothing_that_is_newer_and_nothing_else
            the_record_of_a_member_is_never_replaced_by_an_older_one
            the_writes_of_one_call_are_made_in_their_order
            two_clusters_with_one_id_share_no_record
            clustersets_and_namespaces_are_apart
            a_removal_takes_all_of_one_member_and_may_be_repeated
            a_removal_takes_nothing_that_is_newer
            more_exports_than_a_page_are_read_to_their_end
            a_large_set_of_endpoints_comes_back_as_it_was
            what_nobody_wrote_is_empty
        }
    };
}
pub(super) use passes;

pub(super) async fn what_was_written_is_read_back_whole(store: &dyn Store) {
    store.check().await.unwrap();
    let writes = vec![put("web", 3, 2), put("api", 4, 1), record(4, MemberState::Active)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken; 3]));
    assert_eq!(store.members(&prod()).await, Ok(members([(east(), member_record(4, MemberState::Active))])));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 3, 2), ("api", 4, 1)])));
    let found = Found::Record(member_record(4, MemberState::Active));
    assert_eq!(store.member(&east()).await, Ok(Some(found)));
    assert_eq!(store.export(&east(), &key("api"), None).await, Ok(Some(Held::Whole(export("api", 4, 1)))));
    assert_eq!(store.export(&east(), &key("gone"), None).await, Ok(None));
}

pub(super) async fn an_export_is_never_replaced_by_an_older_one(store: &dyn Store) {
    let writes = vec![put("web", 5, 2), put("web", 4, 1), put("web", 6, 3)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken, Wrote::Older, Wrote::Taken]));
    // Another leader's term counts before the number of the act.
    let newer_term = Write::Put(key("web"), Export { version: Version::new(2, 1), ..export("web", 1, 4) });
    assert_eq!(store.write(&east(), vec![newer_term, put("web", 9, 5)]).await.unwrap()[1], Wrote::Older);
    let held = read(store, &east()).await.unwrap().whole;
    assert_eq!(held[&key("web")], Export { version: Version::new(2, 1), ..export("web", 1, 4) });
}

/// O53: the answer to a write was lost, and its caller makes it again.
pub(super) async fn a_write_that_is_repeated_is_taken_again(store: &dyn Store) {
    let writes =
        vec![put("web", 3, 2), Write::Delete(key("api"), version(3)), record(3, MemberState::Active)];
    for _ in 0..2 {
        assert_eq!(store.write(&east(), writes.clone()).await, Ok(vec![Wrote::Taken; 3]));
    }
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 3, 2)])));
}

pub(super) async fn a_delete_takes_nothing_that_is_newer_and_nothing_else(store: &dyn Store) {
    store.write(&east(), vec![put("web", 5, 2), put("api", 3, 1)]).await.unwrap();
    let delete = |name: &str, seq| Write::Delete(key(name), version(seq));
    assert_eq!(store.write(&east(), vec![delete("web", 4)]).await, Ok(vec![Wrote::Older]));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 5, 2), ("api", 3, 1)])));
    assert_eq!(store.write(&east(), vec![delete("web", 5)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(store, &east()).await, Ok(whole([("api", 3, 1)])));
}

pub(super) async fn the_record_of_a_member_is_never_replaced_by_an_older_one(store: &dyn Store) {
    let writes = vec![
        record(5, MemberState::Active),
        record(4, MemberState::Syncing),
        // The state changes while the member says nothing.
        record(5, MemberState::Expired),
    ];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken, Wrote::Older, Wrote::Taken]));
    assert_eq!(store.members(&prod()).await, Ok(members([(east(), member_record(5, MemberState::Expired))])));
}

pub(super) async fn the_writes_of_one_call_are_made_in_their_order(store: &dyn Store) {
    let writes = vec![put("web", 3, 1), Write::Delete(key("web"), version(4)), put("web", 5, 2)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken; 3]));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 5, 2)])));
}

/// O32: neither sees or replaces what is the other's.
pub(super) async fn two_clusters_with_one_id_share_no_record(store: &dyn Store) {
    let other = Member { uid: ClusterUid::new("uid-of-another").unwrap(), ..east() };
    store.write(&east(), vec![put("web", 5, 2), record(5, MemberState::Active)]).await.unwrap();
    let writes = vec![put("web", 1, 1), record(1, MemberState::Active)];
    assert_eq!(store.write(&other, writes).await, Ok(vec![Wrote::Taken; 2]));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 5, 2)])));
    assert_eq!(read(store, &other).await, Ok(whole([("web", 1, 1)])));
    let mut members = store.members(&prod()).await.unwrap().whole;
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut expected =
        vec![(east(), member_record(5, MemberState::Active)), (other, member_record(1, MemberState::Active))];
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(members, expected);
}

/// O28: one name in two namespaces, one cluster id in two clustersets.
pub(super) async fn clustersets_and_namespaces_are_apart(store: &dyn Store) {
    let staging = Member { clusterset: ClustersetId::new("staging").unwrap(), ..east() };
    let other = ServiceKey::new("bank", "web").unwrap();
    let put_other = Write::Put(other.clone(), export("web", 4, 7));
    store.write(&east(), vec![put("web", 3, 2), put_other, record(4, MemberState::Active)]).await.unwrap();
    store.write(&staging, vec![put("web", 9, 9), record(9, MemberState::Active)]).await.unwrap();
    store.write(&east(), vec![Write::Delete(key("web"), version(5))]).await.unwrap();
    assert_eq!(
        read(store, &east()).await,
        Ok(Exports { whole: BTreeMap::from([(other, export("web", 4, 7))]), torn: BTreeSet::new() })
    );
    assert_eq!(read(store, &staging).await, Ok(whole([("web", 9, 9)])));
    assert_eq!(store.members(&prod()).await, Ok(members([(east(), member_record(4, MemberState::Active))])));
    let of_staging = store.members(&staging.clusterset).await;
    assert_eq!(of_staging, Ok(members([(staging, member_record(9, MemberState::Active))])));
}

pub(super) async fn a_removal_takes_all_of_one_member_and_may_be_repeated(store: &dyn Store) {
    let west = Member { cluster: id("west"), ..east() };
    for member in [&east(), &west] {
        store.write(member, vec![put("web", 3, 2), record(3, MemberState::Active)]).await.unwrap();
    }
    for exports in [1, 0] {
        assert_eq!(store.remove(&east(), version(3)).await, Ok(Erased::Gone { exports }));
        assert_eq!(read(store, &east()).await, Ok(Exports::default()));
        assert_eq!(
            store.members(&prod()).await.unwrap().whole,
            [(west.clone(), member_record(3, MemberState::Active))]
        );
    }
    assert_eq!(read(store, &west).await, Ok(whole([("web", 3, 2)])));
    // What was removed is forgotten: one that comes back may begin anew.
    assert_eq!(store.write(&east(), vec![put("web", 1, 1)]).await, Ok(vec![Wrote::Taken]));
}

/// Whoever was asked may have waited, and the cluster be back.
pub(super) async fn a_removal_takes_nothing_that_is_newer(store: &dyn Store) {
    store
        .write(&east(), vec![put("web", 3, 2), put("api", 5, 1), record(5, MemberState::Active)])
        .await
        .unwrap();
    assert_eq!(store.remove(&east(), version(4)).await, Ok(Erased::Newer));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 3, 2), ("api", 5, 1)])));
    let found = Found::Record(member_record(5, MemberState::Active));
    assert_eq!(store.member(&east()).await, Ok(Some(found)));
    // What is being written when a removal comes: its record is told last.
    store.write(&east(), vec![put("new", 6, 1)]).await.unwrap();
    assert_eq!(store.remove(&east(), version(5)).await, Ok(Erased::Gone { exports: 2 }));
    assert_eq!(read(store, &east()).await, Ok(whole([("new", 6, 1)])));
    assert_eq!(store.members(&prod()).await.unwrap().whole, []);
}

/// A verdict may be written long after it was taken.
pub(super) async fn what_was_removed_is_brought_back_by_its_owner_and_by_no_verdict(store: &dyn Store) {
    store.write(&east(), vec![put("web", 3, 2), record(3, MemberState::Expired)]).await.unwrap();
    for _ in 0..2 {
        store.remove(&east(), version(4)).await.unwrap();
        let removed = Members { removed: vec![(east(), version(3))], ..Members::default() };
        assert_eq!(store.members(&prod()).await, Ok(removed));
        assert_eq!(store.member(&east()).await, Ok(Some(Found::Removed(version(3)))));
        for seq in [3, 9] {
            let verdict = record(seq, MemberState::Expired);
            assert_eq!(store.write(&east(), vec![verdict]).await, Ok(vec![Wrote::Older]), "{seq}");
        }
    }
    let back = record(3, MemberState::Active);
    assert_eq!(store.write(&east(), vec![back]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(store.members(&prod()).await, Ok(members([(east(), member_record(3, MemberState::Active))])));
    assert_eq!(store.write(&east(), vec![record(3, MemberState::Expired)]).await, Ok(vec![Wrote::Taken]));
}

/// O51: a read that stops at its first page shows too little.
pub(super) async fn more_exports_than_a_page_are_read_to_their_end(store: &dyn Store) {
    let names: Vec<String> = (0..1_500).map(|number| format!("svc-{number}")).collect();
    for some in names.chunks(100) {
        store.write(&east(), some.iter().map(|name| put(name, 3, 20)).collect()).await.unwrap();
    }
    let held = read(store, &east()).await.unwrap().whole;
    assert_eq!(held, exports(names.iter().map(|name| (name.as_str(), 3, 20))));
}

/// O18: what is larger than any item.
pub(super) async fn a_large_set_of_endpoints_comes_back_as_it_was(store: &dyn Store) {
    assert_eq!(store.write(&east(), vec![put("web", 3, 20_000)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(store, &east()).await, Ok(whole([("web", 3, 20_000)])));
}

pub(super) async fn what_nobody_wrote_is_empty(store: &dyn Store) {
    assert_eq!(store.members(&prod()).await, Ok(Members::default()));
    assert_eq!(read(store, &east()).await, Ok(Exports::default()));
    assert_eq!(store.write(&east(), Vec::new()).await, Ok(Vec::new()));
}

pub(super) async fn read(store: &dyn Store, member: &Member) -> Result<Exports, Failed> {
    store.exports(member, &Known::new()).await
}

pub(super) fn members<const N: usize>(whole: [(Member, MemberRecord); N]) -> Members {
    Members { whole: whole.into(), ..Members::default() }
}

pub(super) fn east() -> Member {
    crate::started::member("east", "uid-of-east")
}

pub(super) const fn version(seq: u64) -> Version {
    Version::new(1, seq)
}

pub(super) fn export(name: &str, seq: u64, count: u32) -> Export {
    let (spec, endpoints) = (spec(), endpoints(count));
    let leaf = Leaf::of(&key(name), &spec, &endpoints);
    Export {
        version: version(seq),
        leaf,
        spec: Arc::new(spec),
        endpoints: Arc::new(endpoints),
        changed_at: None,
    }
}

pub(super) fn put(name: &str, seq: u64, count: u32) -> Write {
    Write::Put(key(name), export(name, seq, count))
}

fn exports<'a>(of: impl IntoIterator<Item = (&'a str, u64, u32)>) -> BTreeMap<ServiceKey, Export> {
    of.into_iter().map(|(name, seq, count)| (key(name), export(name, seq, count))).collect()
}

pub(super) fn whole<'a>(of: impl IntoIterator<Item = (&'a str, u64, u32)>) -> Exports {
    Exports { whole: exports(of), torn: BTreeSet::new() }
}

pub(super) fn member_record(seq: u64, state: MemberState) -> MemberRecord {
    MemberRecord {
        region: Some(Region::new("eu-west-1").unwrap()),
        version: version(seq),
        sum: [Leaf::from_bytes([7; 16])].into_iter().collect::<Sum>(),
        state,
        claimed_at: WallMillis::from_unix_millis(1_800_000_000_000),
    }
}

pub(super) fn record(seq: u64, state: MemberState) -> Write {
    Write::Member(member_record(seq, state))
}
