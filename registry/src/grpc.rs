//! The calls as gRPC.

mod imports;
mod members;

use std::sync::Arc;
use std::time::Duration;

use mcs_core::timing::Timing;
use mcs_proto::FILE_DESCRIPTOR_SET;
use mcs_proto::pb::imports_server::ImportsServer;
use mcs_proto::pb::members_server::MembersServer;
use mcs_runtime::shutdown::Watch;
use rand::Rng;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Response, Status};

use crate::error::Error;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::{Config, DRAIN};

/// Why the port is no longer served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The transport ended.
    #[error("the gRPC port cannot be served")]
    Transport(#[from] tonic::transport::Error),
    /// What reflection tells is damaged.
    #[error("the description of the API cannot be read")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// What both services share.
#[derive(Clone)]
struct Grpc {
    service: Arc<Service>,
    metrics: Metrics,
}

impl Grpc {
    /// Answers a call and notes how long that took.
    async fn answer<T>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<Response<T>, Status> {
        let request = self.metrics.begin("grpc", method);
        let answer = answer.await.map(Response::new).map_err(Status::from);
        request.ended(answer.as_ref().map_or_else(Status::code, |_| Code::Ok));
        answer
    }
}

/// Serves the port until the drain is over: watches and syncs end at once, other calls are finished.
pub(crate) async fn serve(
    listener: TcpListener,
    config: Config,
    service: Arc<Service>,
    metrics: Metrics,
    shutdown: Watch,
) -> Result<(), Failed> {
    let timing = config.policy.timing;
    let (health, health_server) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let grpc = Grpc { service, metrics };
    let members = MembersServer::new(grpc.clone()).max_decoding_message_size(config.max_message_bytes);
    let imports = ImportsServer::new(grpc).max_decoding_message_size(config.max_message_bytes);
    health.set_serving::<MembersServer<Grpc>>().await;
    health.set_serving::<ImportsServer<Grpc>>().await;

    let drained = shutdown.draining_owned();
    let stop = async move {
        drained.await;
        health.set_not_serving::<MembersServer<Grpc>>().await;
        health.set_not_serving::<ImportsServer<Grpc>>().await;
    };
    let server = server(timing, connection_age(config.max_connection_age))
        .add_service(health_server)
        .add_service(reflection)
        .add_service(members)
        .add_service(imports)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), stop);

    // A client that does not let go of its connection must not hold the end up.
    let overdue = async {
        shutdown.draining().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = server => Ok(served?),
        () = overdue => {
            tracing::warn!(grace = ?DRAIN, "connections cut: they did not end in time");
            Ok(())
        }
    }
}

fn server(timing: Timing, age: Duration) -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(timing.keep_alive()))
        .http2_keepalive_timeout(Some(timing.keep_alive_answer()))
        .max_connection_age(age)
        // A watch that does not end by itself is cut then; its client goes on from its revision.
        .max_connection_age_grace(timing.heartbeat())
        .initial_connection_window_size(4 * 1024 * 1024)
}

/// The age at which this process ends connections: a tenth more or less, so that replicas that started together do not
/// end theirs together.
fn connection_age(age: Duration) -> Duration {
    age.mul_f64(rand::rng().random_range(0.9..1.1))
}
