//! Health as gRPC tells it, of the registry as a whole (the empty name) and of each service: they serve from the time on
//! that the registry is ready, as `/readyz` says it, and not while it drains. Who watches is told so, and the watch ends.

use mcs_proto::pb::imports_server::ImportsServer;
use mcs_proto::pb::members_server::MembersServer;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::Grpc;

const NAMES: [&str; 3] =
    ["", <MembersServer<Grpc> as NamedService>::NAME, <ImportsServer<Grpc> as NamedService>::NAME];

/// Says that nothing is served yet.
pub(super) async fn begin(health: &HealthReporter) {
    tell(health, ServingStatus::NotServing).await;
}

/// Follows the readiness, until the drain.
pub(super) async fn follow(health: HealthReporter, ready: Ready, shutdown: Drain) {
    tokio::select! {
        () = ready.until_ready() => tell(&health, ServingStatus::Serving).await,
        () = shutdown.draining() => {}
    }
    shutdown.draining().await;
    tell(&health, ServingStatus::NotServing).await;
    let mut health = health;
    for name in NAMES {
        health.clear_service_status(name).await;
    }
}

async fn tell(health: &HealthReporter, status: ServingStatus) {
    for name in NAMES {
        health.set_service_status(name, status).await;
    }
}
