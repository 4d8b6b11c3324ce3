//! What is true of registries over any store that fails, each story once: whoever tells it says how the store does so.

use mcs_core::timing::Timing;
use mcs_proto::pb::LeaseState;

use super::world::{LEASE, REFRESH, Told, World};

const ACTIVE: Option<LeaseState> = Some(LeaseState::Active);

/// Fault 4: of two replicas, half of all calls are refused for their number. No lease and no change is lost: what is to be
/// written is written again, until all know everything. How much more a store is asked for then is shown where time is
/// virtual (`registry/src/replicas/tests.rs`).
pub(super) async fn half_of_the_calls_are_throttled(
    world: &World,
    throttles_half: impl Fn(bool),
    throttled: impl Fn() -> u64,
) {
    let witnesses = [world.witness(0), world.witness(1)];
    let clusters = [world.cluster("east", &[0, 1]), world.cluster("west", &[1, 0])];
    for cluster in &clusters {
        cluster.put("web", 1).await;
    }
    for replica in [0, 1] {
        until_both_show(world, replica, 1).await;
    }
    assert_eq!(throttled(), 0);
    throttles_half(true);
    for count in [2, 3, 4] {
        for cluster in &clusters {
            cluster.put("web", count).await;
            world.pass(LEASE * 5 / 2).await;
        }
    }
    // It goes on so until all know everything.
    for replica in [0, 1] {
        until_both_show(world, replica, 4).await;
        for cluster in ["east", "west"] {
            assert_eq!(world.state(replica, cluster).await, ACTIVE);
        }
    }
    assert!(throttled() > 0);
    for witness in &witnesses {
        assert_eq!((witness.lost("east"), witness.lost("west")), (vec![], vec![]));
    }
}

async fn until_both_show(world: &World, replica: usize, count: u32) {
    for cluster in ["east", "west"] {
        world.until_shown(replica, cluster, [("web", count)]).await;
    }
}

/// Faults 5 and 6, for some leases: time stands still, and nothing else does.
pub(super) async fn the_store_is_away(world: &World, how: &str, is_away: impl Fn(bool)) {
    let witness = world.witness(1);
    let (east, west) = (world.cluster("east", &[0]), world.cluster("west", &[1]));
    east.put("web", 1).await;
    west.put("web", 1).await;
    for replica in [0, 1] {
        until_both_show(world, replica, 1).await;
        world.until_complete(replica, true).await;
    }
    is_away(true);
    let since = world.now();
    for replica in [0, 1] {
        world.until_complete(replica, false).await;
    }
    let noticed = world.now().since(since);
    // One read that had begun, and the pause before the next one; with the default lease that is 3 s.
    let limit = REFRESH + Timing::of_lease(LEASE).refresh_limit() + LEASE / 10;
    assert!(noticed <= limit, "the views stayed complete for {noticed:?}: {how}");
    // Heartbeats are served, and changes are shown where they were said.
    east.put("web", 2).await;
    world.until_shown(0, "east", [("web", 2)]).await;
    assert_eq!(world.shown(1, "east").await, Some([("web".to_owned(), 1)].into()), "{how}");
    world.pass(LEASE * 3).await;
    assert!(east.is_degraded() && west.is_degraded(), "{how}");
    assert_eq!(world.state(1, "east").await, ACTIVE, "{how}");

    is_away(false);
    world.until_shown(1, "east", [("web", 2)]).await;
    for replica in [0, 1] {
        world.until_complete(replica, true).await;
    }
    world.until("answers are not degraded", async || (!east.is_degraded()).then_some(())).await;
    world.pass(LEASE * 2).await;
    let nothing: Vec<Told> = Vec::new();
    assert_eq!((witness.lost("east"), witness.lost("west")), (nothing.clone(), nothing), "{how}");
}
