//! Members without a cluster, for what is to be measured of a controller alone: they tell the registry what it imports.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use mcs_core::{
    ids::ServiceKey,
    model::{Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, Protocol},
};

use super::population::Population;
use crate::{crossing::address, peer::Peer, stack::Stack};

/// The endpoints of each export.
pub const ENDPOINTS: u8 = 10;
/// So many exporters join at a time.
const JOINS: usize = 8;

/// Exporters of Services of one namespace.
#[derive(Debug)]
pub struct Exporters {
    peers: Vec<Peer>,
    namespace: String,
    spec: Arc<ExportSpec>,
}

impl Exporters {
    /// Lets `count` clusters join the clusterset of `stack`.
    ///
    /// # Errors
    /// The registry did not take one.
    pub async fn join(stack: &Stack, namespace: &str, count: usize) -> Result<Self> {
        let names: Vec<_> = (0..count).map(Population::cluster).collect();
        let peers = stream::iter(&names).map(|name| Peer::join(stack, name)).buffered(JOINS).try_collect();
        Ok(Self { peers: peers.await?, namespace: namespace.to_owned(), spec: Arc::new(Population::spec()) })
    }

    /// The name of a Service.
    pub fn service(service: u16) -> String {
        format!("s{service:03}")
    }

    /// Lets one exporter export these Services, with the endpoints of the change `number`, in one write.
    ///
    /// # Errors
    /// The registry did not take it.
    pub async fn export(
        &self,
        exporter: usize,
        services: impl IntoIterator<Item = u16>,
        number: u16,
    ) -> Result<()> {
        let endpoints = Arc::new(endpoints(exporter, number));
        let export = |service| {
            let key = ServiceKey::new(&self.namespace, &Self::service(service))?;
            Ok((key, Arc::clone(&self.spec), Arc::clone(&endpoints)))
        };
        let exports = services.into_iter().map(export).collect::<Result<Vec<_>>>()?;
        self.peers[exporter].export_all(exports).await
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

/// Endpoints of which the first says which change they are of; the others stay.
fn endpoints(exporter: usize, number: u16) -> EndpointSet {
    let port = EndpointPort {
        name: "http".to_owned(),
        protocol: Protocol::Tcp,
        port: Some(8080),
        app_protocol: None,
    };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let ready = Endpoint {
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        zone: Some("us-east-1a".to_owned()),
        ..Endpoint::default()
    };
    let exporter = u8::try_from(exporter).unwrap_or(u8::MAX);
    // In the order of addresses the one that counts is the first.
    let others = (1..ENDPOINTS).map(|place| Ipv4Addr::new(10, 200, exporter, place));
    let mut set = EndpointMap::default();
    for address in others.chain([address(number)]) {
        set.insert(group.clone(), IpAddr::V4(address), ready.clone());
    }
    set.pack()
}
