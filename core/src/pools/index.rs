//! Facts of imported EndpointSlices → pools with a Ready relay, and router replicas.
//!
//! Fed like a watch: single events, and relists from `Init` to `InitDone`. A relist counts when it is done: what it
//! brings is kept aside until then, so a half one changes nothing, and what it lacks is gone.

use super::naming::{Part, Services};
use super::slices::{SliceFacts, SliceId, ready_endpoints};
use super::{Notice, PoolFacts, PoolKey, ReplicaId, RouterReplica};
use crate::ids::ClusterId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What the watch of EndpointSlices tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceEvent {
    /// A list begins.
    Init,
    /// The list has this slice.
    InitApply(SliceId, SliceFacts),
    /// The list is complete.
    InitDone,
    /// A slice was made or changed.
    Apply(SliceId, SliceFacts),
    /// A slice is gone, or no longer one that can be read.
    Delete(SliceId),
}

/// A step of what the slices say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// A pool has a Ready relay, or other addresses than before.
    Live(PoolKey, Arc<PoolFacts>),
    /// A pool has no Ready relay any more.
    Gone(PoolKey),
    /// A router replica is Ready, or reached elsewhere than before.
    Replica(RouterReplica),
    /// A router replica is not Ready any more.
    ReplicaGone(ReplicaId),
    /// The changes of a relist have been told.
    Relisted,
    /// For the log.
    Notice(Notice),
}

/// The slices of one Service of one source cluster, by name.
type Slices = BTreeMap<Arc<str>, SliceFacts>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    namespace: Arc<str>,
    service: Arc<str>,
    cluster: ClusterId,
}

/// All slices that matter, and where each is.
#[derive(Debug, Default)]
struct Contents {
    services: BTreeMap<Origin, Slices>,
    origins: BTreeMap<SliceId, Origin>,
}

impl Contents {
    fn put(&mut self, id: SliceId, facts: SliceFacts) -> Origin {
        let origin = Origin {
            namespace: id.namespace.clone(),
            service: facts.service.clone(),
            cluster: facts.cluster.clone(),
        };
        self.services.entry(origin.clone()).or_default().insert(id.name.clone(), facts);
        self.origins.insert(id, origin.clone());
        origin
    }

    fn remove(&mut self, id: &SliceId) -> Option<Origin> {
        let origin = self.origins.remove(id)?;
        if let Some(slices) = self.services.get_mut(&origin) {
            slices.remove(&id.name);
            if slices.is_empty() {
                self.services.remove(&origin);
            }
        }
        Some(origin)
    }
}

/// The imported slices of one cluster's API server.
#[derive(Debug)]
pub struct Index {
    services: Services,
    contents: Contents,
    relist: Option<Contents>,
    is_synced: bool,
    pools: BTreeMap<PoolKey, Arc<PoolFacts>>,
    replicas: BTreeMap<ReplicaId, Arc<str>>,
    /// Live pools without a frontend, and whether their port is imported.
    without_frontend: BTreeMap<PoolKey, bool>,
    /// Slices whose lack of the port was told, by name.
    without_port: BTreeMap<Origin, BTreeSet<Arc<str>>>,
    changes: VecDeque<IndexChange>,
}

impl Index {
    /// An index that has seen nothing and looks for `services`.
    pub fn new(services: Services) -> Self {
        Self {
            services,
            contents: Contents::default(),
            relist: None,
            is_synced: false,
            pools: BTreeMap::new(),
            replicas: BTreeMap::new(),
            without_frontend: BTreeMap::new(),
            without_port: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// Takes in an event of the watch.
    pub fn handle_event(&mut self, event: SliceEvent) {
        match event {
            SliceEvent::Init => self.relist = Some(Contents::default()),
            SliceEvent::InitApply(id, facts) => {
                if self.is_of_interest(&id, &facts)
                    && let Some(relist) = &mut self.relist
                {
                    relist.put(id, facts);
                }
            }
            SliceEvent::InitDone => self.relisted(),
            SliceEvent::Apply(id, facts) => {
                let before = self.contents.remove(&id);
                let is_of_interest = self.is_of_interest(&id, &facts);
                let after = is_of_interest.then(|| self.contents.put(id, facts));
                self.update([before, after].into_iter().flatten().collect());
            }
            SliceEvent::Delete(id) => {
                let before = self.contents.remove(&id);
                self.update(before.into_iter().collect());
            }
        }
    }

    /// The next step; ask until there is none.
    pub fn next_change(&mut self) -> Option<IndexChange> {
        self.changes.pop_front()
    }

    /// Whether a complete list was seen.
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// The pools with a Ready relay.
    pub const fn pools(&self) -> &BTreeMap<PoolKey, Arc<PoolFacts>> {
        &self.pools
    }

    /// How many slices of pools and of the router are held.
    pub fn slices(&self) -> usize {
        self.contents.origins.len()
    }

    fn is_of_interest(&self, id: &SliceId, facts: &SliceFacts) -> bool {
        self.services.part(&facts.cluster, &id.namespace, &facts.service).is_some()
    }

    fn relisted(&mut self) {
        let Some(relist) = self.relist.take() else { return };
        self.is_synced = true;
        let before = std::mem::replace(&mut self.contents, relist);
        if self.contents.origins.is_empty() {
            self.changes.push_back(IndexChange::Notice(Notice::EmptyRelist));
        }
        let origins = before.services.into_keys().chain(self.contents.services.keys().cloned()).collect();
        self.update(origins);
        self.changes.push_back(IndexChange::Relisted);
    }

    /// Tells what changed with the slices of `origins`.
    fn update(&mut self, origins: BTreeSet<Origin>) {
        let part = |origin: &Origin| {
            let part = self.services.part(&origin.cluster, &origin.namespace, &origin.service)?;
            Some((part, origin.clone()))
        };
        let parts: Vec<_> = origins.iter().filter_map(part).collect();
        let mut pools = BTreeSet::new();
        for (part, origin) in parts {
            match part {
                Part::Relay(key) => {
                    pools.insert(key);
                }
                Part::Frontend(key) => {
                    pools.insert(key);
                    self.look_for_port(&origin, &self.services.frontend_port.clone());
                }
                Part::Router => {
                    self.look_for_port(&origin, &self.services.router_port.clone());
                    self.update_replicas(&origin);
                }
            }
        }
        for key in pools {
            self.update_pool(key);
        }
    }

    fn update_pool(&mut self, key: PoolKey) {
        let facts = self.facts(&key);
        self.look_for_frontend(&key, facts.as_ref());
        match facts {
            Some(facts) if self.pools.get(&key).is_some_and(|known| **known == facts) => {}
            Some(facts) => {
                let facts = Arc::new(facts);
                self.pools.insert(key.clone(), facts.clone());
                self.changes.push_back(IndexChange::Live(key, facts));
            }
            None => {
                if self.pools.remove(&key).is_some() {
                    self.changes.push_back(IndexChange::Gone(key));
                }
            }
        }
    }

    /// What the slices say of a pool; none when no relay is Ready.
    fn facts(&self, key: &PoolKey) -> Option<PoolFacts> {
        let relays = self.slices_of(key, self.services.relay(key))?;
        let addresses = ready_endpoints(relays.values()).addresses;
        if addresses.is_empty() {
            return None;
        }
        let identities: BTreeSet<Box<str>> =
            addresses.iter().map(|address| format!("ip:{address}").into()).collect();
        let frontends =
            self.slices_of(key, self.services.frontend(key)).map_or_else(BTreeSet::new, |slices| {
                let pods = ready_endpoints(slices.values()).pods;
                let urls = pods.iter().filter_map(|pod| pod.url(&self.services.frontend_port));
                urls.map(String::into_boxed_str).collect()
            });
        Some(PoolFacts {
            relay_identities: identities.into_iter().collect(),
            frontends: frontends.into_iter().collect(),
            region: relays.values().find_map(|slice| slice.region.clone()),
        })
    }

    fn slices_of(&self, key: &PoolKey, service: String) -> Option<&Slices> {
        let cluster = ClusterId::new(key.cluster_id()).ok()?;
        let origin = Origin { namespace: key.namespace().into(), service: service.into(), cluster };
        self.contents.services.get(&origin)
    }

    /// One notice for each change of a live pool to being without a frontend, and of the reason for that.
    fn look_for_frontend(&mut self, key: &PoolKey, facts: Option<&PoolFacts>) {
        if facts.is_none_or(|facts| !facts.frontends.is_empty()) {
            self.without_frontend.remove(key);
            return;
        }
        let service = self.services.frontend(key);
        let port = &self.services.frontend_port;
        let has_port = |slices: &Slices| slices.values().any(|slice| slice.tcp_port(port).is_some());
        let port_imported = self.slices_of(key, service.clone()).is_some_and(has_port);
        if self.without_frontend.insert(key.clone(), port_imported) != Some(port_imported) {
            let port = port.clone();
            let notice = Notice::NoFrontend { key: key.clone(), service, port, port_imported };
            self.changes.push_back(IndexChange::Notice(notice));
        }
    }

    /// One notice for each slice that has endpoints, but not the port. One without endpoints is what Kubernetes keeps
    /// for a Service without pods: it has no ports at all, and nothing is lost by that.
    fn look_for_port(&mut self, origin: &Origin, port: &str) {
        let slices = self.contents.services.get(origin);
        let lacks = |(_, slice): &(&Arc<str>, &SliceFacts)| {
            slice.tcp_port(port).is_none() && !slice.endpoints.is_empty()
        };
        let lacking: BTreeSet<Arc<str>> =
            slices.into_iter().flatten().filter(lacks).map(|(name, _)| name.clone()).collect();
        let told = self.without_port.remove(origin).unwrap_or_default();
        for name in lacking.difference(&told) {
            let slice = SliceId { namespace: origin.namespace.clone(), name: name.clone() };
            let service = origin.service.to_string();
            let notice = Notice::NoPort { slice, service, port: port.to_owned() };
            self.changes.push_back(IndexChange::Notice(notice));
        }
        if !lacking.is_empty() {
            self.without_port.insert(origin.clone(), lacking);
        }
    }

    fn update_replicas(&mut self, origin: &Origin) {
        let slices = self.contents.services.get(origin);
        let mut after: BTreeMap<ReplicaId, Arc<str>> = BTreeMap::new();
        for pod in ready_endpoints(slices.into_iter().flat_map(BTreeMap::values)).pods {
            if let Some(url) = pod.url(&self.services.router_port) {
                let replica = pod.name.to_string().into();
                let id = ReplicaId { cluster: origin.cluster.clone(), replica };
                // Pods are ordered by what they are named by, and the better name has it.
                after.entry(id).or_insert_with(|| url.into());
            }
        }
        let is_gone = |id: &&ReplicaId| id.cluster == origin.cluster && !after.contains_key(id);
        let gone: Vec<ReplicaId> = self.replicas.keys().filter(is_gone).cloned().collect();
        for id in gone {
            self.replicas.remove(&id);
            self.changes.push_back(IndexChange::ReplicaGone(id));
        }
        for (id, url) in after {
            if self.replicas.insert(id.clone(), url.clone()).as_ref() != Some(&url) {
                self.changes.push_back(IndexChange::Replica(RouterReplica { id, url }));
            }
        }
    }
}
