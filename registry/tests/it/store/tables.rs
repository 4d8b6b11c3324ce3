//! Several registries over tables that are replicated: what `replicas.rs` shows with a store in memory, with the store,
//! the client and the items that programs have.

use std::time::Duration;

use mcs_core::model::MemberState;
use mcs_proto::pb::LeaseState;
use mcs_runtime::dynamodb::Action;
use mcs_runtime::dynamodb::double::{Door, Fault, Rule, TABLE};

use super::stories;
use super::world::{GRACE, LEASE, REGIONS, Told, World};

const ACTIVE: Option<LeaseState> = Some(LeaseState::Active);
const EXPIRED: Option<LeaseState> = Some(LeaseState::Expired);

/// More endpoints than lie in the item of an export.
const MANY: u32 = 2_000;

#[tokio::test]
async fn what_a_cluster_says_in_one_region_is_told_in_the_other() {
    let (world, tables) = World::of_tables(&[0, 0, 1]).await;
    tables.set_lag(Duration::ZERO..LEASE / 3);
    let witness = world.witness(2);
    let east = world.cluster("east", &[0, 1, 2]);
    east.put("web", 2).await;
    east.put("large", MANY).await;
    for replica in [0, 1, 2] {
        world.until_shown(replica, "east", [("large", MANY), ("web", 2)]).await;
    }
    for home in [2, 1] {
        east.goes_to(home);
        let before = east.renewals();
        world.until("it renews there", async || (east.renewals() > before + 1).then_some(())).await;
        east.put("web", 3 + u32::try_from(home).unwrap()).await;
        for replica in [0, 1, 2] {
            world
                .until_shown(replica, "east", [("large", MANY), ("web", 3 + u32::try_from(home).unwrap())])
                .await;
        }
    }
    east.delete("large").await;
    world.until_shown(2, "east", [("web", 4)]).await;
    world.pass(LEASE).await;
    assert_eq!(witness.lost("east"), [Told::PartGone("east".to_owned(), "large".to_owned())]);
    assert_eq!(east.refused(), None);
}

/// Faults 2 and 13.
#[tokio::test]
async fn a_replica_that_dies_over_a_table_takes_no_live_cluster_with_it_and_a_dead_one_goes() {
    let (world, tables) = World::of_tables(&[0, 0, 1]).await;
    tables.set_lag(Duration::ZERO..LEASE / 10);
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
    }
    world.pass(LEASE).await;
    for witness in &witnesses {
        assert_eq!(witness.lost("east"), []);
    }
    assert_eq!(world.state(2, "east").await, ACTIVE);
    assert_eq!(east.home(), 1);
}

/// Fault 4.
#[tokio::test]
async fn a_table_that_throttles_half_of_the_calls_loses_no_lease_and_no_change() {
    let (world, tables) = World::of_tables(&[0, 0]).await;
    let table = tables.region(REGIONS[0]);
    let throttles_half = |half| match half {
        true => table.faults().add(Rule::new(Fault::Throttled).share(0.5)),
        false => table.faults().clear(),
    };
    let throttled = || table.faults().befallen();
    stories::half_of_the_calls_are_throttled(&world, throttles_half, throttled).await;
}

/// Faults 5 and 6: a table that cannot be reached, that answers with errors, or takes requests and says nothing.
#[tokio::test]
async fn a_table_that_is_away_stops_time_and_nothing_else() {
    for away in [Fault::Silence, Fault::InternalError, Fault::Reset] {
        let (world, tables) = World::of_tables(&[0, 0]).await;
        let faults = tables.region(REGIONS[0]).faults();
        let turn = |is_away| match is_away {
            true => faults.add(Rule::new(away)),
            false => faults.clear(),
        };
        stories::the_store_is_away(&world, &format!("{away:?}"), turn).await;
    }
}

/// Fault 5 of one region: its clusters go to the other one.
#[tokio::test]
async fn a_region_whose_table_refuses_connections_sends_its_clusters_to_the_other_one() {
    let (world, tables) = World::of_tables(&[0, 1]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    tables.region(REGIONS[0]).faults().door(Door::Refusing);
    world.until("answers are degraded", async || east.is_degraded().then_some(())).await;
    east.goes_to(1);
    east.put("web", 2).await;
    world.until_shown(1, "east", [("web", 2)]).await;
    world.pass(LEASE * 2).await;
    assert_eq!(witness.lost("east"), []);
    tables.region(REGIONS[0]).faults().door(Door::Open);
    world.until_shown(0, "east", [("web", 2)]).await;
}

/// Fault 7.
#[tokio::test]
async fn tables_that_are_cut_from_each_other_heal_without_a_delete() {
    let (world, tables) = World::of_tables(&[0, 1]).await;
    let witnesses = [world.witness(0), world.witness(1)];
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[1]));
    for cluster in [&east, &west] {
        cluster.put("web", 1).await;
    }
    for replica in [0, 1] {
        for cluster in ["east", "west"] {
            world.until_shown(replica, cluster, [("web", 1)]).await;
        }
    }
    tables.cut();
    east.put("web", 2).await;
    west.put("large", MANY).await;
    world.until_shown(0, "east", [("web", 2)]).await;
    world.pass(LEASE + GRACE / 2).await;
    tables.heal();
    world.until_shown(1, "east", [("web", 2)]).await;
    world.until_shown(0, "west", [("large", MANY), ("web", 1)]).await;
    world.pass(LEASE * 2).await;
    for (replica, witness) in witnesses.iter().enumerate() {
        assert_eq!((witness.lost("east"), witness.lost("west")), (vec![], vec![]), "replica {replica}");
        assert_eq!(world.state(replica, "east").await, ACTIVE);
    }
}

/// Fault 8: parts of an export arrive long after what names them.
#[tokio::test]
async fn an_export_whose_pieces_arrive_late_is_shown_when_it_is_whole() {
    let (world, tables) = World::of_tables(&[0, 1]).await;
    let witness = world.witness(1);
    let east = world.cluster("east", &[0]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    tables.set_lag_of("K#", LEASE..LEASE * 4 / 3);
    for count in [MANY, MANY + 500] {
        east.put("web", count).await;
        east.put("api", count - MANY + 1).await;
        world.until_shown(1, "east", [("api", count - MANY + 1), ("web", count)]).await;
    }
    let whole: Vec<usize> = [1, MANY, MANY + 500].map(|count| usize::try_from(count).unwrap()).into();
    assert_eq!(witness.counts("east", "web"), whole);
    assert_eq!(witness.lost("east"), []);
}

/// A write whose answer is lost was made: it is made again, and nothing of it is told twice.
#[tokio::test]
async fn answers_of_a_table_that_are_lost_change_nothing() {
    let (world, tables) = World::of_tables(&[0, 0]).await;
    let table = tables.region(REGIONS[0]);
    let witness = world.witness(1);
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    table.faults().add(Rule::new(Fault::LostAnswer).share(0.3).of(&[Action::PutItem, Action::UpdateItem]));
    for count in 2..8 {
        east.put("web", count).await;
    }
    world.until_shown(1, "east", [("web", 7)]).await;
    world.pass(LEASE).await;
    let counts = witness.counts("east", "web");
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(witness.lost("east"), []);
}

/// Every refresh of every replica reads what it said, and it is said for nobody.
#[tokio::test]
async fn what_a_dead_replica_said_is_removed_by_the_others_of_its_region() {
    let (world, tables) = World::of_tables(&[0, 0, 1]).await;
    // Who serves nobody says nothing.
    let _witnesses = [world.witness(1), world.witness(2)];
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(2, "east", [("web", 1)]).await;
    let said = async |kind: &str| -> Vec<String> {
        let items = tables.region(REGIONS[0]).items(TABLE).await;
        let keys = items.iter().filter_map(|item| item["sk"]["S"].as_str());
        keys.filter_map(|sk| sk.strip_prefix(kind)).map(ToOwned::to_owned).collect()
    };
    world.until("all three beat", async || (said("R#").await.len() == 3).then_some(())).await;
    let served_by = said("N#").await;
    let [dead] = &served_by[..] else { panic!("one replica has news: {served_by:?}") };
    world.kill(0);
    let is_removed =
        async || (!said("R#").await.contains(dead) && !said("N#").await.contains(dead)).then_some(());
    world.until("what it said is removed", is_removed).await;
    assert_eq!(said("R#").await.len(), 2);
    for replica in [1, 2] {
        world.until_shown(replica, "east", [("web", 1)]).await;
        assert_eq!(world.state(replica, "east").await, ACTIVE);
    }
}

/// A replica that ends takes back what it said; what one that was killed said goes with the others of its region.
#[tokio::test]
async fn a_verdict_that_was_taken_stands_for_replicas_that_start_later() {
    let (mut world, tables) = World::of_tables(&[0, 0]).await;
    let east = world.cluster("east", &[0, 1]);
    east.put("web", 1).await;
    world.until_shown(1, "east", [("web", 1)]).await;
    east.is_alive(false);
    for replica in [0, 1] {
        world.until_state(replica, "east", EXPIRED).await;
    }
    world.pass(LEASE / 3).await;
    for replica in [0, 1] {
        world.replicas[replica].started.shutdown.drain();
    }
    let late = world.start_over(&tables, 0).await;
    let witness = world.witness(late);
    world.until_state(late, "east", EXPIRED).await;
    assert!(!witness.told().contains(&Told::State("east".to_owned(), MemberState::Active)));
}
