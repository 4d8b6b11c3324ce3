//! The example of `docs/registry.md`: its table is merged, and gives its text.

use crate::build::{cluster, export, merge_owned};
use mcs_core::conditions::{ExportFacts, Progress, Validity, conditions};
use mcs_core::ids::ClusterId;
use mcs_core::model::{ExportSpec, Header, IpFamily, Port, Protocol, ServiceType, SessionAffinity};
use mcs_core::time::WallTime;
use std::collections::BTreeMap;

const GUIDE: &str = include_str!("../../../docs/registry.md");

#[test]
fn the_example_of_the_guide_merges_into_what_it_says() {
    let (_, example) = GUIDE.split_once("| cluster | created | type |").expect("the table of the example");
    let (table, rest) = example.split_once("\n\n").expect("the end of the table");
    let exports: BTreeMap<ClusterId, ExportSpec> = table.lines().skip(2).map(read).collect();
    assert_eq!(exports.len(), 3);
    let (_, text) = rest.split_once("```text\n").expect("the result");
    let (text, _) = text.split_once("```").expect("its end");
    assert_eq!(told(&merge_owned(&exports)), text);
}

/// A row of the table.
fn read(row: &str) -> (ClusterId, ExportSpec) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [name, created, service_type, ports, affinity, families] = cells[..] else { panic!("{row}") };
    let port = |text: &str| {
        let parts: Vec<&str> = text.split(' ').collect();
        let [name, protocol, number] = parts[..] else { panic!("{text}") };
        let protocol = Protocol::parse(protocol).expect("protocol");
        Port { name: name.to_owned(), protocol, port: number.parse().expect("port"), app_protocol: None }
    };
    let service_type = [ServiceType::ClusterSetIp, ServiceType::Headless]
        .into_iter()
        .find(|known| known.as_str() == service_type)
        .expect("type");
    let session_affinity = [SessionAffinity::None, SessionAffinity::ClientIp]
        .into_iter()
        .find(|known| known.as_str() == affinity)
        .expect("affinity");
    // What counts is which is older.
    let order: i64 = created.replace('-', "").parse().expect("date");
    let spec = ExportSpec {
        created_at: WallTime::from_unix_secs(order),
        service_type,
        session_affinity,
        ip_families: families.split(", ").map(|family| IpFamily::parse(family).expect("family")).collect(),
        ..export(0, ports.split(", ").map(port))
    };
    (cluster(name), spec)
}

/// An import as the guide writes it.
fn told(header: &Header) -> String {
    let Header { definition, participants, conflicts } = header;
    let port = |port: &Port| format!("{} {} {}", port.name, port.protocol.as_str(), port.port);
    let list = |texts: Vec<String>| texts.join(", ");
    let mut lines = vec![
        format!(
            "type {}, session affinity {}, families {}",
            definition.service_type.as_str(),
            definition.session_affinity.as_str(),
            list(definition.ip_families.iter().map(|family| family.as_str().to_owned()).collect())
        ),
        format!("ports {}", list(definition.ports.iter().map(port).collect())),
    ];
    lines.extend(participants.iter().map(|participant| {
        let served = participant.good_ports.iter().map(|port| port.import_name.clone()).collect();
        format!("{} serves {}", participant.cluster, list(served))
    }));
    let facts = ExportFacts {
        validity: Validity::Valid,
        progress: Progress::Ready,
        conflicts: Some(conflicts.clone()),
    };
    let conditions = conditions(&facts, &[], 1, WallTime::from_unix_secs(0));
    let conflict = conditions.iter().find(|condition| condition.kind == "Conflict").expect("conflicts");
    let each = conflict.reason.split(',').zip(conflict_messages(&conflict.message));
    lines.extend(each.map(|(reason, message)| format!("{reason}: {message}")));
    lines.join("\n") + "\n"
}

/// One message a conflict; one of them has a semicolon within.
fn conflict_messages(message: &str) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for part in message.split("; ") {
        match messages.last_mut() {
            Some(last) if !part.contains(" clusters differ") => *last = format!("{last}; {part}"),
            _ => messages.push(part.to_owned()),
        }
    }
    messages
}
