//! The wanted import + what exists → ordered steps (controller contract: imports; KEP-1645: ServiceImport,
//! EndpointSlice).
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
use crate::model::IpFamily;
use crate::view::Decision;

mod objects;

pub use objects::{
    DerivedService, Entries, Existing, Identity, ImportObject, ImportReady, ImportSpec, ImportStatus, ImportedSlice,
    Meta, Ownership, ServiceSpec, SliceEndpoint, SliceKeeper, WantedImport, WantedService, WantedSlice,
};

/// What a plan depends on besides the import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// The clusterset whose mark our objects carry.
    pub clusterset: ClustersetId,
    /// The importing cluster.
    pub cluster: ClusterId,
    /// Whether ServiceImports without our marks are taken over.
    pub adopt_unmanaged: bool,
    /// The address families that this cluster gives Services.
    pub served_families: Vec<IpFamily>,
    /// Whether the served CRD keeps `status.endpointSliceObjects`; one that drops it would be written for ever.
    pub slices_present_kept: bool,
    /// Whether the API server keeps `hints.forNodes` of slices; one that drops it would be written for ever.
    pub node_hints_kept: bool,
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
pub fn plan(_key: &ServiceKey, _decision: &Decision, _existing: &Existing, _config: &PlanConfig) -> Vec<Step> {
    Vec::new()
}
