//! What the view remembers of clusters and Services.

use super::AppliedSource;
use crate::ids::{ClusterId, ClusterUid, ServiceKey};
use crate::model::{Header, Part, Section};
use crate::time::Timestamp;
use crate::version::{Leaf, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A state as a registry told it, and the snapshot in which, or after which, it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told<T> {
    pub(super) object: T,
    pub(super) snapshot: u64,
}

/// A source cluster.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Its section; that of an older snapshot stays for what does not depend on it.
    pub(super) section: Option<Told<Section>>,
    /// Its last section, when this view was told that the cluster was removed while all of it was known.
    pub(super) left: Option<Section>,
    /// Since when complete views have not listed it.
    pub(super) absent_since: Option<Timestamp>,
    /// Whether the grace of an absent cluster is over.
    pub(super) grace_is_over: bool,
}

impl Cluster {
    /// Its section, if it was told in `snapshot`.
    pub(super) fn told_in(&self, snapshot: u64) -> Option<&Section> {
        self.section.as_ref().filter(|told| told.snapshot == snapshot).map(|told| &told.object)
    }

    /// Starts its grace anew.
    pub(super) const fn reset_grace(&mut self) {
        self.absent_since = None;
        self.grace_is_over = false;
    }
}

/// What is known of one cluster's contribution to one Service.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The endpoints, as told last; those that a snapshot did not name go at its end.
    pub(super) told: Option<Told<Part>>,
    /// The content that was told last, also while it is not listed.
    pub(super) leaf: Option<Leaf>,
    /// The newest statement that counted.
    pub(super) floor: Option<(ClusterUid, Version)>,
    /// What is applied of it here.
    pub(super) applied: Option<AppliedSource>,
    /// Whose export went into the last merge that counted, and as of which version.
    pub(super) merged: Option<(ClusterUid, Version)>,
}

impl Known {
    /// The version below which nothing counts that `uid` says; other UIDs are other clusters.
    pub(super) fn floor_of(&self, uid: &ClusterUid) -> Option<Version> {
        let shown = self.floor.as_ref().filter(|(of, _)| of == uid).map(|(_, version)| *version);
        let applied = self.applied.as_ref().filter(|applied| applied.uid.as_ref() == Some(uid));
        shown.max(applied.and_then(|applied| applied.version))
    }
}

/// A Service of the set.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// What its exports merged into.
    pub(super) header: Option<Told<Arc<Header>>>,
    /// The merge that counted last.
    pub(super) settled: Option<Arc<Header>>,
    /// By source cluster.
    pub(super) sources: BTreeMap<ClusterId, Known>,
    /// Whether something of ours exists of it in the cluster.
    pub(super) exists: bool,
}

/// Takes `key` out of an index by cluster.
pub(super) fn unlink(
    index: &mut BTreeMap<ClusterId, BTreeSet<ServiceKey>>,
    cluster: &ClusterId,
    key: &ServiceKey,
) {
    if let Some(keys) = index.get_mut(cluster) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(cluster);
        }
    }
}
