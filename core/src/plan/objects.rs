//! The three kinds of objects that an import consists of, as the planner sees and writes them.
//!
//! The controller turns Kubernetes objects into these structs and back. Of labels and annotations they hold those
//! that our field manager owns; what other managers put there is never compared and never removed. Fields that the
//! API server fills in are normalised: an absent value and its default are one value here.

use crate::ids::{ClusterId, ClustersetId};
use crate::model::{
    Endpoint, EndpointPort, GroupKey, InternalTrafficPolicy, IpFamily, Port, ServiceType, SessionAffinity,
};
use crate::names;
use crate::view::{Applied, AppliedSource};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Labels or annotations.
pub type Entries = BTreeMap<String, String>;

/// Whose an object is: told by its marks, never by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ownership {
    /// It carries our label and the annotation of this clusterset: it may be changed and deleted.
    Ours,
    /// It carries our label, and the annotation of another clusterset or none.
    OtherClusterset,
    /// Somebody else made it.
    Foreign,
}

impl Ownership {
    /// Whose the object is that has these labels and annotations (all of them, not only those our manager owns).
    pub fn of(labels: &Entries, annotations: &Entries, clusterset: &ClustersetId) -> Self {
        if labels.get(names::LABEL_MANAGED_BY).is_none_or(|manager| manager != names::MANAGED_BY) {
            Self::Foreign
        } else if annotations.get(names::ANNOTATION_CLUSTERSET).is_some_and(|set| set == clusterset.as_str())
        {
            Self::Ours
        } else {
            Self::OtherClusterset
        }
    }
}

/// What the steps on one object are bound to, so that a late write of a deposed leader meets a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// The metadata of an object that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Name, UID and resource version.
    pub identity: Identity,
    /// Whose it is.
    pub ownership: Ownership,
    /// Whether it has a deletion timestamp: it is waited for, and not written.
    pub deleting: bool,
    /// The labels that our field manager owns.
    pub labels: Entries,
    /// The annotations that our field manager owns.
    pub annotations: Entries,
    /// The UID in the owner reference that names the ServiceImport of this name with the right API version and kind
    /// and without `blockOwnerDeletion`; none when there is no such reference.
    pub owner: Option<String>,
}

/// The fields of a ServiceImport (KEP-1645: ServiceImport), apart from its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSpec {
    /// Its type.
    pub service_type: ServiceType,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The cluster IPs of the derived Service; none of a headless import.
    pub ips: Vec<IpAddr>,
    /// The families of `ips`, the first being the primary one.
    pub ip_families: Vec<IpFamily>,
    /// Its session affinity.
    pub session_affinity: SessionAffinity,
    /// The session affinity timeout, in seconds.
    pub session_affinity_timeout: Option<u32>,
    /// Its internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Its traffic distribution.
    pub traffic_distribution: Option<String>,
}

/// Why a ServiceImport can or cannot be used here: its `Ready` condition (KEP-1645: ServiceImport conditions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportReady {
    /// True: the derived Service and the slices are there.
    Ready,
    /// False: not yet.
    Pending,
    /// False: this cluster can serve none of the import's address families.
    FamilyNotSupported,
}

impl ImportReady {
    /// The condition's status.
    pub const fn is_true(self) -> bool {
        matches!(self, Self::Ready)
    }

    /// The condition's reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ready => names::REASON_READY,
            Self::Pending => names::REASON_PENDING,
            Self::FamilyNotSupported => names::REASON_FAMILY_NOT_SUPPORTED,
        }
    }

    /// The condition's message. It depends on nothing else, so that it changes with the status only.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Ready => "the derived Service and its EndpointSlices are in place",
            Self::Pending => "the derived Service is not in place yet",
            Self::FamilyNotSupported => "this cluster serves none of the exported Service's IP families",
        }
    }
}

/// The status of a ServiceImport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportStatus {
    /// `status.clusters`, sorted; entries carry no conditions of ours.
    pub clusters: BTreeSet<ClusterId>,
    /// The `Ready` condition; none when it is absent or says nothing that we write.
    pub ready: Option<ImportReady>,
    /// Whether `status.endpointSliceObjects` says `Present`.
    pub slices_present: bool,
}

/// A ServiceImport that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportObject {
    /// Its metadata.
    pub meta: Meta,
    /// Its fields.
    pub spec: ImportSpec,
    /// Its status.
    pub status: ImportStatus,
}

/// The fields of a derived Service; its type is ClusterIP, and it has no selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Whether it has `clusterIP: None`.
    pub headless: bool,
    /// Its ports; the target port of each is the port.
    pub ports: Vec<Port>,
    /// Its address families, the first being the primary one. `ipFamilyPolicy` is `SingleStack` for one family and
    /// `RequireDualStack` for two; another policy shows in [`DerivedService::stray`].
    pub ip_families: Vec<IpFamily>,
    /// Its session affinity.
    pub session_affinity: SessionAffinity,
    /// The session affinity timeout, in seconds; set exactly when there is an affinity.
    pub session_affinity_timeout: Option<u32>,
    /// Its internal traffic policy.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Its traffic distribution.
    pub traffic_distribution: Option<String>,
}

/// The Service under the derived name, as it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedService {
    /// Its metadata.
    pub meta: Meta,
    /// Its fields.
    pub spec: ServiceSpec,
    /// Its cluster IPs; none when it is headless.
    pub cluster_ips: Vec<IpAddr>,
    /// The spec fields that have a value which we never give them (`selector`, `externalIPs`, another `type`, a
    /// target port that is not the port, …), by name; of ports, those in [`ServiceSpec`] are compared.
    pub stray: BTreeSet<String>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Conditions, host name, zone and node.
    pub endpoint: Endpoint,
    /// `hints.forZones`, one zone at most.
    pub zone_hint: Option<String>,
    /// `hints.forNodes`, one node at most.
    pub node_hint: Option<String>,
}

/// Who keeps a slice, by the label `endpointslice.kubernetes.io/managed-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SliceKeeper {
    /// Kubernetes: its EndpointSlice controller made it from a selector that somebody gave the derived Service, which
    /// its label `kubernetes.io/service-name` names. Slices of any other Service are not of this import.
    Kubernetes,
    /// We or somebody else, as [`Meta::ownership`] says.
    Other,
}

/// An EndpointSlice that names the import or its derived Service in a label, or whose name begins with the derived
/// Service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedSlice {
    /// Its metadata.
    pub meta: Meta,
    /// Who keeps it.
    pub keeper: SliceKeeper,
    /// The cluster named by its source-cluster label.
    pub source: Option<ClusterId>,
    /// Its address type and ports.
    pub group: GroupKey,
    /// Its endpoints by address.
    pub endpoints: BTreeMap<IpAddr, SliceEndpoint>,
    /// Whether it has content that we never write (several addresses in one entry, a target reference, an address
    /// that is none).
    pub stray: bool,
}

/// A ServiceImport as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedImport {
    /// All labels that our field manager owns.
    pub labels: Entries,
    /// All annotations that our field manager owns.
    pub annotations: Entries,
    /// Its fields.
    pub spec: ImportSpec,
}

/// A derived Service as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedService {
    /// Its name.
    pub name: String,
    /// All labels that our field manager owns.
    pub labels: Entries,
    /// All annotations that our field manager owns.
    pub annotations: Entries,
    /// The UID of the ServiceImport that owns it.
    pub owner: String,
    /// Its fields.
    pub spec: ServiceSpec,
}

/// An imported slice as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSlice {
    /// Its name.
    pub name: String,
    /// All labels that our field manager owns.
    pub labels: Entries,
    /// All annotations that our field manager owns.
    pub annotations: Entries,
    /// The UID of the ServiceImport that owns it.
    pub owner: String,
    /// Its address family.
    pub family: IpFamily,
    /// Its ports, by the names they have in the import.
    pub ports: Vec<EndpointPort>,
    /// Its endpoints by address, 1 to 100.
    pub endpoints: BTreeMap<IpAddr, SliceEndpoint>,
}

/// All that exists of one import in the importing cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// The ServiceImport of the key's name.
    pub import: Option<ImportObject>,
    /// The Service under the derived name.
    pub service: Option<DerivedService>,
    /// The slices, see [`ImportedSlice`].
    pub slices: Vec<ImportedSlice>,
}

impl Applied {
    /// What is applied, by the objects of ours that exist: a cluster that is named in `status.clusters` or by a slice is
    /// applied, whatever is left of it.
    pub fn of(existing: &Existing) -> Self {
        let ours = |meta: &Meta| meta.ownership == Ownership::Ours;
        let import = existing.import.as_ref().filter(|import| ours(&import.meta));
        let named = import.iter().flat_map(|import| import.status.clusters.iter().cloned());
        let mut clusters: BTreeMap<_, _> = named.map(|cluster| (cluster, AppliedSource::default())).collect();
        for slice in existing.slices.iter().filter(|slice| ours(&slice.meta)) {
            let Some(cluster) = &slice.source else { continue };
            let source = clusters.entry(cluster.clone()).or_default();
            let annotation = |name: &str| slice.meta.annotations.get(name);
            let uid = annotation(names::ANNOTATION_SOURCE_UID).and_then(|uid| uid.parse().ok());
            let version =
                annotation(names::ANNOTATION_SOURCE_VERSION).and_then(|version| version.parse().ok());
            // Slices of one cluster may name two UIDs while one is replaced by another; either is a floor for itself
            // only, and the one with the higher version is kept.
            if source.uid.is_none() || version > source.version {
                *source = AppliedSource { uid, version };
            }
        }
        Self { clusters }
    }
}
