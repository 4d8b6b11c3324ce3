//! Several registries over one store act as one. Times are those of a lease of 3 s.

use std::time::Duration;

use mcs_core::model::MemberState;
use mcs_core::version::Version;
use mcs_proto::pb::LeaseState;
use mcs_registry::store::{MemberRecord, Write};

use super::double::Mood;
use super::shared::Reader;
use super::stories;
use super::world::{Cluster, GRACE, LEASE, One, REFRESH, Told, World};
use crate::started::{STARTED_AT, key, prod};

const ACTIVE: Option<LeaseState> = Some(LeaseState::Active);
const EXPIRED: Option<LeaseState> = Some(LeaseState::Expired);

#[tokio::test]
async fn what_a_cluster_says_to_one_replica_is_told_by_all() {
    let world = World::of(&[0, 0]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    world.until_state(0, "east", ACTIVE).await;
    east.put("web", 2).await;
    world.until_shown(1, "east", [("web", 2)]).await;
    east.put("web", 3).await;
    east.put("api", 1).await;
    world.until_shown(1, "east", [("api", 1), ("web", 3)]).await;
    east.delete("api").await;
    world.until_shown(1, "east", [("web", 3)]).await;
    assert_eq!(witness.lost("east"), [Told::PartGone("east".to_owned(), "api".to_owned())]);
    assert_eq!(world.state(1, "east").await, ACTIVE);
}

/// A registry that nobody has asked for anything has read nothing.
#[tokio::test]
async fn a_list_of_what_only_others_were_told_is_read_first() {
    let mut world = World::of(&[0]).await;
    let east = world.cluster("east", &[0]);
    world.until_state(0, "east", ACTIVE).await;
    east.put("web", 2).await;
    world.until_stored(0, &east, ["web"]).await;
    let late = world.start(0, STARTED_AT).await;
    assert_eq!(world.shown(late, "east").await, Some([("web".to_owned(), 2)].into()));
}

/// Fault 2, and what every rollout does: a controller is served by another replica than before, which asks it for
/// nothing and shows nothing less.
#[tokio::test]
async fn a_cluster_that_goes_to_another_replica_and_back_loses_nothing() {
    let world = World::of(&[0, 0]).await;
    let witnesses = [world.witness(0), world.witness(1)];
    let east = world.cluster("east", &[0, 1]);
    world.until_state(1, "east", ACTIVE).await;
    east.put("web", 2).await;
    world.until_shown(1, "east", [("web", 2)]).await;
    let mut count = 2;
    for home in [1, 0, 1] {
        east.goes_to(home);
        let before = east.renewals();
        world.until("it renews there", async || (east.renewals() > before + 1).then_some(())).await;
        count += 1;
        east.put("web", count).await;
        for replica in [0, 1] {
            world.until_shown(replica, "east", [("web", count)]).await;
        }
    }
    // Longer than a lease after its last word to the other one.
    world.pass(LEASE * 2).await;
    for (replica, witness) in witnesses.iter().enumerate() {
        assert_eq!(witness.lost("east"), [], "replica {replica}");
        let counts = witness.counts("east", "web");
        assert!(counts.is_sorted(), "replica {replica} went back: {counts:?}");
        assert_eq!(world.state(replica, "east").await, ACTIVE);
    }
    assert_eq!(east.refused(), None);
}

/// Fault 2: replicas are replaced one after the other.
#[tokio::test]
async fn replicas_that_are_replaced_in_turn_delete_nothing() {
    let mut world = World::of(&[0, 0]).await;
    let third = world.start(0, STARTED_AT).await;
    let east = world.cluster("east", &[0, third, 1]);
    let witness = world.witness(third);
    world.until_state(third, "east", ACTIVE).await;
    east.put("web", 2).await;
    world.until_shown(third, "east", [("web", 2)]).await;
    for replica in [0, 1] {
        world.replicas[replica].started.shutdown.drain();
        let before = east.renewals();
        world.until("it renews", async || (east.renewals() > before + 3).then_some(())).await;
    }
    assert_eq!(east.home(), 1, "the third replica serves it");
    world.until_complete(third, true).await;
    world.pass(LEASE * 2).await;
    assert_eq!(witness.lost("east"), []);
    assert_eq!(world.state(third, "east").await, ACTIVE);
    assert_eq!(world.shown(third, "east").await, Some([("web".to_owned(), 2)].into()));
}

/// A region that is given up is not waited for: its replicas took back what they said.
#[tokio::test]
async fn the_clusters_of_a_region_whose_replicas_ended_are_judged_without_the_grace() {
    let world = World::of(&[0, 1]).await;
    let witness = world.witness(0);
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[1]));
    east.put("web", 1).await;
    west.put("web", 1).await;
    world.until_shown(0, "west", [("web", 1)]).await;
    world.replicas[1].started.shutdown.drain();
    world.until_state(0, "west", EXPIRED).await;
    let states = witness.told();
    assert!(!states.contains(&Told::State("west".to_owned(), MemberState::Held)), "{states:?}");
    assert_eq!(witness.lost("east"), []);
}

/// Fault 13: one of two clusters falls silent, and the replicas agree on it.
#[tokio::test]
async fn a_cluster_that_dies_expires_at_all_replicas_and_no_other_does() {
    let world = World::of(&[0, 1]).await;
    let witnesses = [world.witness(0), world.witness(1)];
    let clusters = [world.cluster("east", &[0, 1]), world.cluster("west", &[1, 0])];
    for cluster in &clusters {
        cluster.put("web", 1).await;
    }
    for replica in [0, 1] {
        for cluster in ["east", "west"] {
            world.until_shown(replica, cluster, [("web", 1)]).await;
        }
    }
    clusters[0].is_alive(false);
    for replica in [0, 1] {
        world.until_state(replica, "east", EXPIRED).await;
        is_gone_in_time(&world, &clusters[0], LEASE);
        assert_eq!(world.shown(replica, "east").await.map(|shown| shown.len()), Some(0));
    }
    for (replica, witness) in witnesses.iter().enumerate() {
        assert_eq!(witness.lost("west"), [], "replica {replica}");
    }
    // A replica that starts now does not begin to count again.
    world
        .until("the verdict is stored", async || {
            let (record, _) = world.store.held(0, &clusters[0].member);
            record.filter(|record| record.state == MemberState::Expired).map(drop)
        })
        .await;
    clusters[0].is_alive(true);
    for replica in [0, 1] {
        world.until_shown(replica, "east", [("web", 1)]).await;
    }
}

/// A cluster that has just expired somewhere did so not before a lease after its last renewal, nor later than a sixth of
/// one (5 s of 30) after this time, for the question and the answer of the other replicas, both read with a refresh; and
/// another one, with which a replica learned of the renewal.
fn is_gone_in_time(world: &World, cluster: &Cluster, time: Duration) {
    let ((sent, answered), now) = (cluster.renewed(), world.now());
    let lasted = (now.since(answered), now.since(sent));
    assert!(lasted.1 >= LEASE, "{lasted:?} after its last renewal");
    assert!(lasted.0 <= time + LEASE / 6 + REFRESH, "{lasted:?} after its last renewal");
}

/// Fault 13, with the replica that served it; and those that it served besides.
#[tokio::test]
async fn a_replica_that_dies_takes_no_live_cluster_with_it_and_a_dead_one_goes() {
    let world = World::of(&[0, 0, 1]).await;
    let witnesses = [world.witness(1), world.witness(2)];
    let (east, west) = (world.cluster("east", &[0, 1]), world.cluster("west", &[0, 1]));
    east.put("web", 1).await;
    west.put("web", 1).await;
    for replica in [1, 2] {
        world.until_shown(replica, "east", [("web", 1)]).await;
        world.until_shown(replica, "west", [("web", 1)]).await;
    }
    world.kill(0);
    west.is_alive(false);
    for replica in [1, 2] {
        world.until_state(replica, "west", EXPIRED).await;
        // Its replica may have heard it once more.
        is_gone_in_time(&world, &west, LEASE * 2);
    }
    assert_eq!(east.home(), 1);
    world.pass(LEASE).await;
    for witness in &witnesses {
        assert_eq!(witness.lost("east"), []);
    }
    assert_eq!(world.state(2, "east").await, ACTIVE);
}

/// Fault 4.
#[tokio::test]
async fn no_lease_and_no_change_is_lost_while_half_of_the_calls_are_throttled() {
    let world = World::of(&[0, 0]).await;
    let stores = || world.replicas.iter().map(One::store);
    let throttled = || stores().map(Reader::throttled).sum();
    let throttles_half = |half| stores().for_each(|store| store.throttles_half(half));
    stories::half_of_the_calls_are_throttled(&world, throttles_half, throttled).await;
}

/// Fault 6, and the first 3 s of any outage.
#[tokio::test]
async fn a_store_that_takes_calls_and_answers_none_stops_time_and_nothing_else() {
    for mood in [Mood::Silent, Mood::Away] {
        let world = World::of(&[0, 0]).await;
        let turn = |away: bool| {
            let stores = world.replicas.iter().map(One::store);
            stores.for_each(|store| store.turn(if away { mood } else { Mood::Fine }));
        };
        stories::the_store_is_away(&world, &format!("{mood:?}"), turn).await;
    }
}

/// Fault 5 of one replica alone: the other one does not take its clusters for dead before it can have heard of them.
#[tokio::test]
async fn a_replica_that_cannot_write_sends_its_clusters_to_another_one() {
    let world = World::of(&[0, 0]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    world.replicas[0].store().turn(Mood::Throttled);
    world.until("answers are degraded", async || east.is_degraded().then_some(())).await;
    // What a controller does then.
    east.goes_to(1);
    east.put("web", 2).await;
    world.until_shown(1, "east", [("web", 2)]).await;
    world.pass(LEASE * 2).await;
    assert_eq!(witness.lost("east"), []);
    world.replicas[0].store().turn(Mood::Fine);
    world.until_shown(0, "east", [("web", 2)]).await;
}

/// A replica whose writes are taken and whose reads fail would never answer the others: they do not wait for it.
#[tokio::test]
async fn a_replica_that_cannot_read_loses_its_clusters_and_holds_up_no_verdict() {
    let world = World::of(&[0, 1, 1]).await;
    let witness = world.witness(0);
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[2, 0]));
    east.put("web", 1).await;
    west.put("web", 1).await;
    world.until_shown(0, "west", [("web", 1)]).await;
    world.until_shown(0, "east", [("web", 1)]).await;
    world.replicas[2].store().is_deaf(true);
    world.until("answers are degraded", async || west.is_degraded().then_some(())).await;
    west.goes_to(1);
    east.is_alive(false);
    for replica in [0, 1] {
        world.until_state(replica, "east", EXPIRED).await;
    }
    assert_eq!(witness.lost("west"), []);
    world.replicas[2].store().is_deaf(false);
    world.until_state(2, "east", EXPIRED).await;
    world.until_complete(2, true).await;
    assert_eq!(world.state(2, "west").await, ACTIVE);
}

/// The record of a live cluster may say that its lease ran out, for a verdict that was written late: without what the
/// others say nothing is known of it.
#[tokio::test]
async fn a_replica_that_starts_tells_nothing_before_it_has_heard_the_others() {
    let mut world = World::of(&[0]).await;
    let east = world.cluster("east", &[0]);
    east.put("web", 1).await;
    world.until_stored(0, &east, ["web"]).await;
    let (record, _) = world.store.held(0, &east.member);
    let expired = MemberRecord { state: MemberState::Expired, ..record.unwrap() };
    world.store.overwrites(&east.member, Write::Member(expired));
    let reader = Reader::of(&world.store, 0);
    reader.is_deaf(true);
    let late = world.start_with(reader, 0, STARTED_AT).await;
    let witness = world.witness(late);
    world
        .until("it tries to hear", async || {
            (world.replicas[late].store().calls("replicas") > 3).then_some(())
        })
        .await;
    assert_eq!((world.shown(late, "east").await, world.is_complete(late).await), (Some([].into()), false));
    world.replicas[late].store().is_deaf(false);
    world.until_shown(late, "east", [("web", 1)]).await;
    assert_eq!(witness.lost("east"), []);
}

/// Fault 7.
#[tokio::test]
async fn regions_that_are_cut_from_each_other_keep_their_clusters_for_the_grace_and_heal() {
    let world = World::of(&[0, 1]).await;
    let witnesses = [world.witness(0), world.witness(1)];
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[1]));
    east.put("web", 1).await;
    west.put("web", 1).await;
    for replica in [0, 1] {
        for cluster in ["east", "west"] {
            world.until_shown(replica, cluster, [("web", 1)]).await;
        }
    }
    world.store.cut(0, true);
    east.put("web", 2).await;
    world.until_shown(0, "east", [("web", 2)]).await;
    // Longer than a lease, shorter than lease and grace.
    world.pass(LEASE + GRACE / 2).await;
    for (replica, cluster) in [(0, "west"), (1, "east")] {
        assert_eq!(world.state(replica, cluster).await, Some(LeaseState::Held));
        assert_eq!(world.shown(replica, cluster).await, Some([("web".to_owned(), 1)].into()));
        assert_eq!(witnesses[replica].lost(cluster), []);
    }
    world.store.cut(0, false);
    world.until_shown(1, "east", [("web", 2)]).await;
    world.pass(LEASE * 2).await;
    for witness in &witnesses {
        for cluster in ["east", "west"] {
            assert_eq!(witness.lost(cluster), []);
        }
    }
}

/// Fault 7, for longer than is waited: a dead region looks the same.
#[tokio::test]
async fn the_clusters_of_a_region_that_stays_away_expire_after_the_grace_and_come_back_with_it() {
    let world = World::of(&[0, 1]).await;
    let witness = world.witness(0);
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[1]));
    west.put("web", 1).await;
    world.until_shown(0, "west", [("web", 1)]).await;
    let since = world.now();
    world.store.cut(0, true);
    world.until_state(0, "west", EXPIRED).await;
    let lasted = world.now().since(since);
    assert!(lasted >= GRACE, "{lasted:?}");
    assert_eq!(witness.lost("east"), []);
    assert_eq!(world.state(1, "west").await, ACTIVE);
    world.store.cut(0, false);
    world.until_shown(0, "west", [("web", 1)]).await;
    assert_eq!(east.refused(), None);
}

/// Fault 8: a write is answered and lost.
#[tokio::test]
async fn what_the_store_lost_is_written_again() {
    let world = World::of(&[0, 0]).await;
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    world.until_stored(0, &east, ["web"]).await;
    // The export, not the record that goes with it.
    world.store.loses(1);
    east.put("api", 2).await;
    assert_eq!(world.store.left_to_lose(), 0);
    world.until_stored(0, &east, ["api", "web"]).await;
    world.until_shown(1, "east", [("api", 2), ("web", 1)]).await;
}

/// Fault 8: what another region wrote before arrives late and wins.
#[tokio::test]
async fn an_old_write_that_wins_is_overwritten_and_shown_by_nobody() {
    let world = World::of(&[0, 1]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    let (old_record, old_exports) = world.store.held(0, &east.member);
    east.put("web", 2).await;
    world.until_shown(1, "east", [("web", 2)]).await;
    world.until_stored(1, &east, ["web"]).await;

    let old = old_exports[&key("web")].clone();
    world.store.overwrites(&east.member, Write::Put(key("web"), old));
    world.store.overwrites(&east.member, Write::Member(old_record.unwrap()));
    world
        .until("it is written again", async || {
            let (record, exports) = world.store.held(1, &east.member);
            let is_new = exports.get(&key("web")).is_some_and(|export| export.endpoints.len() == 2);
            (is_new && record.is_some_and(|record| record.version > Version::new(1, 2))).then_some(())
        })
        .await;
    assert_eq!(witness.counts("east", "web"), [1, 2]);
    assert_eq!(witness.lost("east"), []);
}

/// Fault 8: items of another region arrive out of order, and the state in between is shown by nobody.
#[tokio::test]
async fn changes_that_arrive_out_of_order_end_as_their_owner_said() {
    let world = World::of(&[0, 1]).await;
    let witness = world.witness(1);
    world.store.lags(1, LEASE / 2);
    world.store.reorders(1);
    let east = world.cluster("east", &[0]);
    for count in 1..8 {
        east.put("web", count).await;
        east.put("api", 8 - count).await;
        world.pass(REFRESH).await;
    }
    east.delete("api").await;
    world.until_shown(1, "east", [("web", 7)]).await;
    world.pass(LEASE).await;
    world.until_shown(1, "east", [("web", 7)]).await;
    assert!(witness.counts("east", "web").is_sorted(), "{:?}", witness.counts("east", "web"));
    assert_eq!(witness.lost("east"), [Told::PartGone("east".to_owned(), "api".to_owned())]);
}

/// Fault 9: a replica reads what was before its own write.
#[tokio::test]
async fn a_stale_read_takes_nothing_back() {
    let world = World::of(&[0, 0]).await;
    let witnesses = [world.witness(0), world.witness(1)];
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    for replica in &world.replicas {
        replica.store().is_stale(REFRESH * 2);
    }
    for count in 2..6 {
        east.put("web", count).await;
        east.goes_to(usize::try_from(count % 2).unwrap());
        world.pass(REFRESH * 3).await;
    }
    for replica in [0, 1] {
        world.until_shown(replica, "east", [("web", 5)]).await;
    }
    for witness in &witnesses {
        assert!(witness.counts("east", "web").is_sorted(), "{:?}", witness.counts("east", "web"));
        assert_eq!(witness.lost("east"), []);
    }
}

/// Story 8: the index of an export is there before all its parts are.
#[tokio::test]
async fn an_export_that_cannot_be_read_whole_stays_as_it_was_until_it_can() {
    let world = World::of(&[0, 0]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    world.replicas[1].store().tears(Some(1));
    east.put("web", 5).await;
    east.put("api", 1).await;
    world.until_shown(1, "east", [("api", 1), ("web", 1)]).await;
    world.replicas[1].store().tears(None);
    world.until_shown(1, "east", [("api", 1), ("web", 5)]).await;
    assert_eq!(witness.lost("east"), []);
}

/// Fault 14: clocks differ by an hour, and one of them jumps.
#[tokio::test]
async fn wall_clocks_that_are_wrong_expire_nothing() {
    let mut world = World::of(&[0]).await;
    let ahead = mcs_core::time::WallTime::from_unix_secs(STARTED_AT.unix_secs() + 3_600);
    let other = world.start(0, ahead).await;
    let east = world.cluster("east", &[0, 1]);
    let witness = world.witness(other);
    east.put("web", 1).await;
    world.until_shown(other, "east", [("web", 1)]).await;
    world.replicas[0].started.clock.set_wall(mcs_core::time::WallTime::from_unix_secs(1));
    world.pass(LEASE).await;
    east.goes_to(1);
    world.replicas[1].started.clock.set_wall(STARTED_AT);
    world.pass(LEASE * 2).await;
    for replica in [0, other] {
        assert_eq!(world.state(replica, "east").await, ACTIVE);
    }
    assert_eq!(witness.lost("east"), []);
}

/// Two clusters take one id while their regions do not see each other.
#[tokio::test]
async fn of_two_clusters_with_one_id_the_earlier_keeps_it() {
    let mut world = World::of(&[0]).await;
    // The later region's clock says so; the clocks of both are right.
    let later = mcs_core::time::WallTime::from_unix_secs(STARTED_AT.unix_secs() + 60);
    world.start(0, later).await;
    let first = world.cluster_of("east", "uid-1", &[0]);
    first.put("web", 1).await;
    world.until_shown(0, "east", [("web", 1)]).await;
    // This one has read nothing yet.
    world.replicas[1].store().is_stale(LEASE / 2);
    let second = world.cluster_of("east", "uid-2", &[1]);
    world.replicas[1].store().is_stale(Duration::ZERO);
    let refused = world.until("the later is refused", async || second.refused()).await;
    assert!(refused.contains("uid-1") && refused.contains("uid-2"), "{refused}");
    for replica in [0, 1] {
        world.until_shown(replica, "east", [("web", 1)]).await;
    }
    assert_eq!(first.refused(), None);
}

#[tokio::test]
async fn a_cluster_that_is_removed_through_one_replica_is_gone_at_all() {
    let world = World::of(&[0, 1]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    east.is_alive(false);
    let client = &world.replicas[0].started.client;
    client.remove(&prod(), &east.member.cluster, Some(&east.member.uid), false).await.unwrap();
    world.until_state(1, "east", None).await;
    assert!(witness.lost("east").contains(&Told::PartGone("east".to_owned(), "web".to_owned())));
    assert_eq!(world.store.held(1, &east.member), (None, [].into()));
}

/// D8: what does not change is not read and not written.
#[tokio::test]
async fn an_idle_replica_reads_what_the_others_say_and_nothing_of_exports() {
    let world = World::of(&[0, 0]).await;
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 300).await;
    world.until_shown(1, "east", [("web", 300)]).await;
    world.until_stored(0, &east, ["web"]).await;
    world.pass(LEASE).await;
    let calls =
        |operation| world.replicas.iter().map(move |replica| replica.store().calls(operation)).sum::<usize>();
    let before = ["export", "exports", "member", "write"].map(calls);
    let heard = calls("replicas");
    world.pass(LEASE * 2).await;
    assert_eq!(["export", "exports", "member", "write"].map(calls), before);
    assert!(calls("replicas") > heard);
}
