//! A description for people: whether it is complete, then three tables.

use super::{Description, Stored, name, time};
use comfy_table::{CellAlignment, Table, presets};
use mcs_proto::pb;
use std::collections::BTreeSet;

/// The whole text.
pub(super) fn print(description: &Description) -> String {
    let Description { place, clusterset, clusters, exports, imports, complete, stored } = description;
    let view = match (stored, complete) {
        (None, true) => "The registry knows every cluster of the set.".to_owned(),
        (None, false) => {
            "NOT COMPLETE: the registry does not know every cluster of the set yet. What is not listed may still exist."
                .to_owned()
        }
        (Some(_), true) => {
            "All records were read. States are what registries wrote last: while none runs, nobody judges.".to_owned()
        }
        (Some(stored), false) => format!("NOT COMPLETE:\n- {}", stored.doubts.join("\n- ")),
    };
    let sections = [
        section("Clusters", &CLUSTERS, clusters.iter().map(cluster).collect()),
        states(clusters),
        section("Exports", &EXPORTS, exports.iter().map(export).collect()),
        section("Imports", &IMPORTS, imports.iter().map(import).collect()),
        held_imports(clusters),
        refused_exports(clusters),
        stored.as_ref().map_or_else(String::new, Stored::print),
    ];
    let from = if stored.is_some() { "read from" } else { "asked at" };
    format!("Clusterset {clusterset}, {from} {place}\n{view}\n{}", sections.concat())
}

/// A column: its title, and whether it holds numbers.
pub(crate) type Column = (&'static str, bool);

fn section<const N: usize>(title: &str, columns: &[Column; N], rows: Vec<[String; N]>) -> String {
    match rows.len() {
        0 => format!("\n{title}: none\n"),
        count => listed(title, count, columns, rows),
    }
}

/// Rows under titles, with their number before them.
pub(super) fn listed<const N: usize>(
    title: &str,
    count: usize,
    columns: &[Column; N],
    rows: Vec<[String; N]>,
) -> String {
    format!("\n{title}: {count}\n{}\n", table(columns, rows))
}

/// Rows under titles, in columns, without a line end.
pub(crate) fn table<const N: usize>(columns: &[Column; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|(title, _)| *title));
    for (column, (_, number)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if *number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table.trim_fmt()
}

const CLUSTERS: [Column; 7] = [
    ("NAME", false),
    ("STATE", false),
    ("REGION", false),
    ("RENEWED", false),
    ("EXPORTS", true),
    ("ENDPOINTS", true),
    ("CONTROLLER", false),
];

fn cluster(cluster: &pb::Cluster) -> [String; 7] {
    let lease = cluster.lease.unwrap_or_default();
    let renewed = lease.renewed_at.map_or_else(|| "-".to_owned(), |at| time(at.seconds));
    [
        cluster.cluster.clone(),
        state(lease.state).0,
        or_dash(&cluster.region),
        renewed,
        cluster.exports.to_string(),
        cluster.endpoints.to_string(),
        or_dash(&cluster.build),
    ]
}

/// A lease's state, and what it means when that is not plain.
fn state(state: i32) -> (String, Option<&'static str>) {
    let (word, meaning) = match pb::LeaseState::try_from(state) {
        Ok(pb::LeaseState::Active) => ("Active", None),
        Ok(pb::LeaseState::Expired) => (
            "Expired",
            Some("not renewed in time; its endpoints are not imported, its exports stay in the merge"),
        ),
        Ok(pb::LeaseState::Syncing) => {
            ("Syncing", Some("the registry has started and does not know all exports of the cluster yet"))
        }
        Ok(pb::LeaseState::Held) => (
            "Held",
            Some(
                "not renewed in time, but too many clusters are silent at once to judge; its endpoints stay",
            ),
        ),
        Ok(pb::LeaseState::Unspecified) | Err(_) => return (format!("Unknown({state})"), None),
    };
    (word.to_owned(), meaning)
}

/// What the states above mean, each once.
fn states(clusters: &[pb::Cluster]) -> String {
    let used: BTreeSet<i32> =
        clusters.iter().map(|cluster| cluster.lease.unwrap_or_default().state).collect();
    used.into_iter()
        .filter_map(|used| {
            let (word, meaning) = state(used);
            Some(format!("{word}: {}.\n", meaning?))
        })
        .collect()
}

const EXPORTS: [Column; 5] =
    [("SERVICE", false), ("CLUSTER", false), ("TYPE", false), ("PORTS", false), ("ENDPOINTS", true)];

fn export(export: &pb::Export) -> [String; 5] {
    let spec = export.spec.clone().unwrap_or_default();
    [
        name(export.key.as_ref()),
        export.cluster.clone(),
        service_type(spec.r#type),
        ports(&spec.ports),
        export.endpoint_count.to_string(),
    ]
}

const IMPORTS: [Column; 6] = [
    ("SERVICE", false),
    ("TYPE", false),
    ("PORTS", false),
    ("CLUSTERS", false),
    ("ENDPOINTS", true),
    ("CONFLICTS", false),
];

fn import(import: &pb::Import) -> [String; 6] {
    let definition = import.definition.clone().unwrap_or_default();
    let endpoints: u64 = import.parts.iter().map(|part| u64::from(part.endpoint_count)).sum();
    let clusters: Vec<_> =
        import.participants.iter().map(|participant| participant.cluster.as_str()).collect();
    let conflicts: Vec<_> = import.conflicts.iter().map(conflict).collect();
    [
        name(import.key.as_ref()),
        service_type(definition.r#type),
        ports(&definition.ports),
        or_dash(&clusters.join(",")),
        endpoints.to_string(),
        or_dash(&conflicts.join("\n")),
    ]
}

const HELD_IMPORTS: [Column; 2] = [("CLUSTER", false), ("SERVICE", false)];

/// What the clusters cannot import yet; nothing where there is no such import.
fn held_imports(clusters: &[pb::Cluster]) -> String {
    let (mut rows, mut count) = (Vec::new(), 0);
    for cluster in clusters {
        let Some(pb::HeldImports { total, first }) = &cluster.held_imports else { continue };
        rows.extend(first.iter().map(|key| [cluster.cluster.clone(), name(Some(key))]));
        let more = more(*total, first.len());
        if more > 0 {
            rows.push([cluster.cluster.clone(), format!("and {more} more")]);
        }
        count += first.len() + more;
    }
    if rows.is_empty() {
        return String::new();
    }
    let table = listed("Held imports", count, &HELD_IMPORTS, rows);
    format!("{table}They wait until their namespace exists in that cluster.\n")
}

const REFUSED_EXPORTS: [Column; 4] =
    [("CLUSTER", false), ("SERVICE", false), ("FIELD", false), ("PROBLEM", false)];

/// What the clusters cannot export; nothing where there is no such export.
fn refused_exports(clusters: &[pb::Cluster]) -> String {
    let (mut rows, mut count) = (Vec::new(), 0);
    for cluster in clusters {
        let Some(pb::RefusedExports { total, first }) = &cluster.refused_exports else { continue };
        rows.extend(first.iter().map(|refused| {
            let pb::RefusedExport { key, field, problem } = refused;
            [cluster.cluster.clone(), name(key.as_ref()), field.clone(), problem.clone()]
        }));
        let more = more(*total, first.len());
        if more > 0 {
            rows.push([cluster.cluster.clone(), format!("and {more} more"), String::new(), String::new()]);
        }
        count += first.len() + more;
    }
    if rows.is_empty() {
        return String::new();
    }
    let table = listed("Refused exports", count, &REFUSED_EXPORTS, rows);
    format!("{table}They are not exported as they are now, until the field is mended.\n")
}

/// How many of `total` are not named.
fn more(total: u32, named: usize) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(named)
}

fn service_type(value: i32) -> String {
    match pb::ServiceType::try_from(value) {
        // The protocol reads what is not set as ClusterSetIP.
        Ok(pb::ServiceType::ClusterSetIp | pb::ServiceType::Unspecified) => "ClusterSetIP".to_owned(),
        Ok(pb::ServiceType::Headless) => "Headless".to_owned(),
        Err(_) => format!("Unknown({value})"),
    }
}

/// `http:80/TCP,9090/UDP`, in the Service's order.
fn ports(ports: &[pb::Port]) -> String {
    let port = |port: &pb::Port| {
        let protocol = match pb::Protocol::try_from(port.protocol) {
            Ok(pb::Protocol::Tcp | pb::Protocol::Unspecified) => "TCP",
            Ok(pb::Protocol::Udp) => "UDP",
            Ok(pb::Protocol::Sctp) => "SCTP",
            Err(_) => "?",
        };
        let name = if port.name.is_empty() { String::new() } else { format!("{}:", port.name) };
        format!("{name}{}/{protocol}", port.port)
    };
    or_dash(&ports.iter().map(port).collect::<Vec<_>>().join(","))
}

/// `ports: east decides, 1 of 2 clusters differ`.
pub(crate) fn conflict(conflict: &pb::Conflict) -> String {
    let field = match pb::ConflictField::try_from(conflict.field) {
        Ok(pb::ConflictField::Ports) => "ports",
        Ok(pb::ConflictField::Type) => "type",
        Ok(pb::ConflictField::SessionAffinity) => "sessionAffinity",
        Ok(pb::ConflictField::SessionAffinityConfig) => "sessionAffinityConfig",
        Ok(pb::ConflictField::InternalTrafficPolicy) => "internalTrafficPolicy",
        Ok(pb::ConflictField::TrafficDistribution) => "trafficDistribution",
        Ok(pb::ConflictField::Labels) => "labels",
        Ok(pb::ConflictField::Annotations) => "annotations",
        Ok(pb::ConflictField::IpFamily) => "ipFamilies",
        Ok(pb::ConflictField::Unspecified) | Err(_) => "unknown field",
    };
    let pb::Conflict { winner, differing, clusters, .. } = conflict;
    format!("{field}: {winner} decides, {differing} of {clusters} clusters differ")
}

/// `text`, or a dash where it is empty.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
