//! Imported slices: what is in them, and which of them a change touches.

use super::entries;
use super::world::{
    World, config, definition, endpoints, group, id, key, kinds, net, of_alpha, port, shown, wanted,
};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, GoodPort, GroupKey, IpFamily, Protocol, ServiceType,
};
use mcs_core::names;
use mcs_core::plan::{SliceEndpoint, Step, plan};
use mcs_core::view::{Decision, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn good(import_name: &str, export_name: &str) -> GoodPort {
    GoodPort { import_name: import_name.to_owned(), export_name: export_name.to_owned() }
}

fn show(endpoints: EndpointSet) -> Decision {
    wanted(definition(), [("alpha", Source::Show(shown(endpoints, 1)))])
}

#[test]
fn a_slice_has_the_labels_that_consumers_read_and_the_annotations_that_a_restart_needs() {
    let mut world = World::default();
    world.settle(&of_alpha(1));
    let slice = &world.existing.slices[0];
    let derived = names::derived_service_name(&key());
    let group = group(IpFamily::V4, &[("http", 8080)]);
    assert_eq!(slice.meta.identity.name, names::slice_name(&derived, &id("alpha"), &group, 0));
    assert_eq!(
        slice.meta.labels,
        entries([
            ("multicluster.kubernetes.io/service-name", "cart"),
            ("multicluster.kubernetes.io/source-cluster", "alpha"),
            ("kubernetes.io/service-name", derived.as_str()),
            ("endpointslice.kubernetes.io/managed-by", "mcs-controller.dynamo.nvidia.com"),
            ("topology.kubernetes.io/region", "eu-west-1"),
            ("app.kubernetes.io/managed-by", "mcs-controller.dynamo.nvidia.com"),
        ])
    );
    assert_eq!(
        slice.meta.annotations,
        entries([
            ("multicluster.dynamo.nvidia.com/clusterset", "prod"),
            ("multicluster.dynamo.nvidia.com/source-uid", "uid-of-source"),
            ("multicluster.dynamo.nvidia.com/source-version", "1.1"),
        ])
    );
    assert_eq!(slice.meta.owner, Some(world.existing.import.expect("an import").meta.identity.uid));
}

/// Case O02: a set replaces the one before it.
#[test]
fn a_later_set_replaces_an_earlier_one() {
    let mut world = World::default();
    world.settle(&show(endpoints(["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(ip))));
    world.settle(&show(endpoints(["10.0.0.2", "10.0.0.9"].map(ip))));
    assert_eq!(world.addresses("alpha"), ["10.0.0.2", "10.0.0.9"].map(ip));
}

/// Case O01: losing one of several slices leaves the rest, and no state in between is empty.
#[test]
fn a_source_that_shrinks_is_never_empty_in_between() {
    let mut world = World::default();
    world.settle(&of_alpha(150));
    for step in plan(&key(), &of_alpha(2), &world.existing, &config()) {
        world.run(&step);
        assert!(!world.addresses("alpha").is_empty(), "after {step:?}");
    }
    assert_eq!(world.addresses("alpha"), net(1, 2).collect::<Vec<_>>());
    world.settle(&of_alpha(0));
    assert_eq!(world.existing.slices, []);
    let import = world.existing.import.expect("an import");
    assert_eq!(import.status.clusters, BTreeSet::from([id("alpha")]), "it still exports the Service");
}

/// Case O10: the import has the Service's port, its slices have the port that endpoints listen on.
#[test]
fn slices_have_the_target_port_by_the_name_in_the_import() {
    let mut definition = definition();
    definition.ports = vec![port("http", Protocol::Tcp, 80), port("tcp-90", Protocol::Tcp, 90)];
    let mut set = EndpointMap::default();
    let ports = group(IpFamily::V4, &[("http", 8080), ("", 9090), ("other", 1)]);
    set.insert(ports, ip("10.0.0.1"), Endpoint::default());
    let mut source = shown(set.pack(), 1);
    source.good_ports = vec![good("http", "http"), good("tcp-90", "")];
    let mut world = World::default();
    world.settle(&wanted(definition, [("alpha", Source::Show(source))]));
    assert_eq!(world.existing.slices[0].group, group(IpFamily::V4, &[("http", 8080), ("tcp-90", 9090)]));
}

#[test]
fn a_source_whose_ports_all_differ_contributes_no_endpoint() {
    let mut source = shown(endpoints(net(1, 3)), 1);
    source.good_ports.clear();
    let mut world = World::default();
    world.settle(&wanted(definition(), [("alpha", Source::Show(source))]));
    assert_eq!(world.existing.slices, []);
    assert_eq!(world.existing.import.expect("an import").status.clusters, BTreeSet::from([id("alpha")]));
}

#[test]
fn a_headless_service_without_ports_keeps_its_endpoints() {
    let mut definition = definition();
    definition.service_type = ServiceType::Headless;
    definition.ports.clear();
    let mut set = EndpointMap::default();
    let host = Endpoint { hostname: Some("db-0".to_owned()), ..Endpoint::default() };
    set.insert(group(IpFamily::V4, &[]), ip("10.0.0.1"), host.clone());
    let mut source = shown(set.pack(), 1);
    source.good_ports.clear();
    let mut world = World::default();
    world.settle(&wanted(definition, [("alpha", Source::Show(source))]));
    let endpoint = SliceEndpoint { endpoint: host, zone_hint: None, node_hint: None };
    assert_eq!(world.existing.slices[0].endpoints, BTreeMap::from([(ip("10.0.0.1"), endpoint)]));
}

/// Groups that differ only in a port which is not imported become one slice.
#[test]
fn groups_that_are_alike_in_the_import_share_a_slice() {
    let mut set = EndpointMap::default();
    set.insert(group(IpFamily::V4, &[("http", 8080)]), ip("10.0.0.1"), Endpoint::default());
    set.insert(group(IpFamily::V4, &[("http", 8080), ("debug", 1)]), ip("10.0.0.2"), Endpoint::default());
    set.insert(group(IpFamily::V4, &[("http", 8081)]), ip("10.0.0.3"), Endpoint::default());
    let mut world = World::default();
    world.settle(&show(set.pack()));
    let sizes: BTreeSet<usize> = world.existing.slices.iter().map(|slice| slice.endpoints.len()).collect();
    assert_eq!((sizes, world.addresses("alpha").len()), (BTreeSet::from([1, 2]), 3));
}

/// Case O16: each family has its own slices.
#[test]
fn families_are_apart_and_one_may_go() {
    let mut dual = definition();
    dual.ip_families = vec![IpFamily::V4, IpFamily::V6];
    let both = |addresses: &[&str]| {
        let source = Source::Show(shown(endpoints(addresses.iter().map(|text| ip(text))), 1));
        wanted(dual.clone(), [("alpha", source)])
    };
    let mut world = World::default();
    world.settle(&both(&["10.0.0.1", "fd00::1"]));
    let by_family: BTreeMap<IpFamily, Vec<IpAddr>> = world
        .existing
        .slices
        .iter()
        .map(|slice| (slice.group.family, slice.endpoints.keys().copied().collect()))
        .collect();
    let expected = [(IpFamily::V4, vec![ip("10.0.0.1")]), (IpFamily::V6, vec![ip("fd00::1")])];
    assert_eq!(by_family, BTreeMap::from(expected));
    world.settle(&both(&["10.0.0.1"]));
    assert_eq!(world.addresses("alpha"), [ip("10.0.0.1")]);
}

#[test]
fn endpoints_of_families_that_the_import_has_not_are_left_out() {
    let mut world = World::default();
    world.settle(&show(endpoints(["10.0.0.1", "fd00::1"].map(ip))));
    assert_eq!(world.addresses("alpha"), [ip("10.0.0.1")]);
}

#[test]
fn hints_are_made_and_nodes_are_named_for_local_endpoints_only() {
    let endpoint = Endpoint {
        ready: Some(false),
        serving: Some(true),
        terminating: Some(true),
        hostname: Some("db-0".to_owned()),
        zone: Some("z1".to_owned()),
        node_name: Some("n1".to_owned()),
    };
    let result = |distribution: Option<&str>, local: bool, node_hints_kept: bool| {
        let mut set = EndpointMap::default();
        set.insert(group(IpFamily::V4, &[("http", 8080)]), ip("10.0.0.1"), endpoint.clone());
        let cluster = if local { "gamma" } else { "alpha" };
        let mut definition = definition();
        definition.traffic_distribution = distribution.map(str::to_owned);
        let mut config = config();
        config.node_hints_kept = node_hints_kept;
        let mut world = World::default();
        world.settle_key(
            &key(),
            &wanted(definition, [(cluster, Source::Show(shown(set.pack(), 1)))]),
            &config,
        );
        world.existing.slices[0].endpoints[&ip("10.0.0.1")].clone()
    };
    let expected = |zone: bool, node: bool, local: bool| SliceEndpoint {
        zone_hint: zone.then(|| "z1".to_owned()),
        node_hint: node.then(|| "n1".to_owned()),
        endpoint: Endpoint { node_name: local.then(|| "n1".to_owned()), ..endpoint.clone() },
    };
    assert_eq!(result(None, false, true), expected(false, false, false));
    assert_eq!(result(None, true, true), expected(false, false, true));
    assert_eq!(result(Some("PreferClose"), false, true), expected(true, false, false));
    assert_eq!(result(Some("PreferSameZone"), true, true), expected(true, false, true));
    assert_eq!(result(Some("PreferSameNode"), true, true), expected(true, true, true));
    assert_eq!(result(Some("PreferSameNode"), true, false), expected(true, false, true));
    assert_eq!(result(Some("PreferSameNode"), false, true), expected(true, false, false));
    assert_eq!(result(Some("Other"), true, true), expected(false, false, true));
}

/// Case O18: three clusters, all counts around the limits.
#[test]
fn many_endpoints_are_split_and_one_change_rewrites_one_slice() {
    for count in [99, 100, 101, 1000, 1001, 2500] {
        let three = |of_beta: u32| {
            let source = |cluster, of| (cluster, Source::Show(shown(endpoints(of), 1)));
            let beta = net(2, of_beta).collect::<Vec<_>>();
            let sources = [
                source("alpha", net(1, count).collect::<Vec<_>>()),
                source("beta", beta),
                source("delta", net(3, count).collect()),
            ];
            wanted(definition(), sources)
        };
        let mut world = World::default();
        world.settle(&three(count));
        let all: BTreeSet<IpAddr> =
            ["alpha", "beta", "delta"].iter().flat_map(|c| world.addresses(c)).collect();
        assert_eq!(all.len(), 3 * count as usize);
        assert_eq!(world.existing.slices.len(), 3 * count.div_ceil(100) as usize);

        let rounds = world.settle(&three(count - 1));
        assert_eq!(rounds.len(), 1);
        let steps = kinds(&rounds[0]);
        let expected = if count % 100 == 1 { "delete slice" } else { "update slice" };
        assert_eq!(steps, [expected], "{count} endpoints, one less");
        assert_eq!(world.addresses("beta"), net(2, count - 1).collect::<Vec<_>>());
    }
}

#[test]
fn only_the_slice_that_changed_gets_the_new_version() {
    let mut world = World::default();
    world.settle(&of_alpha(150));
    let changed = net(1, 149).chain([ip("10.9.0.1")]);
    let rounds = world.settle(&wanted(definition(), [("alpha", Source::Show(shown(endpoints(changed), 8)))]));
    let [Step::UpdateSlice { wanted, .. }] = rounds[0].as_slice() else { panic!("{rounds:?}") };
    assert_eq!(wanted.annotations[names::ANNOTATION_SOURCE_VERSION], "1.8");
    let versions: BTreeSet<&str> = world
        .existing
        .slices
        .iter()
        .map(|slice| slice.meta.annotations[names::ANNOTATION_SOURCE_VERSION].as_str())
        .collect();
    assert_eq!(versions, BTreeSet::from(["1.1", "1.8"]));
}

#[test]
fn a_kept_source_keeps_its_slices_and_one_that_is_gone_loses_them() {
    let source = |cluster, net| (cluster, Source::Show(shown(endpoints(net), 1)));
    let mut world = World::default();
    world.settle(&wanted(
        definition(),
        [source("alpha", net(1, 1).collect::<Vec<_>>()), source("beta", net(2, 1).collect())],
    ));
    world.settle(&wanted(definition(), [("alpha", Source::Keep)]));
    assert_eq!((world.addresses("alpha").len(), world.addresses("beta").len()), (1, 0));
    assert_eq!(world.existing.import.expect("an import").status.clusters, BTreeSet::from([id("alpha")]));
}

#[test]
fn a_port_for_all_numbers_stays_so() {
    let any = EndpointPort { name: "http".to_owned(), port: None, ..EndpointPort::default() };
    let mut set = EndpointMap::default();
    set.insert(GroupKey::new(IpFamily::V4, [any.clone()]), ip("10.0.0.1"), Endpoint::default());
    let mut source = shown(EndpointSet::default(), 1);
    source.endpoints = Arc::new(set.pack());
    let mut world = World::default();
    world.settle(&wanted(definition(), [("alpha", Source::Show(source))]));
    assert_eq!(world.existing.slices[0].group.ports.to_vec(), [any]);
}
