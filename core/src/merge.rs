//! The exports of one Service in several clusters → the one import that all clusters make of it (KEP-1645: conflict
//! resolution; docs/registry.md, How exports merge).
//!
//! Guarantees: the result depends on the exports alone, not on the order in which they came or on endpoints; no two
//! ports of an import share a name or a (protocol, number); any difference is a conflict, told to every participant;
//! an equal export more changes participants and counts only.
//!
//! Decided here, where the rules leave room:
//! - The order of ports is no difference, since it has no meaning in Kubernetes. The order of address families is one:
//!   the first decides which address a Service has.
//! - An unnamed port *is* what the import calls it. So in an import with several ports, where it is called
//!   `tcp-80`, an unnamed port and one that is named `tcp-80` are identical, whichever export is the older. In an
//!   import with one port it has no name, and is another port than one that is named.
//! - A port that matches an older export's is not added, also where that one is left out for a name of a third: what
//!   one cluster calls otherwise is a conflict, and no reason to bring it under its name.
//! - `ClientIP` without a timeout is `ClientIP` with Kubernetes' default.
//!
//! Rejected: carrying a port whose name differs under the import's name. The cluster's endpoints would then be reached
//! through a definition that is not theirs, and a rename in one cluster would go unnoticed in all others.

use crate::ids::{ClusterId, ClusterUid};
use crate::limits::DEFAULT_SESSION_AFFINITY_TIMEOUT;
use crate::model::{
    Conflict, ConflictField, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GoodPort, Group, GroupKey,
    Header, ImportDefinition, IpFamily, Participant, Port, SessionAffinity,
};
use crate::version::Version;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// One cluster's export of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported<'a> {
    /// The cluster's UID.
    pub uid: &'a ClusterUid,
    /// The version of the definition.
    pub version: Version,
    /// The definition.
    pub spec: &'a ExportSpec,
}

/// Merges all exports of one Service; none when there is no export.
pub fn merge(exports: &BTreeMap<ClusterId, Exported<'_>>) -> Option<Header> {
    let mut by_age: Vec<(&ClusterId, &ExportSpec)> =
        exports.iter().map(|(cluster, export)| (cluster, export.spec)).collect();
    by_age.sort_by_key(|(cluster, spec)| (spec.created_at, *cluster));
    let (winner, oldest) = by_age.first()?;

    let ports = merge_ports(&by_age);
    let participants = exports
        .iter()
        .map(|(cluster, export)| Participant {
            cluster: cluster.clone(),
            uid: export.uid.clone(),
            version: export.version,
            good_ports: good_ports(&ports, &export.spec.ports),
        })
        .collect();
    let definition = ImportDefinition {
        service_type: oldest.service_type,
        ports,
        session_affinity: oldest.session_affinity,
        session_affinity_timeout: oldest.session_affinity_timeout,
        internal_traffic_policy: oldest.internal_traffic_policy,
        traffic_distribution: oldest.traffic_distribution.clone(),
        ip_families: common_families(&by_age, &oldest.ip_families),
        labels: oldest.labels.clone(),
        annotations: oldest.annotations.clone(),
    };
    let conflicts = ConflictField::ALL
        .into_iter()
        .filter_map(|field| {
            let differing = by_age.iter().filter(|(_, spec)| differs(field, oldest, spec)).count();
            (differing > 0).then(|| Conflict {
                field,
                winner: (*winner).clone(),
                differing: count(differing),
                clusters: count(by_age.len()),
            })
        })
        .collect();
    Some(Header { definition, participants, conflicts })
}

/// The union of all ports, the oldest export's first. Of ports that match, the first stands; whether they match by name
/// or by number makes no difference, since either leaves the later one out.
fn merge_ports(by_age: &[(&ClusterId, &ExportSpec)]) -> Vec<Port> {
    let mut union: Vec<&Port> = Vec::new();
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for port in by_age.iter().flat_map(|(_, spec)| &spec.ports) {
        let (name, number) = (port.name.as_str(), (port.protocol, port.port));
        if names.contains(name) || numbers.contains(&number) {
            continue;
        }
        union.push(port);
        numbers.insert(number);
        if !name.is_empty() {
            names.insert(name);
        }
    }
    let several = union.len() > 1;
    let in_import = |port: &Port| {
        let name = name_in_import(port, several);
        // A port that bears the name keeps it, and the unnamed one is left out.
        let taken = port.name.is_empty() && names.contains(name.as_str());
        (!taken).then(|| Port { name, ..port.clone() })
    };
    union.into_iter().filter_map(in_import).collect()
}

/// What an import calls `port`: Kubernetes demands names where there are several ports.
fn name_in_import(port: &Port, several: bool) -> String {
    if port.name.is_empty() && several {
        format!("{}-{}", port.protocol.as_str().to_ascii_lowercase(), port.port)
    } else {
        port.name.clone()
    }
}

/// The endpoints of one cluster as they are imported: of the families that are `served`, with those ports that the
/// cluster defines as the import does, by the names that they have in the import; `any_port` says whether it has ports.
pub fn imported<'a>(
    endpoints: &'a EndpointSet,
    good_ports: &[GoodPort],
    any_port: bool,
    served: impl Fn(IpFamily) -> bool,
) -> Cow<'a, EndpointSet> {
    let names: BTreeMap<&str, &str> =
        good_ports.iter().map(|good| (good.export_name.as_str(), good.import_name.as_str())).collect();
    let name_of = |port: &EndpointPort| names.get(port.name.as_str()).copied();
    // A headless Service may have no port at all; any other endpoint without a good one is of no use.
    let is_of_use = |group: &GroupKey| {
        served(group.family) && (!any_port || group.ports.iter().any(|port| name_of(port).is_some()))
    };
    let is_same = |group: &GroupKey| {
        is_of_use(group) && group.ports.iter().all(|port| name_of(port) == Some(port.name.as_str()))
    };
    if endpoints.groups().all(|group| is_same(&group.key)) {
        return Cow::Borrowed(endpoints);
    }
    let mut imported = EndpointMap::default();
    for Group { key, members, .. } in endpoints.groups().filter(|group| is_of_use(&group.key)) {
        let ports = key.ports.iter().filter_map(|port| {
            let name = name_of(port)?.to_owned();
            Some(EndpointPort { name, ..port.clone() })
        });
        imported.insert_all(GroupKey::new(key.family, ports), members);
    }
    Cow::Owned(imported.pack())
}

/// The ports of the import that an export with the ports `own` defines identically.
fn good_ports(import: &[Port], own: &[Port]) -> Vec<GoodPort> {
    let several = import.len() > 1;
    let own: BTreeMap<String, &Port> = own.iter().map(|port| (name_in_import(port, several), port)).collect();
    let find = |port: &Port| {
        let own = own.get(&port.name)?;
        let identical =
            own.protocol == port.protocol && own.port == port.port && own.app_protocol == port.app_protocol;
        identical.then(|| GoodPort { import_name: port.name.clone(), export_name: own.name.clone() })
    };
    import.iter().filter_map(find).collect()
}

/// The families that all exports have, in the oldest's order; the oldest's when there is none.
fn common_families(by_age: &[(&ClusterId, &ExportSpec)], oldest: &[IpFamily]) -> Vec<IpFamily> {
    let everywhere = |family: &IpFamily| by_age.iter().all(|(_, spec)| spec.ip_families.contains(family));
    let common: Vec<IpFamily> = oldest.iter().copied().filter(everywhere).collect();
    if common.is_empty() { oldest.to_vec() } else { common }
}

fn differs(field: ConflictField, oldest: &ExportSpec, other: &ExportSpec) -> bool {
    match field {
        ConflictField::Ports => sorted(&oldest.ports) != sorted(&other.ports),
        ConflictField::Type => oldest.service_type != other.service_type,
        ConflictField::SessionAffinity => oldest.session_affinity != other.session_affinity,
        ConflictField::SessionAffinityConfig => timeouts_differ(oldest, other),
        ConflictField::InternalTrafficPolicy => {
            oldest.internal_traffic_policy != other.internal_traffic_policy
        }
        ConflictField::TrafficDistribution => oldest.traffic_distribution != other.traffic_distribution,
        ConflictField::Labels => oldest.labels != other.labels,
        ConflictField::Annotations => oldest.annotations != other.annotations,
        ConflictField::IpFamily => oldest.ip_families != other.ip_families,
    }
}

/// Whether two exports differ in the timeout of their affinity. Where both have `ClientIP`, none named is the default.
fn timeouts_differ(one: &ExportSpec, other: &ExportSpec) -> bool {
    let both = [one, other].map(|spec| spec.session_affinity) == [SessionAffinity::ClientIp; 2];
    let timeout = |spec: &ExportSpec| {
        spec.session_affinity_timeout.or_else(|| both.then_some(DEFAULT_SESSION_AFFINITY_TIMEOUT))
    };
    timeout(one) != timeout(other)
}

fn sorted(ports: &[Port]) -> Vec<&Port> {
    let mut ports: Vec<&Port> = ports.iter().collect();
    ports.sort();
    ports
}

fn count(clusters: usize) -> u32 {
    u32::try_from(clusters).unwrap_or(u32::MAX)
}
