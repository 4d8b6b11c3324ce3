//! `docs/iam.md` gives a registry what it calls, and nothing else.

use std::collections::BTreeSet;

use mcs_runtime::dynamodb::double::Double;

use super::world::{LEASE, REGIONS, World};
use crate::started::{http, prod};

/// The actions of the policy of a registry, as the guide has them.
fn documented() -> BTreeSet<String> {
    let guide = include_str!("../../../../docs/iam.md");
    let (_, section) = guide.split_once("## mcs-registry").unwrap();
    let (policy, _) = section.split_once("```json\n").unwrap().1.split_once("```").unwrap();
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    let [statement] = &policy["Statement"].as_array().unwrap()[..] else { panic!("one statement: {policy}") };
    let actions = statement["Action"].as_array().unwrap().iter().map(|action| action.as_str().unwrap());
    actions.map(|action| action.strip_prefix("dynamodb:").unwrap().to_owned()).collect()
}

async fn status(world: &World, replica: usize) -> String {
    http(world.replicas[replica].started.admin, "GET", "/readyz").await.0
}

async fn until_ready(world: &World, replica: usize) {
    let is_ready = async || (status(world, replica).await == "200 OK").then_some(());
    world.until("it is ready", is_ready).await;
}

fn called(table: &Double) -> BTreeSet<String> {
    table.units_by_action().into_keys().collect()
}

#[tokio::test]
async fn a_registry_may_do_all_that_it_does_by_the_policy_that_is_documented_and_does_all_of_that() {
    let (mut world, tables) = World::of_tables(&[0]).await;
    let table = tables.region(REGIONS[0]);
    until_ready(&world, 0).await;
    table.faults().allow_only(documented());
    let second = world.start_over(&tables, 0).await;
    until_ready(&world, second).await;
    // What a look at the table called does not count.
    table.reset_units();
    let east = world.cluster("east", &[0]);
    east.put("large", 2_000).await;
    east.put("web", 2).await;
    world.until_shown(second, "east", [("large", 2_000), ("web", 2)]).await;
    east.delete("web").await;
    world.until_shown(second, "east", [("large", 2_000)]).await;
    east.is_alive(false);
    let client = &world.replicas[0].started.client;
    client.remove(&prod(), &east.member.cluster, Some(&east.member.uid), false).await.unwrap();
    world.until_shown(second, "east", []).await;
    world.replicas[0].started.shutdown.drain();
    let late = world.start_over(&tables, 0).await;
    until_ready(&world, late).await;
    world.pass(LEASE).await;
    assert_eq!(called(table), documented());
    assert_eq!(table.faults().befallen(), 0);
}

/// None of them can be left out.
#[tokio::test]
async fn a_registry_that_lacks_a_permission_is_not_ready_until_it_has_it() {
    let (mut world, tables) = World::of_tables(&[0]).await;
    let faults = tables.region(REGIONS[0]).faults();
    for action in documented() {
        let befallen = faults.befallen();
        faults.allow_only(documented().into_iter().filter(|one| *one != action));
        let replica = world.start_over(&tables, 0).await;
        world.until("it is denied", async || (faults.befallen() > befallen).then_some(())).await;
        assert_eq!(status(&world, replica).await, "503 Service Unavailable", "{action}");
        faults.allow_only(documented());
        until_ready(&world, replica).await;
    }
}
