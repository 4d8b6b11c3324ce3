//! What is exported and what is imported: plain data, with no behaviour but normal forms and hashes.
//!
//! Everything here has passed [`crate::validate`] or was made from something that has; the wire and the API server's
//! objects are turned into it at the edge.

mod endpoints;
mod packed;
mod report;
mod watched;

pub use endpoints::{Endpoint, EndpointMap, EndpointPort, EndpointSet, GroupKey};
pub use packed::{Group, Groups, Members};
pub use report::{HeldImports, RefusedExports, Report};
pub use watched::{Change, Frame, MemberState, Object, ObjectKey, Part, PartSet, Section, Since};

use crate::ids::{ClusterId, ClusterUid};
use crate::time::{WallMillis, WallTime};
use crate::version::{Fields, Leaf, Version};
use std::collections::BTreeMap;
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

/// What all exports of one Service merge into (see [`crate::merge`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

impl ConflictField {
    /// All fields, in the order of the reasons.
    pub const ALL: [Self; 9] = [
        Self::Ports,
        Self::Type,
        Self::SessionAffinity,
        Self::SessionAffinityConfig,
        Self::InternalTrafficPolicy,
        Self::TrafficDistribution,
        Self::Labels,
        Self::Annotations,
        Self::IpFamily,
    ];
}

/// One field on which exports differ, with what an operator wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Participant {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its UID: versions are compared with those of the same cluster only.
    pub uid: ClusterUid,
    /// The version of its export that was merged.
    pub version: Version,
    /// The import's ports that its own export defines identically, by their name in the import, and the name that the
    /// port has in its own export and slices.
    pub good_ports: Vec<GoodPort>,
}

/// A port of an import that one cluster serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoodPort {
    /// Its name in the import; imported slices carry it.
    pub import_name: String,
    /// Its name in the cluster's own export and EndpointSlices.
    pub export_name: String,
}

/// A merged Service as the registry tells its importers: the definition, who takes part, and on what they differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub leaf: Leaf,
    /// The definition.
    pub spec: Arc<ExportSpec>,
    /// The endpoints.
    pub endpoints: Arc<EndpointSet>,
    /// When its owner saw the change that made it so, where it said so.
    pub changed_at: Option<WallMillis>,
}

/// What a registry holds of an export, as far as its owner cannot know it: the endpoints are the owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldExport {
    /// The content hash that it was put with.
    pub leaf: Leaf,
    /// The definition.
    pub spec: Arc<ExportSpec>,
}
