//! A set of endpoints is bytes in memory; what is read of it is what was put together.

use mcs_core::model::{Endpoint, EndpointMap, EndpointPort, GroupKey, IpFamily, Protocol};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

proptest! {
    #[test]
    fn a_set_has_what_was_put_together_and_another_one_is_another_set(
        one in vec(member(), 0..20),
        other in vec(member(), 0..3),
    ) {
        let (one, other) = (map(one), map(other));
        let set = one.pack();
        let read: BTreeMap<GroupKey, (usize, BTreeMap<IpAddr, Endpoint>)> =
            set.groups().map(|group| (group.key, (group.len, group.members.collect()))).collect();
        let put = one.groups().iter().map(|(key, members)| (key.clone(), (members.len(), members.clone())));
        prop_assert_eq!(read, put.collect());
        prop_assert_eq!((set.len(), set.is_empty()), (one.len(), one.is_empty()));
        prop_assert_eq!(set == other.pack(), one == other);
    }
}

/// What most endpoints are: an address, a zone that the one before has too, and the name of a node.
#[test]
fn an_endpoint_is_held_in_little_more_than_its_address_and_the_name_of_its_node() {
    let bytes = |count: u8| {
        let member = |last: u8| {
            let endpoint = Endpoint {
                ready: Some(true),
                zone: Some("eu-west-1a".to_owned()),
                node_name: Some("ip-010-000-000-001.internal".to_owned()),
                ..Endpoint::default()
            };
            (GroupKey::new(IpFamily::V4, []), IpAddr::from([10, 0, 0, last]), endpoint)
        };
        map((0..count).map(member)).pack().bytes()
    };
    let node = "ip-010-000-000-001.internal".len();
    assert_eq!(bytes(20) - bytes(10), 10 * (4 + node + 3));
}

fn map(members: impl IntoIterator<Item = (GroupKey, IpAddr, Endpoint)>) -> EndpointMap {
    let mut map = EndpointMap::default();
    for (group, address, endpoint) in members {
        map.insert(group, address, endpoint);
    }
    map
}

fn member() -> impl Strategy<Value = (GroupKey, IpAddr, Endpoint)> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)];
    let text = || proptest::option::of(prop_oneof![".{0,2}", "[a-z]{120,300}"]);
    let condition = || proptest::option::of(any::<bool>());
    let port = (".{0,2}", protocol, proptest::option::of(any::<u16>()), text())
        .prop_map(|(name, protocol, port, app_protocol)| EndpointPort { name, protocol, port, app_protocol });
    let address =
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from),];
    let endpoint = (condition(), condition(), condition(), text(), text(), text()).prop_map(
        |(ready, serving, terminating, hostname, zone, node_name)| Endpoint {
            ready,
            serving,
            terminating,
            hostname,
            zone,
            node_name,
        },
    );
    let group = (vec(port, 0..3), any::<bool>())
        .prop_map(|(ports, is_v6)| GroupKey::new(if is_v6 { IpFamily::V6 } else { IpFamily::V4 }, ports));
    (group, address, endpoint)
}
