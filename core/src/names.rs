//! Every name that the platform shares with Kubernetes, its users or another implementation, and how names of objects
//! are made.
//!
//! Names of KEP-1645 are written as in mcs-api v0.5.2 (`pkg/apis/v1beta1`), those of Kubernetes as in its well-known
//! labels; the others are this system's own. Programs use these constants and never a literal.
//!
//! A made name has a fixed length whatever it stands for: the parts that may be long are hashed, not cut, so that
//! names of 63 characters fit, none ends in `-`, and two keys never share a name by truncation. Ownership is never
//! read from a name; [`LABEL_MANAGED_BY`] and [`ANNOTATION_CLUSTERSET`] tell it.

use crate::ids::{ClusterId, ServiceKey};
use crate::model::GroupKey;
use crate::version::Fields;
use sha2::{Digest, Sha256};

// API groups, versions and kinds.

/// The API group of ServiceExport and ServiceImport (KEP-1645).
pub const MCS_GROUP: &str = "multicluster.x-k8s.io";
/// The version of [`MCS_GROUP`] that is stored and used.
pub const MCS_VERSION: &str = "v1beta1";
/// The older version of [`MCS_GROUP`], which stays served because CoreDNS watches ServiceImports through it.
pub const MCS_VERSION_OLD: &str = "v1alpha1";
/// `apiVersion` of the ServiceExports and ServiceImports that are read and written.
pub const MCS_API_VERSION: &str = "multicluster.x-k8s.io/v1beta1";
/// The kind of an export (KEP-1645).
pub const KIND_SERVICE_EXPORT: &str = "ServiceExport";
/// The resource of [`KIND_SERVICE_EXPORT`].
pub const RESOURCE_SERVICE_EXPORTS: &str = "serviceexports";
/// The kind of an import (KEP-1645).
pub const KIND_SERVICE_IMPORT: &str = "ServiceImport";
/// The resource of [`KIND_SERVICE_IMPORT`].
pub const RESOURCE_SERVICE_IMPORTS: &str = "serviceimports";
/// The API group of ClusterProperty (KEP-2149).
pub const ABOUT_GROUP: &str = "about.k8s.io";
/// The version of [`ABOUT_GROUP`] that is preferred.
pub const ABOUT_VERSION: &str = "v1beta1";
/// The version of [`ABOUT_GROUP`] where the preferred one is not served.
pub const ABOUT_VERSION_OLD: &str = "v1alpha1";
/// The kind of a property of a cluster (KEP-2149).
pub const KIND_CLUSTER_PROPERTY: &str = "ClusterProperty";
/// The resource of [`KIND_CLUSTER_PROPERTY`].
pub const RESOURCE_CLUSTER_PROPERTIES: &str = "clusterproperties";
/// The ClusterProperty that holds the cluster's id (KEP-2149).
pub const PROPERTY_CLUSTER_ID: &str = "cluster.clusterset.k8s.io";
/// The ClusterProperty that holds the clusterset's id (KEP-2149).
pub const PROPERTY_CLUSTERSET_ID: &str = "clusterset.k8s.io";
/// The namespace whose UID tells two clusters with one id apart.
pub const NAMESPACE_OF_UID: &str = "kube-system";

// Labels.

/// On imported slices and derived Services: the name of the imported Service (KEP-1645).
pub const LABEL_SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";
/// On imported slices: the id of the cluster that the endpoints are in (KEP-1645).
pub const LABEL_SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
/// On slices: the Service that they belong to, for imported ones the derived Service (Kubernetes).
pub const LABEL_SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// On slices: who keeps them (Kubernetes); ours have the value [`MANAGED_BY`].
pub const LABEL_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// On nodes and imported slices: the region (Kubernetes).
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
/// On all that this system makes; the value is [`MANAGED_BY`] (Kubernetes' recommended labels).
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On a Service, with the value [`EXPORT_WANTED`]: it gets a ServiceExport.
pub const LABEL_EXPORT: &str = "dynamo.nvidia.com/mcs-export";
/// The value of [`LABEL_EXPORT`] that asks for a ServiceExport.
pub const EXPORT_WANTED: &str = "true";
/// On the CRDs: the release of mcs-api whose schema they have.
pub const LABEL_CRD_RELEASE: &str = "multicluster.x-k8s.io/release-version";
/// On the CRDs: a number that rises with the schema and is never lowered.
pub const LABEL_CRD_REVISION: &str = "multicluster.x-k8s.io/crd-schema-revision";

/// The value of [`LABEL_MANAGED_BY`] and [`LABEL_SLICE_MANAGED_BY`] on what this system makes.
pub const MANAGED_BY: &str = "mcs-controller.dynamo.nvidia.com";
/// The value of [`LABEL_SLICE_MANAGED_BY`] on slices that Kubernetes makes for a Service with a selector.
pub const MANAGED_BY_KUBERNETES: &str = "endpointslice-controller.k8s.io";

// Annotations.

/// On a ServiceImport: the name of its derived Service (KEP-1645, implementations' convention).
pub const ANNOTATION_DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
/// On all that this system makes: the clusterset it is made for.
pub const ANNOTATION_CLUSTERSET: &str = "multicluster.dynamo.nvidia.com/clusterset";
/// On an imported slice: the UID of the source cluster, so that a restarted controller knows whose version it is.
pub const ANNOTATION_SOURCE_UID: &str = "multicluster.dynamo.nvidia.com/source-uid";
/// On an imported slice: the version (`<term>.<seq>`) of the source's export, below which nothing is applied.
pub const ANNOTATION_SOURCE_VERSION: &str = "multicluster.dynamo.nvidia.com/source-version";
/// On the leader election's Lease: the term, raised by the write that acquires leadership.
pub const ANNOTATION_TERM: &str = "multicluster.dynamo.nvidia.com/term";
/// On the leader election's Lease: the cluster has left its clusterset; the value is another one each time. Controllers
/// that see it appear do nothing any more, one that is started afterwards takes it off.
pub const ANNOTATION_LEFT: &str = "multicluster.dynamo.nvidia.com/left";
/// Annotations of a Service with this prefix travel with its export, below `exportedAnnotations`.
pub const ANNOTATION_PREFIX_EXPORTED: &str = "dynamo.nvidia.com/mcs-";

// Finalizers and field managers.

/// On a ServiceExport that was told to a registry: the registry hears of its end first.
pub const FINALIZER_EXPORT: &str = "multicluster.dynamo.nvidia.com/export";
/// The one field manager of server-side apply for what is made; several shapes of one object under one manager
/// would remove each other's fields, so there is one shape for each object.
pub const FIELD_MANAGER: &str = "mcs-controller.dynamo.nvidia.com";
/// The field manager of `status` subresources.
pub const FIELD_MANAGER_STATUS: &str = "mcs-controller.dynamo.nvidia.com/status";
/// The field manager of the CRDs.
pub const FIELD_MANAGER_CRDS: &str = "mcs-controller.dynamo.nvidia.com/crds";
/// `reportingController` of Events.
pub const EVENT_CONTROLLER: &str = "mcs-controller.dynamo.nvidia.com";

// Condition types; KEP-1645 gives the same `Ready` to ServiceExport and ServiceImport.

/// Of a ServiceExport: whether it names a Service that can be exported.
pub const CONDITION_VALID: &str = "Valid";
/// Of a ServiceExport: whether the registry holds it. Of a ServiceImport: whether it can be used here.
pub const CONDITION_READY: &str = "Ready";
/// Of a ServiceExport: whether the exports of its Service differ.
pub const CONDITION_CONFLICT: &str = "Conflict";

// Reasons of `Valid`.

/// True: the Service exists and can be exported.
pub const REASON_VALID: &str = "Valid";
/// False: there is no Service of this name.
pub const REASON_NO_SERVICE: &str = "NoService";
/// False: the Service is of a kind that is never exported.
pub const REASON_INVALID_SERVICE_TYPE: &str = "InvalidServiceType";

// Reasons of `Ready`.

/// True: the registry holds the export, or the import can be used.
pub const REASON_READY: &str = "Ready";
/// Unknown (False on an invalid export, and on a ServiceImport): not yet; of an export that is being deleted, not yet
/// let go by a registry.
pub const REASON_PENDING: &str = "Pending";
/// False: the registry refused the export.
pub const REASON_FAILED: &str = "Failed";
/// False: the cluster's lease has run out, so no other cluster shows its endpoints.
pub const REASON_LEASE_EXPIRED: &str = "ClusterLeaseExpired";
/// False, of a ServiceImport: this cluster can serve none of its address families.
pub const REASON_FAMILY_NOT_SUPPORTED: &str = "IPFamilyNotSupported";

// Reasons of `Conflict`; several are joined with commas, in this order.

/// The port lists differ.
pub const REASON_PORT_CONFLICT: &str = "PortConflict";
/// The types differ.
pub const REASON_TYPE_CONFLICT: &str = "TypeConflict";
/// The session affinities differ.
pub const REASON_SESSION_AFFINITY_CONFLICT: &str = "SessionAffinityConflict";
/// The session affinity configurations differ.
pub const REASON_SESSION_AFFINITY_CONFIG_CONFLICT: &str = "SessionAffinityConfigConflict";
/// The internal traffic policies differ.
pub const REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT: &str = "InternalTrafficPolicyConflict";
/// The traffic distributions differ.
pub const REASON_TRAFFIC_DISTRIBUTION_CONFLICT: &str = "TrafficDistributionConflict";
/// The exported labels differ.
pub const REASON_LABELS_CONFLICT: &str = "LabelsConflict";
/// The exported annotations differ.
pub const REASON_ANNOTATIONS_CONFLICT: &str = "AnnotationsConflict";
/// The address families differ.
pub const REASON_IP_FAMILY_CONFLICT: &str = "IPFamilyConflict";
/// Nothing differs.
pub const REASON_NO_CONFLICTS: &str = "NoConflicts";

// Values of a ServiceImport's status.

/// `status.endpointSliceObjects`: EndpointSlices exist for this import (KEP-1645).
pub const ENDPOINT_SLICES_PRESENT: &str = "Present";

// Reasons of Events.

/// On a ServiceExport: the registry refused it; the message says why.
pub const EVENT_EXPORT_FAILED: &str = "ExportFailed";
/// On a ServiceExport: some of its endpoints break Kubernetes' rules and are left out.
pub const EVENT_ENDPOINTS_DROPPED: &str = "EndpointsDropped";
/// On a ServiceExport: slices of address type FQDN are not exported.
pub const EVENT_FQDN_SKIPPED: &str = "FqdnSlicesSkipped";
/// On a ServiceImport of another implementation: it is left alone.
pub const EVENT_IMPORT_SKIPPED: &str = "ServiceImportNotOurs";
/// On a ServiceImport: somebody else's Service has the name of its derived Service, and is left alone.
pub const EVENT_SERVICE_SKIPPED: &str = "DerivedServiceNotOurs";
/// On a ServiceImport: somebody else's EndpointSlice has the name of one of its own, and is left alone.
pub const EVENT_SLICE_SKIPPED: &str = "EndpointSliceNotOurs";
/// On a ClusterProperty: its value is another than the controller goes by.
pub const EVENT_IDENTITY_CHANGED: &str = "ClusterIdentityChanged";
/// On a ServiceImport: the API server refused to take an object of it, or gives no Service its address families; the
/// message says why.
pub const EVENT_IMPORT_FAILED: &str = "ImportFailed";

/// How the name of a derived Service begins.
const DERIVED: &str = "derived-";
/// How many base32hex characters of a hash a made name has: 50 bits.
const HASH_CHARS: u32 = 10;

/// The name of the derived Service of `key`: `derived-` and 10 base32hex characters of the SHA-256 of
/// `namespace/name`.
pub fn derived_service_name(key: &ServiceKey) -> String {
    let hash = base32hex(Sha256::digest(key.to_string()).into());
    format!("{DERIVED}{hash}")
}

/// Whether a Service may be called so because it is in the place of a derived one. It tells what to look at, never
/// whose it is.
pub fn is_derived_service_name(name: &str) -> bool {
    name.strip_prefix(DERIVED).is_some_and(|hash| hash.len() == HASH_CHARS as usize)
}

/// The name of the derived Service in the name of an imported slice ([`slice_name`]); like
/// [`is_derived_service_name`], it tells what to look at.
pub fn derived_service_of_slice(name: &str) -> Option<&str> {
    name.rsplitn(3, '-').nth(2).filter(|derived| is_derived_service_name(derived))
}

/// The name of the imported slice in `slot` of `cluster`'s endpoints of `group`, under the derived Service
/// `derived`: `<derived>-<hash of cluster, family, ports>-<slot>`, at most 40 characters for a name of
/// [`derived_service_name`].
pub fn slice_name(derived: &str, cluster: &ClusterId, group: &GroupKey, slot: u32) -> String {
    let mut fields = Fields::new();
    fields.text(cluster.as_str());
    group.hash_fields(&mut fields);
    format!("{derived}-{}-{slot}", base32hex(fields.digest()))
}

/// The first [`HASH_CHARS`] characters of the hash in base32hex (RFC 4648, section 7), lower case.
fn base32hex(hash: [u8; 32]) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let [a, b, c, d, e, f, g, h, ..] = hash;
    let bits = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    (0..HASH_CHARS).map(|at| char::from(ALPHABET[(bits >> (59 - 5 * at) & 31) as usize])).collect()
}
