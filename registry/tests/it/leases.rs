//! Leases on a clock that a test moves.

use std::time::Duration;

use mcs_core::model::{Change, Frame, MemberState, Object, ObjectKey};
use mcs_core::version::Version;

use crate::started::{Exporter, LEASE, LIMIT, Started, id, prod, put};

async fn states(registry: &Started) -> Vec<(String, &'static str)> {
    let (clusters, _) = registry.client.list_clusters(&prod()).await.unwrap();
    let state = |cluster: &mcs_proto::pb::Cluster| cluster.lease.unwrap().state().as_str_name();
    clusters.into_iter().map(|cluster| (cluster.cluster.clone(), state(&cluster))).collect()
}

async fn listed_endpoints(registry: &Started) -> u32 {
    let (imports, _) = registry.client.list_imports(&prod(), false).await.unwrap();
    imports.iter().flat_map(|import| &import.parts).map(|part| part.endpoint_count).sum()
}

async fn renew(exporter: &Exporter) {
    exporter.client.renew(&exporter.member, exporter.version(), exporter.sum).await.unwrap();
}

/// O33: a cluster's lease runs out and it comes back.
#[tokio::test]
async fn a_lease_that_runs_out_hides_the_endpoints_until_it_is_renewed() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;
    let (mut watch, _) = registry.watch().await;

    let tick = Duration::from_millis(1);
    registry.pass(LEASE - tick).await;
    assert_eq!(states(&registry).await, [("east".to_owned(), "LEASE_STATE_ACTIVE")]);
    assert_eq!(listed_endpoints(&registry).await, 2);
    registry.pass(tick).await;
    assert_eq!(states(&registry).await, [("east".to_owned(), "LEASE_STATE_EXPIRED")]);
    assert_eq!(listed_endpoints(&registry).await, 0);
    let (imports, _) = registry.client.list_imports(&prod(), false).await.unwrap();
    assert_eq!(imports.len(), 1, "its exports stay in the merge");

    renew(&east).await;
    assert_eq!(states(&registry).await, [("east".to_owned(), "LEASE_STATE_ACTIVE")]);
    assert_eq!(listed_endpoints(&registry).await, 2);

    let mut told = Vec::new();
    while told.last() != Some(&MemberState::Active) || told.len() < 2 {
        let frame = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        match frame {
            Frame::Change(Change {
                key: ObjectKey::Section(cluster),
                object: Some(Object::Section(section)),
                ..
            }) => {
                assert_eq!(cluster, id("east"));
                told.push(section.state);
            }
            Frame::Progress { .. } => {}
            other => panic!("a lease tells its section only, not {other:?}"),
        }
    }
    assert_eq!(told, [MemberState::Expired, MemberState::Active]);
}

#[tokio::test]
async fn most_clusters_silent_at_once_are_held_and_then_judged() {
    let registry = Started::new().await;
    let mut exporters = Vec::new();
    for cluster in ["east", "north", "south", "west"] {
        let mut exporter = registry.register(cluster).await;
        exporter.write(&[put("cart", 1)]).await;
        exporters.push(exporter);
    }
    let alive = |registry: Started| async move {
        for _ in 0..3 {
            registry.pass(LEASE / 3).await;
            renew(&exporters[0]).await;
        }
        (registry, exporters)
    };
    let (registry, exporters) = alive(registry).await;
    let count = |states: Vec<(String, &'static str)>, wanted: &str| {
        states.into_iter().filter(|(_, state)| *state == wanted).count()
    };
    assert_eq!(count(states(&registry).await, "LEASE_STATE_HELD"), 3);
    assert_eq!(listed_endpoints(&registry).await, 4);
    for _ in 0..3 {
        registry.pass(LEASE / 3).await;
        renew(&exporters[0]).await;
    }
    assert_eq!(count(states(&registry).await, "LEASE_STATE_EXPIRED"), 3);
    assert_eq!(listed_endpoints(&registry).await, 1);
}

/// O35: a jump of the wall clock changes what is shown, not what is judged.
#[tokio::test]
async fn a_jump_of_the_wall_clock_expires_nothing() {
    let registry = Started::new().await;
    registry.register("east").await;
    registry.clock.set_wall(mcs_core::time::WallTime::from_unix_secs(4_000_000_000));
    registry.pass(Duration::from_secs(1)).await;
    assert_eq!(states(&registry).await, [("east".to_owned(), "LEASE_STATE_ACTIVE")]);
}

/// A registry that was stopped for a while does not judge those who could not reach it.
#[tokio::test]
async fn a_pause_of_the_registry_is_not_judged() {
    let registry = Started::new().await;
    let east = registry.register("east").await;
    registry.clock.advance(LEASE * 10);
    assert_eq!(states(&registry).await, [("east".to_owned(), "LEASE_STATE_ACTIVE")]);
    assert_eq!(east.version(), Version::new(1, 1));
}

/// The view is not complete until every live cluster has had a lease to register.
#[tokio::test]
async fn a_view_is_complete_a_lease_after_the_start() {
    let registry = Started::new().await;
    let east = registry.register("east").await;
    let (mut watch, frames) = registry.watch().await;
    assert!(matches!(frames.last(), Some(Frame::End { complete: false, .. })));
    registry.pass(LEASE / 2).await;
    renew(&east).await;
    assert!(!registry.client.list_clusters(&prod()).await.unwrap().1);
    registry.pass(LEASE / 2).await;
    assert!(registry.client.list_clusters(&prod()).await.unwrap().1);
    loop {
        // Renewals of an equal sum move the section's version, so there may be changes in between.
        if let Frame::Progress { complete: true, .. } = watch.next().await.unwrap() {
            break;
        }
    }
}
