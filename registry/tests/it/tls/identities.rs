//! Who a certificate says that a client is, and what that allows.

use std::collections::BTreeSet;

use mcs_core::version::{Sum, Version};
use mcs_proto::convert::{self, Member};
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::pb::members_client::MembersClient;
use mcs_runtime::tls::testing::{Ca, GOOD};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Secret, channel, grpc_client, rest, send};
use crate::started::{Started, id, member, registration};

const ALL: [&str; 5] = ["register", "renew", "write", "sync", "remove"];
const NONE: [&str; 0] = [];

#[tokio::test]
async fn a_certificate_allows_what_its_names_say_over_grpc() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let remove = ["remove"];
    let cases: [(&[&str], &[&str], &[&str]); 9] = [
        (&["URI:spiffe://prod/cluster/east"], &ALL, &NONE),
        (&["east.prod"], &ALL, &NONE),
        (&["URI:spiffe://prod/cluster/east", "west.prod"], &ALL, &NONE),
        (&["URI:spiffe://prod/admin"], &remove, &remove),
        (&["URI:spiffe://other/admin"], &NONE, &NONE),
        (&["URI:spiffe://other/cluster/east"], &NONE, &NONE),
        (&["east.prod", "west.prod"], &NONE, &NONE),
        (&["URI:spiffe://prod/cluster/east", "URI:spiffe://prod/cluster/west"], &NONE, &NONE),
        (&["web.example.com"], &NONE, &NONE),
    ];
    for (names, of_east, of_west) in cases {
        let channel =
            channel(&registry, &grpc_client(&ca, Some(&clients.issue(names, GOOD, 9)))).await.unwrap();
        for (cluster, allowed) in [("west", of_west), ("east", of_east)] {
            let expected: BTreeSet<_> = allowed.iter().copied().collect();
            assert_eq!(
                allowed_calls(&channel, &member(cluster, "u-1")).await,
                expected,
                "{names:?} for {cluster}"
            );
        }
        assert_eq!(reads(&channel).await, Ok(()), "{names:?}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_certificate_what_it_may_do_and_what_was_asked() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let east = clients.issue(&["URI:spiffe://prod/cluster/east"], GOOD, 9);
    let channel = channel(&registry, &grpc_client(&ca, Some(&east))).await.unwrap();
    let refused = register(&channel, &member("west", "u-1")).await.unwrap_err();
    let message = "the certificate of cluster east of clusterset prod may read, and write for and remove that cluster, \
                   but not write for cluster west of clusterset prod";
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, message));
}

#[tokio::test]
async fn who_shows_a_certificate_is_told_what_it_is_taken_for() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let cases = [
        (
            "URI:spiffe://prod/admin",
            "the certificate of an administrator of clusterset prod may read, and remove clusters of that clusterset",
        ),
        (
            "east.prod",
            "the certificate of cluster east of clusterset prod may read, and write for and remove that cluster",
        ),
        ("localhost", "a certificate with the names DNS \"localhost\", which is no cluster's, may read"),
    ];
    for (name, told) in cases {
        let channel =
            channel(&registry, &grpc_client(&ca, Some(&clients.issue(&[name], GOOD, 9)))).await.unwrap();
        let answer = ImportsClient::new(channel).get_registry(pb::GetRegistryRequest {}).await.unwrap();
        assert_eq!(answer.into_inner().caller, told);
    }
}

#[tokio::test]
async fn rest_asks_for_a_certificate_too() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let clusters = "/v1/clustersets/prod/clusters";
    let refused = rest(&registry, &ca.client(None, &[]), "GET", clusters).await.unwrap_err();
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");
    let reader = clients.issue(&["web.example.com"], GOOD, 9);
    let answer = rest(&registry, &ca.client(Some(&reader), &[]), "GET", clusters).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_certificate_allows_over_rest_what_it_allows_over_grpc() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let registry = Started::with_tls(secret.files(true)).await;
    let cases: [(&str, &[&str], &[&str]); 3] = [
        ("URI:spiffe://prod/cluster/east", &REST, &NONE),
        ("URI:spiffe://prod/admin", &[REMOVE], &[REMOVE]),
        ("web.example.com", &NONE, &NONE),
    ];
    for (name, of_east, of_west) in cases {
        let client = ca.client(Some(&clients.issue(&[name], GOOD, 9)), &[]);
        for (cluster, allowed) in [("west", of_west), ("east", of_east)] {
            let mut served = Vec::new();
            for call in REST {
                let (method, path) = call.split_once(' ').unwrap();
                let path = format!("/v1/clustersets/prod/clusters/{cluster}{path}");
                let answer = send(&registry, &client, method, &path, &body_of(call)).await.unwrap();
                if answer.starts_with("HTTP/1.1 403 Forbidden") {
                    assert!(answer.contains("\"DENIED\""), "{call}: {answer}");
                } else {
                    assert!(!answer.starts_with("HTTP/1.1 400 Bad Request"), "{call}: {answer}");
                    served.push(call);
                }
            }
            assert_eq!(served, allowed, "{name} for {cluster}");
        }
    }
}

#[tokio::test]
async fn without_a_client_ca_everyone_may_do_everything() {
    let ca = Ca::new("ca");
    let secret = Secret::new(&ca.server(1), None);
    let registry = Started::with_tls(secret.files(false)).await;
    let channel = channel(&registry, &grpc_client(&ca, None)).await.unwrap();
    assert_eq!(allowed_calls(&channel, &member("east", "u-1")).await, BTreeSet::from(ALL));
}

/// The calls that are not denied. Each may fail for another reason, as one that was removed is not known.
async fn allowed_calls(channel: &Channel, member: &Member) -> BTreeSet<&'static str> {
    let mut members = MembersClient::new(channel.clone());
    let (clusterset, cluster, uid) =
        (member.clusterset.to_string(), member.cluster.to_string(), member.uid.to_string());
    let version = Some(pb::Version::from(Version::new(1, 1)));
    let renew = pb::RenewRequest {
        held_imports: None,
        refused_exports: None,
        clusterset: clusterset.clone(),
        cluster: cluster.clone(),
        uid: uid.clone(),
        version,
        sum: Sum::EMPTY.to_bytes().to_vec(),
    };
    let write = pb::WriteRequest {
        clusterset: clusterset.clone(),
        cluster: cluster.clone(),
        uid: uid.clone(),
        version,
        ops: Vec::new(),
    };
    let begin = pb::SyncBegin { clusterset: clusterset.clone(), cluster: cluster.clone(), uid, version };
    let begin = pb::SyncRequest { step: Some(pb::sync_request::Step::Begin(begin)) };
    let remove = pb::RemoveClusterRequest { clusterset, cluster, force: true, ..Default::default() };
    let synced = match members.sync(tokio_stream::iter([begin])).await {
        // The stream ends after its begin, which says nothing of who sent it.
        Ok(answers) => answers.into_inner().message().await.map(|_| ()),
        Err(status) => Err(status),
    };
    let results = [
        ("register", register(channel, member).await),
        ("renew", members.renew(renew).await.map(|_| ())),
        ("write", members.write(tokio_stream::iter([write])).await.map(|_| ())),
        ("sync", synced),
        ("remove", members.remove_cluster(remove).await.map(|_| ())),
    ];
    let denied = |result: &Result<(), Status>| {
        result.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied)
    };
    results.into_iter().filter(|(_, result)| !denied(result)).map(|(name, _)| name).collect()
}

async fn register(channel: &Channel, member: &Member) -> Result<(), Status> {
    let request = convert::registration(member, &registration(member, Version::new(1, 1), Sum::EMPTY));
    MembersClient::new(channel.clone()).register(request).await.map(|_| ())
}

async fn reads(channel: &Channel) -> Result<(), Code> {
    let mut imports = ImportsClient::new(channel.clone());
    let clusterset = "prod".to_owned();
    let list = pb::ListClustersRequest { clusterset: clusterset.clone(), ..Default::default() };
    imports.list_clusters(list).await.map_err(|status| status.code())?;
    let watch = pb::WatchRequest { clusterset, cluster: id("importer").to_string(), ..Default::default() };
    let mut frames = imports.watch(watch).await.map_err(|status| status.code())?.into_inner();
    frames.message().await.map(|_| ()).map_err(|status| status.code())
}

const REMOVE: &str = "DELETE ?force=true";

/// Every call over REST that changes something.
const REST: [&str; 8] = [
    "PUT ",
    "POST /renew",
    "POST /write",
    "POST /sync",
    "PUT /exports/shop/cart",
    "PUT /exports/shop/cart/endpoints",
    "DELETE /exports/shop/cart?uid=u-1&term=1&seq=1",
    REMOVE,
];

fn body_of(call: &str) -> String {
    let zero = "AAAAAAAAAAAAAAAAAAAAAA==";
    let mut body = json!({"uid": "u-1", "version": {"term": 1, "seq": 1}});
    match call {
        "PUT " | "POST /renew" => body["sum"] = zero.into(),
        "POST /sync" => {
            let (names, end) = (json!({"namesEnd": {}}), json!({"end": {}}));
            return format!("{}\n{names}\n{end}\n", json!({"begin": body}));
        }
        "PUT /exports/shop/cart" => {
            body["leaf"] = zero.into();
            body["spec"] = json!({
                "createdAt": "2026-01-01T00:00:00Z",
                "ports": [{"port": 80}],
                "ipFamilies": ["IP_FAMILY_IPV4"],
            });
        }
        "PUT /exports/shop/cart/endpoints" => {
            body["leaf"] = zero.into();
            body["endpoints"] = json!({"groups": []});
        }
        "POST /write" => {}
        _ => return String::new(),
    }
    body.to_string()
}
