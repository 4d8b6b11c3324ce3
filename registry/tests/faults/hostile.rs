//! What is hostile never reaches a log or a metric as it is. That each field and path is refused, and how, is tested in
//! process.

use std::net::SocketAddr;

use mcs_core::version::{Sum, Version};
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::pb::members_client::MembersClient;
use mcs_runtime::testing::hostile::{TEXTS, is_control, look_at, refuses};
use tonic::transport::Endpoint;

use crate::program::Program;
use crate::started::http;

#[tokio::test]
async fn what_is_hostile_makes_no_line_of_a_log_and_no_label_of_a_metric() {
    for format in ["text", "json"] {
        let program = Program::start(&["--log-level=debug", &format!("--log-format={format}")]).await;
        for hostile in TEXTS {
            over_grpc(program.grpc, hostile).await;
            over_rest(program.rest, hostile).await;
        }
        let (_, metrics) = http(program.admin, "GET", "/metrics").await;
        look_at(&program, format, &metrics);
    }
}

/// In each field in turn that a log, an answer or a metric may name.
async fn over_grpc(grpc: SocketAddr, hostile: &str) {
    let channel = Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
    let mut members = MembersClient::new(channel.clone());
    for field in 0..6 {
        let mut request = pb::RegisterRequest {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "uid-of-east".to_owned(),
            version: Some(Version::new(1, 1).into()),
            sum: Sum::EMPTY.to_bytes().to_vec(),
            ..pb::RegisterRequest::default()
        };
        let fields = [
            &mut request.clusterset,
            &mut request.cluster,
            &mut request.uid,
            &mut request.region,
            &mut request.instance,
            &mut request.build,
        ];
        *fields.into_iter().nth(field).unwrap() = hostile.to_owned();
        let taken = members.register(request).await;
        assert!(taken.is_err() || !hostile.contains(is_control), "field {field} takes {hostile:?}");
    }
    let watch = pb::WatchRequest {
        clusterset: "prod".to_owned(),
        cluster: hostile.to_owned(),
        ..pb::WatchRequest::default()
    };
    ImportsClient::new(channel).watch(watch).await.unwrap_err();
}

/// In the path, the query, the method and a header, as it is.
async fn over_rest(rest: SocketAddr, hostile: &str) {
    let heads = [
        format!("GET /v1/clustersets/{hostile}/clusters HTTP/1.1"),
        format!("GET /v1/clustersets/prod/imports?pageToken={hostile} HTTP/1.1"),
        format!("{hostile} /v1/clustersets/prod/imports HTTP/1.1"),
        format!("PUT /v1/clustersets/prod/clusters/east HTTP/1.1\r\ncontent-type: {hostile}"),
    ];
    refuses(rest, heads).await;
}
