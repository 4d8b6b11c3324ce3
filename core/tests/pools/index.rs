//! EndpointSlices → pools and router replicas.

use super::build::*;
use mcs_core::ids::ClusterId;
use mcs_core::model::EndpointPort;
use mcs_core::pools::index::{Index, IndexChange, SliceEvent};
use mcs_core::pools::slices::{SliceEndpoint, SliceFacts};
use mcs_core::pools::{Notice, PoolFacts, PoolKey, ReplicaId, RouterReplica};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An index after a complete list of `slices`, with the changes of that drained.
fn listed(slices: Vec<(&str, SliceFacts)>) -> Index {
    let mut index = Index::new(services());
    relist(&mut index, slices);
    drain(&mut index);
    index
}

fn relist(index: &mut Index, slices: Vec<(&str, SliceFacts)>) {
    index.handle_event(SliceEvent::Init);
    for (name, facts) in slices {
        index.handle_event(init_apply(name, facts));
    }
    index.handle_event(SliceEvent::InitDone);
}

fn drain(index: &mut Index) -> Vec<IndexChange> {
    std::iter::from_fn(|| index.next_change()).collect()
}

/// What the slices say of the one pool `east/ml/chat`.
fn pool(slices: Vec<(&str, SliceFacts)>) -> Option<PoolFacts> {
    let index = listed(slices);
    index.pools().get(&key("east", "chat")).map(|facts| (**facts).clone())
}

fn live(cluster: &str, facts: PoolFacts) -> IndexChange {
    IndexChange::Live(key(cluster, "chat"), Arc::new(facts))
}

fn pools(index: &Index) -> BTreeMap<PoolKey, PoolFacts> {
    index.pools().iter().map(|(key, facts)| (key.clone(), (**facts).clone())).collect()
}

fn replica(cluster: &str, replica: &str, url: &str) -> RouterReplica {
    let cluster = ClusterId::new(cluster).unwrap();
    RouterReplica { id: ReplicaId { cluster, replica: replica.into() }, url: url.into() }
}

/// The replicas that slices of the router Service give.
fn replicas(slices: Vec<SliceFacts>) -> Vec<RouterReplica> {
    let mut index = Index::new(services());
    index.handle_event(SliceEvent::Init);
    for (number, mut facts) in slices.into_iter().enumerate() {
        facts.service = "global-router".into();
        for port in &mut facts.ports {
            port.name = "relay".into();
        }
        index.handle_event(SliceEvent::InitApply(slice("routing", &format!("r{number}")), facts));
    }
    index.handle_event(SliceEvent::InitDone);
    let change = |change| match change {
        IndexChange::Replica(replica) => Some(replica),
        _ => None,
    };
    drain(&mut index).into_iter().filter_map(change).collect()
}

#[test]
fn a_pool_is_live_while_a_relay_is_ready_and_its_frontends_are_listed() {
    let mut index = listed(vec![]);
    index.handle_event(apply("f", frontend("east", "10.0.0.1")));
    index.handle_event(apply("r", relay("east", "10.0.0.2")));
    index.handle_event(apply("r", of("chat-pool-relay", "east", vec![not_ready("10.0.0.2")])));
    let facts = facts(&["ip:10.0.0.2"], &["http://10.0.0.1:8000/"]);
    assert_eq!(drain(&mut index), [live("east", facts), IndexChange::Gone(key("east", "chat"))]);
}

#[test]
fn an_endpoint_without_the_ready_condition_counts_as_ready() {
    let unknown = SliceEndpoint { ready: None, ..ready("10.0.0.2") };
    let found = pool(vec![("r", of("chat-pool-relay", "east", vec![unknown]))]);
    assert_eq!(found, Some(facts(&["ip:10.0.0.2"], &[])));
}

#[test]
fn clusters_and_namespaces_do_not_mix() {
    let mut index = listed(vec![("r1", relay("east", "10.0.0.2")), ("f", frontend("west", "10.1.0.1"))]);
    index.handle_event(SliceEvent::Apply(slice("other", "f"), frontend("east", "10.0.0.1")));
    assert_eq!(pools(&index), [(key("east", "chat"), facts(&["ip:10.0.0.2"], &[]))].into());
}

#[test]
fn identities_name_every_address_of_every_ready_pod_sorted() {
    let v4 = of("chat-pool-relay", "east", vec![pod("a", "10.43.1.2"), pod("b", "10.43.1.10")]);
    let v6 = of("chat-pool-relay", "east", vec![pod("a", "fd00:0:0::2"), not_ready("fd00::3")]);
    let mapped = of("chat-pool-relay", "east", vec![ready("::ffff:10.43.1.9")]);
    let found = pool(vec![("r1", v4), ("r2", v6), ("r3", mapped)]).unwrap();
    let expected = ["ip:10.43.1.10", "ip:10.43.1.2", "ip:10.43.1.9", "ip:fd00::2"];
    assert_eq!(found, facts(&expected, &[]));
}

/// Cases of one frontend Service: its slices, and the URLs that they give.
#[test]
fn a_frontend_pod_is_listed_once_at_its_ipv4_address_where_it_has_one() {
    let with_port = |name: &str, number, endpoints| SliceFacts {
        ports: vec![port("metrics", 9000), port(name, number)],
        ..of("chat-frontend", "east", endpoints)
    };
    let host =
        |hostname: &str, address: &str| SliceEndpoint { hostname: Some(hostname.into()), ..ready(address) };
    let http = |endpoints| with_port("http", 8000, endpoints);
    let mut https = http(vec![ready("10.0.0.1")]);
    https.ports[1].app_protocol = Some("https".into());
    let mut udp = http(vec![ready("10.0.0.1")]);
    udp.ports[1].protocol = mcs_core::model::Protocol::Udp;
    let cases: Vec<(&str, Vec<SliceFacts>, Vec<&str>)> = vec![
        (
            "by target",
            vec![http(vec![pod("a", "10.0.0.1")]), with_port("http", 8001, vec![pod("a", "fd00::1")])],
            vec!["http://10.0.0.1:8000/"],
        ),
        (
            "by hostname",
            vec![http(vec![host("a", "10.0.0.1")]), http(vec![host("a", "fd00::1"), host("b", "fd00::2")])],
            vec!["http://10.0.0.1:8000/", "http://[fd00::2]:8000/"],
        ),
        (
            "nameless, IPv4 ready",
            vec![http(vec![ready("10.0.0.1")]), http(vec![ready("fd00::1"), ready("fd00::2")])],
            vec!["http://10.0.0.1:8000/"],
        ),
        (
            "nameless, IPv4 not ready",
            vec![http(vec![not_ready("10.0.0.1")]), http(vec![ready("fd00::1")])],
            vec!["http://[fd00::1]:8000/"],
        ),
        (
            "IPv4 slice without the port",
            vec![with_port("grpc", 1, vec![pod("a", "10.0.0.1")]), http(vec![pod("a", "fd00::1")])],
            vec!["http://[fd00::1]:8000/"],
        ),
        (
            "moving between slices",
            vec![http(vec![ready("10.0.0.1")]), http(vec![ready("10.0.0.1")])],
            vec!["http://10.0.0.1:8000/"],
        ),
        ("https", vec![https], vec!["https://10.0.0.1:8000/"]),
        ("default port", vec![with_port("http", 80, vec![ready("10.0.0.1")])], vec!["http://10.0.0.1/"]),
        ("port 0", vec![with_port("http", 0, vec![ready("10.0.0.1")])], vec![]),
        ("UDP", vec![udp], vec![]),
        ("another port", vec![with_port("grpc", 8000, vec![ready("10.0.0.1")])], vec![]),
    ];
    for (case, slices, urls) in cases {
        let names = ["f0", "f1"];
        let mut all = vec![("r", relay("east", "10.0.0.9"))];
        all.extend(names.into_iter().zip(slices));
        assert_eq!(pool(all), Some(facts(&["ip:10.0.0.9"], &urls)), "{case}");
    }
}

#[test]
fn the_region_is_that_of_the_relay_slices() {
    let mut with_region = relay("east", "10.0.0.2");
    with_region.region = Some("us-east-1".into());
    let found = pool(vec![("r0", relay("east", "10.0.0.1")), ("r1", with_region)]);
    assert_eq!(found.unwrap().region.as_deref(), Some("us-east-1"));
}

#[test]
fn a_router_replica_is_named_by_target_then_hostname_then_address() {
    let host = SliceEndpoint { hostname: Some("router-1".into()), ..ready("10.1.0.2") };
    let east = of("", "east", vec![pod("router-0", "10.0.0.1"), not_ready("10.0.0.2")]);
    let east_v6 = of("", "east", vec![pod("router-0", "fd00::1"), pod("router-9", "fd00::9")]);
    let west = of("", "west", vec![host, ready("10.1.0.3")]);
    let expected = [
        replica("east", "router-0", "http://10.0.0.1:8000/"),
        replica("east", "router-9", "http://[fd00::9]:8000/"),
        replica("west", "10.1.0.3", "http://10.1.0.3:8000/"),
        replica("west", "router-1", "http://10.1.0.2:8000/"),
    ];
    assert_eq!(replicas(vec![east, east_v6, west]), expected);
}

#[test]
fn a_name_that_two_router_pods_have_is_that_of_the_target() {
    let host = SliceEndpoint { hostname: Some("router-0".into()), ..ready("10.0.0.1") };
    let east = of("", "east", vec![host, pod("router-0", "10.0.0.2")]);
    assert_eq!(replicas(vec![east]), [replica("east", "router-0", "http://10.0.0.2:8000/")]);
}

#[test]
fn a_router_slice_without_the_tcp_port_gives_one_notice_and_no_replica() {
    let mut index = listed(vec![]);
    let routers = |ports| SliceFacts { ports, ..of("global-router", "east", vec![ready("10.0.0.1")]) };
    let udp = EndpointPort { protocol: mcs_core::model::Protocol::Udp, ..port("relay", 50051) };
    let none = EndpointPort { port: None, ..port("relay", 0) };
    for ports in [vec![port("grpc", 50051)], vec![udp], vec![none], vec![port("relay", 0)]] {
        index.handle_event(SliceEvent::Apply(slice("routing", "r"), routers(ports)));
    }
    let notice = Notice::NoPort {
        slice: slice("routing", "r"),
        service: "global-router".into(),
        port: "relay".into(),
    };
    assert_eq!(drain(&mut index), [IndexChange::Notice(notice)]);
}

#[test]
fn a_relist_repeats_no_notice() {
    let lacking = || SliceFacts { ports: vec![port("grpc", 1)], ..frontend("east", "10.0.0.1") };
    let slices = || vec![("f", lacking()), ("r", relay("east", "10.0.0.2"))];
    let mut index = listed(slices());
    relist(&mut index, slices());
    assert_eq!(drain(&mut index), [IndexChange::Relisted]);
}

#[test]
fn a_router_replica_that_is_not_ready_any_more_is_gone() {
    let mut index = listed(vec![]);
    let routers = |endpoints| SliceFacts {
        ports: vec![port("relay", 50051)],
        ..of("global-router", "east", endpoints)
    };
    let put = |facts| SliceEvent::Apply(slice("routing", "r"), facts);
    index.handle_event(put(routers(vec![ready("10.0.0.1"), ready("10.0.0.2")])));
    index.handle_event(put(routers(vec![ready("10.0.0.2")])));
    index.handle_event(SliceEvent::Delete(slice("routing", "r")));
    let east = |address: &str| replica("east", address, &format!("http://{address}:50051/"));
    let expected = [
        IndexChange::Replica(east("10.0.0.1")),
        IndexChange::Replica(east("10.0.0.2")),
        IndexChange::ReplicaGone(east("10.0.0.1").id),
        IndexChange::ReplicaGone(east("10.0.0.2").id),
    ];
    assert_eq!(drain(&mut index), expected);
}

#[test]
fn a_live_pool_without_a_frontend_gives_one_notice_a_change() {
    let mut index = listed(vec![]);
    let no_frontend = |port_imported| {
        IndexChange::Notice(Notice::NoFrontend {
            key: key("east", "chat"),
            service: "chat-frontend".into(),
            port: "http".into(),
            port_imported,
        })
    };
    let relays = |addresses: &[&str]| {
        of("chat-pool-relay", "east", addresses.iter().map(|address| ready(address)).collect())
    };
    let alone = |addresses: &[&str]| live("east", facts(addresses, &[]));
    index.handle_event(apply("r", relays(&["10.0.0.2"])));
    index.handle_event(apply("r", relays(&["10.0.0.2", "10.0.0.3"])));
    index.handle_event(apply("f", of("chat-frontend", "east", vec![not_ready("10.0.0.1")])));
    index.handle_event(apply("f", frontend("east", "10.0.0.1")));
    index.handle_event(delete("f"));
    let both = ["ip:10.0.0.2", "ip:10.0.0.3"];
    let expected = [
        no_frontend(false),
        alone(&["ip:10.0.0.2"]),
        alone(&both),
        no_frontend(true),
        live("east", facts(&both, &["http://10.0.0.1:8000/"])),
        no_frontend(false),
        alone(&both),
    ];
    assert_eq!(drain(&mut index), expected);
}

#[test]
fn a_slice_without_the_port_gives_one_notice() {
    let mut index = listed(vec![]);
    let without = |address| SliceFacts { ports: vec![port("grpc", 1)], ..frontend("east", address) };
    let notice = IndexChange::Notice(Notice::NoPort {
        slice: slice("ml", "f"),
        service: "chat-frontend".into(),
        port: "http".into(),
    });
    index.handle_event(apply("f", without("10.0.0.1")));
    index.handle_event(apply("f", without("10.0.0.2")));
    assert_eq!(drain(&mut index), std::slice::from_ref(&notice));
    index.handle_event(apply("f", frontend("east", "10.0.0.2")));
    index.handle_event(apply("f", without("10.0.0.2")));
    assert_eq!(drain(&mut index), std::slice::from_ref(&notice));
    index.handle_event(delete("f"));
    index.handle_event(apply("f", without("10.0.0.2")));
    assert_eq!(drain(&mut index), [notice]);
}

/// Case O43: what a relist lacks is gone; a half one deletes nothing.
#[test]
fn a_relist_counts_when_it_is_done() {
    let (a, b, c) = (relay("a", "10.0.0.1"), relay("b", "10.0.0.2"), relay("c", "10.0.0.3"));
    let mut index = listed(vec![("a", a.clone()), ("b", b)]);
    index.handle_event(apply("c", c.clone()));
    drain(&mut index);
    let before = pools(&index);

    index.handle_event(SliceEvent::Init);
    index.handle_event(init_apply("a", a.clone()));
    assert_eq!((drain(&mut index), pools(&index)), (vec![], before));

    relist(&mut index, vec![("a", a), ("c", c)]);
    let remaining: Vec<PoolKey> = pools(&index).into_keys().collect();
    assert_eq!(drain(&mut index), [IndexChange::Gone(key("b", "chat")), IndexChange::Relisted]);
    assert_eq!(remaining, [key("a", "chat"), key("c", "chat")]);
}

#[test]
fn a_relist_gives_the_same_as_single_events() {
    let slices = || {
        vec![
            ("r", relay("east", "10.0.0.1")),
            ("f", frontend("east", "10.0.0.2")),
            ("w", relay("w", "10.1.0.1")),
        ]
    };
    let mut by_events = listed(vec![("old", relay("gone", "10.9.0.1"))]);
    for (name, facts) in slices() {
        by_events.handle_event(apply(name, facts));
    }
    by_events.handle_event(delete("old"));
    assert_eq!(pools(&by_events), pools(&listed(slices())));
    for name in ["r", "f", "w"] {
        by_events.handle_event(delete(name));
    }
    assert_eq!((pools(&by_events), by_events.slices()), (BTreeMap::new(), 0));
}

#[test]
fn an_empty_relist_is_told() {
    let mut index = Index::new(services());
    relist(&mut index, vec![]);
    assert_eq!(drain(&mut index), [IndexChange::Notice(Notice::EmptyRelist), IndexChange::Relisted]);
    assert!(index.is_synced());
}
