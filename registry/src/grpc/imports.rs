//! `dynamo.mcs.v1.Imports`.

use std::pin::Pin;

use futures::Stream;
use mcs_core::ids::{ClusterId, ClustersetId, Epoch};
use mcs_proto::chunks::CHUNK_BYTES;
use mcs_proto::convert::{ConversionError, read_sixteen};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::pb;
use mcs_proto::pb::imports_server::Imports;
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::error::Error;
use crate::lists::Page;

fn page(size: u32, token: &str) -> Result<Page, ConversionError> {
    Page::read(size, token, CHUNK_BYTES)
}

#[tonic::async_trait]
impl Imports for Grpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<EncodedStep, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.answer("Watch", async {
            let request = request.into_inner();
            let clusterset = read_clusterset(request.clusterset)?;
            let importer = ClusterId::new(request.cluster).map_err(ConversionError::from)?;
            let from = match request.epoch.as_slice() {
                [] => None,
                epoch => Some((Epoch(u128::from_be_bytes(read_sixteen(epoch, "epoch")?)), request.revision)),
            };
            tracing::info!(%clusterset, cluster = %importer, resumes = from.is_some(), "watch opened");
            let stream: Self::WatchStream = Box::pin(self.service.watch(&clusterset, from)?);
            Ok(stream)
        })
        .await
    }

    async fn list_clusters(
        &self,
        request: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        self.answer("ListClusters", async {
            let request = request.into_inner();
            let page = page(request.page_size, &request.page_token)?;
            Ok(self.service.list_clusters(&read_clusterset(request.clusterset)?, &page))
        })
        .await
    }

    async fn list_exports(
        &self,
        request: Request<pb::ListExportsRequest>,
    ) -> Result<Response<pb::ListExportsResponse>, Status> {
        self.answer("ListExports", async {
            let request = request.into_inner();
            let page = page(request.page_size, &request.page_token)?;
            let of = match request.cluster.as_str() {
                "" => None,
                cluster => Some(ClusterId::new(cluster).map_err(ConversionError::from)?),
            };
            let clusterset = read_clusterset(request.clusterset)?;
            Ok(self.service.list_exports(&clusterset, of.as_ref(), request.include_endpoints, &page))
        })
        .await
    }

    async fn list_imports(
        &self,
        request: Request<pb::ListImportsRequest>,
    ) -> Result<Response<pb::ListImportsResponse>, Status> {
        self.answer("ListImports", async {
            let request = request.into_inner();
            let page = page(request.page_size, &request.page_token)?;
            Ok(self.service.list_imports(
                &read_clusterset(request.clusterset)?,
                request.include_endpoints,
                &page,
            ))
        })
        .await
    }
}

fn read_clusterset(clusterset: String) -> Result<ClustersetId, Error> {
    Ok(ClustersetId::new(clusterset).map_err(ConversionError::from)?)
}
