use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

#[test]
fn the_most_common_region_is_taken_and_the_first_of_several() {
    let region = |counts: &[(&str, usize)]| {
        let counts = counts.iter().map(|(region, count)| ((*region).to_owned(), *count)).collect();
        most_common(&counts).map(|region| region.to_string())
    };
    assert_eq!(region(&[]), None);
    assert_eq!(region(&[("b", 1), ("a", 1)]).as_deref(), Some("a"));
    assert_eq!(region(&[("a", 1), ("b", 2), ("c", 2)]).as_deref(), Some("b"));
}

#[tokio::test]
async fn ids_are_those_of_the_properties_in_the_best_version_that_is_served() {
    for version in ["v1beta1", "v1alpha1"] {
        let client = server(version, &[(PROPERTY_CLUSTER_ID, "east"), (PROPERTY_CLUSTERSET_ID, "prod")]);
        let found = ask(&client, &Given::default()).await.unwrap();
        let expected = Identity {
            clusterset: "prod".parse().unwrap(),
            cluster: "east".parse().unwrap(),
            region: Some("eu-1".parse().unwrap()),
            read: Some(Read {
                version: if version == "v1beta1" { AboutVersion::V1beta1 } else { AboutVersion::V1alpha1 },
                values: [
                    (PROPERTY_CLUSTER_ID, "east".to_owned()),
                    (PROPERTY_CLUSTERSET_ID, "prod".to_owned()),
                ]
                .into(),
            }),
        };
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn what_is_given_is_not_asked_for() {
    let given = Given {
        clusterset: Some("prod".parse().unwrap()),
        cluster: Some("east".parse().unwrap()),
        region: Some("eu-2".parse().unwrap()),
    };
    let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    drop(handle);
    let found = ask(&Client::new(service, "system"), &given).await.unwrap();
    assert_eq!((found.read, found.region), (None, Some("eu-2".parse().unwrap())));
}

#[tokio::test]
async fn what_cannot_be_learned_names_the_flag_and_the_property() {
    let told = async |version, properties: &[(&'static str, &'static str)]| {
        ask(&server(version, properties), &Given::default()).await.unwrap_err().to_string()
    };
    assert!(told("none", &[]).await.starts_with("--cluster-id is not set, and the cluster serves no"));
    assert_eq!(
        told("v1beta1", &[(PROPERTY_CLUSTER_ID, "east")]).await,
        "--clusterset-id is not set, and there is no ClusterProperty clusterset.k8s.io: set the flag, or create it"
    );
    let upper = told("v1beta1", &[(PROPERTY_CLUSTER_ID, "East")]).await;
    assert!(upper.contains("ClusterProperty cluster.clusterset.k8s.io cannot be used"), "{upper}");
    assert!(upper.contains("DNS-1123 label"), "{upper}");
}

/// An API server with ClusterProperties in one version, and three nodes.
fn server(version: &'static str, properties: &[(&'static str, &'static str)]) -> Client {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let properties: BTreeMap<_, _> = properties.iter().copied().collect();
    tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let path = request.uri().path().to_owned();
            let group = format!("/apis/{ABOUT_GROUP}/{version}");
            let named = path.strip_prefix(&format!("{group}/{RESOURCE_CLUSTER_PROPERTIES}/"));
            let answer = match (&*path, named) {
                ("/api/v1/nodes", _) => Some(nodes()),
                (_, Some(name)) => properties.get(name).map(|value| {
                    json!({
                        "apiVersion": format!("{ABOUT_GROUP}/{version}"), "kind": "ClusterProperty",
                        "metadata": { "name": name }, "spec": { "value": value },
                    })
                }),
                (path, None) if path == group => Some(json!({
                    "kind": "APIResourceList", "groupVersion": format!("{ABOUT_GROUP}/{version}"),
                    "resources": [{
                        "name": RESOURCE_CLUSTER_PROPERTIES, "singularName": "", "namespaced": false,
                        "kind": "ClusterProperty", "verbs": [],
                    }],
                })),
                _ => None,
            };
            let (code, body) = match answer {
                Some(body) => (StatusCode::OK, body),
                None => (StatusCode::NOT_FOUND, not_found()),
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            send.send_response(Response::builder().status(code).body(body).unwrap());
        }
    });
    Client::new(service, "system")
}

fn nodes() -> Value {
    let node = |name: &str, labels: Value| {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": name, "labels": labels },
        })
    };
    let items = [
        node("a", json!({ LABEL_REGION: "eu-2" })),
        node("b", json!({ LABEL_REGION: "eu-1" })),
        node("c", json!({})),
    ];
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
    })
}

fn not_found() -> Value {
    json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found" })
}
