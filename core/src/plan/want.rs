//! What a ServiceImport and its derived Service shall be, and whether what exists differs from it.

use super::{
    DerivedService, Entries, ImportObject, ImportSpec, Meta, PlanConfig, ServiceSpec, WantedImport,
    WantedService, derived,
};
use crate::ids::ServiceKey;
use crate::limits::DEFAULT_SESSION_AFFINITY_TIMEOUT;
use crate::model::{ImportDefinition, IpFamily, Port, ServiceType, SessionAffinity};
use crate::names;
use std::collections::BTreeSet;

/// Marks that would make an import look like a slice or a derived Service to whoever reads labels.
const NOT_ON_IMPORTS: [&str; 3] =
    [names::LABEL_SERVICE_NAME, names::LABEL_SOURCE_CLUSTER, names::LABEL_SLICE_SERVICE];

/// The families of `families` that the cluster gives Services, in their order; all it gives when none is named.
pub(super) fn served(families: &[IpFamily], config: &PlanConfig) -> Vec<IpFamily> {
    let named = if families.is_empty() { &config.served_families } else { families };
    named.iter().copied().filter(|family| config.served_families.contains(family)).collect()
}

/// The ServiceImport of `key`, without ips.
pub(super) fn import(key: &ServiceKey, definition: &ImportDefinition, config: &PlanConfig) -> WantedImport {
    let served = served(&definition.ip_families, config);
    let mut labels = definition.labels.clone();
    labels.retain(|label, _| !NOT_ON_IMPORTS.contains(&label.as_str()));
    let mut annotations = definition.annotations.clone();
    mark_import(key, &mut labels, &mut annotations, config);
    let spec = ImportSpec {
        service_type: definition.service_type,
        ports: definition.ports.clone(),
        ips: Vec::new(),
        ip_families: if served.is_empty() { definition.ip_families.clone() } else { served },
        session_affinity: definition.session_affinity,
        session_affinity_timeout: definition.session_affinity_timeout,
        internal_traffic_policy: definition.internal_traffic_policy,
        traffic_distribution: definition.traffic_distribution.clone(),
    };
    WantedImport { labels, annotations, spec }
}

/// The ServiceImport with the fields that it has, where no definition is known.
pub(super) fn import_as_it_is(key: &ServiceKey, import: &ImportObject, config: &PlanConfig) -> WantedImport {
    let mut labels = import.meta.labels.clone();
    let mut annotations = import.meta.annotations.clone();
    mark_import(key, &mut labels, &mut annotations, config);
    WantedImport { labels, annotations, spec: import.spec.clone() }
}

fn mark_import(key: &ServiceKey, labels: &mut Entries, annotations: &mut Entries, config: &PlanConfig) {
    annotations.insert(names::ANNOTATION_DERIVED_SERVICE.to_owned(), derived(key));
    mark(labels, annotations, config);
}

/// Puts the marks by which we know what is ours.
pub(super) fn mark(labels: &mut Entries, annotations: &mut Entries, config: &PlanConfig) {
    labels.insert(names::LABEL_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned());
    annotations.insert(names::ANNOTATION_CLUSTERSET.to_owned(), config.clusterset.to_string());
}

/// The derived Service of an import; none when the cluster serves none of its families.
pub(super) fn service(
    key: &ServiceKey,
    import: &ImportSpec,
    owner: &str,
    config: &PlanConfig,
) -> Option<WantedService> {
    let ip_families = served(&import.ip_families, config);
    if ip_families.is_empty() {
        return None;
    }
    let mut labels = Entries::from([(names::LABEL_SERVICE_NAME.to_owned(), key.name.to_string())]);
    let mut annotations = Entries::new();
    mark(&mut labels, &mut annotations, config);
    let timeout = match import.session_affinity {
        SessionAffinity::None => None,
        SessionAffinity::ClientIp => {
            Some(import.session_affinity_timeout.unwrap_or(DEFAULT_SESSION_AFFINITY_TIMEOUT))
        }
    };
    let spec = ServiceSpec {
        headless: import.service_type == ServiceType::Headless,
        ports: import.ports.clone(),
        ip_families,
        session_affinity: import.session_affinity,
        session_affinity_timeout: timeout,
        internal_traffic_policy: import.internal_traffic_policy,
        traffic_distribution: import.traffic_distribution.clone(),
    };
    Some(WantedService { name: derived(key), labels, annotations, owner: owner.to_owned(), spec })
}

/// Whether the ServiceImport must be written. The order of ports has no meaning.
pub(super) fn import_differs(import: &ImportObject, wanted: &WantedImport) -> bool {
    let ordered = |spec: &ImportSpec| ImportSpec { ports: sorted(&spec.ports), ..spec.clone() };
    import.meta.labels != wanted.labels
        || import.meta.annotations != wanted.annotations
        || ordered(&import.spec) != ordered(&wanted.spec)
}

/// Whether an apply may not reach `wanted`, since a field that has no value there may be another manager's.
pub(super) fn import_loses_fields(is: &ImportSpec, wanted: &ImportSpec) -> bool {
    (is.session_affinity_timeout.is_some() && wanted.session_affinity_timeout.is_none())
        || (is.traffic_distribution.is_some() && wanted.traffic_distribution.is_none())
        || (!is.ips.is_empty() && wanted.ips.is_empty())
}

/// Whether the derived Service must be written. The order of ports has no meaning.
pub(super) fn service_differs(service: &DerivedService, wanted: &WantedService) -> bool {
    let ordered = |spec: &ServiceSpec| ServiceSpec { ports: sorted(&spec.ports), ..spec.clone() };
    !service.stray.is_empty()
        || marks_differ(&service.meta, &wanted.labels, &wanted.annotations, &wanted.owner)
        || ordered(&service.spec) != ordered(&wanted.spec)
}

/// Whether an apply may not reach `wanted`, since a field or a port that must go may be another manager's.
pub(super) fn service_loses_fields(service: &DerivedService, wanted: &ServiceSpec) -> bool {
    let is = &service.spec;
    !service.stray.is_empty()
        || is.ports.iter().any(|port| !wanted.ports.contains(port))
        || (is.session_affinity_timeout.is_some() && wanted.session_affinity_timeout.is_none())
        || (is.traffic_distribution.is_some() && wanted.traffic_distribution.is_none())
}

/// Whether labels, annotations or the owner differ.
pub(super) fn marks_differ(meta: &Meta, labels: &Entries, annotations: &Entries, owner: &str) -> bool {
    meta.labels != *labels || meta.annotations != *annotations || meta.owner.as_deref() != Some(owner)
}

fn sorted(ports: &[Port]) -> Vec<Port> {
    ports.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect()
}
