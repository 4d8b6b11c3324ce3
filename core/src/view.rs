//! What an importing controller may believe, show and delete.
//!
//! The view is fed with the frames of a watch, with what is applied in the cluster, and with the cluster's own
//! endpoints, and decides for each import what shall be there. Two rules stand above all: incomplete knowledge never
//! deletes, and nothing goes back in time (docs/design.md, Who may delete what). So, of a source cluster:
//!
//! - a statement counts only while it is not older than what was seen of the same UID, whichever registry made it, or
//!   while the section of a whole cluster says that it is still the newest;
//! - what it no longer has goes when a snapshot was told to its end, the cluster is whole there, its version there is
//!   at least the applied one, and the importer's own cluster is listed; or when its lease ran out; or when complete
//!   views have not listed it for the grace that the registry named;
//! - nothing goes while the registry process that is watched is not the one that the own cluster talks to, where both
//!   should be one;
//! - a merged definition counts only while it takes in every cluster of which something is kept, and none of it from
//!   an older export than was merged before;
//! - the importer's own endpoints come from its own watch, so that they stay current while no registry answers.
//!
//! What is told is kept as it was told, and judged anew at each decision. Rejected: judging each frame when it comes
//! and keeping the outcome. Whether a statement counts may depend on one that follows (a section behind the wanted
//! version catches up, and the parts that were told before count after all), and an object is told only once.
//!
//! Rejected: forgetting the old snapshot when a new one begins. Half a snapshot, or a stream that breaks, would then
//! look like a deletion of all the rest.

mod fate;
mod frames;
mod held;
mod known;

use crate::ids::{ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use crate::model::{Conflict, EndpointSet, GoodPort, ImportDefinition, Section};
use crate::time::WallMillis;
use crate::version::Version;
use frames::Watch;
use held::Held;
pub use held::NotHeld;
use known::{Cluster, Service};
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
}

/// Sizes of the view, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clusters whose endpoints are listed.
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
    /// What the own watches say of own exports; once they have listed, a key that is not here is not exported.
    own_exports: BTreeMap<ServiceKey, Option<Arc<EndpointSet>>>,
    own_listed: bool,
    watch: Watch,
    /// The registry process that the own cluster talks to, where that is known and must be the one that is watched.
    told_to: Option<Epoch>,
    clusters: BTreeMap<ClusterId, Cluster>,
    /// The highest version at which each cluster's whole set was seen, or something of it that is gone, by UID, over all
    /// registries.
    seen: BTreeMap<ClusterUid, Version>,
    services: BTreeMap<ServiceKey, Service>,
    /// Parts of the snapshots before, of clusters of which this one has not told any yet.
    held: BTreeMap<ClusterId, Held>,
    /// The Services of which something is known of a cluster.
    by_cluster: BTreeMap<ClusterId, BTreeSet<ServiceKey>>,
    /// Those of them that wait for the cluster's section to say more.
    doubtful: BTreeMap<ClusterId, BTreeSet<ServiceKey>>,
    dirty: BTreeSet<ServiceKey>,
}

impl View {
    /// A view that knows nothing yet, of the importing cluster `own`.
    pub fn new(own: ClusterId) -> Self {
        Self {
            own,
            own_exports: BTreeMap::new(),
            own_listed: false,
            watch: Watch::default(),
            told_to: None,
            clusters: BTreeMap::new(),
            seen: BTreeMap::new(),
            services: BTreeMap::new(),
            held: BTreeMap::new(),
            by_cluster: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Tells what was found applied at start, before any frame: also the versions below which nothing counts.
    pub fn seed(&mut self, key: ServiceKey, applied: Applied) {
        for source in applied.clusters.values() {
            if let (Some(uid), Some(version)) = (&source.uid, source.version) {
                let seen = self.seen.entry(uid.clone()).or_default();
                *seen = version.max(*seen);
            }
        }
        self.services.entry(key.clone()).or_default().exists = true;
        self.dirty.insert(key.clone());
        self.applied(key, applied);
    }

    /// Tells what is applied of `key` now: what exists, whether or not a plan was carried out to its end. To be told
    /// before each [`View::decide`] about the key; it makes nothing dirty.
    pub fn applied(&mut self, key: ServiceKey, mut applied: Applied) {
        if applied.clusters.is_empty() && !self.services.contains_key(&key) {
            return;
        }
        let service = self.services.entry(key.clone()).or_default();
        service.exists = true;
        for (cluster, known) in &mut service.sources {
            known.applied = applied.clusters.remove(cluster);
        }
        for (cluster, source) in applied.clusters {
            self.by_cluster.entry(cluster.clone()).or_default().insert(key.clone());
            service.sources.entry(cluster).or_default().applied = Some(source);
        }
    }

    /// Tells that nothing of ours is left of `key` in the cluster.
    pub fn removed(&mut self, key: &ServiceKey) {
        let Some(service) = self.services.get_mut(key) else { return };
        service.exists = false;
        let forgotten = service.header.is_none();
        for known in service.sources.values_mut() {
            known.applied = None;
            if forgotten {
                known.merged = None;
            }
        }
        if forgotten {
            service.settled = None;
        }
        self.prune(key);
    }

    /// Tells that the own watches have listed: from now on, an export that [`View::set_own`] did not name does not
    /// exist here.
    pub fn own_listed(&mut self) {
        self.own_listed = true;
        self.dirty.extend(self.services.keys().cloned());
    }

    /// Tells the own cluster's endpoints of `key`; none when it is not exported here (any more), or refused while nothing
    /// of it stands ([`crate::outbox::Outbox::is_exported`]).
    pub fn set_own(&mut self, key: ServiceKey, endpoints: Option<Arc<EndpointSet>>) {
        let before = if endpoints.is_none() && self.own_listed {
            self.own_exports.remove(&key).unwrap_or(None)
        } else {
            self.own_exports.insert(key.clone(), endpoints.clone()).unwrap_or(None)
        };
        if before != endpoints {
            self.dirty.insert(key);
        }
    }

    /// Tells which registry process took this cluster's last registration or renewal; none where any of several that share
    /// a store may do so ([`crate::outbox::Outbox::registry`]).
    pub fn told_to(&mut self, epoch: Option<Epoch>) {
        let before = self.is_split();
        self.told_to = epoch;
        if self.is_split() != before {
            self.incomplete();
            self.dirty.extend(self.services.keys().cloned());
        }
    }

    /// Whether another registry process is watched than the one that this cluster talks to. That passes when a registry was
    /// restarted. Where it stays, several without a shared store are behind one name, and each knows some of the clusters:
    /// nothing goes for what the watched one says.
    pub fn is_split(&self) -> bool {
        self.told_to.zip(self.watch.epoch).is_some_and(|(told_to, watched)| told_to != watched)
    }

    /// A Service that must be decided and planned again; each change is told once.
    pub fn next_dirty(&mut self) -> Option<ServiceKey> {
        let key = self.dirty.pop_first()?;
        self.settle(&key);
        Some(key)
    }

    /// The fields on which the own export of `key` and those of other clusters differ; none when the registry's merge has
    /// no own one.
    pub fn own_conflicts(&self, key: &ServiceKey) -> Option<&[Conflict]> {
        let header = &self.services.get(key)?.header.as_ref()?.object;
        let is_merged = header.participants.iter().any(|participant| participant.cluster == self.own);
        is_merged.then_some(&*header.conflicts)
    }

    /// The own cluster as a registry listed it last.
    pub fn own_section(&self) -> Option<&Section> {
        Some(&self.clusters.get(&self.own)?.section.as_ref()?.object)
    }

    /// Whether a snapshot was told to its end and the registry knows every cluster, as far as the watch still says.
    pub const fn is_complete(&self) -> bool {
        self.watch.complete
    }

    /// When the change of `key` in `cluster` was seen there that made its endpoints those of `shown`, which are applied now;
    /// each is told once. None of what the first snapshot told, which may have changed long before this view began, nor of
    /// the own cluster.
    pub fn take_change(
        &mut self,
        key: &ServiceKey,
        cluster: &ClusterId,
        shown: &Shown,
    ) -> Option<WallMillis> {
        let known = self.services.get_mut(key)?.sources.get_mut(cluster)?;
        let told = known.told.as_mut().filter(|told| Arc::ptr_eq(&told.object.endpoints, &shown.endpoints));
        told?.object.changed_at.take()
    }

    /// Where a broken watch can go on; none while a snapshot is half told.
    pub const fn resume(&self) -> Option<(Epoch, u64)> {
        match self.watch.epoch {
            Some(epoch) if self.watch.ended => Some((epoch, self.watch.revision)),
            _ => None,
        }
    }

    /// Sizes, for metrics.
    pub fn counts(&self) -> Counts {
        let snapshot = self.watch.snapshot;
        let listed =
            |cluster: &&Cluster| cluster.told_in(snapshot).is_some_and(|section| section.state.is_listed());
        let parts = self.services.values().flat_map(|service| service.sources.values());
        Counts {
            clusters: self.clusters.values().filter(listed).count(),
            imports: self.services.values().filter(|service| service.header.is_some()).count(),
            endpoints: parts
                .filter_map(|known| known.told.as_ref())
                .map(|part| part.object.endpoints.len())
                .sum(),
        }
    }

    /// Forgets what nothing depends on any more.
    fn prune(&mut self, key: &ServiceKey) {
        let Some(service) = self.services.get_mut(key) else { return };
        let by_cluster = &mut self.by_cluster;
        let doubtful = &mut self.doubtful;
        let seen = &mut self.seen;
        service.sources.retain(|cluster, known| {
            let needed = known.told.is_some() || known.applied.is_some() || known.merged.is_some();
            if !needed {
                // What was shown of it is remembered: another registry may know an older state only.
                if let Some((uid, version)) = known.floor.take() {
                    let newest = seen.entry(uid).or_default();
                    *newest = version.max(*newest);
                }
                known::unlink(by_cluster, cluster, key);
                known::unlink(doubtful, cluster, key);
            }
            needed
        });
        if service.sources.is_empty() && service.header.is_none() && !service.exists {
            self.services.remove(key);
        }
    }
}
