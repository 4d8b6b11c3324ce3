//! Builders of what the machines are fed with.

use mcs_core::ids::ClusterId;
use mcs_core::model::{EndpointPort, Protocol};
use mcs_core::pools::index::SliceEvent;
use mcs_core::pools::naming::Services;
use mcs_core::pools::slices::{SliceEndpoint, SliceFacts, SliceId};
use mcs_core::pools::{Capacity, Lease, Location, PoolFacts, PoolKey, PoolRegistration};
use mcs_core::time::Timestamp;
use std::time::Duration;

pub(crate) const LEASE: Lease =
    Lease { duration: Duration::from_secs(15), heartbeat_interval: Duration::from_secs(5) };

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn key(cluster: &str, dgd: &str) -> PoolKey {
    PoolKey::new(cluster, "ml", dgd).unwrap()
}

pub(crate) fn registration(cluster: &str, dgd: &str) -> PoolRegistration {
    PoolRegistration {
        key: key(cluster, dgd),
        location: Location::default(),
        model: "llama".into(),
        capabilities: Box::default(),
        capacity: [Capacity { workers: 4 }].into(),
        frontends: ["http://10.0.0.9:8000/".into()].into(),
    }
}

pub(crate) fn facts(identities: &[&str], frontends: &[&str]) -> PoolFacts {
    let boxed = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    PoolFacts { relay_identities: boxed(identities), frontends: boxed(frontends), region: None }
}

pub(crate) fn services() -> Services {
    Services {
        pool_suffix: "-pool-relay".into(),
        frontend_suffix: "-frontend".into(),
        frontend_port: "http".into(),
        router_namespace: "routing".into(),
        router_service: "global-router".into(),
        router_port: "relay".into(),
    }
}

pub(crate) fn slice(namespace: &str, name: &str) -> SliceId {
    SliceId::new(namespace, name)
}

/// A slice of `service` in `cluster`, with the port `http` 8000 and one endpoint an address.
pub(crate) fn of(service: &str, cluster: &str, endpoints: Vec<SliceEndpoint>) -> SliceFacts {
    SliceFacts {
        service: service.into(),
        cluster: ClusterId::new(cluster).unwrap(),
        region: None,
        ports: vec![port("http", 8000)],
        endpoints,
    }
}

pub(crate) fn relay(cluster: &str, address: &str) -> SliceFacts {
    of("chat-pool-relay", cluster, vec![ready(address)])
}

pub(crate) fn frontend(cluster: &str, address: &str) -> SliceFacts {
    of("chat-frontend", cluster, vec![ready(address)])
}

pub(crate) fn port(name: &str, number: u16) -> EndpointPort {
    EndpointPort { name: name.into(), protocol: Protocol::Tcp, port: Some(number), app_protocol: None }
}

pub(crate) fn ready(address: &str) -> SliceEndpoint {
    SliceEndpoint { addresses: vec![address.parse().unwrap()], ready: Some(true), ..SliceEndpoint::default() }
}

pub(crate) fn not_ready(address: &str) -> SliceEndpoint {
    SliceEndpoint { ready: Some(false), ..ready(address) }
}

pub(crate) fn pod(target: &str, address: &str) -> SliceEndpoint {
    SliceEndpoint { target: Some(target.into()), ..ready(address) }
}

pub(crate) fn apply(name: &str, facts: SliceFacts) -> SliceEvent {
    SliceEvent::Apply(slice("ml", name), facts)
}

pub(crate) fn init_apply(name: &str, facts: SliceFacts) -> SliceEvent {
    SliceEvent::InitApply(slice("ml", name), facts)
}

pub(crate) fn delete(name: &str) -> SliceEvent {
    SliceEvent::Delete(slice("ml", name))
}
