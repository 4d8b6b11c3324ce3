//! The objects that an import consists of → what exists, for the planner.

use super::exported::{endpoint, endpoint_port};
use super::{internal_traffic_policy, ip_families, port_number, protocol, service_port, session_affinity};
use crate::api::ServiceImport;
use crate::index::ImportObjects;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use mcs_core::ids::{ClustersetId, ServiceKey};
use mcs_core::limits::DEFAULT_SESSION_AFFINITY_TIMEOUT;
use mcs_core::model::{GroupKey, IpFamily, Port, ServiceType, SessionAffinity};
use mcs_core::names::{
    CONDITION_READY, ENDPOINT_SLICES_PRESENT, FIELD_MANAGER, KIND_SERVICE_IMPORT, LABEL_SLICE_MANAGED_BY,
    LABEL_SLICE_SERVICE, LABEL_SOURCE_CLUSTER, MANAGED_BY_KUBERNETES, MCS_API_VERSION, derived_service_name,
};
use mcs_core::plan::{
    DerivedService, Entries, Existing, Identity, ImportObject, ImportReady, ImportSpec, ImportStatus,
    ImportedSlice, Meta, Ownership, ServiceSpec, SliceEndpoint, SliceKeeper,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Reads what exists of the import of `key`.
pub(crate) fn existing(key: &ServiceKey, objects: &ImportObjects, clusterset: &ClustersetId) -> Existing {
    let owner = key.name.as_str();
    let derived = derived_service_name(key);
    Existing {
        import: objects.import.as_deref().map(|import| read_import(import, owner, clusterset)),
        service: objects.service.as_deref().map(|service| read_service(service, owner, clusterset)),
        slices: objects.slices.iter().map(|slice| read_slice(slice, owner, &derived, clusterset)).collect(),
    }
}

fn read_import(import: &ServiceImport, owner: &str, clusterset: &ClustersetId) -> ImportObject {
    let spec = import.spec.clone().unwrap_or_default();
    let status = import.status.clone().unwrap_or_default();
    let generation = import.metadata.generation.unwrap_or_default();
    let affinity = session_affinity(spec.session_affinity.as_deref());
    let timeout = spec.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
    let port = |port: &crate::api::ImportPort| Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol(port.protocol.as_deref()),
        port: port_number(port.port),
        app_protocol: port.app_protocol.clone(),
    };
    ImportObject {
        meta: meta(&import.metadata, owner, clusterset),
        spec: ImportSpec {
            service_type: match spec.type_.as_str() {
                "Headless" => ServiceType::Headless,
                _ => ServiceType::ClusterSetIp,
            },
            ports: spec.ports.iter().map(port).collect(),
            ips: spec.ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
            ip_families: ip_families(&spec.ip_families),
            session_affinity: affinity,
            session_affinity_timeout: timeout.and_then(|seconds| u32::try_from(seconds).ok()),
            internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
            traffic_distribution: spec.traffic_distribution,
        },
        status: ImportStatus {
            clusters: status.clusters.iter().filter_map(|entry| entry.cluster.parse().ok()).collect(),
            ready: status
                .conditions
                .iter()
                .find(|condition| condition.type_ == CONDITION_READY)
                // What was said of an earlier generation is out of date, and said anew.
                .filter(|condition| condition.observed_generation.unwrap_or_default() == generation)
                .and_then(read_ready),
            slices_present: status.endpoint_slice_objects.as_deref() == Some(ENDPOINT_SLICES_PRESENT),
        },
    }
}

fn read_ready(condition: &crate::api::Condition) -> Option<ImportReady> {
    [ImportReady::Ready, ImportReady::Pending, ImportReady::FamilyNotSupported].into_iter().find(|ready| {
        condition.reason == ready.reason()
            && condition.message == ready.message()
            && condition.status == if ready.is_true() { "True" } else { "False" }
    })
}

fn read_service(service: &Service, owner: &str, clusterset: &ClustersetId) -> DerivedService {
    let spec = service.spec.clone().unwrap_or_default();
    let headless = spec.cluster_ip.as_deref() == Some("None");
    let affinity = session_affinity(spec.session_affinity.as_deref());
    let timeout =
        spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    let timeout =
        timeout.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(DEFAULT_SESSION_AFFINITY_TIMEOUT);
    let cluster_ips = spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
    DerivedService {
        meta: meta(&service.metadata, owner, clusterset),
        spec: ServiceSpec {
            headless,
            ports: spec.ports.iter().flatten().map(service_port).collect(),
            ip_families: ip_families(spec.ip_families.iter().flatten()),
            session_affinity: affinity,
            session_affinity_timeout: (affinity == SessionAffinity::ClientIp).then_some(timeout),
            internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
            traffic_distribution: spec.traffic_distribution.clone(),
        },
        cluster_ips,
        stray: stray_fields(&spec),
    }
}

/// The fields of a Service that have a value which a derived Service never has.
fn stray_fields(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> BTreeSet<String> {
    let families = spec.ip_families.as_ref().map_or(1, Vec::len);
    let policy = if families > 1 { "RequireDualStack" } else { "SingleStack" };
    let is_set = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let target_differs = |port: &ServicePort| {
        port.target_port.as_ref().is_some_and(|target| *target != IntOrString::Int(port.port))
    };
    let stray = [
        ("selector", spec.selector.as_ref().is_some_and(|selector| !selector.is_empty())),
        ("externalIPs", is_set(&spec.external_ips)),
        ("loadBalancerSourceRanges", is_set(&spec.load_balancer_source_ranges)),
        ("loadBalancerClass", spec.load_balancer_class.is_some()),
        ("loadBalancerIP", spec.load_balancer_ip.is_some()),
        ("externalName", spec.external_name.as_ref().is_some_and(|name| !name.is_empty())),
        ("externalTrafficPolicy", spec.external_traffic_policy.is_some()),
        ("publishNotReadyAddresses", spec.publish_not_ready_addresses == Some(true)),
        ("type", spec.type_.as_deref().is_some_and(|kind| kind != "ClusterIP")),
        ("ipFamilyPolicy", spec.ip_family_policy.as_deref().is_some_and(|is| is != policy)),
        ("targetPort", spec.ports.iter().flatten().any(target_differs)),
        (
            "nodePort",
            spec.ports.iter().flatten().any(|port| port.node_port.is_some_and(|number| number != 0)),
        ),
    ];
    stray.into_iter().filter(|(_, is_stray)| *is_stray).map(|(field, _)| field.to_owned()).collect()
}

fn read_slice(slice: &EndpointSlice, owner: &str, derived: &str, clusterset: &ClustersetId) -> ImportedSlice {
    let labels = slice.labels();
    let of_derived = labels.get(LABEL_SLICE_SERVICE).is_some_and(|service| service == derived);
    let by_kubernetes =
        labels.get(LABEL_SLICE_MANAGED_BY).is_some_and(|keeper| keeper == MANAGED_BY_KUBERNETES);
    let family = IpFamily::parse(&slice.address_type);
    let mut stray = family.is_none();
    let mut endpoints = BTreeMap::new();
    for entry in &slice.endpoints {
        let (facts, is_stray) = slice_endpoint(entry);
        stray |= is_stray;
        for address in &entry.addresses {
            match address.parse::<IpAddr>() {
                Ok(address) => stray |= endpoints.insert(address, facts.clone()).is_some(),
                Err(_) => stray = true,
            }
        }
    }
    ImportedSlice {
        meta: meta(&slice.metadata, owner, clusterset),
        keeper: if by_kubernetes && of_derived { SliceKeeper::Kubernetes } else { SliceKeeper::Other },
        source: labels.get(LABEL_SOURCE_CLUSTER).and_then(|cluster| cluster.parse().ok()),
        group: GroupKey::new(family.unwrap_or(IpFamily::V4), slice.ports.iter().flatten().map(endpoint_port)),
        endpoints,
        stray,
    }
}

/// Reads an entry of an imported slice, and whether it has content that we never write.
fn slice_endpoint(entry: &ApiEndpoint) -> (SliceEndpoint, bool) {
    let hints = entry.hints.clone().unwrap_or_default();
    let zones: Vec<_> = hints.for_zones.unwrap_or_default().into_iter().map(|zone| zone.name).collect();
    let nodes: Vec<_> = hints.for_nodes.unwrap_or_default().into_iter().map(|node| node.name).collect();
    let stray = entry.addresses.len() != 1
        || entry.target_ref.is_some()
        || entry.deprecated_topology.as_ref().is_some_and(|topology| !topology.is_empty())
        || zones.len() > 1
        || nodes.len() > 1;
    let facts = SliceEndpoint {
        endpoint: endpoint(entry),
        zone_hint: zones.into_iter().next(),
        node_hint: nodes.into_iter().next(),
    };
    (facts, stray)
}

/// Reads the metadata of an object that is, or is to be, owned by the ServiceImport called `owner`.
fn meta(meta: &ObjectMeta, owner: &str, clusterset: &ClustersetId) -> Meta {
    let labels = meta.labels.clone().unwrap_or_default();
    let annotations = meta.annotations.clone().unwrap_or_default();
    let names_owner = meta.owner_references.iter().flatten().find(|reference| {
        reference.api_version == MCS_API_VERSION
            && reference.kind == KIND_SERVICE_IMPORT
            && reference.name == owner
            && reference.block_owner_deletion != Some(true)
    });
    Meta {
        identity: Identity {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        },
        ownership: Ownership::of(&labels, &annotations, clusterset),
        deleting: meta.deletion_timestamp.is_some(),
        labels: of_our_manager(meta, "f:labels", labels),
        annotations: of_our_manager(meta, "f:annotations", annotations),
        owner: names_owner.map(|reference| reference.uid.clone()),
    }
}

/// The entries that our field manager owns, by the object's own record of who manages what.
fn of_our_manager(meta: &ObjectMeta, map: &str, entries: Entries) -> Entries {
    let ours: BTreeSet<_> = managed_entries(meta, map).filter_map(|entry| entry.strip_prefix("f:")).collect();
    entries.into_iter().filter(|(name, _)| ours.contains(name.as_str())).collect()
}

/// What our field manager owns below a field of the metadata, as the API server's record writes it: `f:` before the keys
/// of a map, `k:` before those of the elements of a list.
pub(crate) fn managed_entries<'a>(meta: &'a ObjectMeta, field: &str) -> impl Iterator<Item = &'a str> {
    let records = meta.managed_fields.iter().flatten();
    records
        .filter(|record| record.manager.as_deref() == Some(FIELD_MANAGER) && record.subresource.is_none())
        .filter_map(move |record| record.fields_v1.as_ref()?.0.get("f:metadata")?.get(field)?.as_object())
        .flat_map(|fields: &serde_json::Map<String, Value>| fields.keys().map(String::as_str))
}
