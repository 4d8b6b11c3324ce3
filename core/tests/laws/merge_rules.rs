//! The merge rules of docs/registry.md, sentence by sentence.

use crate::build::{cluster, export, merged, tcp, udp, uid};
use mcs_core::merge::merge;
use mcs_core::model::{
    Conflict, ConflictField, ExportSpec, GoodPort, Header, ImportDefinition, IpFamily, Participant, Port,
    ServiceType, SessionAffinity,
};
use mcs_core::version::Version;
use std::collections::BTreeMap;

#[test]
fn no_export_gives_no_import() {
    assert_eq!(merge(&BTreeMap::new()), None);
}

#[test]
fn one_export_is_imported_as_it_is() {
    let spec = ExportSpec {
        service_type: ServiceType::Headless,
        session_affinity: SessionAffinity::ClientIp,
        session_affinity_timeout: Some(60),
        labels: BTreeMap::from([("team".into(), "cart".into())]),
        ..export(5, [tcp("http", 80)])
    };
    let expected = Header {
        definition: ImportDefinition {
            service_type: ServiceType::Headless,
            ports: vec![tcp("http", 80)],
            session_affinity: SessionAffinity::ClientIp,
            session_affinity_timeout: Some(60),
            ip_families: vec![IpFamily::V4],
            labels: BTreeMap::from([("team".into(), "cart".into())]),
            ..ImportDefinition::default()
        },
        participants: vec![Participant {
            cluster: cluster("east"),
            uid: uid("east"),
            version: Version::new(1, 1),
            good_ports: vec![good("http", "http")],
        }],
        conflicts: vec![],
    };
    assert_eq!(merged([("east", &spec)]), expected);
}

#[test]
fn ports_of_two_exports_are_joined_and_each_cluster_serves_its_own() {
    let header = merged([("alpha", &export(1, [tcp("a", 80)])), ("beta", &export(2, [tcp("b", 90)]))]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("a", 80), tcp("b", 90)],
            vec![("alpha", vec![good("a", "a")]), ("beta", vec![good("b", "b")])],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

#[test]
fn a_port_matches_by_name_first_and_the_oldest_definition_stands() {
    let header = merged([
        ("alpha", &export(1, [tcp("a", 80), tcp("b", 81)])),
        ("beta", &export(2, [tcp("a", 81), tcp("c", 82)])),
    ]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("a", 80), tcp("b", 81), tcp("c", 82)],
            vec![("alpha", vec![good("a", "a"), good("b", "b")]), ("beta", vec![good("c", "c")])],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

#[test]
fn a_named_port_that_matches_by_number_is_not_added_under_another_name() {
    let header = merged([("alpha", &export(1, [tcp("a", 80)])), ("beta", &export(2, [tcp("b", 80)]))]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("a", 80)],
            vec![("alpha", vec![good("a", "a")]), ("beta", vec![])],
            vec![(ConflictField::Ports, 1)]
        )
    );
}

#[test]
fn another_application_protocol_makes_another_port() {
    let h2c = Port { app_protocol: Some("kubernetes.io/h2c".into()), ..tcp("a", 80) };
    let header = merged([("alpha", &export(1, [h2c.clone()])), ("beta", &export(2, [tcp("a", 80)]))]);
    assert_eq!(
        told(&header),
        (vec![h2c], vec![("alpha", vec![good("a", "a")]), ("beta", vec![])], vec![(ConflictField::Ports, 1)])
    );
}

#[test]
fn a_port_list_that_contains_the_other_is_a_conflict_and_another_order_is_none() {
    let (a, b) = (tcp("a", 80), tcp("b", 81));
    let fields = |ports: &[Port]| {
        let header = merged([
            ("alpha", &export(1, [a.clone(), b.clone()])),
            ("beta", &export(2, ports.iter().cloned())),
        ]);
        header.conflicts.iter().map(|conflict| conflict.field).collect::<Vec<_>>()
    };
    assert_eq!(fields(std::slice::from_ref(&b)), [ConflictField::Ports]);
    assert_eq!(fields(&[b.clone(), a.clone()]), []);
}

/// O07.
#[test]
fn one_number_over_tcp_and_udp_is_two_ports() {
    let ports = [tcp("dns-tcp", 53), udp("dns-udp", 53)];
    let header = merged([("alpha", &export(1, [tcp("dns-tcp", 53)])), ("beta", &export(2, ports.clone()))]);
    assert_eq!(
        told(&header),
        (
            ports.to_vec(),
            vec![
                ("alpha", vec![good("dns-tcp", "dns-tcp")]),
                ("beta", vec![good("dns-tcp", "dns-tcp"), good("dns-udp", "dns-udp")]),
            ],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

/// O07: two unnamed ports of one number stay apart by their protocol.
#[test]
fn unnamed_ports_of_two_protocols_are_named_after_protocol_and_number() {
    let header = merged([("alpha", &export(1, [tcp("", 53)])), ("beta", &export(2, [udp("", 53)]))]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("tcp-53", 53), udp("udp-53", 53)],
            vec![("alpha", vec![good("tcp-53", "")]), ("beta", vec![good("udp-53", "")])],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

/// O10: the target port is in the endpoints alone, so clusters that differ in it do not differ in the merge.
#[test]
fn the_import_has_the_port_of_the_service_whatever_the_endpoints_listen_on() {
    let header = merged([("alpha", &export(1, [tcp("http", 80)])), ("beta", &export(2, [tcp("http", 80)]))]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("http", 80)],
            vec![("alpha", vec![good("http", "http")]), ("beta", vec![good("http", "http")])],
            vec![],
        )
    );
}

/// O11.
#[test]
fn an_unnamed_port_of_the_oldest_stays_unnamed_until_that_export_is_withdrawn() {
    let (alpha, beta) = (export(1, [tcp("", 80)]), export(2, [tcp("http", 80)]));
    assert_eq!(
        told(&merged([("alpha", &alpha), ("beta", &beta)])),
        (
            vec![tcp("", 80)],
            vec![("alpha", vec![good("", "")]), ("beta", vec![])],
            vec![(ConflictField::Ports, 1)]
        )
    );
    assert_eq!(
        told(&merged([("beta", &beta)])),
        (vec![tcp("http", 80)], vec![("beta", vec![good("http", "http")])], vec![])
    );
}

/// O11 the other way round: the name that the oldest gives is not the unnamed port's.
#[test]
fn an_unnamed_port_is_not_identical_to_a_named_one() {
    let header = merged([
        ("alpha", &export(1, [tcp("http", 80), tcp("adm", 81)])),
        ("beta", &export(2, [tcp("", 80)])),
    ]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("http", 80), tcp("adm", 81)],
            vec![("alpha", vec![good("http", "http"), good("adm", "adm")]), ("beta", vec![])],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

/// O11: what the import renames is still served by those that did not name it, and by one that has the same name.
#[test]
fn an_unnamed_port_is_renamed_beside_others_and_is_still_served() {
    let header = merged([
        ("alpha", &export(1, [tcp("", 80)])),
        ("beta", &export(2, [tcp("tcp-80", 80), tcp("adm", 81)])),
        ("gamma", &export(3, [tcp("", 80)])),
    ]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("tcp-80", 80), tcp("adm", 81)],
            vec![
                ("alpha", vec![good("tcp-80", "")]),
                ("beta", vec![good("tcp-80", "tcp-80"), good("adm", "adm")]),
                ("gamma", vec![good("tcp-80", "")]),
            ],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

#[test]
fn a_named_port_keeps_the_name_that_an_unnamed_one_would_get() {
    let header = merged([("alpha", &export(1, [tcp("", 80)])), ("beta", &export(2, [tcp("tcp-80", 81)]))]);
    assert_eq!(
        told(&header),
        (
            vec![tcp("tcp-80", 81)],
            vec![("alpha", vec![]), ("beta", vec![good("tcp-80", "tcp-80")])],
            vec![(ConflictField::Ports, 1)],
        )
    );
}

/// O29.
#[test]
fn a_conflict_names_field_winner_and_numbers_and_every_participant_hears_of_it() {
    let none = export(1, [tcp("http", 80)]);
    let client_ip =
        ExportSpec { session_affinity: SessionAffinity::ClientIp, ..export(2, [tcp("http", 80)]) };
    let later = export(3, [tcp("http", 80)]);
    let header = merged([("alpha", &none), ("beta", &client_ip), ("gamma", &later)]);
    let participants: Vec<&str> = header.participants.iter().map(|of| of.cluster.as_str()).collect();
    assert_eq!(
        (header.definition.session_affinity, participants, header.conflicts),
        (
            SessionAffinity::None,
            vec!["alpha", "beta", "gamma"],
            vec![Conflict {
                field: ConflictField::SessionAffinity,
                winner: cluster("alpha"),
                differing: 1,
                clusters: 3,
            }],
        )
    );
}

#[test]
fn client_ip_without_a_timeout_is_client_ip_with_the_default() {
    let with = |age, session_affinity_timeout| ExportSpec {
        session_affinity: SessionAffinity::ClientIp,
        session_affinity_timeout,
        ..export(age, [tcp("http", 80)])
    };
    let fields = |one: &ExportSpec, other: &ExportSpec| {
        let conflicts = merged([("alpha", one), ("beta", other)]).conflicts;
        conflicts.into_iter().map(|conflict| conflict.field).collect::<Vec<_>>()
    };
    assert_eq!(fields(&with(1, None), &with(2, Some(10_800))), []);
    assert_eq!(fields(&with(1, None), &with(2, Some(10_801))), [ConflictField::SessionAffinityConfig]);
}

/// O30: each Service is merged by itself, so others in the same cluster or namespace cannot enter its merge.
#[test]
fn equal_exports_of_one_service_have_no_conflict() {
    let cart = export(1, [tcp("", 80)]);
    let pay = export(2, [tcp("", 443)]);
    let other = export(2, [tcp("", 9999)]);
    let conflicts = [
        merged([("alpha", &cart), ("beta", &cart)]).conflicts,
        merged([("alpha", &pay)]).conflicts,
        merged([("beta", &other)]).conflicts,
    ];
    assert_eq!(conflicts, [vec![], vec![], vec![]]);
}

/// O17.
#[test]
fn families_are_intersected_and_an_empty_intersection_leaves_the_oldest() {
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    for (alpha, beta, import, conflicts) in [
        (vec![v4, v6], vec![v6], vec![v6], vec![(ConflictField::IpFamily, 1)]),
        (vec![v4, v6], vec![v6, v4], vec![v4, v6], vec![(ConflictField::IpFamily, 1)]),
        (vec![v4], vec![v6], vec![v4], vec![(ConflictField::IpFamily, 1)]),
        (vec![v6, v4], vec![v6, v4], vec![v6, v4], vec![]),
    ] {
        let of = |age, ip_families| ExportSpec { ip_families, ..export(age, [tcp("http", 80)]) };
        let header = merged([("alpha", &of(1, alpha)), ("beta", &of(2, beta))]);
        assert_eq!((&header.definition.ip_families, told(&header).2), (&import, conflicts));
    }
}

#[test]
fn the_creation_time_decides_before_the_cluster_id_and_the_id_decides_between_equal_times() {
    let of = |age, service_type| ExportSpec { service_type, ..export(age, [tcp("http", 80)]) };
    let winner = |east_age, west_age| {
        let (east, west) = (of(east_age, ServiceType::ClusterSetIp), of(west_age, ServiceType::Headless));
        let header = merged([("west", &west), ("east", &east)]);
        (header.definition.service_type, header.conflicts[0].winner.to_string())
    };
    assert_eq!(winner(2, 1), (ServiceType::Headless, "west".to_owned()));
    assert_eq!(winner(1, 2), (ServiceType::ClusterSetIp, "east".to_owned()));
    assert_eq!(winner(1, 1), (ServiceType::ClusterSetIp, "east".to_owned()));
}

fn good(import_name: &str, export_name: &str) -> GoodPort {
    GoodPort { import_name: import_name.to_owned(), export_name: export_name.to_owned() }
}

/// Ports, good ports by cluster, and conflicts with the number that differ.
type Told<'a> = (Vec<Port>, Vec<(&'a str, Vec<GoodPort>)>, Vec<(ConflictField, u32)>);

fn told(header: &Header) -> Told<'_> {
    (
        header.definition.ports.clone(),
        header.participants.iter().map(|of| (of.cluster.as_str(), of.good_ports.clone())).collect(),
        header.conflicts.iter().map(|conflict| (conflict.field, conflict.differing)).collect(),
    )
}
