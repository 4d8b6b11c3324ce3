//! What is exported and what is imported: plain data, with no behaviour but normal forms and hashes.
//!
//! Everything here has passed [`crate::validate`] or was made from something that has; the wire and the API server's
//! objects are turned into it at the edge.

use crate::ids::{ClusterId, ServiceKey};
use crate::time::WallTime;
use crate::version::{Fields, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, what Kubernetes takes when none is given.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads what Kubernetes writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp].into_iter().find(|protocol| protocol.as_str() == text)
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// As Kubernetes writes it, also as an EndpointSlice's address type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Reads what Kubernetes writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.as_str() == text)
    }

    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// What a ServiceImport is (KEP-1645: `type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceType {
    /// Reached through an address of the importing cluster.
    #[default]
    ClusterSetIp,
    /// Reached by the endpoints' own addresses.
    Headless,
}

impl ServiceType {
    /// As the MCS API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterSetIp => "ClusterSetIP",
            Self::Headless => "Headless",
        }
    }
}

/// Whether one client's connections stay with one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionAffinity {
    /// They do not.
    #[default]
    None,
    /// They do, by the client's address.
    ClientIp,
}

impl SessionAffinity {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::ClientIp => "ClientIP",
        }
    }
}

/// Which endpoints take a cluster's internal traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InternalTrafficPolicy {
    /// All of them.
    #[default]
    Cluster,
    /// Those of the client's own node.
    Local,
}

impl InternalTrafficPolicy {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

/// A port of a Service as clients see it. The target port is not part of it: clusters may differ there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number, never 0.
    pub port: u16,
    /// The application protocol, where one is named.
    pub app_protocol: Option<String>,
}

/// What one cluster says of a Service it exports, without its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSpec {
    /// When the ServiceExport was made; the oldest export decides where exports differ.
    pub created_at: WallTime,
    /// ClusterSetIP, or Headless when the Service has `clusterIP: None`.
    pub service_type: ServiceType,
    /// The Service's ports, in the Service's order.
    pub ports: Vec<Port>,
    /// The Service's session affinity.
    pub session_affinity: SessionAffinity,
    /// `sessionAffinityConfig.clientIP.timeoutSeconds`, in seconds.
    pub session_affinity_timeout: Option<u32>,
    /// The Service's internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// The Service's traffic distribution, e.g. `PreferClose`.
    pub traffic_distribution: Option<String>,
    /// The Service's address families, in its order.
    pub ip_families: Vec<IpFamily>,
    /// `exportedLabels`.
    pub labels: BTreeMap<String, String>,
    /// `exportedAnnotations`, joined with the Service's annotations of our prefix.
    pub annotations: BTreeMap<String, String>,
}

/// A port of an EndpointSlice: the number that the endpoints listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointPort {
    /// Its name, equal to that of the Service's port; empty when that has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number; none means all ports.
    pub port: Option<u16>,
    /// The application protocol, where one is named.
    pub app_protocol: Option<String>,
}

/// One address behind a Service. The three conditions are kept as they were written, absent ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Whether it takes new connections; absent counts as true.
    pub ready: Option<bool>,
    /// Whether it serves at all; absent counts as `ready`.
    pub serving: Option<bool>,
    /// Whether it is on its way out; absent counts as false.
    pub terminating: Option<bool>,
    /// The host name within a headless Service.
    pub hostname: Option<String>,
    /// The zone it is in.
    pub zone: Option<String>,
    /// The node it is on, a name of the source cluster.
    pub node_name: Option<String>,
}

impl Endpoint {
    /// Whether it takes new connections.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }
}

/// What endpoints of one group have in common; one imported EndpointSlice holds endpoints of one group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The address family.
    pub family: IpFamily,
    /// The ports, sorted.
    pub ports: Arc<[EndpointPort]>,
}

impl GroupKey {
    /// The group of endpoints of `family` that listen on `ports`; their order does not matter.
    pub fn new(family: IpFamily, ports: impl IntoIterator<Item = EndpointPort>) -> Self {
        let ports: BTreeSet<_> = ports.into_iter().collect();
        Self { family, ports: ports.into_iter().collect() }
    }

    /// Feeds all fields into a hash.
    pub(crate) fn hash_fields(&self, hash: &mut Fields) {
        hash.text(self.family.as_str());
        hash.number(self.ports.len() as u64);
        for port in self.ports.iter() {
            hash.text(&port.name);
            hash.text(port.protocol.as_str());
            hash.maybe_number(port.port.map(u64::from));
            hash.maybe_text(port.app_protocol.as_deref());
        }
    }
}

/// All endpoints that one cluster has of one Service. Equal members give equal sets, whatever their order was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSet {
    groups: BTreeMap<GroupKey, BTreeMap<IpAddr, Endpoint>>,
}

impl EndpointSet {
    /// Adds an endpoint. An address that the group has already (slices overlap while endpoints move between them)
    /// keeps the ready one of the two.
    pub fn insert(&mut self, group: GroupKey, address: IpAddr, endpoint: Endpoint) {
        let members = self.groups.entry(group).or_default();
        match members.get(&address) {
            Some(known) if known.is_ready() && !endpoint.is_ready() => {}
            _ => {
                members.insert(address, endpoint);
            }
        }
    }

    /// The groups, each with its endpoints by address.
    pub const fn groups(&self) -> &BTreeMap<GroupKey, BTreeMap<IpAddr, Endpoint>> {
        &self.groups
    }

    /// How many endpoints there are over all groups.
    pub fn len(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Feeds all fields into a hash, in an order that depends on content only.
    pub(crate) fn hash_fields(&self, hash: &mut Fields) {
        hash.number(self.groups.len() as u64);
        for (group, members) in &self.groups {
            group.hash_fields(hash);
            hash.number(members.len() as u64);
            for (address, endpoint) in members {
                hash.text(&address.to_string());
                for condition in [endpoint.ready, endpoint.serving, endpoint.terminating] {
                    hash.maybe_number(condition.map(u64::from));
                }
                for text in [&endpoint.hostname, &endpoint.zone, &endpoint.node_name] {
                    hash.maybe_text(text.as_deref());
                }
            }
        }
    }
}

impl ExportSpec {
    /// Feeds all fields into a hash, in an order that depends on content only.
    pub(crate) fn hash_fields(&self, hash: &mut Fields) {
        hash.number(self.created_at.unix_secs().cast_unsigned());
        hash.text(self.service_type.as_str());
        hash.number(self.ports.len() as u64);
        for port in &self.ports {
            hash.text(&port.name);
            hash.text(port.protocol.as_str());
            hash.number(u64::from(port.port));
            hash.maybe_text(port.app_protocol.as_deref());
        }
        hash.text(self.session_affinity.as_str());
        hash.maybe_number(self.session_affinity_timeout.map(u64::from));
        hash.text(self.internal_traffic_policy.as_str());
        hash.maybe_text(self.traffic_distribution.as_deref());
        hash.number(self.ip_families.len() as u64);
        for family in &self.ip_families {
            hash.text(family.as_str());
        }
        for map in [&self.labels, &self.annotations] {
            hash.number(map.len() as u64);
            for (key, value) in map {
                hash.text(key);
                hash.text(value);
            }
        }
    }
}

/// What all exports of one Service merge into (spec: merge rules).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportDefinition {
    /// The oldest export's type.
    pub service_type: ServiceType,
    /// The union of all ports; no two share a name or a (protocol, number).
    pub ports: Vec<Port>,
    /// The oldest export's session affinity.
    pub session_affinity: SessionAffinity,
    /// The oldest export's session affinity timeout, in seconds.
    pub session_affinity_timeout: Option<u32>,
    /// The oldest export's internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// The oldest export's traffic distribution.
    pub traffic_distribution: Option<String>,
    /// The families that all exports have, in the oldest's order; the oldest's when they have none in common.
    pub ip_families: Vec<IpFamily>,
    /// The oldest export's labels.
    pub labels: BTreeMap<String, String>,
    /// The oldest export's annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A field on which the exports of one Service differ. The order is that of the reasons in a Conflict condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictField {
    /// `PortConflict`.
    Ports,
    /// `TypeConflict`.
    Type,
    /// `SessionAffinityConflict`.
    SessionAffinity,
    /// `SessionAffinityConfigConflict`.
    SessionAffinityConfig,
    /// `InternalTrafficPolicyConflict`.
    InternalTrafficPolicy,
    /// `TrafficDistributionConflict`.
    TrafficDistribution,
    /// `LabelsConflict`.
    Labels,
    /// `AnnotationsConflict`.
    Annotations,
    /// `IPFamilyConflict`.
    IpFamily,
}

/// One field on which exports differ, with what an operator wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The field.
    pub field: ConflictField,
    /// The cluster whose export decides.
    pub winner: ClusterId,
    /// How many clusters differ from the winner.
    pub differing: u32,
    /// How many clusters export the Service.
    pub clusters: u32,
}

/// One cluster's part in a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The cluster.
    pub cluster: ClusterId,
    /// The version of its export that was merged.
    pub version: Version,
    /// The import's ports that its own export defines identically, by their name in the import, and the name that the
    /// port has in its own export and slices.
    pub good_ports: Vec<GoodPort>,
}

/// A port of an import that one cluster serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoodPort {
    /// Its name in the import; imported slices carry it.
    pub import_name: String,
    /// Its name in the cluster's own export and EndpointSlices.
    pub export_name: String,
}

/// A merged Service as the registry tells its importers: the definition, who takes part, and on what they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The merged definition.
    pub definition: ImportDefinition,
    /// The clusters whose exports were merged, by id.
    pub participants: Vec<Participant>,
    /// The fields on which they differ, in the order of [`ConflictField`]; every participant is told.
    pub conflicts: Vec<Conflict>,
}

/// One export as a registry holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What its owner made of it last.
    pub version: Version,
    /// The owner's content hash.
    pub leaf: crate::version::Leaf,
    /// The definition.
    pub spec: Arc<ExportSpec>,
    /// The endpoints.
    pub endpoints: Arc<EndpointSet>,
}

/// What a registry thinks of a member (protocol: registry states).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Known, but its whole export set was not seen since this registry started: nothing of it is listed, and
    /// importers keep what they have.
    Syncing,
    /// Whole, and renewed within its lease.
    Active,
    /// Silent past its lease, but not judged because too many are: listed.
    Held,
    /// Its lease has run out: its endpoints are not listed, its exports stay in the merge.
    Expired,
}

impl MemberState {
    /// Whether endpoints and `status.clusters` entries of the member are shown.
    pub const fn is_listed(self) -> bool {
        matches!(self, Self::Active | Self::Held)
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syncing => "syncing",
            Self::Active => "active",
            Self::Held => "held",
            Self::Expired => "expired",
        })
    }
}

/// A member as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The UID of its `kube-system` Namespace.
    pub uid: crate::ids::ClusterUid,
    /// Its region, where it has one.
    pub region: Option<crate::ids::Region>,
    /// What the registry thinks of it.
    pub state: MemberState,
    /// Whether its entire export set is known here.
    pub whole: bool,
    /// The version of the entire set that is held here.
    pub version: Version,
    /// The sum of the leaves that are held here.
    pub sum: crate::version::Sum,
}

/// One cluster's endpoints of one Service as watchers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The UID of the source cluster.
    pub uid: crate::ids::ClusterUid,
    /// The version of the export.
    pub version: Version,
    /// The owner's content hash.
    pub leaf: crate::version::Leaf,
    /// The endpoints.
    pub endpoints: Arc<EndpointSet>,
}

/// What an object of the state log is; the log holds the last state of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// A member.
    Section(ClusterId),
    /// A merged Service.
    Header(ServiceKey),
    /// One cluster's endpoints of one Service.
    Part(ServiceKey, ClusterId),
}

/// The state of an object of the log; a removed object has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Of a [`ObjectKey::Section`].
    Section(Section),
    /// Of a [`ObjectKey::Header`].
    Header(Header),
    /// Of a [`ObjectKey::Part`].
    Part(Part),
}

/// One step of the state log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Rises by one with every change of one registry process.
    pub revision: u64,
    /// What changed.
    pub key: ObjectKey,
    /// Its state now; none when it is gone.
    pub object: Option<Object>,
}

/// What a watcher is told, in this order: a `Begin`, states, an `End`; then changes and `Progress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A snapshot begins: the watcher forgets what it was told in another epoch.
    Begin {
        /// The registry process whose log this is.
        epoch: crate::ids::Epoch,
        /// A cluster that a complete view does not list is kept for this long after the first such view.
        absent_grace: std::time::Duration,
    },
    /// The state of one object.
    Change(Change),
    /// The snapshot is told.
    End {
        /// The revision it stands for.
        revision: u64,
        /// Whether every cluster of the set is known to this registry.
        complete: bool,
    },
    /// Nothing changed; the stream lives.
    Progress {
        /// The revision reached.
        revision: u64,
        /// Whether every cluster of the set is known to this registry.
        complete: bool,
    },
}
