//! What the planner wants → Kubernetes objects.

use super::condition;
use crate::api::{
    ClientIpConfig, ClusterStatus, ImportPort, ServiceImport, ServiceImportSpec, ServiceImportStatus,
    SessionAffinityConfig,
};
use k8s_openapi::api::core::v1::{
    ClientIPConfig as ServiceClientIp, Service, ServicePort, ServiceSpec,
    SessionAffinityConfig as ServiceAffinity,
};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mcs_core::conditions::{self, Condition, Status, Verdict};
use mcs_core::ids::ServiceKey;
use mcs_core::model::{Port, SessionAffinity};
use mcs_core::names::{CONDITION_READY, ENDPOINT_SLICES_PRESENT, KIND_SERVICE_IMPORT, MCS_API_VERSION};
use mcs_core::plan::{Entries, ImportStatus, SliceEndpoint, WantedImport, WantedService, WantedSlice};
use mcs_core::time::WallTime;
use std::net::IpAddr;

/// A ServiceImport as it shall be, without its status.
pub(crate) fn import(key: &ServiceKey, wanted: &WantedImport) -> ServiceImport {
    let spec = &wanted.spec;
    let timeout = spec.session_affinity_timeout.and_then(|seconds| i32::try_from(seconds).ok());
    let port = |port: &Port| ImportPort {
        name: Some(port.name.clone()).filter(|name| !name.is_empty()),
        protocol: Some(port.protocol.as_str().to_owned()),
        port: port.port.into(),
        app_protocol: port.app_protocol.clone(),
    };
    ServiceImport {
        metadata: metadata(key, key.name.as_str(), &wanted.labels, &wanted.annotations),
        spec: Some(ServiceImportSpec {
            type_: spec.service_type.as_str().to_owned(),
            ports: spec.ports.iter().map(port).collect(),
            ips: spec.ips.iter().map(ToString::to_string).collect(),
            ip_families: spec.ip_families.iter().map(|family| family.as_str().to_owned()).collect(),
            session_affinity: Some(spec.session_affinity.as_str().to_owned()),
            session_affinity_config: timeout.map(|seconds| SessionAffinityConfig {
                client_ip: Some(ClientIpConfig { timeout_seconds: Some(seconds) }),
            }),
            internal_traffic_policy: Some(spec.internal_traffic_policy.as_str().to_owned()),
            traffic_distribution: spec.traffic_distribution.clone(),
        }),
        status: None,
    }
}

/// The status of a ServiceImport of `generation` as it shall be; the times of `previous` stay where nothing changed.
pub(crate) fn import_status(
    wanted: &ImportStatus,
    previous: &[Condition],
    generation: i64,
    now: WallTime,
) -> ServiceImportStatus {
    let cluster = |cluster: &mcs_core::ids::ClusterId| ClusterStatus { cluster: cluster.to_string() };
    let mut conditions: Vec<_> =
        previous.iter().filter(|condition| condition.kind == CONDITION_READY).cloned().collect();
    if let Some(ready) = wanted.ready {
        let status = if ready.is_true() { Status::True } else { Status::False };
        let verdict = Verdict::new(status, ready.reason(), ready.message());
        conditions::put(&mut conditions, CONDITION_READY, verdict, generation, now);
    }
    ServiceImportStatus {
        clusters: wanted.clusters.iter().map(cluster).collect(),
        conditions: conditions.iter().map(condition).collect(),
        endpoint_slice_objects: wanted.slices_present.then(|| ENDPOINT_SLICES_PRESENT.to_owned()),
    }
}

/// A derived Service as it shall be.
pub(crate) fn service(key: &ServiceKey, wanted: &WantedService) -> Service {
    let spec = &wanted.spec;
    let timeout = spec.session_affinity_timeout.and_then(|seconds| i32::try_from(seconds).ok());
    let has_affinity = spec.session_affinity == SessionAffinity::ClientIp;
    let port = |port: &Port| ServicePort {
        name: Some(port.name.clone()).filter(|name| !name.is_empty()),
        protocol: Some(port.protocol.as_str().to_owned()),
        port: port.port.into(),
        target_port: Some(IntOrString::Int(port.port.into())),
        app_protocol: port.app_protocol.clone(),
        node_port: None,
    };
    let policy = if spec.ip_families.len() > 1 { "RequireDualStack" } else { "SingleStack" };
    Service {
        metadata: owned(key, &wanted.name, &wanted.labels, &wanted.annotations, &wanted.owner),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: spec.headless.then(|| "None".to_owned()),
            ports: Some(spec.ports.iter().map(port).collect()).filter(|ports: &Vec<_>| !ports.is_empty()),
            ip_families: Some(spec.ip_families.iter().map(|family| family.as_str().to_owned()).collect()),
            ip_family_policy: Some(policy.to_owned()),
            session_affinity: Some(spec.session_affinity.as_str().to_owned()),
            session_affinity_config: timeout.filter(|_| has_affinity).map(|seconds| ServiceAffinity {
                client_ip: Some(ServiceClientIp { timeout_seconds: Some(seconds) }),
            }),
            internal_traffic_policy: Some(spec.internal_traffic_policy.as_str().to_owned()),
            traffic_distribution: spec.traffic_distribution.clone(),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The derived Service `is` with no field but those of `wanted`; its cluster IPs stay.
pub(crate) fn without_strays(is: Service, wanted: &Service) -> Service {
    let addresses = is.spec.clone().unwrap_or_default();
    let spec = ServiceSpec {
        cluster_ip: addresses.cluster_ip,
        cluster_ips: addresses.cluster_ips,
        ..wanted.spec.clone().unwrap_or_default()
    };
    Service { spec: Some(spec), ..is }
}

/// An imported slice as it shall be.
pub(crate) fn slice(key: &ServiceKey, wanted: &WantedSlice) -> EndpointSlice {
    let port = |port: &mcs_core::model::EndpointPort| EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.as_str().to_owned()),
        port: port.port.map(i32::from),
        app_protocol: port.app_protocol.clone(),
    };
    EndpointSlice {
        metadata: owned(key, &wanted.name, &wanted.labels, &wanted.annotations, &wanted.owner),
        address_type: wanted.family.as_str().to_owned(),
        ports: Some(wanted.ports.iter().map(port).collect()).filter(|ports: &Vec<_>| !ports.is_empty()),
        endpoints: wanted
            .endpoints
            .iter()
            .map(|(address, endpoint)| slice_entry(*address, endpoint))
            .collect(),
    }
}

fn slice_entry(address: IpAddr, wanted: &SliceEndpoint) -> Endpoint {
    let endpoint = &wanted.endpoint;
    let zones = wanted.zone_hint.iter().map(|zone| ForZone { name: zone.clone() }).collect::<Vec<_>>();
    let nodes = wanted.node_hint.iter().map(|node| ForNode { name: node.clone() }).collect::<Vec<_>>();
    let hints = EndpointHints {
        for_zones: Some(zones).filter(|zones| !zones.is_empty()),
        for_nodes: Some(nodes).filter(|nodes| !nodes.is_empty()),
    };
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
        }),
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        node_name: endpoint.node_name.clone(),
        hints: Some(hints).filter(|hints| *hints != EndpointHints::default()),
        ..Endpoint::default()
    }
}

fn metadata(key: &ServiceKey, name: &str, labels: &Entries, annotations: &Entries) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(key.namespace.to_string()),
        name: Some(name.to_owned()),
        labels: Some(labels.clone()).filter(|labels| !labels.is_empty()),
        annotations: Some(annotations.clone()).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    }
}

/// Metadata of an object that the ServiceImport of `key` owns. Without `blockOwnerDeletion`, which would need more
/// permissions and hold up a deletion by hand.
fn owned(key: &ServiceKey, name: &str, labels: &Entries, annotations: &Entries, owner: &str) -> ObjectMeta {
    ObjectMeta {
        owner_references: Some(vec![OwnerReference {
            api_version: MCS_API_VERSION.to_owned(),
            kind: KIND_SERVICE_IMPORT.to_owned(),
            name: key.name.to_string(),
            uid: owner.to_owned(),
            ..OwnerReference::default()
        }]),
        ..metadata(key, name, labels, annotations)
    }
}
