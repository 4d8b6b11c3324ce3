//! `dynamo.mcs.v1.Imports`.

use std::sync::Arc;

use futures::stream::Empty;
use mcs_proto::chunks::CHUNK_BYTES;
use mcs_proto::encoded::EncodedStep;
use mcs_proto::pb;
use mcs_proto::pb::imports_server::Imports;
use tonic::{Request, Response, Status};

use super::Grpc;
use super::shared::Shared;
use crate::caller::Caller;
use crate::calls;

#[tonic::async_trait]
impl Imports for Grpc {
    /// Its messages are [`Shared`].
    type WatchStream = Empty<Result<EncodedStep, Status>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let watch = async { calls::watch(&self.service, request.into_inner()).await.map(Shared::new) };
        let shared = self.answer("Watch", watch).await?.into_inner();
        let mut answer = Response::new(futures::stream::empty());
        answer.extensions_mut().insert(shared);
        Ok(answer)
    }

    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        self.answer("ListClusters", async {
            let request = request.into_inner();
            self.service.look_up(&request.clusterset).await;
            // Clusters are few and small, unlike what they export.
            calls::list_clusters(&self.service, request, CHUNK_BYTES)
        })
        .await
    }

    async fn list_exports(
        &self,
        request: Request<pb::ListExportsRequest>,
    ) -> Result<Response<pb::ListExportsResponse>, Status> {
        self.answer("ListExports", async {
            let (service, request) = (Arc::clone(&self.service), request.into_inner());
            service.look_up(&request.clusterset).await;
            self.pages.make(move || calls::list_exports(&service, request, CHUNK_BYTES)).await
        })
        .await
    }

    async fn list_imports(
        &self,
        request: Request<pb::ListImportsRequest>,
    ) -> Result<Response<pb::ListImportsResponse>, Status> {
        self.answer("ListImports", async {
            let (service, request) = (Arc::clone(&self.service), request.into_inner());
            service.look_up(&request.clusterset).await;
            self.pages.make(move || calls::list_imports(&service, request, CHUNK_BYTES)).await
        })
        .await
    }

    async fn get_registry(
        &self,
        request: Request<pb::GetRegistryRequest>,
    ) -> Result<Response<pb::GetRegistryResponse>, Status> {
        self.answer("GetRegistry", async {
            Ok(calls::get_registry(&self.service, &Caller::of(request.extensions())))
        })
        .await
    }
}
