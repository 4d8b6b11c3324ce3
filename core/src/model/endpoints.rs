//! The endpoints of one Service in one cluster.

use super::packed::{self, Group, Groups};
use super::{IpFamily, Protocol};
use crate::version::Fields;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A port of an EndpointSlice: the number that the endpoints listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointPort {
    /// Its name, equal to that of the Service's port; empty when that has none.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number; none means all ports.
    pub port: Option<u16>,
    /// The application protocol, where one is named.
    pub app_protocol: Option<String>,
}

/// One address behind a Service. The three conditions are kept as they were written, absent ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Whether it takes new connections; absent counts as true.
    pub ready: Option<bool>,
    /// Whether it serves at all; absent counts as `ready`.
    pub serving: Option<bool>,
    /// Whether it is on its way out; absent counts as false.
    pub terminating: Option<bool>,
    /// The host name within a headless Service.
    pub hostname: Option<String>,
    /// The zone it is in.
    pub zone: Option<String>,
    /// The node it is on, a name of the source cluster.
    pub node_name: Option<String>,
}

impl Endpoint {
    /// Whether it takes new connections.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }
}

/// What endpoints of one group have in common; one imported EndpointSlice holds endpoints of one group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The address family.
    pub family: IpFamily,
    /// The ports, sorted.
    pub ports: Arc<[EndpointPort]>,
}

impl GroupKey {
    /// The group of endpoints of `family` that listen on `ports`; their order does not matter.
    pub fn new(family: IpFamily, ports: impl IntoIterator<Item = EndpointPort>) -> Self {
        let ports: BTreeSet<_> = ports.into_iter().collect();
        Self { family, ports: ports.into_iter().collect() }
    }

    /// Feeds all fields into a hash.
    pub(crate) fn hash_fields(&self, hash: &mut Fields) {
        hash.text(self.family.as_str());
        hash.number(self.ports.len() as u64);
        for port in self.ports.iter() {
            hash.text(&port.name);
            hash.text(port.protocol.as_str());
            hash.maybe_number(port.port.map(u64::from));
            hash.maybe_text(port.app_protocol.as_deref());
        }
    }
}

/// All endpoints that one cluster has of one Service, packed. Equal endpoints give equal sets; an [`EndpointMap`] is
/// where they are put together.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EndpointSet(Box<[u8]>);

impl EndpointSet {
    /// The groups in order, each with its endpoints by address.
    pub fn groups(&self) -> Groups<'_> {
        Groups::of(&self.0)
    }

    /// How many endpoints there are over all groups.
    pub fn len(&self) -> usize {
        packed::len(&self.0)
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes of memory it takes.
    pub const fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Feeds all fields into a hash, in an order that depends on content only.
    pub(crate) fn hash_fields(&self, hash: &mut Fields) {
        hash.number(self.groups().count() as u64);
        for Group { key, len, members } in self.groups() {
            key.hash_fields(hash);
            hash.number(len as u64);
            for (address, endpoint) in members {
                hash.text(&address.to_string());
                for condition in [endpoint.ready, endpoint.serving, endpoint.terminating] {
                    hash.maybe_number(condition.map(u64::from));
                }
                for text in [&endpoint.hostname, &endpoint.zone, &endpoint.node_name] {
                    hash.maybe_text(text.as_deref());
                }
            }
        }
    }
}

/// Endpoints while they are put together. Equal members give equal maps, whatever their order was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointMap {
    groups: BTreeMap<GroupKey, BTreeMap<IpAddr, Endpoint>>,
}

impl EndpointMap {
    /// Adds an endpoint. Of two with one address in one group (slices overlap while endpoints move between them) the
    /// ready one stays; of two that are alike in that, the greater, so that the order of insertion does not matter.
    pub fn insert(&mut self, group: GroupKey, address: IpAddr, endpoint: Endpoint) {
        self.insert_all(group, [(address, endpoint)]);
    }

    /// Adds endpoints of one group, as [`EndpointMap::insert`] does. The group is looked up once: a group that says it
    /// has thousands of ports must not be compared for each of its endpoints.
    pub fn insert_all(&mut self, group: GroupKey, endpoints: impl IntoIterator<Item = (IpAddr, Endpoint)>) {
        let mut endpoints = endpoints.into_iter().peekable();
        if endpoints.peek().is_none() {
            return;
        }
        let members = self.groups.entry(group).or_default();
        for (address, endpoint) in endpoints {
            match members.get(&address) {
                Some(known) if (known.is_ready(), known) >= (endpoint.is_ready(), &endpoint) => {}
                _ => {
                    members.insert(address, endpoint);
                }
            }
        }
    }

    /// The groups, each with its endpoints by address.
    pub const fn groups(&self) -> &BTreeMap<GroupKey, BTreeMap<IpAddr, Endpoint>> {
        &self.groups
    }

    /// How many endpoints there are over all groups.
    pub fn len(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The set that they are.
    pub fn pack(&self) -> EndpointSet {
        EndpointSet(packed::pack(self))
    }
}
