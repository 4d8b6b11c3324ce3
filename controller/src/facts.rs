//! Kubernetes objects ↔ facts of the deciding code: the one place where a field of an API object is given its meaning.
//!
//! Reading never fails: an API server may hold what other versions and other people wrote. A value that means nothing
//! here is read as its default, or shows as a difference that is then mended. What the API server fills in (defaults)
//! and what was never set are one value.

mod existing;
mod exported;
mod wanted;

pub(crate) use existing::{existing, managed_entries};
pub(crate) use exported::{Content, ExportInput, exported, is_derived};
pub(crate) use wanted::{import, import_status, service, slice, without_strays};

use crate::api;
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use mcs_core::conditions::{Condition, Status};
use mcs_core::model::{InternalTrafficPolicy, IpFamily, Port, Protocol, SessionAffinity};
use mcs_core::time::WallTime;

/// Reads a protocol; absent or unknown is TCP, as Kubernetes takes it.
fn protocol(text: Option<&str>) -> Protocol {
    text.and_then(Protocol::parse).unwrap_or_default()
}

/// Reads a port number; what is none is 0, which validation refuses.
fn port_number(number: i32) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

/// Reads a port of a Service.
fn service_port(port: &ServicePort) -> Port {
    Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol(port.protocol.as_deref()),
        port: port_number(port.port),
        app_protocol: port.app_protocol.clone(),
    }
}

/// Reads address families; what is none is left out.
fn ip_families<'a>(families: impl IntoIterator<Item = &'a String>) -> Vec<IpFamily> {
    families.into_iter().filter_map(|family| IpFamily::parse(family)).collect()
}

/// Reads a session affinity; absent or unknown is none.
fn session_affinity(text: Option<&str>) -> SessionAffinity {
    match text {
        Some("ClientIP") => SessionAffinity::ClientIp,
        _ => SessionAffinity::None,
    }
}

/// Reads an internal traffic policy; absent or unknown is the whole cluster.
fn internal_traffic_policy(text: Option<&str>) -> InternalTrafficPolicy {
    match text {
        Some("Local") => InternalTrafficPolicy::Local,
        _ => InternalTrafficPolicy::Cluster,
    }
}

fn wall_time(time: &Time) -> WallTime {
    WallTime::from_unix_secs(time.0.as_second())
}

fn time(wall: WallTime) -> Option<Time> {
    jiff::Timestamp::from_second(wall.unix_secs()).ok().map(Time)
}

/// When an object was deleted that is on its way out.
pub(crate) fn deleted_at(meta: &ObjectMeta) -> Option<WallTime> {
    meta.deletion_timestamp.as_ref().map(wall_time)
}

/// Reads conditions.
pub(crate) fn conditions(conditions: &[api::Condition]) -> Vec<Condition> {
    let read = |condition: &api::Condition| Condition {
        kind: condition.type_.clone(),
        status: Status::parse(&condition.status).unwrap_or(Status::Unknown),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: condition.observed_generation,
        last_transition_time: condition.last_transition_time.as_ref().map(wall_time).unwrap_or_default(),
    };
    conditions.iter().map(read).collect()
}

/// Writes a condition.
pub(crate) fn condition(condition: &Condition) -> api::Condition {
    api::Condition {
        type_: condition.kind.clone(),
        status: condition.status.as_str().to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: condition.observed_generation,
        last_transition_time: time(condition.last_transition_time),
    }
}
