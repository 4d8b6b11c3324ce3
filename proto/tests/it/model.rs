//! Generators of everything that travels.

use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, Namespace, Region, ServiceKey, ServiceName};
use mcs_core::model::{
    Change, Conflict, ConflictField, Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, Frame,
    GoodPort, GroupKey, Header, ImportDefinition, InternalTrafficPolicy, IpFamily, MemberState, Object,
    ObjectKey, Part, PartSet, Participant, Port, Protocol, Section, ServiceType, SessionAffinity,
};
use mcs_core::registry::Op;
use mcs_core::time::{WallMillis, WallTime};
use mcs_core::version::{Leaf, Sum, Version};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const LABEL: &str = "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?";

pub(crate) fn cluster() -> impl Strategy<Value = ClusterId> {
    LABEL.prop_map(|id| ClusterId::new(id).unwrap())
}

pub(crate) fn uid() -> impl Strategy<Value = ClusterUid> {
    "[a-f0-9]{8}-[a-f0-9]{4}".prop_map(|uid| ClusterUid::new(uid).unwrap())
}

pub(crate) fn region() -> impl Strategy<Value = Region> {
    "[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?".prop_map(|region| Region::new(region).unwrap())
}

pub(crate) fn key() -> impl Strategy<Value = ServiceKey> {
    (LABEL, LABEL).prop_map(|(namespace, name)| ServiceKey {
        namespace: Namespace::new(namespace).unwrap(),
        name: ServiceName::new(name).unwrap(),
    })
}

pub(crate) fn version() -> impl Strategy<Value = Version> {
    (any::<u64>(), any::<u64>()).prop_map(|(term, seq)| Version::new(term, seq))
}

pub(crate) fn leaf() -> impl Strategy<Value = Leaf> {
    any::<[u8; 16]>().prop_map(Leaf::from_bytes)
}

pub(crate) fn sum() -> impl Strategy<Value = Sum> {
    any::<[u8; 16]>().prop_map(Sum::from_bytes)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)]
}

fn families() -> impl Strategy<Value = Vec<IpFamily>> {
    vec(prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)], 0..3)
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    let port = (".{0,8}", protocol(), 1..=u16::MAX, of(".{0,8}"))
        .prop_map(|(name, protocol, port, app_protocol)| Port { name, protocol, port, app_protocol });
    vec(port, 0..4)
}

fn service_type() -> impl Strategy<Value = ServiceType> {
    prop_oneof![Just(ServiceType::ClusterSetIp), Just(ServiceType::Headless)]
}

fn affinity() -> impl Strategy<Value = SessionAffinity> {
    prop_oneof![Just(SessionAffinity::None), Just(SessionAffinity::ClientIp)]
}

fn policy() -> impl Strategy<Value = InternalTrafficPolicy> {
    prop_oneof![Just(InternalTrafficPolicy::Cluster), Just(InternalTrafficPolicy::Local)]
}

fn definition() -> impl Strategy<Value = ImportDefinition> {
    let maps = (btree_map(".{0,6}", ".{0,6}", 0..3), btree_map(".{0,6}", ".{0,6}", 0..3));
    (service_type(), ports(), affinity(), of(any::<u32>()), policy(), of(".{0,9}"), families(), maps)
        .prop_map(
            |(
                service_type,
                ports,
                session_affinity,
                timeout,
                internal_traffic_policy,
                distribution,
                ip_families,
                maps,
            )| {
                ImportDefinition {
                    service_type,
                    ports,
                    session_affinity,
                    session_affinity_timeout: timeout,
                    internal_traffic_policy,
                    traffic_distribution: distribution,
                    ip_families,
                    labels: maps.0,
                    annotations: maps.1,
                }
            },
        )
}

pub(crate) fn spec() -> impl Strategy<Value = ExportSpec> {
    (any::<i64>(), definition()).prop_map(|(created_at, definition)| ExportSpec {
        created_at: WallTime::from_unix_secs(created_at),
        service_type: definition.service_type,
        ports: definition.ports,
        session_affinity: definition.session_affinity,
        session_affinity_timeout: definition.session_affinity_timeout,
        internal_traffic_policy: definition.internal_traffic_policy,
        traffic_distribution: definition.traffic_distribution,
        ip_families: definition.ip_families,
        labels: definition.labels,
        annotations: definition.annotations,
    })
}

pub(crate) fn endpoints() -> impl Strategy<Value = EndpointSet> {
    let port = (".{0,8}", protocol(), of(1..=u16::MAX), of(".{0,8}"))
        .prop_map(|(name, protocol, port, app_protocol)| EndpointPort { name, protocol, port, app_protocol });
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes))),
        any::<[u8; 16]>().prop_map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))),
    ];
    let endpoint =
        (of(any::<bool>()), of(any::<bool>()), of(any::<bool>()), of(".{0,8}"), of(".{0,8}"), of(".{0,8}"))
            .prop_map(|(ready, serving, terminating, hostname, zone, node_name)| Endpoint {
                ready,
                serving,
                terminating,
                hostname,
                zone,
                node_name,
            });
    vec((vec(port, 0..3), address, endpoint), 0..12).prop_map(|members| {
        let mut set = EndpointMap::default();
        for (ports, address, endpoint) in members {
            set.insert(GroupKey::new(IpFamily::of(address), ports), address, endpoint);
        }
        set.pack()
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (key(), leaf(), spec(), endpoints(), moment()).prop_map(
            |(key, leaf, spec, endpoints, changed_at)| Op::Put {
                key,
                leaf,
                spec: Arc::new(spec),
                endpoints: Arc::new(endpoints),
                changed_at,
            }
        ),
        (key(), leaf(), of(leaf()), endpoints(), moment()).prop_map(
            |(key, leaf, replaces, endpoints, changed_at)| Op::PutEndpoints {
                key,
                leaf,
                replaces,
                endpoints: Arc::new(endpoints),
                changed_at,
            }
        ),
        key().prop_map(|key| Op::Delete { key }),
    ]
}

fn moment() -> impl Strategy<Value = Option<WallMillis>> {
    // None that is not after 1970, and nothing that JSON cannot write.
    (-1_000..=253_402_207_200_000_i64).prop_map(WallMillis::from_unix_millis)
}

fn section() -> impl Strategy<Value = Section> {
    let state = prop_oneof![
        Just(MemberState::Syncing),
        Just(MemberState::Active),
        Just(MemberState::Held),
        Just(MemberState::Expired)
    ];
    (uid(), of(region()), state, any::<bool>(), version(), sum()).prop_map(
        |(uid, region, state, whole, version, sum)| Section { uid, region, state, whole, version, sum },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let field = prop_oneof![
        Just(ConflictField::Ports),
        Just(ConflictField::Type),
        Just(ConflictField::SessionAffinity),
        Just(ConflictField::SessionAffinityConfig),
        Just(ConflictField::InternalTrafficPolicy),
        Just(ConflictField::TrafficDistribution),
        Just(ConflictField::Labels),
        Just(ConflictField::Annotations),
        Just(ConflictField::IpFamily)
    ];
    let conflict = (field, cluster(), any::<u32>(), any::<u32>())
        .prop_map(|(field, winner, differing, clusters)| Conflict { field, winner, differing, clusters });
    let good_port =
        (".{0,8}", ".{0,8}").prop_map(|(import_name, export_name)| GoodPort { import_name, export_name });
    let participant = (cluster(), uid(), version(), vec(good_port, 0..3))
        .prop_map(|(cluster, uid, version, good_ports)| Participant { cluster, uid, version, good_ports });
    (definition(), vec(participant, 0..3), vec(conflict, 0..3))
        .prop_map(|(definition, participants, conflicts)| Header { definition, participants, conflicts })
}

fn change() -> impl Strategy<Value = Change> {
    let part = (uid(), version(), leaf(), endpoints(), moment()).prop_map(
        |(uid, version, leaf, endpoints, changed_at)| Part {
            changed_at,
            uid,
            version,
            leaf,
            endpoints: Arc::new(endpoints),
        },
    );
    let told = prop_oneof![
        (cluster(), of(section()))
            .prop_map(|(cluster, told)| (ObjectKey::Section(cluster), told.map(Object::Section))),
        (key(), of(header())).prop_map(|(key, told)| (ObjectKey::Header(key), told.map(Object::Header))),
        (key(), cluster(), of(part))
            .prop_map(|(key, cluster, told)| (ObjectKey::Part(key, cluster), told.map(Object::Part))),
    ];
    (any::<u64>(), told).prop_map(|(revision, (key, object))| Change { revision, key, object })
}

pub(crate) fn part_set() -> impl Strategy<Value = PartSet> {
    (uid(), sum()).prop_map(|(uid, sum)| PartSet { uid, sum })
}

pub(crate) fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (any::<u128>(), any::<u32>(), "[ -~]{0,9}").prop_map(|(epoch, millis, build)| Frame::Begin {
            epoch: Epoch(epoch),
            absent_grace: Duration::from_millis(millis.into()),
            build: Build::new(build).unwrap(),
        }),
        (cluster(), part_set(), version()).prop_map(|(cluster, set, version)| Frame::Kept {
            cluster,
            set,
            version
        }),
        change().prop_map(Frame::Change),
        (any::<u64>(), any::<bool>()).prop_map(|(revision, complete)| Frame::End { revision, complete }),
        (any::<u64>(), any::<bool>()).prop_map(|(revision, complete)| Frame::Progress { revision, complete }),
    ]
}

/// A set of `count` endpoints in one group.
pub(crate) fn many(count: u32) -> EndpointSet {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut set = EndpointMap::default();
    for index in 0..count {
        let endpoint = Endpoint {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
            zone: Some("eu-west-1a".to_owned()),
            node_name: Some(format!("node-{}.eu-west-1.example", index / 100)),
            ..Endpoint::default()
        };
        set.insert(group.clone(), IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + index)), endpoint);
    }
    set.pack()
}
