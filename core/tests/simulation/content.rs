//! What clusters export, at random: definitions that agree and that conflict, some that no registry takes, endpoints.

use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, Port, Protocol,
    ServiceType, SessionAffinity,
};
use mcs_core::time::WallTime;
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;

/// A definition: mostly one that agrees with all others, sometimes one that conflicts, seldom one that is refused.
pub(crate) fn random_spec(rng: &mut StdRng, created_at: WallTime) -> Arc<ExportSpec> {
    let port =
        |name: &str, protocol, port| Port { name: name.to_owned(), protocol, port, app_protocol: None };
    let http = if rng.random_bool(0.2) { 8080 } else { 80 };
    let mut ports = vec![port("http", Protocol::Tcp, http)];
    match rng.random_range(0..20) {
        0..4 => ports.push(port("admin", Protocol::Tcp, 9000)),
        4 => ports.push(port("quic", Protocol::Udp, http)),
        5 => ports = vec![port("", Protocol::Tcp, 80)],
        // Of no Service that an API server takes.
        6 => ports.push(port("again", Protocol::Tcp, http)),
        _ => {}
    }
    let headless = rng.random_bool(0.1);
    Arc::new(ExportSpec {
        created_at,
        service_type: if headless { ServiceType::Headless } else { ServiceType::ClusterSetIp },
        ports,
        session_affinity: if rng.random_bool(0.1) {
            SessionAffinity::ClientIp
        } else {
            SessionAffinity::None
        },
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    })
}

/// Up to four endpoints, all of them within the source cluster's own range.
pub(crate) fn random_endpoints(rng: &mut StdRng, cluster: usize) -> Arc<EndpointSet> {
    let mut set = EndpointMap::default();
    let port = |name: &str, port| EndpointPort {
        name: name.to_owned(),
        port: Some(port),
        ..EndpointPort::default()
    };
    let mut ports = vec![port("http", 8000), port("", 8000)];
    ports.truncate(if rng.random_bool(0.8) { 1 } else { 2 });
    if rng.random_bool(0.3) {
        ports.push(port("admin", 9001));
    }
    let group = GroupKey::new(IpFamily::V4, ports);
    let net = u8::try_from(cluster).expect("few clusters");
    for _ in 0..rng.random_range(0..5) {
        let address = [10, net, 0, rng.random_range(1..7)].into();
        let endpoint = Endpoint { ready: Some(rng.random_bool(0.8)), ..Endpoint::default() };
        set.insert(group.clone(), address, endpoint);
    }
    Arc::new(set.pack())
}
