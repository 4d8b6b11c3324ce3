//! Reads as REST: proto3 JSON of the same messages; errors are `google.rpc.Status` with the HTTP code that matches.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_proto::convert::ConversionError;
use mcs_runtime::http::{self, Pace, pace};
use mcs_runtime::shutdown::Watch;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower_http::catch_panic::CatchPanicLayer;

use crate::Config;
use crate::error::{Error, http_code};
use crate::lists::Page;
use crate::metrics::Metrics;
use crate::service::Service;

/// A page has at most about this many bytes as protobuf: what a person asks for comes whole, and nothing grows without
/// bound.
const PAGE_BYTES: usize = 32 * 1024 * 1024;

#[derive(Clone)]
struct Rest {
    service: Arc<Service>,
    metrics: Metrics,
}

/// What may be asked of a list; other parameters are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked {
    include_endpoints: bool,
    cluster: String,
    page_size: u32,
    page_token: String,
}

/// Serves the port until the drain is over.
pub(crate) async fn serve(
    listener: TcpListener,
    config: Config,
    service: Arc<Service>,
    metrics: Metrics,
    shutdown: Watch,
) {
    let full = move || async move { refused(&Status::from(config.full())) };
    let connections = metrics.connections().clone();
    let routes = router(service, metrics).layer(from_fn_with_state(Pace::default(), pace));
    http::Port::new("rest", routes, config.limits())
        .full(Router::new().fallback(full))
        .metrics(connections)
        .serve(listener, shutdown.draining_owned())
        .await;
}

/// The routes of the REST port.
fn router(service: Arc<Service>, metrics: Metrics) -> Router {
    let list = |handler: MethodRouter<Rest>| handler.fallback(not_allowed);
    Router::new()
        .route("/v1/clustersets/{clusterset}/clusters", list(get(clusters)))
        .route("/v1/clustersets/{clusterset}/exports", list(get(exports)))
        .route("/v1/clustersets/{clusterset}/imports", list(get(imports)))
        .fallback(not_found)
        .layer(CatchPanicLayer::custom(|_| {
            refused(&Status::internal("this request failed; see the registry's log"))
        }))
        .with_state(Rest { service, metrics })
}

type Named = Result<Path<String>, PathRejection>;
type Params = Result<Query<Asked>, QueryRejection>;

async fn clusters(rest: State<Rest>, clusterset: Named, asked: Params) -> Response {
    rest.answer("ListClusters", clusterset, asked, |service, clusterset, _, page| {
        Ok(service.list_clusters(clusterset, page))
    })
}

async fn exports(rest: State<Rest>, clusterset: Named, asked: Params) -> Response {
    rest.answer("ListExports", clusterset, asked, |service, clusterset, asked, page| {
        let of = match asked.cluster.as_str() {
            "" => None,
            cluster => Some(ClusterId::new(cluster).map_err(ConversionError::from)?),
        };
        Ok(service.list_exports(clusterset, of.as_ref(), asked.include_endpoints, page))
    })
}

async fn imports(rest: State<Rest>, clusterset: Named, asked: Params) -> Response {
    rest.answer("ListImports", clusterset, asked, |service, clusterset, asked, page| {
        Ok(service.list_imports(clusterset, asked.include_endpoints, page))
    })
}

impl Rest {
    fn answer<T: Serialize>(
        &self,
        method: &'static str,
        clusterset: Named,
        asked: Params,
        list: impl FnOnce(&Service, &ClustersetId, &Asked, &Page) -> Result<T, Error>,
    ) -> Response {
        let request = self.metrics.begin("rest", method);
        let listed = read(clusterset, asked)
            .and_then(|(clusterset, asked, page)| list(&self.service, &clusterset, &asked, &page))
            .map_err(Status::from);
        let code = listed.as_ref().map_or_else(Status::code, |_| Code::Ok);
        let response = match listed {
            Ok(listed) => written(StatusCode::OK, &listed),
            Err(status) => refused(&status),
        };
        request.ended(code);
        response
    }
}

fn read(clusterset: Named, asked: Params) -> Result<(ClustersetId, Asked, Page), Error> {
    let Path(clusterset) =
        clusterset.map_err(|rejection| ConversionError::new("the path", rejection.body_text()))?;
    let clusterset = ClustersetId::new(clusterset).map_err(ConversionError::from)?;
    let Query(asked) = asked.map_err(|rejection| ConversionError::new("the query", rejection.body_text()))?;
    let page = Page::read(asked.page_size, &asked.page_token, PAGE_BYTES)?;
    Ok((clusterset, asked, page))
}

async fn not_found(uri: Uri) -> Response {
    refused(&Status::not_found(format!("there is nothing at {}", uri.path())))
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let mut response = refused(&Status::unimplemented(format!("{method} is not served at {}", uri.path())));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

/// A status as JSON, with the HTTP code that goes with its code.
fn refused(status: &Status) -> Response {
    let details: Vec<_> = status
        .get_details_error_info()
        .map(|info| {
            json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": info.reason,
                "domain": info.domain,
                "metadata": info.metadata,
            })
        })
        .into_iter()
        .collect();
    let body = json!({"code": i32::from(status.code()), "message": status.message(), "details": details});
    written(http_code(status.code()), &body)
}

fn written(code: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (code, [(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "answer cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
