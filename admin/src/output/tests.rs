use super::*;
use mcs_proto::well_known::{Duration, Timestamp};

#[test]
fn a_table_shows_states_ports_and_conflicts() {
    let text = described().print(Format::Table).unwrap();
    assert_eq!(text, include_str!("../../tests/golden/every-word.table"));
}

#[test]
fn json_is_one_object_of_the_registrys_messages() {
    let json: serde_json::Value = serde_json::from_str(&described().print(Format::Json).unwrap()).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["clusters", "complete", "exports", "imports"]);
    let clusters: Vec<pb::Cluster> = serde_json::from_value(json["clusters"].clone()).unwrap();
    assert_eq!(clusters, described().clusters);
}

/// Values that YAML takes for something else than text when they are not quoted.
#[test]
fn yaml_says_the_same_as_json_whatever_the_values_look_like() {
    let mut description = described();
    let spec = description.exports[0].spec.get_or_insert_default();
    for value in
        ["yes", "null", "~", "1.10", "0x1f", "1e3", "2026-11-29", "- a", "a: b", "#", "two\nlines", " x ", ""]
    {
        spec.annotations.insert(format!("of {value}"), value.to_owned());
    }
    let json = description.print(Format::Json).unwrap();
    let yaml = description.print(Format::Yaml).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, serde_json::from_str::<serde_json::Value>(&json).unwrap());
}

#[test]
fn a_value_of_a_newer_registry_is_shown_in_the_table_and_refused_by_json() {
    let mut description = described();
    description.exports.clear();
    description.imports.clear();
    description.clusters.truncate(1);
    description.clusters[0].lease.get_or_insert_default().state = 99;
    assert!(description.print(Format::Table).unwrap().contains("Unknown(99)"));
    assert_eq!(
        description.print(Format::Json).map_err(|error| error.to_string()),
        Err("the registry's answer cannot be written as JSON; -o table may still show it".to_owned())
    );
}

#[test]
fn the_order_does_not_depend_on_the_registrys() {
    let mut turned = described();
    turned.clusters.reverse();
    turned.exports.reverse();
    turned.imports.reverse();
    assert_eq!(sorted(turned), described());
}

fn sorted(description: Description) -> Description {
    let Description { place, clusterset, clusters, exports, imports, complete, .. } = description;
    Description::new(
        place,
        clusterset,
        pb::ListClustersResponse { clusters, complete, ..Default::default() },
        pb::ListExportsResponse { exports, complete, ..Default::default() },
        pb::ListImportsResponse { imports, complete, ..Default::default() },
    )
}

/// What a registry never shows together, so that every word of the table is seen.
fn described() -> Description {
    sorted(Description {
        place: "http://registry.example:9090".to_owned(),
        clusterset: "prod".parse().unwrap(),
        clusters: vec![
            mk_cluster("east", pb::LeaseState::Active),
            mk_cluster("held", pb::LeaseState::Held),
            mk_cluster("syncing", pb::LeaseState::Syncing),
            mk_cluster("west", pb::LeaseState::Expired),
            pb::Cluster { cluster: "zero".to_owned(), ..Default::default() },
        ],
        exports: vec![
            mk_export("shop", "cart", "east", vec![mk_port("http", 80, pb::Protocol::Tcp)]),
            mk_export("shop", "cart", "west", vec![]),
            mk_export(
                "shop",
                "dns",
                "east",
                vec![mk_port("", 53, pb::Protocol::Udp), mk_port("sig", 5060, pb::Protocol::Sctp)],
            ),
        ],
        imports: vec![pb::Import {
            key: mk_key("shop", "cart"),
            definition: Some(pb::ImportDefinition {
                r#type: pb::ServiceType::Headless.into(),
                ports: vec![mk_port("http", 80, pb::Protocol::Tcp)],
                ..Default::default()
            }),
            participants: ["east", "west"]
                .map(|cluster| pb::Participant { cluster: cluster.to_owned(), ..Default::default() })
                .into(),
            conflicts: [pb::ConflictField::Ports, pb::ConflictField::SessionAffinityConfig]
                .map(|field| pb::Conflict {
                    field: field.into(),
                    winner: "east".to_owned(),
                    differing: 1,
                    clusters: 2,
                })
                .into(),
            parts: vec![pb::ImportPart {
                cluster: "east".to_owned(),
                endpoint_count: 7,
                ..Default::default()
            }],
        }],
        complete: false,
        stored: None,
    })
}

fn mk_cluster(cluster: &str, state: pb::LeaseState) -> pb::Cluster {
    pb::Cluster {
        clusterset: "prod".to_owned(),
        cluster: cluster.to_owned(),
        region: format!("{cluster}-1"),
        build: "0.1.0".to_owned(),
        lease: Some(pb::Lease {
            state: state.into(),
            renewed_at: Some(Timestamp { seconds: 1_795_978_809, nanos: 0 }),
            duration: Some(Duration { seconds: 30, nanos: 0 }),
        }),
        exports: 2,
        endpoints: 7,
        ..Default::default()
    }
}

fn mk_export(namespace: &str, name: &str, cluster: &str, ports: Vec<pb::Port>) -> pb::Export {
    pb::Export {
        cluster: cluster.to_owned(),
        key: mk_key(namespace, name),
        spec: Some(pb::ExportSpec { ports, ..Default::default() }),
        endpoint_count: 7,
        ..Default::default()
    }
}

fn mk_key(namespace: &str, name: &str) -> Option<pb::ServiceKey> {
    Some(pb::ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn mk_port(name: &str, port: u32, protocol: pb::Protocol) -> pb::Port {
    pb::Port { name: name.to_owned(), port, protocol: protocol.into(), ..Default::default() }
}
