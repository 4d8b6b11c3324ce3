//! The calls as gRPC.

mod deadline;
mod health;
mod imports;
mod members;
mod shared;
mod streams;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn;
use futures::{Stream, TryStreamExt};
use mcs_proto::FILE_DESCRIPTOR_SET;
use mcs_proto::pb::imports_server::ImportsServer;
use mcs_proto::pb::members_server::MembersServer;
use mcs_runtime::http::Protocol;
use mcs_runtime::ready::Ready;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::Config;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::pages::Pages;
use crate::ports::Ports;
use crate::service::Service;

/// Why the port cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// What reflection tells is damaged.
    #[error("the description of the API cannot be read")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// What both services share.
#[derive(Clone)]
struct Grpc {
    service: Arc<Service>,
    metrics: Metrics,
    pages: Pages,
    /// The largest message that is read, in bytes.
    most: usize,
}

impl Grpc {
    /// The messages of a request.
    fn messages<M: Send + 'static>(
        &self,
        request: Request<Streaming<M>>,
    ) -> impl Stream<Item = Result<M, Error>> + Unpin + Send + use<M> {
        let most = self.most;
        request.into_inner().map_err(move |broken| Error::of_stream(broken, most))
    }

    /// Answers a call and notes how long that took.
    async fn answer<T>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<Response<T>, Status> {
        let request = self.metrics.begin("grpc", method);
        let failed = |error| Status::from(self.service.failed(error));
        let answer = answer.await.map(Response::new).map_err(failed);
        request.ended(answer.as_ref().map_or_else(Status::code, |_| Code::Ok));
        answer
    }
}

/// The calls of the API, which are to be bounded.
pub(crate) fn calls(service: Arc<Service>, ports: &Ports) -> Routes {
    let Config { max_message_bytes: most, .. } = ports.config;
    let grpc = Grpc { service, metrics: ports.metrics.clone(), pages: ports.pages.clone(), most };
    let members = MembersServer::new(grpc.clone()).max_decoding_message_size(most);
    let imports = ImportsServer::new(grpc).max_decoding_message_size(most);
    Routes::new(members).add_service(imports).into_axum_router().layer(from_fn(shared::share)).into()
}

/// Calls, bounded as those of the port are.
pub(crate) fn router(calls: Routes, ports: &Ports) -> Router {
    ports.bounded(streams::bounded(calls.into_axum_router(), ports))
}

/// Serves the port until the drain is over: watches and syncs end at once, other calls are finished.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    ports: Ports,
    ready: Ready,
) -> Result<(), Failed> {
    let (health, health_server) = tonic_health::server::health_reporter();
    health::begin(&health).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let calls = calls(service, &ports)
        .add_service(health_server)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    let told = ports.clone();
    let full = move || async move { Status::from(told.full()).into_http::<Body>() };
    let port = ports.port("grpc", router(calls, &ports), Router::new().fallback(full));
    let stop = ports.shutdown.draining_owned();
    let served = port.protocol(Protocol::Http2).serve(listener, stop);
    tokio::join!(served, health::follow(health, ready, ports.shutdown.clone()));
    Ok(())
}
