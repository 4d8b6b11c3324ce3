//! Endpoint sets. An endpoint that cannot be read is left out and named; the rest stands.

use super::WireEnum;
use super::spec::{read_list, read_port_number};
use crate::chunks::MAX_DROPPED;
use crate::pb;
use mcs_core::model::{Endpoint, EndpointMap, EndpointPort, GroupKey, IpFamily, Protocol};
use mcs_core::text::shown;
use mcs_core::validate::{Dropped, Refusal};
use std::net::IpAddr;

impl From<&EndpointPort> for pb::EndpointPort {
    fn from(port: &EndpointPort) -> Self {
        Self {
            name: port.name.clone(),
            protocol: pb::Protocol::from(port.protocol).into(),
            port: port.port.map(Into::into),
            app_protocol: port.app_protocol.clone(),
        }
    }
}

impl TryFrom<pb::EndpointPort> for EndpointPort {
    type Error = Refusal;

    fn try_from(port: pb::EndpointPort) -> Result<Self, Self::Error> {
        Ok(Self {
            protocol: Protocol::from_wire(port.protocol)?,
            port: port.port.map(read_port_number).transpose()?,
            name: port.name,
            app_protocol: port.app_protocol,
        })
    }
}

/// One endpoint as a message.
pub fn endpoint(address: IpAddr, endpoint: Endpoint) -> pb::Endpoint {
    pb::Endpoint {
        address: address.to_string(),
        ready: endpoint.ready,
        serving: endpoint.serving,
        terminating: endpoint.terminating,
        hostname: endpoint.hostname,
        zone: endpoint.zone,
        node_name: endpoint.node_name,
    }
}

/// A group of endpoints as a message, with no endpoint in it yet.
pub fn empty_group(group: &GroupKey) -> pb::EndpointGroup {
    pb::EndpointGroup {
        family: pb::IpFamily::from(group.family).into(),
        ports: group.ports.iter().map(Into::into).collect(),
        endpoints: Vec::new(),
    }
}

/// As many bytes of an address as an IPv6 address with a zone needs.
const MAX_ADDRESS: usize = 80;

/// Adds a message's endpoints to `endpoints`, and those that cannot be read to `dropped`, up to [`MAX_DROPPED`].
///
/// # Errors
/// The field of a group that is wrong; what was read before it is in `endpoints`.
pub fn read_endpoints(
    message: pb::EndpointSet,
    endpoints: &mut EndpointMap,
    dropped: &mut Vec<Dropped>,
) -> Result<(), Refusal> {
    for (index, group) in message.groups.into_iter().enumerate() {
        let invalid = |error: Refusal| error.within(&format!("endpoints.groups[{index}]"));
        let family = IpFamily::from_wire(group.family).map_err(invalid)?;
        let ports: Vec<EndpointPort> = read_list(group.ports, "ports").map_err(invalid)?;
        let readable = group.endpoints.into_iter().filter_map(|message| {
            read_endpoint(message, family).map_err(|left_out| left_out.name_in(dropped)).ok()
        });
        endpoints.insert_all(GroupKey::new(family, ports), readable);
    }
    Ok(())
}

fn read_endpoint(message: pb::Endpoint, family: IpFamily) -> Result<(IpAddr, Endpoint), Unreadable> {
    let address = match message.address.parse::<IpAddr>() {
        Ok(address) if IpFamily::of(address) == family => address,
        Ok(_) => return Err(Unreadable { address: message.address, rule: wrong_family(family) }),
        Err(_) => return Err(Unreadable { address: message.address, rule: "must be an IP address" }),
    };
    let endpoint = Endpoint {
        ready: message.ready,
        serving: message.serving,
        terminating: message.terminating,
        hostname: message.hostname,
        zone: message.zone,
        node_name: message.node_name,
    };
    Ok((address, endpoint))
}

const fn wrong_family(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "must be an IPv4 address",
        IpFamily::V6 => "must be an IPv6 address",
    }
}

/// An endpoint whose address is none, or not one of its group.
struct Unreadable {
    address: String,
    rule: &'static str,
}

impl Unreadable {
    /// Names it among those that were left out, unless so many were that nobody reads on: a message can hold a million.
    fn name_in(self, dropped: &mut Vec<Dropped>) {
        if dropped.len() < MAX_DROPPED {
            dropped.push(Dropped {
                address: shown(&self.address, MAX_ADDRESS),
                field: "address".to_owned(),
                problem: self.rule.to_owned(),
            });
        }
    }
}
