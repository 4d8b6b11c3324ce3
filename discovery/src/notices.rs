//! What an operator should read, as lines of the log. `docs/troubleshooting.md` says of each what to do.

use mcs_core::pools::Notice;
use tracing::{error, warn};

/// Logs a notice.
pub(crate) fn log(notice: &Notice) {
    match notice {
        Notice::NoFrontend { key, service, port, port_imported } => warn!(
            pool = %key, service, port, port_imported,
            "pool has a Ready relay and no Ready frontend: it is listed without frontends"
        ),
        Notice::NoPort { slice, service, port } => {
            warn!(%slice, service, port, "EndpointSlice has no TCP port of that name: its endpoints are not used");
        }
        Notice::NotRegistered(key) => warn!(
            pool = %key,
            "pool is imported and not registered, so it is not listed: its lease lapsed or its Ready slice is stale; \
             else its relays register a cluster_id that is not the cluster's MCS name"
        ),
        Notice::NotImported(key) => warn!(
            pool = %key,
            "pool is registered and has no Ready relay among the imports, so it is not listed: its relay Service is \
             not exported or not ready; else the registered cluster_id is not the cluster's MCS name"
        ),
        Notice::RelaysDisagree(key) => warn!(
            pool = %key,
            "the relays of a pool register different payloads, of which the last one is listed: configure them alike"
        ),
        Notice::ClocksApart { key, region, apart, skew } => warn!(
            pool = %key, %region, ?apart, ?skew,
            "the clock of another replica is further off than is allowed for: synchronise the clocks of the replicas"
        ),
        Notice::UnreadableItem { item, problem } => {
            warn!(item, problem, "an item of the table cannot be read, and is left out");
        }
        Notice::EmptyRelist => {
            warn!("no EndpointSlice of a pool or of the router is imported: nothing is listed")
        }
        Notice::ServiceNameTooLong { part, service, limit } => error!(
            %part, service, limit,
            "Service name is too long for Karmada, so its EndpointSlices cannot be imported: give it a shorter name"
        ),
    }
}
