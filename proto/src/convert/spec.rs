//! Definitions of exports and imports: types, ports, policies.

use super::{WireEnum, enumeration, required};
use crate::pb;
use mcs_core::model::{
    ExportSpec, ImportDefinition, InternalTrafficPolicy, IpFamily, Port, Protocol, ServiceType,
    SessionAffinity,
};
use mcs_core::validate::Refusal;

enumeration!(Protocol, pb::Protocol, "protocol", unspecified: Some(Self::Tcp), { Tcp = Tcp, Udp = Udp, Sctp = Sctp });
enumeration!(IpFamily, pb::IpFamily, "family", unspecified: None, { V4 = Ipv4, V6 = Ipv6 });
enumeration!(
    ServiceType, pb::ServiceType, "type", unspecified: Some(Self::ClusterSetIp),
    { ClusterSetIp = ClusterSetIp, Headless = Headless }
);
enumeration!(
    SessionAffinity, pb::SessionAffinity, "sessionAffinity", unspecified: Some(Self::None),
    { None = None, ClientIp = ClientIp }
);
enumeration!(
    InternalTrafficPolicy, pb::InternalTrafficPolicy, "internalTrafficPolicy", unspecified: Some(Self::Cluster),
    { Cluster = Cluster, Local = Local }
);

/// A port number, which is never 0.
pub(super) fn read_port_number(number: u32) -> Result<u16, Refusal> {
    match u16::try_from(number) {
        Ok(number) if number != 0 => Ok(number),
        _ => Err(Refusal::new("port", format!("{number} must be 1 to 65535"))),
    }
}

impl From<&Port> for pb::Port {
    fn from(port: &Port) -> Self {
        Self {
            name: port.name.clone(),
            protocol: pb::Protocol::from(port.protocol).into(),
            port: port.port.into(),
            app_protocol: port.app_protocol.clone(),
        }
    }
}

impl TryFrom<pb::Port> for Port {
    type Error = Refusal;

    fn try_from(port: pb::Port) -> Result<Self, Self::Error> {
        Ok(Self {
            protocol: Protocol::from_wire(port.protocol)?,
            port: read_port_number(port.port)?,
            name: port.name,
            app_protocol: port.app_protocol,
        })
    }
}

fn ports(ports: &[Port]) -> Vec<pb::Port> {
    ports.iter().map(Into::into).collect()
}

/// Reads a list, naming the place of what is wrong. It takes no more memory than it needs: it may be held for weeks.
pub(super) fn read_list<P, C>(list: Vec<P>, field: &str) -> Result<Vec<C>, Refusal>
where
    C: TryFrom<P, Error = Refusal>,
{
    let mut read = Vec::with_capacity(list.len());
    for (index, item) in list.into_iter().enumerate() {
        read.push(C::try_from(item).map_err(|error| error.within(&format!("{field}[{index}]")))?);
    }
    Ok(read)
}

fn families(families: &[IpFamily]) -> Vec<i32> {
    families.iter().map(|family| pb::IpFamily::from(*family).into()).collect()
}

fn read_families(families: Vec<i32>) -> Result<Vec<IpFamily>, Refusal> {
    let read = |(index, family)| {
        let invalid = |error: Refusal| Refusal::new(format!("ipFamilies[{index}]"), error.problem);
        IpFamily::from_wire(family).map_err(invalid)
    };
    families.into_iter().enumerate().map(read).collect()
}

impl From<&ExportSpec> for pb::ExportSpec {
    fn from(spec: &ExportSpec) -> Self {
        Self {
            created_at: Some(spec.created_at.into()),
            r#type: pb::ServiceType::from(spec.service_type).into(),
            ports: ports(&spec.ports),
            session_affinity: pb::SessionAffinity::from(spec.session_affinity).into(),
            session_affinity_timeout_seconds: spec.session_affinity_timeout,
            internal_traffic_policy: pb::InternalTrafficPolicy::from(spec.internal_traffic_policy).into(),
            traffic_distribution: spec.traffic_distribution.clone(),
            ip_families: families(&spec.ip_families),
            labels: spec.labels.clone(),
            annotations: spec.annotations.clone(),
        }
    }
}

impl TryFrom<pb::ExportSpec> for ExportSpec {
    type Error = Refusal;

    fn try_from(spec: pb::ExportSpec) -> Result<Self, Self::Error> {
        Ok(Self {
            created_at: required(spec.created_at, "createdAt")?.into(),
            service_type: ServiceType::from_wire(spec.r#type)?,
            ports: read_list(spec.ports, "ports")?,
            session_affinity: SessionAffinity::from_wire(spec.session_affinity)?,
            session_affinity_timeout: spec.session_affinity_timeout_seconds,
            internal_traffic_policy: InternalTrafficPolicy::from_wire(spec.internal_traffic_policy)?,
            traffic_distribution: spec.traffic_distribution,
            ip_families: read_families(spec.ip_families)?,
            labels: spec.labels,
            annotations: spec.annotations,
        })
    }
}

impl From<&ImportDefinition> for pb::ImportDefinition {
    fn from(definition: &ImportDefinition) -> Self {
        Self {
            r#type: pb::ServiceType::from(definition.service_type).into(),
            ports: ports(&definition.ports),
            session_affinity: pb::SessionAffinity::from(definition.session_affinity).into(),
            session_affinity_timeout_seconds: definition.session_affinity_timeout,
            internal_traffic_policy: pb::InternalTrafficPolicy::from(definition.internal_traffic_policy)
                .into(),
            traffic_distribution: definition.traffic_distribution.clone(),
            ip_families: families(&definition.ip_families),
            labels: definition.labels.clone(),
            annotations: definition.annotations.clone(),
        }
    }
}

impl TryFrom<pb::ImportDefinition> for ImportDefinition {
    type Error = Refusal;

    fn try_from(definition: pb::ImportDefinition) -> Result<Self, Self::Error> {
        Ok(Self {
            service_type: ServiceType::from_wire(definition.r#type)?,
            ports: read_list(definition.ports, "ports")?,
            session_affinity: SessionAffinity::from_wire(definition.session_affinity)?,
            session_affinity_timeout: definition.session_affinity_timeout_seconds,
            internal_traffic_policy: InternalTrafficPolicy::from_wire(definition.internal_traffic_policy)?,
            traffic_distribution: definition.traffic_distribution,
            ip_families: read_families(definition.ip_families)?,
            labels: definition.labels,
            annotations: definition.annotations,
        })
    }
}
