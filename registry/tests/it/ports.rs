//! The admin port, and what gRPC itself offers.

use tonic::transport::Endpoint;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::started::{Started, http};

#[tokio::test]
async fn health_and_reflection_are_served() {
    let registry = Started::new().await;
    assert_eq!(http(registry.admin, "GET", "/readyz").await, ("200 OK".to_owned(), "ok\n".to_owned()));
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
