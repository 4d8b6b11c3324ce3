//! What no network makes easy to show.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::body::{Body, Bytes, to_bytes};
use futures::stream::{self, StreamExt};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::routes::Takes;
use super::*;
use crate::caller::Caller;
use crate::{Parts, in_memory};

/// Within a lease, which is more than every limit.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let (Parts { service, .. }, ports) = in_memory();
    let lease = service.lease();
    let routes = router(service, &ports);
    let mut told = BTreeMap::new();
    for route in ROUTES.iter().filter(|route| !matches!(route.takes, Takes::Nothing)) {
        let path = route.path.replace(['{', '}'], "");
        let begun = stream::iter([Ok::<_, Infallible>(Bytes::from("{"))]);
        let body = Body::from_stream(begun.chain(stream::pending()));
        let answered = tokio::time::timeout(lease, answer(&routes, route.method.as_str(), &path, body)).await;
        told.insert(route.call.name(), answered.unwrap().0);
    }
    let names = ["PutEndpoints", "PutExport", "Register", "Renew", "Sync", "Write"];
    assert_eq!(told, names.into_iter().map(|name| (name, 408)).collect());
}

#[tokio::test]
async fn what_does_not_fit_into_one_answer_is_told_in_pages_only() {
    let (Parts { service, .. }, ports) = in_memory();
    let routes = routes(Rest { page: 1, ..Rest::new(service, &ports) });
    let east = "/v1/clustersets/prod/clusters/east";
    let cart = format!("{east}/exports/shop/cart");
    let zero = "AAAAAAAAAAAAAAAAAAAAAA==";
    let register = json!({"uid": "u-1", "version": {"term": 1, "seq": 1}, "sum": zero});
    let families = ["IP_FAMILY_IPV4"];
    let spec = json!({"createdAt": "2026-01-01T00:00:00Z", "ports": [{"port": 80}], "ipFamilies": families});
    let put = json!({"uid": "u-1", "version": {"term": 1, "seq": 2}, "leaf": zero, "spec": spec});
    for (path, body) in [(east, register), (&*cart, put)] {
        assert_eq!(answer(&routes, "PUT", path, Body::from(body.to_string())).await.0, 200);
    }
    let get = async |path: &str| answer(&routes, "GET", path, Body::empty()).await;
    let limit = json!({"limit": "answer-bytes", "most": "1"});
    for path in [&*format!("{cart}?includeEndpoints=true"), "/v1/clustersets/prod/imports/shop/cart"] {
        let (status, body) = get(path).await;
        assert_eq!((status, &body["details"][0]["metadata"]), (429, &limit), "{path}");
    }
    assert_eq!(get(&cart).await.0, 200);
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let path = format!("/v1/clustersets/prod/imports?includeEndpoints=true&pageToken={token}");
        let (_, page) = get(&path).await;
        assert_eq!(page["imports"][0]["key"]["name"], "cart");
        pages += 1;
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, 2);
}

async fn answer(routes: &Router, method: &str, path: &str, body: Body) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).extension(Caller::Anyone).body(body).unwrap();
    let answer = TowerToHyperService::new(routes.clone()).call(request).await.unwrap();
    let status = answer.status().as_u16();
    let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&text).unwrap())
}
