//! The admin port, and what gRPC itself offers.

use mcs_core::version::Sum;
use tonic::transport::Endpoint;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::started::{LEASE, Started, http, put};

#[tokio::test]
async fn health_and_reflection_are_served() {
    let registry = Started::new().await;
    let channel =
        Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "dynamo.mcs.v1.Members", "dynamo.mcs.v1.Imports"] {
        let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service}");
    }
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::iter([ask]))
        .await
        .unwrap()
        .into_inner();
    let Some(ServerReflectionResponse {
        message_response: Some(MessageResponse::ListServicesResponse(list)),
        ..
    }) = answers.message().await.unwrap()
    else {
        panic!()
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for service in ["dynamo.mcs.v1.Members", "dynamo.mcs.v1.Imports", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| name == service), "{names:?}");
    }
}

#[tokio::test]
async fn metrics_tell_what_is_there() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2), put("till", 1)]).await;
    registry.register("west").await;
    let (_watch, _) = registry.watch().await;
    registry.pass(LEASE).await;
    registry.client.renew(&east.member, east.version(), Sum::EMPTY).await.unwrap();

    assert_eq!(http(registry.admin, "GET", "/readyz").await, ("200 OK".to_owned(), "ok\n".to_owned()));
    let (_, text) = http(registry.admin, "GET", "/metrics").await;
    let lines = [
        "mcs_registry_leases{state=\"active\"} 1",
        "mcs_registry_leases{state=\"expired\"} 1",
        "mcs_registry_leases{state=\"held\"} 0",
        "mcs_registry_leases{state=\"syncing\"} 0",
        "mcs_registry_clustersets 1",
        "mcs_registry_exports 2",
        "mcs_registry_imports 2",
        "mcs_registry_endpoints 3",
        "mcs_registry_conflicts 0",
        "mcs_registry_watchers 1",
        "mcs_registry_views_incomplete 0",
        "mcs_registry_leases_expired_total 2",
        "mcs_registry_request_duration_seconds_count{code=\"Ok\",method=\"Renew\",transport=\"grpc\"} 1",
    ];
    for line in lines {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}
