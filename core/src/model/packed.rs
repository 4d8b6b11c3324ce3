//! Endpoints as bytes.
//!
//! A registry holds hundreds of thousands of endpoints that nobody looks at until they change, so a set is one piece of
//! memory, with little more in it than addresses, zones and nodes. The format never leaves the process: what is sent
//! and stored is made from it by those who know how. One set gives one sequence of bytes, so equal bytes are equal sets.
//!
//! ```text
//! set    = [ count of endpoints, group... ]                      nothing at all when it is empty
//! group  = family, ports, count of members, bytes of members, member...
//! port   = name, protocol, number + 1 or 0, application protocol
//! member = conditions, fields, address, [ hostname ], [ zone ], [ node ]
//! ```

use super::{Endpoint, EndpointMap, EndpointPort, EndpointSet, GroupKey, IpFamily, Protocol};
use crate::packing::{Reader, Writer};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which fields a member has.
const V6: u8 = 1;
const HOSTNAME: u8 = 1 << 1;
const ZONE: u8 = 1 << 2;
/// Its zone is that of the member before it, and is not said again.
const SAME_ZONE: u8 = 1 << 3;
const NODE: u8 = 1 << 4;

pub(super) fn pack(map: &EndpointMap) -> Box<[u8]> {
    let mut set = Writer::default();
    if map.is_empty() {
        return Box::default();
    }
    set.count(map.len());
    for (key, members) in map.groups() {
        set.group_key(key);
        let mut packed = Writer::default();
        let mut zone = None;
        for (address, endpoint) in members {
            packed.member(*address, endpoint, zone);
            zone = endpoint.zone.as_deref();
        }
        set.count(members.len());
        set.count(packed.0.len());
        set.0.extend(packed.0);
    }
    set.0.into_boxed_slice()
}

impl Writer {
    fn group_key(&mut self, key: &GroupKey) {
        self.0.push(u8::from(key.family == IpFamily::V6));
        self.count(key.ports.len());
        for port in key.ports.iter() {
            self.text(&port.name);
            self.0.push(port.protocol as u8);
            self.number(port.port.map_or(0, |number| u64::from(number) + 1));
            self.maybe_text(port.app_protocol.as_deref());
        }
    }

    fn member(&mut self, address: IpAddr, endpoint: &Endpoint, zone_before: Option<&str>) {
        let Endpoint { ready, serving, terminating, hostname, zone, node_name } = endpoint;
        let condition = |condition: Option<bool>| condition.map_or(0, |is| 1 + u8::from(is));
        self.0.push(condition(*ready) | condition(*serving) << 2 | condition(*terminating) << 4);
        let same_zone = zone.is_some() && zone.as_deref() == zone_before;
        let flag = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
        self.0.push(
            flag(V6, address.is_ipv6())
                | flag(HOSTNAME, hostname.is_some())
                | flag(ZONE, zone.is_some())
                | flag(SAME_ZONE, same_zone)
                | flag(NODE, node_name.is_some()),
        );
        match address {
            IpAddr::V4(address) => self.0.extend(address.octets()),
            IpAddr::V6(address) => self.0.extend(address.octets()),
        }
        let zone = zone.as_ref().filter(|_| !same_zone);
        for text in [hostname.as_ref(), zone, node_name.as_ref()].into_iter().flatten() {
            self.text(text);
        }
    }
}

impl<'a> Reader<'a> {
    fn group_key(&mut self) -> Option<GroupKey> {
        let family = if self.byte()? == 0 { IpFamily::V4 } else { IpFamily::V6 };
        let count = self.count()?;
        let ports = (0..count).map(|_| self.port()).collect::<Option<_>>()?;
        Some(GroupKey { family, ports })
    }

    fn port(&mut self) -> Option<EndpointPort> {
        let name = self.text()?.to_owned();
        let protocol = self.byte()?;
        let protocol =
            [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|one| *one as u8 == protocol)?;
        let port = self.number()?.checked_sub(1).and_then(|number| number.try_into().ok());
        let app_protocol = self.maybe_text()?.map(str::to_owned);
        Some(EndpointPort { name, protocol, port, app_protocol })
    }

    fn member(&mut self, zone_before: &mut Option<&'a str>) -> Option<(IpAddr, Endpoint)> {
        let [conditions, fields] = self.array()?;
        let condition = |at: u8| match conditions >> at & 0b11 {
            0 => None,
            is => Some(is == 2),
        };
        let address = if fields & V6 == 0 {
            Ipv4Addr::from(self.array()?).into()
        } else {
            Ipv6Addr::from(self.array::<16>()?).into()
        };
        let mut text = |field: u8| if fields & field == 0 { Some(None) } else { self.text().map(Some) };
        let hostname = text(HOSTNAME)?;
        let zone = if fields & SAME_ZONE == 0 { text(ZONE)? } else { *zone_before };
        let node_name = text(NODE)?;
        *zone_before = zone;
        let endpoint = Endpoint {
            ready: condition(0),
            serving: condition(2),
            terminating: condition(4),
            hostname: hostname.map(ToOwned::to_owned),
            zone: zone.map(ToOwned::to_owned),
            node_name: node_name.map(ToOwned::to_owned),
        };
        Some((address, endpoint))
    }
}

/// How many endpoints a set has.
pub(super) fn len(set: &[u8]) -> usize {
    Reader(set).count().unwrap_or(0)
}

/// The groups of a set, in order.
#[derive(Clone, Debug)]
pub struct Groups<'a>(Reader<'a>);

impl<'a> Groups<'a> {
    pub(super) fn of(set: &'a [u8]) -> Self {
        let mut reader = Reader(set);
        reader.count();
        Self(reader)
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Group<'a>> {
        let key = self.0.group_key()?;
        let len = self.0.count()?;
        let bytes = self.0.count()?;
        let members = Members { reader: Reader(self.0.take(bytes)?), zone: None };
        Some(Group { key, len, members })
    }
}

/// The endpoints of a set that share family and ports.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// What they share.
    pub key: GroupKey,
    /// How many they are.
    pub len: usize,
    /// They, by address.
    pub members: Members<'a>,
}

/// Endpoints of one group, by address.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    reader: Reader<'a>,
    zone: Option<&'a str>,
}

impl Iterator for Members<'_> {
    type Item = (IpAddr, Endpoint);

    fn next(&mut self) -> Option<(IpAddr, Endpoint)> {
        self.reader.member(&mut self.zone)
    }
}

impl std::fmt::Debug for EndpointSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.groups().map(|group| (group.key, group.members.collect::<Vec<_>>())))
            .finish()
    }
}
