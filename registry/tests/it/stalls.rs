//! A registry that stands still while it is told something: what its client makes of it.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use mcs_core::timing::Timing;
use mcs_core::version::Version;
use mcs_proto::client::{RegistryClient, Synced};
use mcs_proto::pb;
use mcs_proto::pb::members_server::{Members, MembersServer};
use mcs_proto::pb::sync_response::Step;
use mcs_proto::status::CallFailed;
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::started::{LIMIT, member, put};

#[tokio::test]
async fn a_sync_that_is_not_read_ends_with_its_limit() {
    let timing = Timing::of_lease(Duration::from_secs(1));
    assert_eq!(sync(None, timing).await, Err(CallFailed::TimedOut { limit: timing.dead_stream() }));
}

#[tokio::test]
async fn a_sync_that_fails_while_it_is_not_read_ends_with_the_reason() {
    let failed = CallFailed::Unavailable { code: Code::Aborted, message: "no more".to_owned() };
    assert_eq!(sync(Some(Status::aborted("no more")), Timing::of_lease(LIMIT * 10)).await, Err(failed));
}

/// Tells a registry more than the connection holds.
async fn sync(answer: Option<Status>, timing: Timing) -> Result<Synced, CallFailed> {
    let client = RegistryClient::new(&format!("http://{}", start(answer).await).parse().unwrap(), timing);
    let exchange = async {
        let member = member("east", "u-1");
        let (_, sync) = client.unwrap().begin_sync(&member, Version::new(1, 2), &[]).await?;
        let ops: Vec<_> = (0..200).map(|index| put(&format!("service-{index}"), 1_000)).collect();
        sync.finish(&ops).await
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap()
}

async fn start(answer: Option<Status>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(MembersServer::new(Still(answer)));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// A registry that wants nothing, answers this, and reads no more.
struct Still(Option<Status>);

fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("only syncs"))
}

#[tonic::async_trait]
impl Members for Still {
    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn sync(
        &self,
        request: Request<Streaming<pb::SyncRequest>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let answer = self.0.clone();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut asks = request.into_inner();
            let names_end = |ask: &Result<pb::SyncRequest, Status>| {
                let end =
                    matches!(ask, Ok(ask) if matches!(ask.step, Some(pb::sync_request::Step::NamesEnd(_))));
                std::future::ready(!end)
            };
            asks.by_ref().take_while(names_end).for_each(|_| std::future::ready(())).await;
            let wants_end = pb::SyncResponse { step: Some(Step::WantsEnd(pb::SyncWantsEnd {})) };
            let _ = sender.send(Ok(wants_end)).await;
            if let Some(answer) = answer {
                let _ = sender.send(Err(answer)).await;
            }
            // The stream stays open and is not read.
            sender.closed().await;
            std::future::pending::<()>().await;
            drop(asks);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn register(
        &self,
        _: Request<pb::RegisterRequest>,
    ) -> Result<Response<pb::RegisterResponse>, Status> {
        none()
    }

    async fn renew(&self, _: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        none()
    }

    async fn write(
        &self,
        _: Request<Streaming<pb::WriteRequest>>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        none()
    }

    async fn remove_cluster(
        &self,
        _: Request<pb::RemoveClusterRequest>,
    ) -> Result<Response<pb::RemoveClusterResponse>, Status> {
        none()
    }
}
