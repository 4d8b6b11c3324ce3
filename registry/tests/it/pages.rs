//! Lists of several pages, as their client reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcs_proto::pb;
use mcs_proto::pb::imports_server::{Imports, ImportsServer};
use mcs_proto::status::CallFailed;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use crate::started::{client, key, prod};

/// O46: a list breaks off after its first page, and is whole when it is read anew.
#[tokio::test]
async fn a_list_that_breaks_off_after_a_page_fails_and_is_read_whole_from_its_beginning() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let registry = Breaking::default();
    let routes = Routes::new(ImportsServer::new(registry.clone())).into_axum_router();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = client(address);

    let broken = client.list_imports(&prod(), false).await;
    let gone = CallFailed::Unavailable { code: Code::Aborted, message: "the page is gone".to_owned() };
    assert_eq!(broken, Err(gone));
    let (imports, complete) = client.list_imports(&prod(), false).await.unwrap();
    let names: Vec<_> = imports.into_iter().map(|import| import.key.unwrap().name).collect();
    assert_eq!((&*names, complete), (&["cart".to_owned(), "till".to_owned()][..], true));
    assert_eq!(registry.asked.load(Ordering::Relaxed), 4);

    // What one page lacks the list lacks.
    registry.incomplete.store(1, Ordering::Relaxed);
    assert!(!client.list_imports(&prod(), false).await.unwrap().1);
}

/// Two pages of an import each; the second one is refused when it is asked for first.
#[derive(Clone, Default)]
struct Breaking {
    asked: Arc<AtomicUsize>,
    incomplete: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Imports for Breaking {
    type WatchStream = tokio_stream::Empty<Result<mcs_proto::encoded::EncodedStep, Status>>;

    async fn list_imports(
        &self,
        request: Request<pb::ListImportsRequest>,
    ) -> Result<Response<pb::ListImportsResponse>, Status> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let (name, next) = match request.into_inner().page_token.as_str() {
            "" => ("cart", "shop/till~0"),
            "shop/till~0" if number == 1 => return Err(Status::aborted("the page is gone")),
            "shop/till~0" => ("till", ""),
            other => panic!("{other:?} was never given"),
        };
        Ok(Response::new(pb::ListImportsResponse {
            imports: vec![pb::Import { key: Some((&key(name)).into()), ..Default::default() }],
            complete: self.incomplete.load(Ordering::Relaxed) == 0,
            next_page_token: next.to_owned(),
        }))
    }

    async fn list_clusters(
        &self,
        _: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn list_exports(
        &self,
        _: Request<pb::ListExportsRequest>,
    ) -> Result<Response<pb::ListExportsResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn get_registry(
        &self,
        _: Request<pb::GetRegistryRequest>,
    ) -> Result<Response<pb::GetRegistryResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn watch(&self, _: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}
