//! What all histories have in common: the lease, the clusters, the Services.

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, Region, ServiceKey};
use mcs_core::model::IpFamily;
use mcs_core::plan::PlanConfig;
use mcs_core::registry::Policy;
use mcs_core::timing::Timing;
use std::sync::LazyLock;
use std::time::Duration;

/// Short, so that a history of a hundred leases has few ticks of the judging clock.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

pub(crate) const TIMING: Timing = Timing::of_lease(LEASE);

/// The versions of registries, the earlier one first.
pub(crate) const BUILDS: [&str; 2] = ["0.1.0", "0.2.0"];

/// How many removals the registry's log keeps: few, so that cursors get too old.
pub(crate) const KEPT_REMOVALS: usize = 4;

/// The policy of registries, but for the limits that differ from history to history.
pub(crate) const POLICY: Policy = Policy::of_lease(LEASE);

/// The most clusters of a history, but for the claimant.
pub(crate) const MOST_CLUSTERS: usize = 9;

/// The place of another cluster that claims the id of the first.
pub(crate) const CLAIMANT: usize = MOST_CLUSTERS;

/// All places that a cluster can have.
pub(crate) const PLACES: usize = MOST_CLUSTERS + 1;

const NAMES: [&str; MOST_CLUSTERS] =
    ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"];

static IDS: LazyLock<[ClusterId; MOST_CLUSTERS]> =
    LazyLock::new(|| NAMES.map(|id| ClusterId::new(id).expect("a cluster id")));

static UIDS: LazyLock<[ClusterUid; PLACES]> = LazyLock::new(|| {
    std::array::from_fn(|place| {
        let name = NAMES.get(place).unwrap_or(&"claimant");
        ClusterUid::new(format!("uid-{name}")).expect("a UID")
    })
});

static KEYS: LazyLock<[ServiceKey; 3]> = LazyLock::new(|| {
    let key = |(namespace, name)| ServiceKey::new(namespace, name).expect("a key");
    [("shop", "cart"), ("shop", "db"), ("web", "cart")].map(key)
});

pub(crate) fn cluster_id(place: usize) -> ClusterId {
    IDS[place % MOST_CLUSTERS].clone()
}

pub(crate) fn cluster_uid(place: usize) -> ClusterUid {
    UIDS[place].clone()
}

/// Which cluster has this UID.
pub(crate) fn place_of(uid: &ClusterUid) -> usize {
    UIDS.iter().position(|known| known == uid).expect("a cluster of this world")
}

/// Which cluster rightly has this id.
pub(crate) fn rightful_place_of(id: &ClusterId) -> usize {
    IDS.iter().position(|known| known == id).expect("a cluster of this world")
}

/// The Services that clusters may export.
pub(crate) fn keys() -> &'static [ServiceKey] {
    &*KEYS
}

pub(crate) fn region(index: usize) -> Region {
    Region::new(["eu-1", "us-1"][index % 2]).expect("a region")
}

pub(crate) fn plan_config(index: usize) -> PlanConfig {
    PlanConfig {
        clusterset: ClustersetId::new("prod").expect("a clusterset id"),
        cluster: cluster_id(index),
        adopt_unmanaged: false,
        served_families: vec![IpFamily::V4],
        slices_present_kept: true,
        node_hints_kept: true,
        import_refused: false,
    }
}
