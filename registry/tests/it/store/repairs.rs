//! Several registries over one store: what one of them missed, lost or has not heard of is made good.

use std::time::Duration;

use mcs_core::ids::ClustersetId;
use mcs_core::model::{MemberState, Since};
use mcs_proto::pb::LeaseState;
use mcs_registry::store::Write;

use super::double::Mood;
use super::shared::Reader;
use super::world::{LEASE, World};
use crate::started::{STARTED_AT, id, prod};

const EXPIRED: Option<LeaseState> = Some(LeaseState::Expired);

/// The replica that takes the delete has not read the export yet.
#[tokio::test]
async fn a_delete_through_a_replica_that_does_not_hold_the_export_takes_it_from_the_store() {
    let world = World::of(&[0, 0]).await;
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    world.replicas[1].store().is_stale(LEASE);
    east.put("new", 1).await;
    world.until_stored(0, &east, ["new", "web"]).await;
    east.goes_to(1);
    east.delete("new").await;
    world.until_stored(0, &east, ["web"]).await;
    world.replicas[1].store().is_stale(Duration::ZERO);
    for replica in [0, 1] {
        world.until_shown(replica, "east", [("web", 1)]).await;
    }
}

/// One of two clusters cannot be read: the other one is served, and what is shown is not all.
#[tokio::test]
async fn a_cluster_that_cannot_be_read_keeps_no_other_from_a_replica_that_starts() {
    let mut world = World::of(&[0]).await;
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[0]));
    east.put("web", 1).await;
    west.put("web", 2).await;
    world.until_stored(0, &east, ["web"]).await;
    world.until_stored(0, &west, ["web"]).await;
    let reader = Reader::of(&world.store, 0);
    reader.is_stuck(Some(east.member.clone()));
    let late = world.start_with(reader, 0, STARTED_AT).await;
    let north = world.cluster("north", &[late]);
    north.put("web", 3).await;
    world.until_shown(late, "north", [("web", 3)]).await;
    world.until_shown(late, "west", [("web", 2)]).await;
    west.put("web", 4).await;
    world.until_shown(late, "west", [("web", 4)]).await;
    assert!(!world.is_complete(late).await);
    assert_eq!(world.shown(late, "east").await.unwrap_or_default(), [].into());
    world.replicas[late].store().is_stuck(None);
    world.until_shown(late, "east", [("web", 1)]).await;
    world.until_complete(late, true).await;
}

/// A removal leaves a mark; without one, whoever removed it removes it again.
#[tokio::test]
async fn a_verdict_that_is_written_after_the_removal_brings_no_cluster_back() {
    let mut world = World::of(&[0, 1]).await;
    let east = world.cluster("east", &[0]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    east.is_alive(false);
    for replica in [0, 1] {
        world.until_state(replica, "east", EXPIRED).await;
    }
    let verdict =
        async || world.store.held(0, &east.member).0.filter(|held| held.state == MemberState::Expired);
    let record = world.until("the verdict is stored", verdict).await;
    let client = &world.replicas[0].started.client;
    client.remove(&prod(), &east.member.cluster, None, false).await.unwrap();
    world.until_state(1, "east", None).await;
    world.store.overwrites(&east.member, Write::Member(record));
    // Whoever meets a new replica compares all.
    let third = world.start(0, STARTED_AT).await;
    let _witness = world.witness(third);
    world
        .until("it is gone again", async || world.store.held(1, &east.member).0.is_none().then_some(()))
        .await;
    world.until_state(third, "east", None).await;
}

/// A cluster that comes to it before the others know of it may look silent to them.
#[tokio::test]
async fn answers_are_degraded_until_the_others_know_of_a_replica_and_for_a_lease_at_most() {
    for lag in [LEASE / 2, LEASE * 3] {
        let mut world = World::of(&[0, 1]).await;
        let east = world.cluster("east", &[0]);
        world.until_state(0, "east", Some(LeaseState::Active)).await;
        // What the new one says is read there so much later.
        world.store.lags(0, lag);
        let late = world.start(1, STARTED_AT).await;
        let west = world.cluster("west", &[late]);
        world.until("west is told to go elsewhere", async || west.is_degraded().then_some(())).await;
        world.until("west may stay", async || (!west.is_degraded()).then_some(())).await;
        assert!(!east.is_degraded(), "{lag:?}");
    }
}

#[tokio::test]
async fn renewals_that_are_not_told_in_one_clusterset_drive_no_cluster_of_another_one_away() {
    let world = World::of(&[0]).await;
    let other = ClustersetId::new("other").unwrap();
    world.replicas[0].store().is_mute(other.clone());
    let east = world.cluster("east", &[0]);
    east.put("web", 1).await;
    let client = &world.replicas[0].started.client;
    let watch = client.watch(&other, &id("importer"), None, Since::default()).await;
    let is_degraded = async || client.registry().await.ok().map(|registry| registry.degraded);
    world.until("it is in trouble", async || is_degraded().await.filter(|degraded| *degraded)).await;
    let before = east.renewals();
    world.until("east renews", async || (east.renewals() > before + 2).then_some(())).await;
    assert!(!east.is_degraded());
    // Nobody asks for that clusterset any more.
    drop(watch);
    world.until("that is over", async || is_degraded().await.filter(|degraded| !*degraded)).await;
}

/// Whoever makes ids up, while nothing can be read, is not asked after for ever.
#[tokio::test]
async fn a_clusterset_that_cannot_be_read_is_forgotten_when_nobody_asks_for_it() {
    let world = World::of(&[0]).await;
    let reader = world.replicas[0].store();
    reader.turn(Mood::Away);
    let client = &world.replicas[0].started.client;
    let made_up = ClustersetId::new("made-up").unwrap();
    let list = client.list_clusters(&made_up).await;
    assert!(list.is_ok_and(|(clusters, complete)| clusters.is_empty() && !complete));
    let asked = reader.calls("replicas");
    assert!(asked > 0);
    world
        .until("it is asked after no more", async || {
            let before = reader.calls("replicas");
            world.pass(LEASE / 2).await;
            (reader.calls("replicas") == before).then_some(())
        })
        .await;
}
