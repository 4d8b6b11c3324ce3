//! `dynamo.mcs.v1.Members`.

use std::sync::Arc;

use mcs_proto::pb;
use mcs_proto::pb::members_server::Members;
use mcs_runtime::http::Held;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Grpc;
use crate::caller::Caller;
use crate::calls;
use crate::calls::sync::{ANSWERS, Sync, each_by_itself, until_over};

#[tonic::async_trait]
impl Members for Grpc {
    async fn register(
        &self,
        request: Request<pb::RegisterRequest>,
    ) -> Result<Response<pb::RegisterResponse>, Status> {
        self.answer("Register", async {
            let caller = Caller::of(request.extensions());
            calls::register(&self.service, &caller, request.into_inner()).await
        })
        .await
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        self.answer("Renew", async {
            let caller = Caller::of(request.extensions());
            calls::renew(&self.service, &caller, request.into_inner())
        })
        .await
    }

    async fn write(
        &self,
        request: Request<Streaming<pb::WriteRequest>>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        self.answer("Write", async {
            let caller = Caller::of(request.extensions());
            calls::write(&self.service, &caller, self.messages(request)).await
        })
        .await
    }

    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn sync(
        &self,
        request: Request<Streaming<pb::SyncRequest>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let (answers, receiver) = mpsc::channel(ANSWERS);
        let (grpc, caller) = (self.clone(), Caller::of(request.extensions()));
        let held = Held::of(request.extensions());
        tokio::spawn(async move {
            let measured = grpc.metrics.begin("grpc", "Sync");
            let steps = async {
                let requests = each_by_itself(grpc.messages(request), held);
                let service = Arc::clone(&grpc.service);
                Sync::begin(service, &caller, requests).await?.lead(&answers, false).await
            };
            if let Some(code) = until_over(&grpc.service, &answers, steps).await {
                measured.ended(code);
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn remove_cluster(
        &self,
        request: Request<pb::RemoveClusterRequest>,
    ) -> Result<Response<pb::RemoveClusterResponse>, Status> {
        self.answer("RemoveCluster", async {
            let caller = Caller::of(request.extensions());
            calls::remove_cluster(&self.service, &caller, request.into_inner()).await
        })
        .await
    }
}
