//! The peer that everybody knows: etcd, one member, with its data in memory, since our registry's is too.
//!
//! What a registry holds of one Service of one cluster is one key here, whose value has the same bytes. Writers have a
//! connection each, as those of the registry do.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    hop::Target,
    machine::Cores,
    population::{ENDPOINT_BYTES, Population},
    wire::{self, Request},
};
use crate::{
    assets::{Assets, Program},
    cluster::arguments,
    directory::Directory,
    ports::free_port,
    process::Process,
    wait::wait_for,
};

/// A file system in memory.
const IN_MEMORY: &str = "/dev/shm";
/// All keys begin so; the end of their range is the same with its last byte raised.
const PREFIX: &str = "/bench/";
const PREFIX_END: &str = "/bench0";
/// Puts in one transaction; etcd takes 128.
const PUTS: usize = 100;
/// Transactions side by side while it is filled.
const TRANSACTIONS: usize = 8;
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// The messages of etcd's API (`etcdserverpb`, `mvccpb`) that are used here, with the fields that are used.
mod messages {
    /// `PutRequest`: sets one key.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Put {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) value: Vec<u8>,
    }

    /// `TxnRequest` without conditions: what `success` lists is done.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Transaction {
        #[prost(message, repeated, tag = "2")]
        pub(super) success: Vec<Operation>,
    }

    /// `RequestOp`: a put, of all that it may be.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Operation {
        #[prost(message, optional, tag = "2")]
        pub(super) put: Option<Put>,
    }

    /// `WatchRequest`: begins a watch, of all that it may be.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Watch {
        #[prost(message, optional, tag = "1")]
        pub(super) create: Option<CreateWatch>,
    }

    /// `WatchCreateRequest`: a range of keys, from now on.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct CreateWatch {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) range_end: Vec<u8>,
    }

    /// `StatusResponse`: the version of the server.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Status {
        #[prost(string, tag = "2")]
        pub(super) version: String,
    }

    /// A message of which nothing is set or read.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Nothing {}
}

use messages::{CreateWatch, Nothing, Operation, Put, Status, Transaction, Watch};

/// What one key of etcd stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// A Service of a cluster, with all its endpoints in the value.
    Service,
    /// One endpoint.
    Endpoint,
}

/// An etcd that runs.
#[derive(Debug)]
pub struct Etcd {
    // The process ends before its folder goes.
    process: Process,
    address: SocketAddr,
    version: String,
    population: Population,
    grain: Grain,
    writers: Vec<Channel>,
    in_memory: bool,
    _folder: Directory,
}

impl Etcd {
    /// Starts an etcd without keys.
    ///
    /// # Errors
    /// It is not built, or does not start.
    pub async fn start(cores: Cores) -> Result<Self> {
        let assets = Assets::find_etcd()?;
        let in_memory = Path::new(IN_MEMORY).is_dir();
        let folder = if in_memory {
            Directory::create_in(&Path::new(IN_MEMORY).join("mcs-bench"), "etcd", false)?
        } else {
            Directory::create("etcd")?
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let arguments = arguments::etcd(folder.path(), address.port());
        let path = folder.path().to_owned();
        let mut process = cores
            .start_server(async move { Process::spawn(&assets, Program::Etcd, &arguments, &path) })
            .await?;
        let channel = channel(address)?;
        let answer = wait_for("etcd", || {
            let ended = process.check();
            let channel = channel.clone();
            async move {
                ended?;
                call::<Nothing, Status>(&channel, "/etcdserverpb.Maintenance/Status", Nothing {}).await
            }
        });
        let Status { version } = answer.await.with_context(|| process.log_tail())?;
        let population = Population { clusters: 0, services: 0, endpoints: 0 };
        let (grain, writers) = (Grain::Service, Vec::new());
        Ok(Self { process, address, version, population, grain, writers, in_memory, _folder: folder })
    }

    /// Puts the keys of a population, and connects a writer for each of its clusters.
    ///
    /// # Errors
    /// etcd refused.
    pub async fn fill(&mut self, population: Population, grain: Grain) -> Result<()> {
        self.population = population;
        self.grain = grain;
        let writers = (0..population.clusters).map(|_| channel(self.address));
        self.writers = writers.collect::<Result<_>>()?;
        let puts = (0..population.clusters).flat_map(|cluster| {
            (0..population.services).flat_map(move |service| match grain {
                Grain::Service => vec![put(key(cluster, service), 0, population.value_bytes())],
                Grain::Endpoint => (0..population.endpoints)
                    .map(|place| put(endpoint_key(cluster, service, place), 0, ENDPOINT_BYTES))
                    .collect(),
            })
        });
        let writers = &self.writers;
        stream::iter(puts.map(|put| Operation { put: Some(put) }))
            .chunks(PUTS)
            .enumerate()
            .map(async |(place, success)| {
                let writer = &writers[place % writers.len()];
                call::<_, Nothing>(writer, "/etcdserverpb.KV/Txn", Transaction { success }).await
            })
            .buffer_unordered(TRANSACTIONS)
            .try_for_each(async |_| Ok(()))
            .await
    }

    /// For the notes.
    pub fn note(&self) -> String {
        let place = if self.in_memory {
            "its data in memory"
        } else {
            "its data on disk, since there is no /dev/shm"
        };
        format!("peer: etcd {}, one member, --unsafe-no-fsync, {place}", self.version)
    }

    /// Its process.
    ///
    /// # Errors
    /// It cannot be found out.
    pub fn process(&self) -> Result<u32> {
        self.process.program_id()
    }
}

impl Target for Etcd {
    fn lanes(&self) -> usize {
        self.writers.len()
    }

    async fn change(&self, lane: usize, number: u64) -> Result<()> {
        let service = usize::try_from(number)? / self.writers.len() % self.population.services;
        let put = match self.grain {
            Grain::Service => put(key(lane, service), number, self.population.value_bytes()),
            Grain::Endpoint => put(endpoint_key(lane, service, 0), number, ENDPOINT_BYTES),
        };
        call::<_, Nothing>(&self.writers[lane], "/etcdserverpb.KV/Put", put).await?;
        Ok(())
    }

    fn watch(&self, _watcher: usize) -> (SocketAddr, Request) {
        let create = CreateWatch { key: PREFIX.into(), range_end: PREFIX_END.into() };
        let message = Watch { create: Some(create) }.encode_to_vec();
        // The end of the requests would be the end of the watch.
        (self.address, Request { path: "/etcdserverpb.Watch/Watch", message, only: false })
    }

    fn pid(&self) -> Option<u32> {
        self.process().ok()
    }
}

fn key(cluster: usize, service: usize) -> String {
    format!("{PREFIX}{}/s{service:03}", Population::cluster(cluster))
}

fn endpoint_key(cluster: usize, service: usize, place: usize) -> String {
    format!("{}/{place:03}", key(cluster, service))
}

/// A put of a value of `bytes` that begins with the mark of a change.
fn put(key: String, number: u64, bytes: usize) -> Put {
    let mut value = wire::mark(number).to_vec();
    value.resize(bytes.max(value.len()), b'.');
    Put { key: key.into_bytes(), value }
}

fn channel(address: SocketAddr) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.tcp_nodelay(true).timeout(CALL_LIMIT).connect_lazy())
}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A>
where
    Q: Message + Send + 'static,
    A: Message + Default + Send + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await?;
    let request = tonic::Request::new(request);
    let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await;
    Ok(answer.with_context(|| format!("etcd refused {path}"))?.into_inner())
}
