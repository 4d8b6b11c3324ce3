//! Builders, and generators over few values, so that equal names, numbers and addresses meet often.

#![expect(clippy::unwrap_used, reason = "a test fails where the input it makes is wrong")]

use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, Header, InternalTrafficPolicy,
    IpFamily, Port, Protocol, ServiceType, SessionAffinity,
};
use mcs_core::time::WallTime;
use mcs_core::version::Version;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn uid(name: &str) -> ClusterUid {
    ClusterUid::new(format!("uid-{name}")).unwrap()
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).unwrap()
}

pub(crate) fn key() -> ServiceKey {
    ServiceKey::new("shop", "cart").unwrap()
}

/// A TCP port; no name for an empty one.
pub(crate) fn tcp(name: &str, port: u16) -> Port {
    Port { name: name.to_owned(), protocol: Protocol::Tcp, port, app_protocol: None }
}

/// A UDP port.
pub(crate) fn udp(name: &str, port: u16) -> Port {
    Port { protocol: Protocol::Udp, ..tcp(name, port) }
}

/// A valid export, made `created_at` seconds after the epoch.
pub(crate) fn export(created_at: i64, ports: impl IntoIterator<Item = Port>) -> ExportSpec {
    ExportSpec {
        created_at: WallTime::from_unix_secs(created_at),
        ports: ports.into_iter().collect(),
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    }
}

/// Merges exports; each cluster's version has the place of the cluster in the list as its sequence.
pub(crate) fn merged<'a>(exports: impl IntoIterator<Item = (&'a str, &'a ExportSpec)>) -> Header {
    let named: Vec<_> = exports.into_iter().map(|(name, spec)| (name, uid(name), spec)).collect();
    let mut exports = BTreeMap::new();
    for ((name, uid, spec), seq) in named.iter().zip(1..) {
        exports.insert(cluster(name), Exported { uid, version: Version::new(1, seq), spec });
    }
    merge(&exports).unwrap()
}

pub(crate) fn any_port() -> impl Strategy<Value = Port> {
    let names = select(vec!["", "a", "b", "tcp-80", "tcp-81", "udp-80"]);
    let protocols = select(vec![Protocol::Tcp, Protocol::Udp]);
    (names, protocols, 80_u16..83, option::weighted(0.2, Just("http".to_owned()))).prop_map(
        |(name, protocol, port, app_protocol)| Port { name: name.to_owned(), protocol, port, app_protocol },
    )
}

/// Ports that one Service can have: no two with one name or one (protocol, number), all named if there are several.
pub(crate) fn any_ports() -> impl Strategy<Value = Vec<Port>> {
    vec(any_port(), 1..5).prop_map(|ports| {
        let mut names = BTreeSet::new();
        let mut numbers = BTreeSet::new();
        let mut ports = ports;
        ports.retain(|port| names.insert(port.name.clone()) && numbers.insert((port.protocol, port.port)));
        if ports.len() > 1 {
            ports.retain(|port| !port.name.is_empty());
        }
        ports
    })
}

pub(crate) fn any_families() -> impl Strategy<Value = Vec<IpFamily>> {
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    select(vec![vec![v4], vec![v6], vec![v4, v6], vec![v6, v4]])
}

fn any_map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[ab]", "[xy]", 0..2)
}

/// A valid export.
pub(crate) fn any_export() -> impl Strategy<Value = ExportSpec> {
    let basics = (0_i64..3, select(vec![ServiceType::ClusterSetIp, ServiceType::Headless]), any_ports());
    let affinity = prop_oneof![
        Just((SessionAffinity::None, None)),
        (1_u32..3).prop_map(|seconds| (SessionAffinity::ClientIp, Some(seconds))),
    ];
    let policies = (
        select(vec![InternalTrafficPolicy::Cluster, InternalTrafficPolicy::Local]),
        option::of(select(vec!["PreferClose", "PreferSameNode"])),
    );
    (basics, affinity, policies, any_families(), any_map(), any_map()).prop_map(
        |(
            (created_at, service_type, ports),
            (session_affinity, timeout),
            policies,
            ip_families,
            labels,
            annotations,
        )| {
            ExportSpec {
                created_at: WallTime::from_unix_secs(created_at),
                service_type,
                ports,
                session_affinity,
                session_affinity_timeout: timeout,
                internal_traffic_policy: policies.0,
                traffic_distribution: policies.1.map(str::to_owned),
                ip_families,
                labels,
                annotations,
            }
        },
    )
}

/// One to five exports.
pub(crate) fn any_exports() -> impl Strategy<Value = BTreeMap<ClusterId, ExportSpec>> {
    btree_map("[a-f]".prop_map(|name| cluster(&name)), any_export(), 1..6)
}

/// Merges owned exports, all at one version.
pub(crate) fn merge_owned(exports: &BTreeMap<ClusterId, ExportSpec>) -> Header {
    let uid = uid("any");
    let exported = |spec| Exported { uid: &uid, version: Version::new(1, 1), spec };
    merge(&exports.iter().map(|(cluster, spec)| (cluster.clone(), exported(spec))).collect()).unwrap()
}

pub(crate) fn any_endpoint() -> impl Strategy<Value = (GroupKey, std::net::IpAddr, Endpoint)> {
    let group = (80_u16..82).prop_map(|port| {
        GroupKey::new(IpFamily::V4, [EndpointPort { port: Some(port), ..EndpointPort::default() }])
    });
    let endpoint = (option::of(any::<bool>()), option::of("[xy]")).prop_map(|(ready, zone)| Endpoint {
        ready,
        zone,
        ..Endpoint::default()
    });
    (group, (1_u8..4).prop_map(|last| [10, 0, 0, last].into()), endpoint)
}

pub(crate) fn endpoint_set(
    endpoints: impl IntoIterator<Item = (GroupKey, std::net::IpAddr, Endpoint)>,
) -> EndpointSet {
    let mut set = EndpointMap::default();
    for (group, address, endpoint) in endpoints {
        set.insert(group, address, endpoint);
    }
    set.pack()
}
