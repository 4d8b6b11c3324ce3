//! What a store holds, listed without a registry.

use std::collections::BTreeSet;

use mcs_core::model::MemberState;
use mcs_core::time::WallMillis;
use mcs_core::version::{Leaf, Sum};
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_registry::recorded::{Recorded, read};
use mcs_registry::store::{Failed, MemberRecord, Memory, Store, Write};

use super::double::{Double, Mood};
use super::suite::{export, member_record};
use crate::started::{key, member, prod};

#[tokio::test]
async fn a_store_is_listed_as_a_registry_lists_it_with_the_states_that_were_written() {
    let store = Memory::default();
    write(&store, &member("east", "u-1"), MemberState::Active, 1_000, &["api", "web"]).await;
    write(&store, &member("west", "u-2"), MemberState::Expired, 2_000, &["web"]).await;
    let Recorded { clusters, exports, imports, beats, claims, doubts } = read(&store, &prod()).await.unwrap();
    let clusters: Vec<_> =
        clusters.iter().map(|cluster| (cluster.cluster.as_str(), state(cluster), cluster.exports)).collect();
    assert_eq!(clusters, [("east", pb::LeaseState::Active, 2), ("west", pb::LeaseState::Expired, 1)]);
    let exported: Vec<_> =
        exports.iter().map(|export| (name(export.key.as_ref()), export.cluster.as_str())).collect();
    assert_eq!(exported, [("api", "east"), ("web", "east"), ("web", "west")]);
    let imported: Vec<_> = imports
        .iter()
        .map(|import| (name(import.key.as_ref()), import.participants.len(), import.parts.len()))
        .collect();
    // The endpoints of a cluster whose lease ran out are not imported.
    assert_eq!(imported, [("api", 1, 1), ("web", 2, 1)]);
    assert_eq!((beats, claims, doubts), (Vec::new(), Vec::new(), Vec::new()));
}

#[tokio::test]
async fn of_two_clusters_with_one_id_the_earlier_one_is_listed_and_the_other_named() {
    let store = Memory::default();
    let (late, early) = (member("east", "u-1"), member("east", "u-2"));
    write(&store, &late, MemberState::Active, 2_000, &["web"]).await;
    write(&store, &early, MemberState::Active, 1_000, &["api"]).await;
    let recorded = read(&store, &prod()).await.unwrap();
    let uids: Vec<_> = recorded.clusters.iter().map(|cluster| cluster.uid.as_str()).collect();
    assert_eq!((uids, recorded.claims), (vec!["u-2"], vec![late]));
}

#[tokio::test]
async fn what_does_not_fit_together_is_named() {
    let store = Memory::default();
    let east = member("east", "u-1");
    write(&store, &east, MemberState::Active, 1_000, &["api", "web"]).await;
    store.write(&east, vec![Write::Delete(key("web"), export("web", 9, 1).version)]).await.unwrap();
    let recorded = read(&store, &prod()).await.unwrap();
    assert_eq!(
        recorded.doubts,
        ["the exports of cluster east are not those of its record: it is being written, or some are lost"]
    );
}

#[tokio::test]
async fn a_read_that_breaks_off_gives_nothing() {
    let store = Double::in_mood(Mood::Away);
    assert!(matches!(read(&*store, &prod()).await, Err(Failed::Away { .. })));
}

/// Makes the records of a member that has these exports.
async fn write(store: &Memory, of: &Member, state: MemberState, claimed_at: i64, exports: &[&str]) {
    let names: BTreeSet<&&str> = exports.iter().collect();
    let all: Vec<_> = names.into_iter().map(|name| (key(name), export(name, 1, 1))).collect();
    let sum: Sum = all.iter().map(|(_, export)| -> Leaf { export.leaf }).collect();
    let claimed_at = WallMillis::from_unix_millis(claimed_at);
    let record = MemberRecord { sum, claimed_at, ..member_record(1, state) };
    let puts = all.into_iter().map(|(key, export)| Write::Put(key, export));
    store.write(of, puts.chain([Write::Member(record)]).collect()).await.unwrap();
}

fn state(cluster: &pb::Cluster) -> pb::LeaseState {
    cluster.lease.unwrap().state()
}

fn name(key: Option<&pb::ServiceKey>) -> &str {
    key.map_or("?", |key| key.name.as_str())
}
