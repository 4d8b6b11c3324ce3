//! What a registry tells its watchers: the objects of its state log and the frames that carry them.

use super::{EndpointSet, Header};
use crate::ids::{Build, ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use crate::time::WallMillis;
use crate::version::{Leaf, Sum, Version};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a registry thinks of a member (docs/registry.md, Leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Known, but its whole export set was not seen since this registry started: nothing of it is listed, and
    /// importers keep what they have.
    Syncing,
    /// Whole, and renewed within its lease.
    Active,
    /// Silent past its lease, but not judged because too many are: listed.
    Held,
    /// Its lease has run out: its endpoints are not listed, its exports stay in the merge.
    Expired,
}

impl MemberState {
    /// Whether endpoints and `status.clusters` entries of the member are shown.
    pub const fn is_listed(self) -> bool {
        matches!(self, Self::Active | Self::Held)
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syncing => "syncing",
            Self::Active => "active",
            Self::Held => "held",
            Self::Expired => "expired",
        })
    }
}

/// A member as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The UID of its `kube-system` Namespace.
    pub uid: ClusterUid,
    /// Its region, where it has one.
    pub region: Option<Region>,
    /// What the registry thinks of it.
    pub state: MemberState,
    /// Whether its entire export set is known here.
    pub whole: bool,
    /// The version of the entire set that is held here.
    pub version: Version,
    /// The sum of the leaves of its parts here; it has none before it is whole.
    pub sum: Sum,
}

/// One cluster's endpoints of one Service as watchers see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The UID of the source cluster.
    pub uid: ClusterUid,
    /// The version of the export.
    pub version: Version,
    /// The owner's content hash.
    pub leaf: Leaf,
    /// The endpoints.
    pub endpoints: Arc<EndpointSet>,
    /// When the owner saw the change that made them so, where it said so: to tell how long changes take, and for nothing
    /// else.
    pub changed_at: Option<WallMillis>,
}

/// All parts of one cluster, by what they add up to: two sets that are equal here have equal content, whatever
/// versions their parts carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSet {
    /// The UID of the source cluster.
    pub uid: ClusterUid,
    /// The sum of the leaves.
    pub sum: Sum,
}

/// The parts that a watcher has when it begins a watch, so that it need not be told them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// The version of the registry that told them: one of another version may drop other fields of equal content.
    pub build: Build,
    /// The clusters of which it has parts.
    pub sets: BTreeMap<ClusterId, PartSet>,
}

/// What an object of the state log is; the log holds the last state of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// A member.
    Section(ClusterId),
    /// A merged Service.
    Header(ServiceKey),
    /// One cluster's endpoints of one Service.
    Part(ServiceKey, ClusterId),
}

/// The state of an object of the log; a removed object has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Of a [`ObjectKey::Section`].
    Section(Section),
    /// Of a [`ObjectKey::Header`].
    Header(Header),
    /// Of a [`ObjectKey::Part`].
    Part(Part),
}

/// One step of the state log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Rises by one with every change of one registry process.
    pub revision: u64,
    /// What changed.
    pub key: ObjectKey,
    /// Its state now; none when it is gone.
    pub object: Option<Object>,
}

/// What a watcher is told, in this order: a `Begin`, states, an `End`; then changes and `Progress`. A `Kept` stands among
/// states and changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A snapshot begins: the watcher forgets what it was told in another epoch.
    Begin {
        /// The registry process whose log this is.
        epoch: Epoch,
        /// A cluster that a complete view does not list is kept for this long after the first such view.
        absent_grace: std::time::Duration,
        /// The registry's version.
        build: Build,
    },
    /// In the place of all parts of one cluster: the watcher has them.
    Kept {
        /// The cluster.
        cluster: ClusterId,
        /// The set, as the watcher named it.
        set: PartSet,
        /// The set is that of the cluster as of this version.
        version: Version,
    },
    /// The state of one object.
    Change(Change),
    /// The snapshot is told.
    End {
        /// The revision it stands for.
        revision: u64,
        /// Whether every cluster of the set is known to this registry.
        complete: bool,
    },
    /// Nothing changed; the stream lives.
    Progress {
        /// The revision reached.
        revision: u64,
        /// Whether every cluster of the set is known to this registry.
        complete: bool,
    },
}
