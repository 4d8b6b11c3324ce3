//! Which pools and which router replicas exist: registrations with leases, imported EndpointSlices, and their join.
//!
//! A *pool* is one DynamoGraphDeployment (DGD) in one cluster; its *PoolRelays* register it and renew the registration.
//! Each part is a machine of its own, fed with events and asked for its next deadline:
//!
//! ```text
//!  POST /pools ─► registrations or stored ──────┐ (registrations: listed as they are)
//!                                               ├─► join ─► PoolListing     (karmada, mcs)
//!  EndpointSlices ─► index ─► pools with a Ready relay ┘
//!                      └────► router replicas
//!  errors and silence of the watch ─► completeness ─► Exact / Estimated
//! ```
//!
//! [`directory::Directory`] wires them up for one process.

pub mod completeness;
pub mod directory;
pub mod index;
pub mod join;
pub mod naming;
pub mod packed;
pub mod registrations;
pub mod slices;
pub mod storage;
pub mod stored;

use naming::Part;
use packed::Contents;
pub use packed::{PackedRegistration, PoolKey};
use slices::SliceId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a pool is; its relays say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The region.
    pub region: Option<Box<str>>,
    /// The availability zone.
    pub availability_zone: Option<Box<str>>,
    /// The datacenter.
    pub datacenter: Option<Box<str>>,
}

/// One entry of a pool's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    /// How many workers it has.
    pub workers: u64,
}

/// What a relay says of its pool. It has passed the checks of the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRegistration {
    /// Which pool.
    pub key: PoolKey,
    /// Where it is.
    pub location: Location,
    /// The model it serves; not blank.
    pub model: Box<str>,
    /// What it can do.
    pub capabilities: Box<[Box<str>]>,
    /// How much it can do.
    pub capacity: Box<[Capacity]>,
    /// URLs of its frontends as WHATWG serialises them; listed only where no EndpointSlices give them.
    pub frontends: Box<[Box<str>]>,
}

impl PoolRegistration {
    /// Whether both say the same; the order of lists is ignored.
    pub fn says_the_same(&self, other: &Self) -> bool {
        fn sorted<T: Ord>(list: &[T]) -> Vec<&T> {
            let mut sorted: Vec<_> = list.iter().collect();
            sorted.sort_unstable();
            sorted
        }
        let Self { key, location, model, capabilities, capacity, frontends } = self;
        self == other
            || ((key, location, model) == (&other.key, &other.location, &other.model)
                && sorted(capabilities) == sorted(&other.capabilities)
                && sorted(capacity) == sorted(&other.capacity)
                && sorted(frontends) == sorted(&other.frontends))
    }
}

/// What a registration is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The pool is listed for this long after its last registration.
    pub duration: Duration,
    /// A relay registers again this often; above zero and below the lease.
    pub heartbeat_interval: Duration,
}

/// What EndpointSlices say of a pool with a Ready relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFacts {
    /// `ip:<address>` of every address of every Ready relay pod, sorted.
    pub relay_identities: Box<[Box<str>]>,
    /// The URL of each Ready frontend pod, sorted.
    pub frontends: Box<[Box<str>]>,
    /// The cluster's region, where the MCS implementation says it.
    pub region: Option<Arc<str>>,
}

/// A pool as it is listed: its registration, and what EndpointSlices say of it where the list is a join.
#[derive(Clone, Debug)]
pub struct PoolListing {
    /// What its relays registered.
    pub registration: PackedRegistration,
    /// What EndpointSlices say; none where they are not looked at.
    pub facts: Option<Arc<PoolFacts>>,
}

impl PoolListing {
    /// Which pool.
    pub const fn key(&self) -> &PoolKey {
        self.registration.key()
    }

    /// What is listed of it besides the key: what was registered, but that addresses are those of the EndpointSlices, and
    /// the region is theirs where the registration has none.
    pub fn contents(&self) -> Listed<'_> {
        let mut registered = self.registration.contents();
        let facts = self.facts.as_deref();
        registered.region = registered.region.or_else(|| facts?.region.as_deref());
        Listed { registered, facts }
    }
}

/// What is listed of a pool.
#[derive(Clone, Debug)]
pub struct Listed<'a> {
    /// What was registered, with the region that is listed. Its frontends are listed where there are no facts.
    pub registered: Contents<'a>,
    facts: Option<&'a PoolFacts>,
}

impl<'a> Listed<'a> {
    /// URLs of the frontends.
    pub fn frontends(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let registered = self.facts.is_none().then(|| self.registered.frontends.clone());
        let imported = self.facts.map(|facts| facts.frontends.iter().map(AsRef::as_ref));
        imported.into_iter().flatten().chain(registered.into_iter().flatten())
    }

    /// What a router recognises the pool's relays by; none where no EndpointSlices are looked at.
    pub fn relay_identities(&self) -> &'a [Box<str>] {
        self.facts.map_or(&[], |facts| &facts.relay_identities)
    }
}

/// Two listings are equal when a reader cannot tell them apart.
impl PartialEq for PoolListing {
    fn eq(&self, other: &Self) -> bool {
        let (own, theirs) = (self.contents(), other.contents());
        let (one, two) = (&own.registered, &theirs.registered);
        self.key() == other.key()
            && one.model == two.model
            && one.capabilities.clone().eq(two.capabilities.clone())
            && one.capacity.clone().eq(two.capacity.clone())
            && one.region == two.region
            && one.availability_zone == two.availability_zone
            && one.datacenter == two.datacenter
            && own.frontends().eq(theirs.frontends())
            && own.relay_identities() == theirs.relay_identities()
    }
}

impl Eq for PoolListing {}

/// Which router replica: `<cluster>/<replica>` in lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// Its cluster.
    pub cluster: crate::ids::ClusterId,
    /// Its name within the cluster.
    pub replica: Arc<str>,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.replica)
    }
}

/// A replica of the Global Router that relays connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterReplica {
    /// Which replica.
    pub id: ReplicaId,
    /// Where it is reached, as WHATWG serialises URLs.
    pub url: Arc<str>,
}

/// Whether what a list lacks is known to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Completeness {
    /// It is: a reader replaces what it had.
    Exact,
    /// It is not: a reader keeps what it had and the list lacks.
    Estimated,
}

impl Completeness {
    /// Exact only if both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }

    /// Exact if `exact`.
    pub const fn exact_if(exact: bool) -> Self {
        if exact { Self::Exact } else { Self::Estimated }
    }
}

/// What an operator should read once: each is returned when it becomes true, and the shell logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A live pool has no frontend to send requests to.
    NoFrontend {
        /// The pool.
        key: PoolKey,
        /// The frontend Service.
        service: String,
        /// The port's name.
        port: String,
        /// Whether a slice with that port is imported.
        port_imported: bool,
    },
    /// A slice of a frontend or router Service lacks the port that is looked for; its endpoints are not used.
    NoPort {
        /// The slice.
        slice: SliceId,
        /// Its Service.
        service: String,
        /// The port's name.
        port: String,
    },
    /// Imported, but not registered for two leases: its lease lapsed or its Ready slice is stale; else its relays
    /// register a `cluster_id` that is not the cluster's MCS name.
    NotRegistered(PoolKey),
    /// What was registered last counts, and that is now this, now that.
    RelaysDisagree(PoolKey),
    /// A renewal came that cannot be as old or as new as its writer's clock says.
    ClocksApart {
        /// The pool.
        key: PoolKey,
        /// The region of the writer.
        region: crate::ids::Region,
        /// How far the clocks are apart at least.
        apart: Duration,
        /// How far they may be.
        skew: Duration,
    },
    /// Something else wrote it, or a later release; it is left out.
    UnreadableItem {
        /// Its key.
        item: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Registered, but without a Ready relay for two leases: its relay Service is not exported or not ready; else the
    /// registered `cluster_id` is not the cluster's MCS name.
    NotImported(PoolKey),
    /// The API server lists no EndpointSlice of a pool or of the router at all.
    EmptyRelist,
    /// A Service name that the naming style cannot carry, so that its EndpointSlices cannot be imported.
    ServiceNameTooLong {
        /// What the Service is.
        part: Part,
        /// Its name.
        service: String,
        /// The most characters of a Service name.
        limit: usize,
    },
}
