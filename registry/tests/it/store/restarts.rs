//! A registry that is started over a store that has records.

use std::sync::Arc;

use mcs_core::version::Version;
use mcs_proto::pb::LeaseState;

use super::double::{Double, Mood};
use crate::started::{Started, prod, put, registration};

#[tokio::test]
async fn what_a_store_holds_is_shown_by_the_next_registry_and_asked_of_nobody_again() {
    let store = Double::in_mood(Mood::Fine);
    let first = Started::over(store.clone(), |_| {}).await;
    let mut east = first.register("east").await;
    east.write(&[put("web", 3), put("api", 250)]).await;
    let (_, before) = first.watch().await;
    first.shutdown.drain();
    first.program.await.unwrap().unwrap();

    let next = Started::over(store, |_| {}).await;
    let again = registration(&east.member, Version::new(2, 1), east.sum);
    let registered = next.client.register(&east.member, &again).await.unwrap();
    assert!(!registered.differs, "all that it has was read from the store");
    let (imports, _) = next.client.list_imports(&prod(), true).await.unwrap();
    let mut counts: Vec<_> = imports
        .iter()
        .map(|import| {
            let name = import.key.as_ref().unwrap().name.clone();
            (name, import.parts.len())
        })
        .collect();
    counts.sort();
    assert_eq!(counts, [("api".to_owned(), 1), ("web".to_owned(), 1)]);
    let (_, after) = next.watch().await;
    assert_eq!(before.len(), after.len(), "{before:#?}\n{after:#?}");
}

#[tokio::test]
async fn a_cluster_whose_lease_had_run_out_is_not_shown_again_by_the_next_registry() {
    let store = Double::in_mood(Mood::Fine);
    let first = Started::over(store.clone(), |_| {}).await;
    let mut east = first.register("east").await;
    east.write(&[put("web", 3)]).await;
    let expired = async |started: &Started| {
        let (clusters, _) = started.client.list_clusters(&prod()).await.unwrap();
        clusters.first().is_some_and(|cluster| {
            cluster.lease.as_ref().is_some_and(|lease| lease.state() == LeaseState::Expired)
        })
    };
    first.pass(crate::started::LEASE * 2).await;
    assert!(expired(&first).await);
    let written = async {
        while !{
            let members = mcs_registry::store::Store::members(store.records(), &prod()).await.unwrap().whole;
            members.iter().all(|(_, record)| record.state == mcs_core::model::MemberState::Expired)
        } {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::started::LIMIT, written).await.unwrap();
    first.shutdown.drain();
    first.program.await.unwrap().unwrap();

    let next = Started::over(Arc::clone(&store) as _, |_| {}).await;
    // A watch is what makes the clusterset known here.
    next.watch().await;
    assert!(expired(&next).await);
}
