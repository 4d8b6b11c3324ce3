//! The wanted import + what exists → ordered steps (KEP-1645: ServiceImport, EndpointSlice).
//!
//! Level-triggered: the caller runs the steps in their order, reads back what exists, and plans again until no write
//! is left. A plan holds at most one step for each object, bound to the version that was read, so a step that comes
//! too late meets a conflict, and a process that dies after any step is followed by one that plans from there.
//!
//! Guarantees:
//! - no difference, no step; the order of ports in slices and of endpoints is no difference, nor are labels and
//!   annotations that somebody else put there;
//! - what does not carry our marks is neither changed nor deleted (but see [`PlanConfig::adopt_unmanaged`], and
//!   [`Step::RemoveForeignSlices`]);
//! - a ServiceImport is never deleted while a cluster exports its Service; a change of type or primary address family
//!   replaces the derived Service only;
//! - the order is: ServiceImport without ips, derived Service, ips, slices, status.

use crate::ids::{ClusterId, ClustersetId, ServiceKey};
use crate::model::{ImportDefinition, IpFamily};
use crate::names;
use crate::view::{Decision, Source};
use std::collections::BTreeMap;
use std::net::IpAddr;

mod objects;
mod slices;
pub mod slots;
mod want;

pub use objects::{
    DerivedService, Entries, Existing, Identity, ImportObject, ImportReady, ImportSpec, ImportStatus,
    ImportedSlice, Meta, Ownership, ServiceSpec, SliceEndpoint, SliceKeeper, WantedImport, WantedService,
    WantedSlice,
};

/// What a plan depends on besides the import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// The clusterset whose mark our objects carry.
    pub clusterset: ClustersetId,
    /// The importing cluster; the endpoints that it imports of itself are the local ones.
    pub cluster: ClusterId,
    /// Whether ServiceImports without our marks are taken over.
    pub adopt_unmanaged: bool,
    /// The address families that this cluster gives Services.
    pub served_families: Vec<IpFamily>,
    /// Whether the served CRD keeps `status.endpointSliceObjects`; one that drops it would be written for ever.
    pub slices_present_kept: bool,
    /// Whether the API server keeps `hints.forNodes` of slices; one that drops it would be written for ever.
    pub node_hints_kept: bool,
    /// Whether it refuses the update of the ServiceImport, which then stays as it is, without keeping its status waiting.
    pub import_refused: bool,
}

/// The kind of an object that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A ServiceImport.
    ServiceImport,
    /// A Service.
    Service,
    /// An EndpointSlice.
    EndpointSlice,
}

impl Kind {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceImport => "ServiceImport",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }
}

/// What keeps an import from being complete, for an Event and a metric. It is told in every plan while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// An object without our marks has the name that ours would have; it is left alone.
    Foreign {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// This cluster serves none of the import's address families.
    FamilyNotSupported {
        /// The import's families.
        families: Vec<IpFamily>,
    },
}

/// One act on the API server. Updates and deletes carry the identity that was read: a mismatch is a conflict, after
/// which the caller reads and plans again. Creates are creates, never an apply that would revive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates the ServiceImport, without ips.
    CreateImport(WantedImport),
    /// Changes labels, annotations and fields of the ServiceImport.
    UpdateImport {
        /// What was read.
        base: Identity,
        /// What it shall be.
        wanted: WantedImport,
        /// Whether an apply cannot reach it, since another manager owns a field that must go: replace all fields.
        full: bool,
    },
    /// Writes the status of the ServiceImport.
    UpdateImportStatus {
        /// What was read.
        base: Identity,
        /// What it shall be.
        status: ImportStatus,
    },
    /// Creates the derived Service.
    CreateService(WantedService),
    /// Changes the derived Service.
    UpdateService {
        /// What was read.
        base: Identity,
        /// What it shall be.
        wanted: WantedService,
        /// Whether an apply cannot reach it, since another manager owns a field that must go: replace all fields.
        full: bool,
    },
    /// Deletes the derived Service; the next plan may create another.
    DeleteService(Identity),
    /// Creates a slice.
    CreateSlice(WantedSlice),
    /// Changes a slice.
    UpdateSlice {
        /// What was read.
        base: Identity,
        /// What it shall be.
        wanted: WantedSlice,
    },
    /// Deletes a slice of ours.
    DeleteSlice(Identity),
    /// Deletes slices that Kubernetes made while somebody had given the derived Service a selector; it leaves them
    /// when the selector goes.
    RemoveForeignSlices(Vec<Identity>),
    /// Deletes the ServiceImport.
    DeleteImport(Identity),
    /// Nothing to write: tells people.
    Report(Problem),
}

impl Step {
    /// Whether the step changes an object; an import is settled when its plan has no such step.
    pub const fn is_write(&self) -> bool {
        !matches!(self, Self::Report(_))
    }
}

/// The next steps towards what `decision` wants of `key`.
pub fn plan(key: &ServiceKey, decision: &Decision, existing: &Existing, config: &PlanConfig) -> Vec<Step> {
    match decision {
        Decision::Remove => remove(existing),
        // Of what is not ours, only an import that the clusterset has is worth a word.
        Decision::Keep
            if existing.import.as_ref().is_some_and(|import| import.meta.ownership != Ownership::Ours) =>
        {
            Vec::new()
        }
        Decision::Keep => apply(key, None, None, existing, config),
        Decision::Apply(wanted) => {
            apply(key, wanted.definition.as_ref(), Some(&wanted.sources), existing, config)
        }
    }
}

/// Takes away what is ours. The ServiceImport goes last: it tells a restarted controller what there is to remove.
fn remove(existing: &Existing) -> Vec<Step> {
    let goes = |meta: &Meta| meta.ownership == Ownership::Ours && !meta.deleting;
    let slices = existing.slices.iter().map(|slice| &slice.meta).filter(|meta| goes(meta));
    let mut steps: Vec<Step> = slices.map(|meta| Step::DeleteSlice(meta.identity.clone())).collect();
    if let Some(service) = existing.service.as_ref().filter(|service| goes(&service.meta)) {
        steps.push(Step::DeleteService(service.meta.identity.clone()));
    }
    if let Some(import) = existing.import.as_ref().filter(|import| goes(&import.meta)) {
        steps.push(Step::DeleteImport(import.meta.identity.clone()));
    }
    steps
}

/// What becomes of the derived Service.
#[derive(Debug, Default)]
struct ServiceVerdict {
    step: Option<Step>,
    problem: Option<Problem>,
    /// Whether there is one that can be used, at least after the step.
    usable: bool,
    /// Whether it is made or replaced next; the rest of the import waits for it.
    changing: bool,
    /// Its addresses.
    ips: Vec<IpAddr>,
}

fn apply(
    key: &ServiceKey,
    definition: Option<&ImportDefinition>,
    sources: Option<&BTreeMap<ClusterId, Source>>,
    existing: &Existing,
    config: &PlanConfig,
) -> Vec<Step> {
    let Some(import) = &existing.import else {
        // Without a definition there is nothing to make it from.
        let wanted = definition.map(|definition| want::import(key, definition, config));
        return wanted.map(Step::CreateImport).into_iter().collect();
    };
    let adopted =
        import.meta.ownership == Ownership::Foreign && config.adopt_unmanaged && definition.is_some();
    if import.meta.ownership != Ownership::Ours && !adopted {
        let name = import.meta.identity.name.clone();
        return vec![Step::Report(Problem::Foreign { kind: Kind::ServiceImport, name })];
    }
    if import.meta.deleting {
        return Vec::new();
    }
    let mut wanted = match definition {
        Some(definition) => want::import(key, definition, config),
        None => want::import_as_it_is(key, import, config),
    };
    let service = service_verdict(key, &wanted.spec, import, existing.service.as_ref(), config);
    wanted.spec.ips.clone_from(&service.ips);

    let mut steps = Vec::new();
    let import_differs = !config.import_refused && want::import_differs(import, &wanted);
    if import_differs {
        let full = want::import_loses_fields(&import.spec, &wanted.spec);
        let base = import.meta.identity.clone();
        steps.push(Step::UpdateImport { base, wanted: wanted.clone(), full });
    }
    let supported = !want::served(&wanted.spec.ip_families, config).is_empty();
    let ready = match (supported, service.usable) {
        (false, _) => ImportReady::FamilyNotSupported,
        (true, false) => ImportReady::Pending,
        (true, true) => ImportReady::Ready,
    };
    let mut status = ImportStatus { ready: Some(ready), ..import.status.clone() };
    if service.changing {
        // Slices and their clusters follow when the derived Service is there.
        push_status(&mut steps, import, status, import_differs);
        steps.extend(service.step);
        return steps;
    }
    steps.extend(service.step);
    steps.extend(service.problem.map(Step::Report));
    if !supported {
        let families = wanted.spec.ip_families.clone();
        steps.push(Step::Report(Problem::FamilyNotSupported { families }));
    }
    if let Some(sources) = sources {
        let target =
            slices::Target { key, import, spec: &wanted.spec, from_import: definition.is_none(), config };
        steps.extend(target.steps(sources, &existing.slices));
        status.clusters = sources.keys().cloned().collect();
        status.slices_present |= config.slices_present_kept;
    }
    if existing.service.as_ref().is_some_and(|service| service.meta.ownership == Ownership::Ours) {
        let left = slices::left_by_kubernetes(&existing.slices);
        steps.extend((!left.is_empty()).then_some(Step::RemoveForeignSlices(left)));
    }
    push_status(&mut steps, import, status, import_differs);
    steps
}

/// Adds the status, unless the plan writes the ServiceImport already: then the next plan does.
fn push_status(steps: &mut Vec<Step>, import: &ImportObject, status: ImportStatus, import_differs: bool) {
    if import.status != status && !import_differs {
        steps.push(Step::UpdateImportStatus { base: import.meta.identity.clone(), status });
    }
}

fn service_verdict(
    key: &ServiceKey,
    spec: &ImportSpec,
    import: &ImportObject,
    existing: Option<&DerivedService>,
    config: &PlanConfig,
) -> ServiceVerdict {
    let wanted = want::service(key, spec, &import.meta.identity.uid, config);
    let Some(service) = existing else {
        let step = wanted.map(Step::CreateService);
        return ServiceVerdict { changing: step.is_some(), step, ..ServiceVerdict::default() };
    };
    let identity = &service.meta.identity;
    if service.meta.ownership != Ownership::Ours {
        let problem = Problem::Foreign { kind: Kind::Service, name: identity.name.clone() };
        return ServiceVerdict { problem: Some(problem), ..ServiceVerdict::default() };
    }
    if service.meta.deleting {
        return ServiceVerdict::default();
    }
    let Some(wanted) = wanted else {
        let step = Some(Step::DeleteService(identity.clone()));
        return ServiceVerdict { step, ..ServiceVerdict::default() };
    };
    let replaced = service.spec.headless != wanted.spec.headless
        || service.spec.ip_families.first() != wanted.spec.ip_families.first();
    if replaced {
        // The API server changes neither in place.
        let step = Some(Step::DeleteService(identity.clone()));
        return ServiceVerdict { step, changing: true, ..ServiceVerdict::default() };
    }
    let usable = wanted.spec.headless || !service.cluster_ips.is_empty();
    let ips = if wanted.spec.headless { Vec::new() } else { service.cluster_ips.clone() };
    let step = want::service_differs(service, &wanted).then(|| Step::UpdateService {
        base: identity.clone(),
        full: want::service_loses_fields(service, &wanted.spec),
        wanted,
    });
    ServiceVerdict { step, usable, ips, ..ServiceVerdict::default() }
}

/// The name of the derived Service of `key`.
fn derived(key: &ServiceKey) -> String {
    names::derived_service_name(key)
}
