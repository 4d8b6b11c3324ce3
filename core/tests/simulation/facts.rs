//! What all histories have in common: the lease, the clusters, the Services, and builders of exports.

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, Region, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, Port, Protocol, ServiceType,
};
use mcs_core::plan::PlanConfig;
use mcs_core::registry::Policy;
use mcs_core::time::WallTime;
use mcs_core::timing::Timing;
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Short, so that a history of a hundred leases has few ticks of the judging clock.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

pub(crate) const TIMING: Timing = Timing::of_lease(LEASE);

/// The versions of registries: most are of the first.
pub(crate) const BUILDS: [&str; 2] = ["0.1.0", "0.2.0"];

/// How many removals the registry's log keeps: few, so that cursors get too old.
pub(crate) const KEPT_REMOVALS: usize = 4;

pub(crate) const POLICY: Policy = Policy::of_lease(LEASE);

/// The most clusters of a history.
pub(crate) const MOST_CLUSTERS: usize = 9;

const NAMES: [&str; MOST_CLUSTERS] =
    ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"];

static IDS: LazyLock<[ClusterId; MOST_CLUSTERS]> =
    LazyLock::new(|| NAMES.map(|id| ClusterId::new(id).expect("a cluster id")));

static UIDS: LazyLock<[ClusterUid; MOST_CLUSTERS]> =
    LazyLock::new(|| NAMES.map(|id| ClusterUid::new(format!("uid-{id}")).expect("a UID")));

static KEYS: LazyLock<[ServiceKey; 3]> = LazyLock::new(|| {
    let key = |(namespace, name)| ServiceKey::new(namespace, name).expect("a key");
    [("shop", "cart"), ("shop", "db"), ("web", "cart")].map(key)
});

pub(crate) fn cluster_id(index: usize) -> ClusterId {
    IDS[index].clone()
}

pub(crate) fn cluster_uid(index: usize) -> ClusterUid {
    UIDS[index].clone()
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
    }
}

/// A definition: mostly one that agrees with all others, sometimes one that conflicts.
pub(crate) fn random_spec(rng: &mut StdRng) -> Arc<ExportSpec> {
    let port =
        |name: &str, port| Port { name: name.to_owned(), protocol: Protocol::Tcp, port, app_protocol: None };
    let mut ports = vec![port("http", if rng.random_bool(0.2) { 8080 } else { 80 })];
    if rng.random_bool(0.2) {
        ports.push(port("admin", 9000));
    }
    let headless = rng.random_bool(0.1);
    Arc::new(ExportSpec {
        created_at: WallTime::from_unix_secs(rng.random_range(0..4)),
        service_type: if headless { ServiceType::Headless } else { ServiceType::ClusterSetIp },
        ports,
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    })
}

/// Up to four endpoints, all of them within the source cluster's own range.
pub(crate) fn random_endpoints(rng: &mut StdRng, cluster: usize) -> Arc<EndpointSet> {
    let mut set = EndpointSet::default();
    let port = |name: &str, port| EndpointPort {
        name: name.to_owned(),
        port: Some(port),
        ..EndpointPort::default()
    };
    let mut ports = vec![port("http", 8000)];
    if rng.random_bool(0.3) {
        ports.push(port("admin", 9001));
    }
    let group = GroupKey::new(IpFamily::V4, ports);
    let net = u8::try_from(cluster).expect("few clusters");
    for _ in 0..rng.random_range(0..5) {
        let address = [10, net, 0, rng.random_range(1..7)].into();
        let endpoint = Endpoint { ready: Some(rng.random_bool(0.8)), ..Endpoint::default() };
        set.insert(group.clone(), address, endpoint);
    }
    Arc::new(set)
}
