//! What an export must be like, so that every importing API server takes the objects made of it.
//!
//! The rules are Kubernetes' own for Services and EndpointSlices, and the limits of [`crate::limits`]. They
//! are looked at when an export is put:
//! - an export that breaks one is refused as a whole by the registry ([`check_export`]), and no other export with it;
//! - an endpoint that breaks one is dropped and reported, by its owner and again by the registry, and the rest stands
//!   ([`check_endpoints`]).

mod syntax;

use crate::ids::{InvalidId, ServiceKey};
use crate::limits::{
    MAX_ANNOTATIONS, MAX_ENDPOINT_PORTS, MAX_ENDPOINTS, MAX_LABELS, MAX_METADATA_BYTES, MAX_PORTS,
    MAX_SESSION_AFFINITY_TIMEOUT,
};
use crate::model::{
    Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, Group, IpFamily, ServiceType,
    SessionAffinity,
};
use crate::text::quoted;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Why an export, or another message of a caller, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Refusal {
    /// The field, as users of ServiceExport and Service know it, for example `ports[0].name`.
    pub field: String,
    /// The rule it breaks, and the value that breaks it.
    pub problem: String,
}

impl Refusal {
    /// The refusal of `field` for `problem`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// A field that must be there.
    pub fn missing(field: impl Into<String>) -> Self {
        Self::new(field, "is missing")
    }

    /// The same problem, of a field within `outer`.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), problem: self.problem }
    }
}

impl From<InvalidId> for Refusal {
    fn from(invalid: InvalidId) -> Self {
        Self::new(invalid.field, format!("{} {}", invalid.value, invalid.problem))
    }
}

/// An endpoint that is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {address}: {field}: {problem}")]
pub struct Dropped {
    /// Its address.
    pub address: String,
    /// The field, as users of EndpointSlice know it.
    pub field: String,
    /// The rule it breaks, and the value that breaks it.
    pub problem: String,
}

/// The values of `trafficDistribution` that Kubernetes takes (Service: `spec.trafficDistribution`, v1.34).
const TRAFFIC_DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Checks the definition of the export of `key`.
///
/// # Errors
/// The first field that breaks a rule of Kubernetes or a limit; the problem names the export.
pub fn check_export(key: &ServiceKey, spec: &ExportSpec) -> Result<(), Refusal> {
    let checked = check_ports(spec)
        .and_then(|()| check_families(&spec.ip_families))
        .and_then(|()| check_policies(spec))
        .and_then(|()| check_metadata(spec));
    checked.map_err(|refusal| Refusal { problem: format!("{} (export {key})", refusal.problem), ..refusal })
}

/// Leaves out the endpoints that no importing API server would take, and says which and why. An empty zone becomes
/// an absent one. Of more than [`MAX_ENDPOINTS`] endpoints the first ones stay, in the set's own order.
pub fn check_endpoints(endpoints: &EndpointSet) -> (EndpointSet, Vec<Dropped>) {
    let (mut kept, mut dropped) = (EndpointMap::default(), Vec::new());
    let mut count = 0;
    for Group { key, members, .. } in endpoints.groups() {
        let ports = check_endpoint_ports(&key.ports);
        let family = key.family;
        let good = members.filter_map(|(address, mut endpoint)| {
            endpoint.zone.take_if(|zone| zone.is_empty());
            let checked = ports.clone().and_then(|()| check_endpoint(family, address, &endpoint));
            let checked = checked.and_then(|()| {
                count += 1;
                let problem = || format!("at most {MAX_ENDPOINTS} of an export are carried");
                if count > MAX_ENDPOINTS { Err(Refusal::new("endpoints", problem())) } else { Ok(()) }
            });
            if let Err(Refusal { field, problem }) = checked {
                dropped.push(Dropped { address: address.to_string(), field, problem });
                return None;
            }
            Some((address, endpoint))
        });
        kept.insert_all(key, good);
    }
    (kept.pack(), dropped)
}

fn check_endpoint(family: IpFamily, address: IpAddr, endpoint: &Endpoint) -> Result<(), Refusal> {
    check_address(family, address)?;
    check_name("hostname", endpoint.hostname.as_deref(), syntax::dns_label)?;
    check_name("zone", endpoint.zone.as_deref(), syntax::label_value)?;
    check_name("nodeName", endpoint.node_name.as_deref(), syntax::dns_subdomain)
}

fn check_ports(spec: &ExportSpec) -> Result<(), Refusal> {
    let ports = &spec.ports;
    check_count("ports", ports.len(), MAX_PORTS)?;
    if ports.is_empty() && spec.service_type == ServiceType::ClusterSetIp {
        return Err(Refusal::new("ports", "must not be empty unless the Service is headless"));
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("ports[{at}].{name}");
        if port.name.is_empty() && ports.len() > 1 {
            return Err(Refusal::new(field("name"), "must not be empty where there are several ports"));
        }
        check_port(&field, &port.name, Some(port.port), port.app_protocol.as_deref())?;
        if !port.name.is_empty() && !names.insert(&port.name) {
            return Err(Refusal::new(field("name"), format!("{:?} is the name of two ports", port.name)));
        }
        if !numbers.insert((port.protocol, port.port)) {
            let problem = format!("{} {} is given twice", port.protocol.as_str(), port.port);
            return Err(Refusal::new(field("port"), problem));
        }
    }
    Ok(())
}

/// The rules that a Service's port and a slice's port share. The name is a DNS label, not the shorter one of a
/// container's port.
fn check_port(
    field: &dyn Fn(&str) -> String,
    name: &str,
    number: Option<u16>,
    app_protocol: Option<&str>,
) -> Result<(), Refusal> {
    if !name.is_empty() {
        check_name(&field("name"), Some(name), syntax::dns_label)?;
    }
    if number == Some(0) {
        return Err(Refusal::new(field("port"), "must be between 1 and 65535, and is 0"));
    }
    check_name(&field("appProtocol"), app_protocol, syntax::qualified_name)
}

fn check_endpoint_ports(ports: &[EndpointPort]) -> Result<(), Refusal> {
    check_count("ports", ports.len(), MAX_ENDPOINT_PORTS)?;
    let mut names = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("ports[{at}].{name}");
        check_port(&field, &port.name, port.port, port.app_protocol.as_deref())?;
        if !names.insert(&port.name) {
            return Err(Refusal::new(field("name"), format!("{:?} is the name of two ports", port.name)));
        }
    }
    Ok(())
}

fn check_families(families: &[IpFamily]) -> Result<(), Refusal> {
    match families {
        [] => Err(Refusal::new("ipFamilies", "must not be empty")),
        [_] => Ok(()),
        [first, second] if first != second => Ok(()),
        _ => Err(Refusal::new("ipFamilies", "must hold IPv4 and IPv6 at most once each")),
    }
}

fn check_policies(spec: &ExportSpec) -> Result<(), Refusal> {
    if let Some(seconds) = spec.session_affinity_timeout {
        let field = "sessionAffinityConfig.clientIP.timeoutSeconds";
        if spec.session_affinity == SessionAffinity::None {
            return Err(Refusal::new(field, "must not be set when sessionAffinity is None"));
        }
        if !(1..=MAX_SESSION_AFFINITY_TIMEOUT).contains(&seconds) {
            let problem = format!("must be between 1 and {MAX_SESSION_AFFINITY_TIMEOUT}, and is {seconds}");
            return Err(Refusal::new(field, problem));
        }
    }
    match spec.traffic_distribution.as_deref() {
        Some(value) if !TRAFFIC_DISTRIBUTIONS.contains(&value) => {
            let problem = format!("{} is none of {}", quoted(value), TRAFFIC_DISTRIBUTIONS.join(", "));
            Err(Refusal::new("trafficDistribution", problem))
        }
        _ => Ok(()),
    }
}

fn check_metadata(spec: &ExportSpec) -> Result<(), Refusal> {
    check_count("exportedLabels", spec.labels.len(), MAX_LABELS)?;
    check_count("exportedAnnotations", spec.annotations.len(), MAX_ANNOTATIONS)?;
    for (key, value) in &spec.labels {
        check_name("exportedLabels", Some(key), syntax::qualified_name)?;
        if !value.is_empty() {
            check_name(&format!("exportedLabels[{key}]"), Some(value), syntax::label_value)?;
        }
    }
    for key in spec.annotations.keys() {
        // Kubernetes takes upper case in the prefix of an annotation's key, unlike in that of a label's.
        check_name("exportedAnnotations", Some(&key.to_ascii_lowercase()), syntax::qualified_name)?;
    }
    let bytes: usize =
        spec.labels.iter().chain(&spec.annotations).map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        let problem = format!(
            "labels and annotations together must be at most {MAX_METADATA_BYTES} bytes, and are {bytes}"
        );
        return Err(Refusal::new("exportedAnnotations", problem));
    }
    Ok(())
}

/// Kubernetes' rules for the address of an endpoint; multicast is left out as a whole, since nothing can answer there.
fn check_address(family: IpFamily, address: IpAddr) -> Result<(), Refusal> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    let rules = [
        (IpFamily::of(address) != family, "must be of the slice's address family"),
        (mapped, "must not be an IPv4 address written as IPv6"),
        (address.is_unspecified(), "must not be unspecified"),
        (address.is_loopback(), "must not be a loopback address"),
        (link_local, "must not be a link-local address"),
        (address.is_multicast(), "must not be a multicast address"),
    ];
    match rules.into_iter().find(|(broken, _)| *broken) {
        Some((_, rule)) => Err(Refusal::new("addresses", rule)),
        None => Ok(()),
    }
}

fn check_count(field: &str, count: usize, most: usize) -> Result<(), Refusal> {
    if count > most {
        return Err(Refusal::new(field, format!("must be at most {most}, and are {count}")));
    }
    Ok(())
}

fn check_name(
    field: &str,
    text: Option<&str>,
    rule: fn(&str) -> Result<(), syntax::Broken>,
) -> Result<(), Refusal> {
    match text.map(|text| (text, rule(text))) {
        Some((text, Err(broken))) => Err(Refusal::new(field, format!("{} {broken}", quoted(text)))),
        _ => Ok(()),
    }
}
