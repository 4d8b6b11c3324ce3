//! Our registry, as users run it, with members that a benchmark plays.
//!
//! A member registers, syncs, renews and writes through the client that controllers use, over a connection of its own,
//! but keeps nothing and decides nothing. The content hashes that it tells are the marks of its changes: the registry
//! does not read them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use mcs_core::{
    ids::{ClusterId, ClusterUid, ServiceKey},
    model::PartSet,
    registry::{Op, Registration},
    timing::{DEFAULT_LEASE, Timing},
    version::{Leaf, Sum, Version},
};
use mcs_proto::{
    client::RegistryClient,
    convert::{Member, part_sets},
    pb,
};
use prost::Message;
use tokio_util::task::AbortOnDropHandle;

use super::{
    hop::Target,
    machine::Cores,
    population::Population,
    wire::{self, Request},
};
use crate::stack::{Stack, StackOptions};

/// The clusterset of all benchmarks.
pub const CLUSTERSET: &str = "bench";
/// So many members sync at a time.
const SYNCS: usize = 8;

/// A registry that runs.
#[derive(Debug)]
pub struct Ours {
    stack: Stack,
    members: Members,
}

/// Members that a benchmark plays; their leases are kept until this is dropped.
#[derive(Debug)]
pub struct Members {
    population: Population,
    members: Vec<Arc<PlayedMember>>,
    _renewals: Vec<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct PlayedMember {
    cluster: usize,
    client: RegistryClient,
    member: Member,
    told: Mutex<Told>,
}

/// What the registry was told last, and has taken.
#[derive(Clone, Debug)]
struct Told {
    version: Version,
    leaves: Vec<Leaf>,
    sum: Sum,
}

/// The options of a registry for a benchmark: all defaults.
pub fn options() -> StackOptions {
    StackOptions {
        clusterset: CLUSTERSET.to_owned(),
        watch_namespaces: Vec::new(),
        lease: DEFAULT_LEASE,
        controller_flags: Vec::new(),
        registry_flags: Vec::new(),
        registry_environment: Vec::new(),
        registry_urls: Vec::new(),
    }
}

impl Ours {
    /// Starts a registry without members.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(cores: Cores) -> Result<Self> {
        let stack = cores.start_server(Stack::start_without_controllers(options())).await?;
        Ok(Self { stack, members: Members::none() })
    }

    /// Lets a population join that has no member yet, and keeps its leases.
    ///
    /// # Errors
    /// The registry did not take a member.
    pub async fn fill(&mut self, population: Population) -> Result<()> {
        let timing = Timing::of_lease(DEFAULT_LEASE);
        self.members = Members::join(&[self.stack.registry().grpc], population, timing).await?;
        Ok(())
    }

    /// Its process.
    ///
    /// # Errors
    /// It does not run.
    pub fn process(&self) -> Result<u32> {
        Ok(self.stack.registry_program()?.pid())
    }
}

impl Members {
    const fn none() -> Self {
        let population = Population { clusters: 0, services: 0, endpoints: 0 };
        Self { population, members: Vec::new(), _renewals: Vec::new() }
    }

    /// Lets a population join, one member at one registry and the next at the next, and keeps its leases.
    ///
    /// # Errors
    /// A registry did not take a member.
    pub async fn join(registries: &[SocketAddr], population: Population, timing: Timing) -> Result<Self> {
        let member = |(cluster, registry): (usize, &SocketAddr)| {
            PlayedMember::new(*registry, cluster, population, timing)
        };
        let members = (0..population.clusters).zip(registries.iter().cycle()).map(member);
        let members = members.collect::<Result<Vec<_>>>()?;
        stream::iter(&members)
            .map(|member| member.join(population))
            .buffer_unordered(SYNCS)
            .try_collect::<()>()
            .await?;
        // Spread, as those of clusters that began at different times are.
        let share = timing.heartbeat() / u32::try_from(members.len().max(1))?;
        let renew = |(place, member): (u32, &Arc<PlayedMember>)| {
            let renewing = Arc::clone(member).renew(share * place, timing.heartbeat());
            AbortOnDropHandle::new(tokio::spawn(renewing))
        };
        let renewals = (0..).zip(&members).map(renew).collect();
        Ok(Self { population, members, _renewals: renewals })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Lets a member make the change of this number.
    ///
    /// # Errors
    /// Its registry did not take it.
    pub async fn change(&self, lane: usize, number: u64) -> Result<()> {
        let change = usize::try_from(number)? / self.members.len();
        self.members[lane].change(self.population, change, number).await
    }

    /// How a watcher asks to be told of all changes. It says to have what was told so far, as a controller does that
    /// comes back: the peer tells no snapshot either.
    pub fn watched(&self, watcher: usize) -> Request {
        let since = part_sets(&self.members.iter().map(|member| member.set()).collect());
        let request = pb::WatchRequest {
            clusterset: CLUSTERSET.to_owned(),
            cluster: format!("w{watcher:04}"),
            since,
            build: mcs_runtime::version().to_owned(),
            ..pb::WatchRequest::default()
        };
        Request { path: "/dynamo.mcs.v1.Imports/Watch", message: request.encode_to_vec(), only: true }
    }
}

impl PlayedMember {
    fn new(
        registry: SocketAddr,
        cluster: usize,
        population: Population,
        timing: Timing,
    ) -> Result<Arc<Self>> {
        let name = Population::cluster(cluster);
        let url = format!("http://{registry}").parse()?;
        Ok(Arc::new(Self {
            cluster,
            client: RegistryClient::new(&url, timing)?,
            member: Member {
                clusterset: CLUSTERSET.parse()?,
                cluster: name.parse()?,
                uid: ClusterUid::new(format!("{name}-uid"))?,
            },
            told: Mutex::new(Told {
                version: Version::new(1, 0),
                leaves: vec![Leaf::default(); population.services],
                sum: Sum::EMPTY,
            }),
        }))
    }

    fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self) -> (ClusterId, PartSet) {
        let Member { cluster, uid, .. } = &self.member;
        (cluster.clone(), PartSet { uid: uid.clone(), sum: self.told().sum })
    }

    fn take(&self, told: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    async fn join(&self, population: Population) -> Result<()> {
        let spec = Arc::new(Population::spec());
        // Replicas tell by the sum of the leaves whether they have read all: no two may be alike.
        let leaf = |service| -> Result<Leaf> {
            let endpoints = population.endpoints(self.cluster, service, true);
            Ok(Leaf::of(&Population::key(self.cluster, service)?, &spec, &endpoints))
        };
        let leaves = (0..population.services).map(leaf).collect::<Result<Vec<_>>>()?;
        let registration = Registration {
            uid: self.member.uid.clone(),
            region: None,
            instance: "bench".parse()?,
            build: "bench".parse()?,
            version: Version::new(1, 1),
            sum: leaves.iter().copied().collect(),
        };
        self.client.register(&self.member, &registration).await?;
        let version = Version::new(1, 2);
        let names: Vec<(ServiceKey, Leaf)> = (0..population.services)
            .map(|service| Ok((Population::key(self.cluster, service)?, leaves[service])))
            .collect::<Result<_>>()?;
        let (wants, stream) = self.client.begin_sync(&self.member, version, &names).await?;
        let ops: Vec<_> = (0..)
            .zip(&names)
            .filter(|(_, (key, _))| wants.contains(key))
            .map(|(service, (key, leaf))| Op::Put {
                key: key.clone(),
                leaf: *leaf,
                spec: Arc::clone(&spec),
                endpoints: population.endpoints(self.cluster, service, true),
                changed_at: None,
            })
            .collect();
        let synced = stream.finish(&ops).await?;
        for (key, result) in synced.written.results {
            result.with_context(|| format!("the registry refuses {key}"))?;
        }
        ensure!(synced.written.dropped.is_empty(), "the registry left out {:?}", synced.written.dropped);
        self.take(Told { version, sum: leaves.iter().copied().collect(), leaves });
        Ok(())
    }

    async fn renew(self: Arc<Self>, first: Duration, pause: Duration) {
        tokio::time::sleep(first).await;
        loop {
            let Told { version, sum, .. } = self.told();
            // A lease that was lost shows in what is measured.
            let _ = self.client.renew(&self.member, version, sum).await;
            tokio::time::sleep(pause).await;
        }
    }

    async fn change(&self, population: Population, change: usize, number: u64) -> Result<()> {
        let mut told = self.told();
        let service = change % population.services;
        let leaf = Leaf::from_bytes(wire::mark(number));
        told.version.seq += 1;
        told.sum.remove(told.leaves[service]);
        told.sum.add(leaf);
        told.leaves[service] = leaf;
        let op = Op::PutEndpoints {
            key: Population::key(self.cluster, service)?,
            leaf,
            replaces: None,
            endpoints: population.endpoints(self.cluster, service, change / population.services % 2 == 1),
            changed_at: None,
        };
        let written = self.client.write(&self.member, told.version, &[op]).await?;
        for (key, result) in written.results {
            result.with_context(|| format!("the registry refuses {key}"))?;
        }
        self.take(told);
        Ok(())
    }
}

impl Target for Ours {
    fn lanes(&self) -> usize {
        self.members.len()
    }

    async fn change(&self, lane: usize, number: u64) -> Result<()> {
        self.members.change(lane, number).await
    }

    fn watch(&self, watcher: usize) -> (SocketAddr, Request) {
        (self.stack.registry().grpc, self.members.watched(watcher))
    }

    fn pid(&self) -> Option<u32> {
        self.process().ok()
    }
}
