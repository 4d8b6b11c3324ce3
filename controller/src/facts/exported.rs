//! A ServiceExport, its Service and its EndpointSlices → what is exported (KEP-1645: exporting services).

use super::{
    internal_traffic_policy, ip_families, port_number, protocol, service_port, session_affinity, wall_time,
};
use crate::api::ServiceExport;
use crate::index::ExportObjects;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointPort as ApiPort, EndpointSlice};
use kube::ResourceExt;
use mcs_core::conditions::{Unexportable, Validity};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, ServiceType,
    SessionAffinity,
};
use mcs_core::names::{
    ANNOTATION_PREFIX_EXPORTED, LABEL_MANAGED_BY, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY,
    LABEL_SOURCE_CLUSTER, MANAGED_BY,
};
use mcs_core::validate::{Dropped, check_endpoints};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The address type of slices that hold names rather than addresses.
const FQDN: &str = "FQDN";
/// Karmada marks the slices that it brings in from other clusters by this keeper.
const KARMADA_KEEPER: &str = "endpointslice-dispatch-controller.karmada.io";

/// What the objects of one export say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportInput {
    /// Whether the Service can be exported.
    pub(crate) validity: Validity,
    /// What is exported; there when it can be.
    pub(crate) content: Option<Content>,
}

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The definition.
    pub(crate) spec: Arc<ExportSpec>,
    /// The endpoints that Kubernetes' rules allow in another cluster.
    pub(crate) endpoints: Arc<EndpointSet>,
    /// Those that they do not.
    pub(crate) dropped: Vec<Dropped>,
    /// Whether there are slices of names, which are not exported.
    pub(crate) has_names: bool,
}

/// Reads what the objects say; without a ServiceExport, or with one that is being deleted, nothing is exported.
pub(crate) fn exported(objects: &ExportObjects) -> Option<ExportInput> {
    let export = objects.export.as_deref().filter(|export| export.metadata.deletion_timestamp.is_none())?;
    let invalid = |validity| Some(ExportInput { validity, content: None });
    let Some(service) =
        objects.service.as_deref().filter(|service| service.metadata.deletion_timestamp.is_none())
    else {
        return invalid(Validity::NoService);
    };
    if is_derived(service) {
        return invalid(Validity::InvalidServiceType(Unexportable::Derived));
    }
    if service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        return invalid(Validity::InvalidServiceType(Unexportable::ExternalName));
    }
    let own = objects.slices.iter().filter(|slice| is_own(slice));
    let (mut endpoints, mut has_names) = (EndpointMap::default(), false);
    for slice in own {
        has_names |= slice.address_type == FQDN;
        add_slice(&mut endpoints, slice);
    }
    let (endpoints, dropped) = check_endpoints(&endpoints.pack());
    let content = Content {
        spec: Arc::new(definition(export, service)),
        endpoints: Arc::new(endpoints),
        dropped,
        has_names,
    };
    Some(ExportInput { validity: Validity::Valid, content: Some(content) })
}

/// Whether this or another system made the Service for an import. Exported again it would never end.
pub(crate) fn is_derived(service: &Service) -> bool {
    let labels = service.labels();
    labels.get(LABEL_MANAGED_BY).is_some_and(|manager| manager == MANAGED_BY)
        || labels.contains_key(LABEL_SERVICE_NAME)
}

/// Whether a slice holds endpoints of this cluster, and is not on its way out.
fn is_own(slice: &EndpointSlice) -> bool {
    let labels = slice.labels();
    let imported = labels.contains_key(LABEL_SERVICE_NAME)
        || labels.contains_key(LABEL_SOURCE_CLUSTER)
        || labels
            .get(LABEL_SLICE_MANAGED_BY)
            .is_some_and(|keeper| keeper == MANAGED_BY || keeper == KARMADA_KEEPER);
    !imported && slice.metadata.deletion_timestamp.is_none()
}

fn definition(export: &ServiceExport, service: &Service) -> ExportSpec {
    let spec = service.spec.clone().unwrap_or_default();
    let wanted = export.spec.clone().unwrap_or_default();
    let affinity = session_affinity(spec.session_affinity.as_deref());
    let timeout = spec.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
    let timeout = timeout.and_then(|seconds| u32::try_from(seconds).ok());
    let mut annotations: BTreeMap<_, _> = service
        .annotations()
        .iter()
        .filter(|(name, _)| name.starts_with(ANNOTATION_PREFIX_EXPORTED))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    annotations.extend(wanted.exported_annotations);
    ExportSpec {
        created_at: export.metadata.creation_timestamp.as_ref().map(wall_time).unwrap_or_default(),
        service_type: match spec.cluster_ip.as_deref() {
            Some("None") => ServiceType::Headless,
            _ => ServiceType::ClusterSetIp,
        },
        ports: spec.ports.iter().flatten().map(service_port).collect(),
        session_affinity: affinity,
        session_affinity_timeout: timeout.filter(|_| affinity == SessionAffinity::ClientIp),
        internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution,
        ip_families: ip_families(spec.ip_families.iter().flatten()),
        labels: wanted.exported_labels,
        annotations,
    }
}

fn add_slice(endpoints: &mut EndpointMap, slice: &EndpointSlice) {
    let Some(family) = IpFamily::parse(&slice.address_type) else { return };
    let group = GroupKey::new(family, slice.ports.iter().flatten().map(endpoint_port));
    let members = slice.endpoints.iter().flat_map(|endpoint| {
        let facts = self::endpoint(endpoint);
        let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        addresses.map(move |address| (address, facts.clone()))
    });
    endpoints.insert_all(group, members);
}

/// Reads a port of a slice.
pub(super) fn endpoint_port(port: &ApiPort) -> EndpointPort {
    EndpointPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol(port.protocol.as_deref()),
        port: port.port.map(port_number),
        app_protocol: port.app_protocol.clone(),
    }
}

/// Reads an endpoint of a slice, its addresses and hints apart.
pub(super) fn endpoint(endpoint: &ApiEndpoint) -> Endpoint {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    Endpoint {
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
        hostname: endpoint.hostname.clone(),
        zone: endpoint.zone.clone(),
        node_name: endpoint.node_name.clone(),
    }
}
