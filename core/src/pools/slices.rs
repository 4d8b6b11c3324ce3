//! What an imported EndpointSlice says, and how its endpoints become pods, addresses and URLs.
//!
//! A Service of one source cluster may have several slices: one an address family and set of ports, and more while
//! endpoints move between them. The rules here turn them into pods, so that a dual-stack pod is counted once and a URL
//! is made only of a port that the slice itself names.

use crate::ids::ClusterId;
use crate::model::{EndpointPort, IpFamily, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The name of an EndpointSlice object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceId {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl SliceId {
    /// The slice `name` of `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for SliceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is read from one imported EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFacts {
    /// The Service it belongs to, by the name that all clusters know.
    pub service: Arc<str>,
    /// The cluster whose endpoints it holds.
    pub cluster: ClusterId,
    /// That cluster's region, where the MCS implementation says it.
    pub region: Option<Arc<str>>,
    /// Its ports.
    pub ports: Vec<EndpointPort>,
    /// Its endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

impl SliceFacts {
    /// The TCP port of that name. Port 0 and a port without a number cannot be connected to, so they do not count.
    pub fn tcp_port(&self, name: &str) -> Option<&EndpointPort> {
        self.ports.iter().find(|port| {
            port.name == name && port.protocol == Protocol::Tcp && port.port.is_some_and(|number| number > 0)
        })
    }
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it takes new connections; absent counts as true.
    pub ready: Option<bool>,
    /// The name of the object it stands for (`targetRef.name`).
    pub target: Option<String>,
    /// Its host name.
    pub hostname: Option<String>,
}

impl SliceEndpoint {
    /// Whether it takes new connections.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Its addresses; an IPv4-mapped IPv6 address counts as the IPv4 one.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(IpAddr::to_canonical)
    }

    /// What its pod is called; none where the endpoint has no address.
    fn pod_name(&self) -> Option<PodName> {
        let target = self.target.clone().map(PodName::Target);
        let named = target.or_else(|| self.hostname.clone().map(PodName::Hostname));
        named.or_else(|| self.addresses().min().map(PodName::Address))
    }
}

/// What tells one pod from another in several slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodName {
    /// By `targetRef.name`.
    Target(String),
    /// By host name, where the slice has no `targetRef`.
    Hostname(String),
    /// By its least address, where it has neither.
    Address(IpAddr),
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target(name) | Self::Hostname(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A pod with at least one Ready endpoint: its addresses, each with the slices that hold it.
#[derive(Debug)]
pub struct Pod<'a> {
    /// What it is called.
    pub name: PodName,
    places: BTreeMap<IpAddr, Vec<&'a SliceFacts>>,
}

impl Pod<'_> {
    /// Where the pod's TCP port `port_name` is reached: at its IPv4 address where it has one, in the form that the
    /// WHATWG URL standard serialises. None where no slice of the pod has that port.
    pub fn url(&self, port_name: &str) -> Option<String> {
        // An IPv4 address orders before every IPv6 address.
        self.places.iter().find_map(|(address, slices)| {
            let port = slices.iter().find_map(|slice| slice.tcp_port(port_name))?;
            Some(url(*address, port))
        })
    }
}

/// The Ready endpoints of one Service of one source cluster.
#[derive(Debug, Default)]
pub struct ReadyEndpoints<'a> {
    /// Each pod once.
    pub pods: Vec<Pod<'a>>,
    /// Every address of every pod, both families.
    pub addresses: BTreeSet<IpAddr>,
}

/// Reads the Ready endpoints of all slices of one Service of one source cluster.
///
/// Pods are matched across slices by `targetRef`, else by host name. Where a slice names neither, one pod cannot be
/// recognised in both families: then the IPv4 endpoints are the pods when one of them is Ready, else the IPv6 ones.
pub fn ready_endpoints<'a>(slices: impl IntoIterator<Item = &'a SliceFacts>) -> ReadyEndpoints<'a> {
    let mut pods: BTreeMap<PodName, BTreeMap<IpAddr, Vec<&SliceFacts>>> = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for slice in slices {
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()) {
            let Some(name) = endpoint.pod_name() else { continue };
            let places = pods.entry(name).or_default();
            for address in endpoint.addresses() {
                addresses.insert(address);
                places.entry(address).or_default().push(slice);
            }
        }
    }
    let is_nameless = |name: &PodName, family| match name {
        PodName::Address(address) => IpFamily::of(*address) == family,
        PodName::Target(_) | PodName::Hostname(_) => false,
    };
    if pods.keys().any(|name| is_nameless(name, IpFamily::V4)) {
        pods.retain(|name, _| !is_nameless(name, IpFamily::V6));
    }
    let pods = pods.into_iter().map(|(name, places)| Pod { name, places }).collect();
    ReadyEndpoints { pods, addresses }
}

/// The URL of a port at an address; the scheme follows the port's `appProtocol`.
fn url(address: IpAddr, port: &EndpointPort) -> String {
    let (scheme, default_port) =
        if port.app_protocol.as_deref() == Some("https") { ("https", 443) } else { ("http", 80) };
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    match port.port {
        Some(number) if number != default_port => format!("{scheme}://{host}:{number}/"),
        _ => format!("{scheme}://{host}/"),
    }
}
