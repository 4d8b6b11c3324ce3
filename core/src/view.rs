//! What an importing controller may believe, show and delete.
//!
//! The view is fed with the frames of a watch, with what is applied in the cluster, and with the cluster's own
//! endpoints, and decides for each import what shall be there. Two rules stand above all: incomplete knowledge never
//! deletes, and nothing goes back in time (registry contract: leases and what is shown when).

use crate::ids::{ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use crate::model::{Conflict, EndpointSet, Frame, GoodPort, ImportDefinition, Section};
use crate::time::Timestamp;
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What exists of one import in the cluster: the clusters in its `status.clusters`, and those that its slices name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The source clusters.
    pub clusters: BTreeMap<ClusterId, AppliedSource>,
}

/// What the slices of one source cluster say of the state that they were made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedSource {
    /// The source's UID, where a slice names it.
    pub uid: Option<ClusterUid>,
    /// The highest version that a slice names.
    pub version: Option<Version>,
}

/// What shall be there of one import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Too little is known: sources and status stay as they are.
    Keep,
    /// No cluster exports it, for certain: all of it goes.
    Remove,
    /// This.
    Apply(Wanted),
}

/// A wanted import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What the exports merged into; none where the fields of the ServiceImport and of its derived Service stay as
    /// they are, since what the registry merged cannot be believed yet.
    pub definition: Option<ImportDefinition>,
    /// The clusters in `status.clusters`; the slices of any other cluster go.
    pub sources: BTreeMap<ClusterId, Source>,
}

/// What shall be there of one source cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Slices of these endpoints.
    Show(Shown),
    /// What is there.
    Keep,
}

/// The endpoints of one source cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The source's UID; unknown of the own cluster until the view lists it.
    pub uid: Option<ClusterUid>,
    /// Its region, where it has one.
    pub region: Option<Region>,
    /// The version of the contribution; none of the own cluster, whose endpoints come from its own watch.
    pub version: Option<Version>,
    /// The import's ports that the source serves.
    pub good_ports: Vec<GoodPort>,
    /// The endpoints, by the source's own port names.
    pub endpoints: Arc<EndpointSet>,
    /// Whether the source is the importing cluster.
    pub local: bool,
}

/// How the own cluster's export of one Service stands in the view, for its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnExport {
    /// The version that was merged.
    pub version: Version,
    /// The fields on which the exports of the Service differ.
    pub conflicts: Vec<Conflict>,
    /// How many clusters export it.
    pub participants: usize,
}

/// Sizes of the view, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clusters that are listed.
    pub clusters: usize,
    /// Merged Services.
    pub imports: usize,
    /// Endpoints over all clusters and Services.
    pub endpoints: usize,
}

/// The view of one importing cluster, kept over connections and registries.
#[derive(Debug)]
pub struct View {
    own: ClusterId,
    dirty: BTreeSet<ServiceKey>,
}

impl View {
    /// A view that knows nothing yet, of the importing cluster `own`.
    pub const fn new(own: ClusterId) -> Self {
        Self { own, dirty: BTreeSet::new() }
    }

    /// Tells what was found applied at start, before any frame. The same as [`View::applied`].
    pub fn seed(&mut self, key: ServiceKey, applied: Applied) {
        self.applied(key, applied);
    }

    /// Tells what is applied of `key` now: what exists, whether or not a plan was carried out to its end. Must be
    /// told before [`View::decide`] whenever it may have changed.
    pub fn applied(&mut self, _key: ServiceKey, _applied: Applied) {}

    /// Tells that nothing of ours is left of `key` in the cluster.
    pub fn removed(&mut self, _key: &ServiceKey) {}

    /// Tells that the own watches have listed: from now on, an export that [`View::set_own`] did not name does not
    /// exist here.
    pub fn own_listed(&mut self) {}

    /// Tells the own cluster's endpoints of `key`; none when it is not exported here (any more), or refused.
    pub fn set_own(&mut self, key: ServiceKey, _endpoints: Option<Arc<EndpointSet>>) {
        self.dirty.insert(key);
    }

    /// Takes one frame of the watch.
    pub fn handle_frame(&mut self, _frame: Frame, _now: Timestamp) {}

    /// The watch ended or broke; what is known stays.
    pub fn disconnected(&mut self) {}

    /// Takes the verdicts that were due at `now`.
    pub fn handle_timeout(&mut self, _now: Timestamp) {}

    /// When [`View::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    /// A Service that must be decided and planned again; each change is told once.
    pub fn next_dirty(&mut self) -> Option<ServiceKey> {
        self.dirty.pop_first()
    }

    /// What shall be there of `key`.
    pub fn decide(&self, _key: &ServiceKey) -> Decision {
        Decision::Keep
    }

    /// How the own export of `key` stands; none when the registry's merge has none.
    pub fn own_export(&self, _key: &ServiceKey) -> Option<OwnExport> {
        None
    }

    /// The own cluster as the registry lists it.
    pub fn own_section(&self) -> Option<&Section> {
        None
    }

    /// Whether a snapshot was told to its end and the registry knew every cluster then.
    pub fn is_complete(&self) -> bool {
        false
    }

    /// The registry process that was heard last.
    pub fn epoch(&self) -> Option<Epoch> {
        None
    }

    /// The revision reached there.
    pub fn revision(&self) -> u64 {
        0
    }

    /// Where a broken watch can go on; none while a snapshot is half told.
    pub fn resume(&self) -> Option<(Epoch, u64)> {
        None
    }

    /// Sizes, for metrics.
    pub fn counts(&self) -> Counts {
        let _ = &self.own;
        Counts::default()
    }
}
