//! Plans against an API server in memory: what is written, in which order, and that it ends.

#[path = "plan/hands.rs"]
mod hands;
#[path = "plan/slices.rs"]
mod slices;
#[path = "plan/slots.rs"]
mod slots;
#[path = "plan/world.rs"]
mod world;

use mcs_core::ids::ServiceKey;
use mcs_core::model::{IpFamily, Protocol, ServiceType, SessionAffinity};
use mcs_core::names;
use mcs_core::plan::{Entries, ImportReady, ImportSpec, ImportStatus, ServiceSpec, Step, plan};
use mcs_core::view::{Decision, Source, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use world::{World, config, definition, endpoints, id, key, kinds, net, of_alpha, port, shown, wanted};

fn entries<const N: usize>(entries: [(&str, &str); N]) -> Entries {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_new_import_is_made_in_order() {
    let mut world = World::default();
    let rounds = world.settle(&of_alpha(1));
    let kinds: Vec<_> = rounds.iter().map(|round| kinds(round)).collect();
    assert_eq!(
        kinds,
        [
            vec!["create import"],
            vec!["update status", "create service"],
            vec!["update import", "create slice"],
            vec!["update status"],
        ]
    );
    let Step::UpdateImportStatus { status, .. } = &rounds[1][0] else { panic!("{:?}", rounds[1]) };
    assert_eq!(status.ready, Some(ImportReady::Pending));
}

#[test]
fn an_import_has_the_fields_of_the_merge_and_the_marks_of_ours() {
    let mut merged = definition();
    merged.labels =
        entries([("team", "shop"), (names::LABEL_SERVICE_NAME, "other"), (names::LABEL_MANAGED_BY, "x")]);
    merged.annotations = entries([("note", "a b")]);
    merged.session_affinity = SessionAffinity::ClientIp;
    let mut world = World::default();
    world.settle(&wanted(merged, [("alpha", Source::Show(shown(endpoints(net(1, 1)), 1)))]));
    let import = world.existing.import.expect("an import");
    let service = world.existing.service.expect("a Service");
    let derived = names::derived_service_name(&key());
    assert_eq!(import.meta.labels, entries([("team", "shop"), (names::LABEL_MANAGED_BY, names::MANAGED_BY)]));
    assert_eq!(
        import.meta.annotations,
        entries([
            ("note", "a b"),
            (names::ANNOTATION_CLUSTERSET, "prod"),
            (names::ANNOTATION_DERIVED_SERVICE, derived.as_str()),
        ])
    );
    assert_eq!(
        import.spec,
        ImportSpec {
            ports: vec![port("http", Protocol::Tcp, 80)],
            ips: service.cluster_ips.clone(),
            ip_families: vec![IpFamily::V4],
            session_affinity: SessionAffinity::ClientIp,
            ..ImportSpec::default()
        }
    );
    assert_eq!(
        import.status,
        ImportStatus {
            clusters: BTreeSet::from([id("alpha")]),
            ready: Some(ImportReady::Ready),
            slices_present: true
        }
    );
    assert_eq!(service.meta.identity.name, derived);
    assert_eq!(service.meta.owner, Some(import.meta.identity.uid));
    assert_eq!(
        service.meta.labels,
        entries([(names::LABEL_MANAGED_BY, names::MANAGED_BY), (names::LABEL_SERVICE_NAME, "cart")])
    );
    assert_eq!(service.meta.annotations, entries([(names::ANNOTATION_CLUSTERSET, "prod")]));
    assert_eq!(
        service.spec,
        ServiceSpec {
            ports: vec![port("http", Protocol::Tcp, 80)],
            ip_families: vec![IpFamily::V4],
            session_affinity: SessionAffinity::ClientIp,
            session_affinity_timeout: Some(10_800),
            ..ServiceSpec::default()
        }
    );
}

/// Case O03: equal content makes no write, whatever the order it comes in.
#[test]
fn nothing_is_written_when_nothing_changed() {
    let mut world = World::default();
    world.settle(&of_alpha(3));
    assert_eq!(plan(&key(), &of_alpha(3), &world.existing, &config()), []);

    world.existing.slices.reverse();
    world.existing.service.as_mut().expect("a Service").spec.ports.reverse();
    let later = wanted(definition(), [("alpha", Source::Show(shown(endpoints(net(1, 3)), 9)))]);
    assert_eq!(plan(&key(), &later, &world.existing, &config()), [], "a version is no content");
}

/// Whatever step a process dies after, the next one ends at the same objects.
#[test]
fn every_point_of_death_ends_at_the_same_objects() {
    let mut headless = definition();
    headless.service_type = ServiceType::Headless;
    let mut dual = definition();
    dual.ip_families = vec![IpFamily::V6, IpFamily::V4];
    let beta = || ("beta", Source::Show(shown(endpoints(net(2, 3)), 1)));
    let targets = [
        of_alpha(1),
        of_alpha(250),
        wanted(headless, [beta()]),
        wanted(dual, [beta(), ("alpha", Source::Show(shown(endpoints(net(1, 150)), 7)))]),
        Decision::Remove,
    ];
    for before in &targets {
        let mut start = World::default();
        start.settle(before);
        for after in &targets {
            let mut through = start.clone();
            let steps = through.settle(after).iter().map(Vec::len).sum::<usize>();
            for deaths in 0..steps {
                let mut world = start.clone();
                world.die_after(deaths, after);
                world.settle(after);
                assert_eq!(world.shape(), through.shape(), "death after step {deaths} of {steps}");
            }
        }
    }
}

/// Case O07: one number may have two protocols.
#[test]
fn tcp_and_udp_on_one_number_are_two_ports() {
    let with = |ports: Vec<_>| {
        let mut definition = definition();
        definition.ports = ports;
        wanted(definition, [])
    };
    let tcp = port("dns-tcp", Protocol::Tcp, 53);
    let udp = port("dns-udp", Protocol::Udp, 53);
    let mut world = World::default();
    world.settle(&with(vec![tcp.clone()]));
    world.settle(&with(vec![tcp.clone(), udp.clone()]));
    assert_eq!(world.existing.import.clone().expect("an import").spec.ports, [tcp.clone(), udp.clone()]);
    assert_eq!(world.existing.service.clone().expect("a Service").spec.ports, [tcp, udp]);

    let moved = vec![port("dns-udp", Protocol::Udp, 5353), port("dns-tcp", Protocol::Tcp, 5353)];
    world.settle(&with(moved.clone()));
    assert_eq!(world.existing.service.expect("a Service").spec.ports, moved);
}

#[test]
fn a_change_of_type_replaces_the_derived_service_only() {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    let before = world.existing.clone();
    let mut headless = definition();
    headless.service_type = ServiceType::Headless;
    let rounds = world.settle(&wanted(headless, [("alpha", Source::Show(shown(endpoints(net(1, 2)), 2)))]));
    let kinds: Vec<_> = rounds.iter().map(|round| kinds(round)).collect();
    assert_eq!(
        kinds,
        [
            vec!["replace import", "delete service"],
            vec!["update status", "create service"],
            vec!["update status"]
        ]
    );
    let (import, service) =
        (world.existing.import.expect("import"), world.existing.service.expect("Service"));
    assert_eq!(import.meta.identity.uid, before.import.expect("an import").meta.identity.uid);
    assert_ne!(service.meta.identity.uid, before.service.expect("a Service").meta.identity.uid);
    assert_eq!((import.spec.ips, import.status.ready), (vec![], Some(ImportReady::Ready)));
    assert!(service.spec.headless);
    assert_eq!(world.existing.slices, before.slices);
}

#[test]
fn a_change_of_the_primary_family_replaces_the_derived_service_and_a_second_family_does_not() {
    let families = |families: &[IpFamily]| {
        let mut definition = definition();
        definition.ip_families = families.to_vec();
        wanted(definition, [])
    };
    let mut world = World::default();
    world.settle(&families(&[IpFamily::V4]));
    let first = world.existing.service.clone().expect("a Service");
    world.settle(&families(&[IpFamily::V4, IpFamily::V6]));
    let second = world.existing.service.clone().expect("a Service");
    assert_eq!(second.meta.identity.uid, first.meta.identity.uid);
    assert_eq!(second.cluster_ips[0], first.cluster_ips[0]);
    assert_eq!(world.existing.import.as_ref().expect("an import").spec.ips, second.cluster_ips);
    world.settle(&families(&[IpFamily::V6, IpFamily::V4]));
    let third = world.existing.service.clone().expect("a Service");
    assert_ne!(third.meta.identity.uid, first.meta.identity.uid);
    assert_eq!(world.existing.import.expect("an import").spec.ips, third.cluster_ips);
}

#[test]
fn an_import_of_families_that_are_not_served_is_not_ready_and_has_no_service() {
    let mut config = config();
    config.served_families = vec![IpFamily::V6];
    let mut world = World::default();
    world.settle(&of_alpha(1));
    world.settle_key(&key(), &of_alpha(1), &config);
    let import = world.existing.import.clone().expect("an import");
    assert_eq!(import.status.ready, Some(ImportReady::FamilyNotSupported));
    assert_eq!((import.spec.ips, import.spec.ip_families), (vec![], vec![IpFamily::V4]));
    assert_eq!((world.existing.service.clone(), world.existing.slices.clone()), (None, vec![]));
    assert_eq!(kinds(&plan(&key(), &of_alpha(1), &world.existing, &config)), ["report"]);

    world.settle(&of_alpha(1));
    assert_eq!(world.existing.import.expect("an import").status.ready, Some(ImportReady::Ready));
}

#[test]
fn an_older_crd_that_drops_endpoint_slice_objects_is_not_written_for_ever() {
    let mut config = config();
    config.slices_present_kept = false;
    let mut world = World::default();
    world.settle_key(&key(), &of_alpha(1), &config);
    assert!(!world.existing.import.expect("an import").status.slices_present);
}

/// Case O23: with the last export all of ours goes.
#[test]
fn an_import_that_no_cluster_exports_goes_with_all_that_is_ours() {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    let rounds = world.settle(&Decision::Remove);
    assert_eq!(kinds(&rounds[0]), ["delete slice", "delete service", "delete import"]);
    assert_eq!(world.shape(), World::default().shape());
}

#[test]
fn a_kept_import_is_repaired_but_its_sources_stay() {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    let before = world.existing.slices.clone();
    world.existing.service = None;
    world.settle(&Decision::Keep);
    assert_eq!(world.existing.slices, before);
    let (import, service) =
        (world.existing.import.expect("import"), world.existing.service.expect("Service"));
    assert_eq!(import.spec.ips, service.cluster_ips);
    assert_eq!(import.status.ready, Some(ImportReady::Ready));
    assert_eq!(import.status.clusters, BTreeSet::from([id("alpha")]));

    let nothing = World::default();
    assert_eq!(plan(&key(), &Decision::Keep, &nothing.existing, &config()), []);
}

#[test]
fn without_a_definition_the_import_stays_and_the_sources_change() {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    let before = world.existing.import.clone().expect("an import").spec;
    let sources = BTreeMap::from([
        (id("alpha"), Source::Keep),
        (id("beta"), Source::Show(shown(endpoints(net(2, 1)), 1))),
    ]);
    world.settle(&Decision::Apply(Wanted { definition: None, sources }));
    let import = world.existing.import.clone().expect("an import");
    assert_eq!(import.spec, before);
    assert_eq!(import.status.clusters, BTreeSet::from([id("alpha"), id("beta")]));
    assert_eq!((world.addresses("alpha").len(), world.addresses("beta").len()), (2, 1));
}

#[test]
fn a_source_whose_ports_are_named_otherwise_waits_for_the_definition() {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    let before = world.existing.slices.clone();
    let mut other = shown(endpoints(net(1, 5)), 3);
    other.good_ports[0].import_name = "tcp-80".to_owned();
    let sources = BTreeMap::from([(id("alpha"), Source::Show(other))]);
    world.settle(&Decision::Apply(Wanted { definition: None, sources }));
    assert_eq!(world.existing.slices, before);
}

/// Cases O27 and O28: long names fit, and the namespace is part of every made name.
#[test]
fn names_of_63_characters_are_imported_and_namespaces_do_not_mix() {
    let long = "a".repeat(62) + "b";
    let cut = "a".repeat(61) + "-b";
    let mut names = BTreeSet::new();
    for (namespace, name) in [(&long, &long), (&long, &cut), (&cut, &long), (&cut, &cut)] {
        let key = ServiceKey::new(namespace, name).expect("a key");
        let source = Source::Show(shown(endpoints(net(1, 101)), 1));
        let mut world = World::default();
        world.settle_key(&key, &wanted(definition(), [(long.as_str(), source)]), &config());
        let service = world.existing.service.clone().expect("a Service");
        assert_eq!(service.meta.labels[names::LABEL_SERVICE_NAME], *name);
        names.insert(service.meta.identity.name);
        for slice in &world.existing.slices {
            assert_eq!(slice.meta.labels[names::LABEL_SERVICE_NAME], *name);
            assert_eq!(slice.meta.labels[names::LABEL_SOURCE_CLUSTER], long);
            names.insert(slice.meta.identity.name.clone());
        }
    }
    assert_eq!(names.len(), 4 * 3);
    assert!(names.iter().all(|name| name.len() <= 63 && !name.ends_with('-')), "{names:?}");
}
