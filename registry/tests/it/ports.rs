//! The admin port, and what gRPC itself offers.

use tonic::transport::Endpoint;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::started::{LIMIT, Started, http};

const SERVICES: [&str; 3] = ["", "dynamo.mcs.v1.Members", "dynamo.mcs.v1.Imports"];

#[tokio::test]
async fn health_and_reflection_are_served() {
    let registry = Started::new().await;
    assert_eq!(http(registry.admin, "GET", "/readyz").await, ("200 OK".to_owned(), "ok\n".to_owned()));
    let channel =
        Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    for service in SERVICES {
        let mut told =
            health.watch(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
        let serving =
            async { while told.message().await.unwrap().unwrap().status() != ServingStatus::Serving {} };
        tokio::time::timeout(LIMIT, serving).await.unwrap_or_else(|_| panic!("{service:?} does not serve"));
    }
    // Most clients still ask in the earlier version.
    let before = channel.clone();
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::iter([ask]))
        .await
        .unwrap()
        .into_inner();
    let asked_before = v1alpha::ServerReflectionRequest {
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
        ..Default::default()
    };
    let mut answers_before = v1alpha::server_reflection_client::ServerReflectionClient::new(before)
        .server_reflection_info(tokio_stream::iter([asked_before]))
        .await
        .unwrap()
        .into_inner();
    let listed = answers_before.message().await.unwrap().unwrap().message_response;
    assert!(format!("{listed:?}").contains("dynamo.mcs.v1.Members"), "{listed:?}");
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

/// A probe asks for the whole, and who watches must hold up no drain.
#[tokio::test]
async fn health_serves_nothing_from_the_drain_on_and_its_watches_end() {
    let registry = Started::new().await;
    let channel =
        Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    let mut watches = Vec::new();
    for service in SERVICES {
        let asked = HealthCheckRequest { service: service.to_owned() };
        watches.push(health.watch(asked).await.unwrap().into_inner());
    }
    registry.shutdown.drain();
    for mut watch in watches {
        let mut last = None;
        let ended = async {
            while let Some(told) = watch.message().await.unwrap() {
                last = Some(told.status());
            }
        };
        tokio::time::timeout(LIMIT, ended).await.unwrap();
        assert_eq!(last, Some(ServingStatus::NotServing));
    }
    tokio::time::timeout(LIMIT, registry.program).await.unwrap().unwrap().unwrap();
}
