//! What is exported while something is measured.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use anyhow::Result;
use mcs_core::{
    ids::ServiceKey,
    model::{
        Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, Port, Protocol,
    },
    time::WallTime,
};

/// The bytes that an endpoint of ours has on the wire, and with them the values of the peer.
pub const ENDPOINT_BYTES: usize = 60;
/// The nodes that a cluster's endpoints are on.
const NODES: usize = 50;
const PORT: u16 = 8080;

/// How much there is: `clusters` that export as many `services`, each with as many `endpoints`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// Clusters.
    pub clusters: usize,
    /// Services of a cluster; each is exported by one cluster alone.
    pub services: usize,
    /// Endpoints of a Service.
    pub endpoints: usize,
}

impl fmt::Display for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, services, endpoints } = self;
        write!(f, "{clusters} clusters x {services} Services x {endpoints} endpoints")
    }
}

impl Population {
    /// All endpoints.
    pub const fn total(&self) -> usize {
        self.clusters * self.services * self.endpoints
    }

    /// The bytes that the endpoints of one Service have.
    pub const fn value_bytes(&self) -> usize {
        self.endpoints * ENDPOINT_BYTES
    }

    /// Fewer clusters; at least one.
    pub const fn divided(self, by: usize) -> Self {
        let clusters = self.clusters / by;
        Self { clusters: if clusters == 0 { 1 } else { clusters }, ..self }
    }

    /// The name of a cluster.
    pub fn cluster(cluster: usize) -> String {
        format!("c{cluster:03}")
    }

    /// The name of a Service of a cluster.
    ///
    /// # Errors
    /// None: the names are valid.
    pub fn key(cluster: usize, service: usize) -> Result<ServiceKey> {
        Ok(ServiceKey::new("bench", &format!("s{cluster:03}-{service:03}"))?)
    }

    /// The definition of every Service.
    pub fn spec() -> ExportSpec {
        let port = Port { name: "http".to_owned(), protocol: Protocol::Tcp, port: PORT, app_protocol: None };
        ExportSpec {
            created_at: WallTime::from_unix_secs(1_700_000_000),
            ports: vec![port],
            ip_families: vec![IpFamily::V4],
            ..ExportSpec::default()
        }
    }

    /// The endpoints of a Service, all ready but for one of them, unless `ready`.
    pub fn endpoints(&self, cluster: usize, service: usize, ready: bool) -> Arc<EndpointSet> {
        let port = EndpointPort {
            name: "http".to_owned(),
            protocol: Protocol::Tcp,
            port: Some(PORT),
            app_protocol: None,
        };
        let group = GroupKey::new(IpFamily::V4, [port]);
        let mut set = EndpointMap::default();
        for place in 0..self.endpoints {
            let in_cluster = service * self.endpoints + place;
            let number = cluster * self.services * self.endpoints + in_cluster;
            let [_, a, b, c] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
            let is_ready = ready || place > 0;
            let endpoint = Endpoint {
                ready: Some(is_ready),
                serving: Some(is_ready),
                terminating: Some(false),
                hostname: None,
                zone: Some("us-east-1a".to_owned()),
                node_name: Some(format!("ip-{cluster:03}-{:03}.ec2.internal", in_cluster % NODES)),
            };
            set.insert(group.clone(), IpAddr::V4(Ipv4Addr::new(10, a, b, c)), endpoint);
        }
        Arc::new(set.pack())
    }
}

#[cfg(test)]
mod tests {
    use mcs_proto::chunks::split;
    use prost::Message;

    use super::*;

    #[test]
    fn an_endpoint_has_the_bytes_on_the_wire_that_the_peer_is_given() {
        let encoded = |endpoints| {
            let population = Population { clusters: 200, services: 10, endpoints };
            split(&population.endpoints(150, 5, true)).iter().map(Message::encoded_len).sum::<usize>()
        };
        assert_eq!((encoded(20) - encoded(10)) / 10, ENDPOINT_BYTES);
    }

    #[test]
    fn all_endpoints_of_a_population_have_addresses_of_their_own() {
        let population = Population { clusters: 3, services: 4, endpoints: 5 };
        let services = (0..3).flat_map(|cluster| (0..4).map(move |service| (cluster, service)));
        let addresses: std::collections::BTreeSet<IpAddr> = services
            .flat_map(|(cluster, service)| {
                let set = population.endpoints(cluster, service, true);
                set.groups().flat_map(|group| group.members).map(|(address, _)| address).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(addresses.len(), population.total());
    }

    #[test]
    fn one_endpoint_tells_the_two_states_of_a_service_apart() {
        let population = Population { clusters: 1, services: 1, endpoints: 3 };
        let ready = |state| {
            let set = population.endpoints(0, 0, state);
            set.groups().flat_map(|group| group.members).filter(|(_, one)| one.is_ready()).count()
        };
        assert_eq!([ready(true), ready(false)], [3, 2]);
    }
}
