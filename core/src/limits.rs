//! The counts and sizes that one export may have (docs/registry.md, Limits), in one table.
//!
//! [`crate::validate`] holds them; what a registry bounds by a flag (clusters, exports, message size) is not here.

/// The most ports of an export.
pub const MAX_PORTS: usize = 64;
/// The most exported labels.
pub const MAX_LABELS: usize = 64;
/// The most exported annotations.
pub const MAX_ANNOTATIONS: usize = 32;
/// The most bytes of all exported labels and annotations, keys and values together: 64 KiB.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;
/// The most endpoints of an export, over both address families.
pub const MAX_ENDPOINTS: usize = 200_000;
/// The most ports that endpoints of one group listen on: what Kubernetes documents for an EndpointSlice.
pub const MAX_ENDPOINT_PORTS: usize = 100;
/// The most held imports of a cluster that are named to its registry: enough to see what they have in common.
pub const MAX_HELD_NAMED: usize = 100;
/// The most refused exports of a cluster that are named to its registry, likewise.
pub const MAX_REFUSED_NAMED: usize = 100;
/// The most characters of a DNS-1123 subdomain: of a node name, and of the part of a key before its `/`.
pub const MAX_SUBDOMAIN: usize = 253;
/// The longest session affinity timeout in seconds that Kubernetes takes: one day.
pub const MAX_SESSION_AFFINITY_TIMEOUT: u32 = 86_400;
/// The session affinity timeout that Kubernetes takes when none is given, in seconds (Service:
/// `sessionAffinityConfig`).
pub const DEFAULT_SESSION_AFFINITY_TIMEOUT: u32 = 10_800;
