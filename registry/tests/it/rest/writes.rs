//! Every call that changes something, over REST, and seen by gRPC; and the reverse.

use mcs_core::model::{Frame, Object, ObjectKey};
use mcs_core::registry::Op;
use mcs_core::version::{Sum, Version};
use serde_json::{Value, json};

use super::http::{EAST, call, get, post_lines};
use super::lists::base64;
use crate::started::{LEASE, Started, endpoints, id, key, leaf, prod, put, read_set};

const CART: &str = "/v1/clustersets/prod/clusters/east/exports/shop/cart";

#[tokio::test]
async fn a_cluster_registers_and_renews() {
    let registry = Started::new().await;
    let (status, registered) = call(&registry, "PUT", EAST, registration(1)).await;
    let epoch = registered["epoch"].clone();
    let expected = json!({
        "epoch": epoch,
        "leaseDuration": "60s",
        "build": env!("CARGO_PKG_VERSION"),
        "differs": false,
    });
    assert_eq!((status, registered), (200, expected));

    // What the path says may be said again in the body.
    let mut again = registration(2);
    again["clusterset"] = "prod".into();
    again["cluster"] = "east".into();
    assert_eq!(call(&registry, "PUT", EAST, again).await.0, 200);

    let renewal = json!({"uid": "uid-of-east", "version": {"term": 1, "seq": "2"}, "sum": NONE});
    let expected = json!({
        "state": "LEASE_STATE_ACTIVE",
        "differs": false,
        "degraded": false,
        "leaseDuration": "60s",
        "epoch": epoch,
        "build": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(
        call(&registry, "POST", &format!("{EAST}/renew"), renewal.clone()).await,
        (200, expected.clone())
    );
    let mut differs = (renewal, expected);
    differs.0["sum"] = base64(&[7; 16]);
    differs.1["differs"] = true.into();
    assert_eq!(call(&registry, "POST", &format!("{EAST}/renew"), differs.0).await, (200, differs.1));

    let (clusters, _) = registry.client.list_clusters(&prod()).await.unwrap();
    let listed = serde_json::to_value(&clusters[0]).unwrap();
    assert_eq!((clusters.len(), get(&registry, EAST).await), (1, (200, listed)));
}

#[tokio::test]
async fn an_export_is_put_changed_and_deleted_by_itself_and_a_grpc_watch_sees_it() {
    let registry = Started::new().await;
    registry.register("east").await;
    let (mut watch, _) = registry.watch().await;
    let written = |dropped: Value| {
        let result = json!({"key": {"namespace": "shop", "name": "cart"}, "dropped": dropped});
        (200, json!({"results": [result], "degraded": false}))
    };
    let mut next_part = async || loop {
        if let Frame::Change(change) = watch.next().await.unwrap()
            && change.key == ObjectKey::Part(key("cart"), id("east"))
        {
            let Some(Object::Part(part)) = change.object else { return None };
            return Some((part.version, part.leaf, part.endpoints.len()));
        }
    };

    let two = put("cart", 2);
    let body = json!({
        "uid": "uid-of-east",
        "version": {"term": "1", "seq": "2"},
        "leaf": base64(&leaf(&two).to_bytes()),
        "spec": spec(),
        "endpoints": addresses(&["10.0.0.0", "10.0.0.1"]),
    });
    assert_eq!(call(&registry, "PUT", CART, body).await, written(json!([])));
    assert_eq!(next_part().await, Some((Version::new(1, 2), leaf(&two), 2)));
    let (exports, _) = registry.client.list_exports(&prod(), true).await.unwrap();
    assert_eq!((exports.len(), read_set(exports[0].endpoints.clone())), (1, endpoints(2)));

    // One that breaks a rule is left out and named; the rest stands.
    let body = json!({
        "uid": "uid-of-east",
        "version": {"term": "1", "seq": "3"},
        "leaf": base64(&[3; 16]),
        "endpoints": addresses(&["10.0.0.0", "127.0.0.1"]),
    });
    let (status, answer) = call(&registry, "PUT", &format!("{CART}/endpoints"), body).await;
    let dropped = &answer["results"][0]["dropped"];
    assert_eq!((&dropped[0]["address"], &dropped[0]["field"]), (&json!("127.0.0.1"), &json!("addresses")));
    assert_eq!((status, answer.clone()), written(dropped.clone()));
    assert_eq!(next_part().await.map(|(version, _, count)| (version, count)), Some((Version::new(1, 3), 1)));

    let delete = format!("{CART}?uid=uid-of-east&term=1&seq=4");
    assert_eq!(call(&registry, "DELETE", &delete, Value::Null).await, written(json!([])));
    assert_eq!(next_part().await, None);
    // What is not there counts as deleted.
    let delete = format!("{CART}?uid=uid-of-east&term=1&seq=5");
    assert_eq!(call(&registry, "DELETE", &delete, Value::Null).await, written(json!([])));
    assert_eq!(registry.client.list_exports(&prod(), false).await.unwrap().0, []);
}

#[tokio::test]
async fn what_grpc_writes_is_got_over_rest_one_by_one() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("a-cart", 1), put("cart", 2), put("cart-b", 1)]).await;
    registry.register("east-b").await.write(&[put("cart", 3)]).await;

    let exported = json!({
        "cluster": "east",
        "key": {"namespace": "shop", "name": "cart"},
        "version": {"term": "1", "seq": "2"},
        "leaf": base64(&leaf(&put("cart", 2)).to_bytes()),
        "spec": {
            "createdAt": "2023-11-14T22:13:20Z",
            "type": "SERVICE_TYPE_CLUSTER_SET_IP",
            "ports": [{"name": "http", "protocol": "PROTOCOL_TCP", "port": 80}],
            "sessionAffinity": "SESSION_AFFINITY_NONE",
            "internalTrafficPolicy": "INTERNAL_TRAFFIC_POLICY_CLUSTER",
            "ipFamilies": ["IP_FAMILY_IPV4"],
            "labels": {},
            "annotations": {},
        },
        "endpointCount": 2,
    });
    assert_eq!(get(&registry, CART).await, (200, exported));
    let (status, import) =
        get(&registry, "/v1/clustersets/prod/imports/shop/cart?includeEndpoints=true").await;
    let (imports, _) = registry.client.list_imports(&prod(), true).await.unwrap();
    let of_grpc = imports.iter().find(|import| import.key == Some((&key("cart")).into()));
    assert_eq!((status, import), (200, serde_json::to_value(of_grpc).unwrap()));

    // Names before, between and after those that are there.
    let absent = [
        ("/v1/clustersets/prod/clusters/eas", "UNKNOWN_CLUSTER"),
        ("/v1/clustersets/prod/clusters/east-c", "UNKNOWN_CLUSTER"),
        ("/v1/clustersets/other/clusters/east", "UNKNOWN_CLUSTER"),
        ("/v1/clustersets/prod/clusters/east/exports/shop/cart-a", "ABSENT"),
        ("/v1/clustersets/prod/clusters/east-b/exports/shop/cart-b", "ABSENT"),
        ("/v1/clustersets/prod/clusters/east-c/exports/shop/cart", "ABSENT"),
        ("/v1/clustersets/prod/imports/shop/car", "ABSENT"),
        ("/v1/clustersets/prod/imports/shop/cart-z", "ABSENT"),
        ("/v1/clustersets/other/imports/shop/cart", "ABSENT"),
    ];
    for (path, reason) in absent {
        let (status, answer) = get(&registry, path).await;
        assert_eq!((status, &answer["code"]), (404, &json!(5)), "{path}");
        assert_eq!(answer["details"][0]["reason"], reason, "{path}");
    }
}

#[tokio::test]
async fn a_write_takes_each_change_by_itself_and_chunks_of_large_sets() {
    let registry = Started::new().await;
    registry.register("east").await;
    let key = |name: &str| json!({"namespace": "shop", "name": name});
    let mut first = addresses(&["10.0.0.0"]);
    first["more"] = true.into();
    let lines = [
        json!({"uid": "uid-of-east", "version": {"term": 1, "seq": 2}, "ops": [
            {"key": key("cart"), "put": {"leaf": base64(&[1; 16]), "spec": spec(), "endpoints": first}},
        ]}),
        json!({"ops": [{"key": key("cart"), "chunk": addresses(&["10.0.0.1"])}]}),
        json!({"cluster": "east", "ops": [
            {"key": key("Till"), "delete": {}},
            {"key": key("none"), "putEndpoints": {"leaf": base64(&[2; 16])}},
            {"key": key("gone"), "delete": {}},
            {"key": key("late"), "actOfALaterRelease": {}},
        ]}),
    ];
    let (status, answers) = post_lines(&registry, &format!("{EAST}/write"), &lines).await;
    let results = answers[0]["results"].as_array().unwrap();
    let refused: Vec<_> =
        results.iter().map(|result| (&result["key"]["name"], &result["refused"]["field"])).collect();
    let none = &Value::Null;
    assert_eq!(
        refused,
        [
            (&json!("cart"), none),
            (&json!("Till"), &json!("name")),
            (&json!("none"), &json!("spec")),
            (&json!("gone"), none),
            (&json!("late"), &json!("act")),
        ]
    );
    assert_eq!((status, &answers[0]["degraded"], answers.len()), (200, &json!(false), 1));
    let (exports, _) = registry.client.list_exports(&prod(), true).await.unwrap();
    assert_eq!((exports.len(), exports[0].endpoint_count), (1, 2));
}

/// O63: one port or annotation too many. O62: fields of a later release.
#[tokio::test]
async fn a_refused_export_is_an_error_that_names_the_field_and_the_earlier_state_stays() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;
    let body = |spec: Value| {
        json!({
            "uid": "uid-of-east",
            "version": {"term": 1, "seq": 2},
            "leaf": base64(&[1; 16]),
            "spec": spec,
            "futureField": {"x": [null, 1]},
        })
    };
    let ports = |count: u32| {
        let mut spec = spec();
        spec["ports"] = (1..=count)
            .map(|port| json!({"name": format!("p-{port}"), "port": port, "futureField": 1}))
            .collect();
        spec
    };
    let annotations = |count: u32| {
        let mut spec = spec();
        spec["annotations"] = (0..count).map(|number| (format!("example.com/{number}"), json!(""))).collect();
        spec
    };
    for (spec, field) in [(ports(65), "ports"), (annotations(33), "exportedAnnotations")] {
        let (status, answer) = call(&registry, "PUT", CART, body(spec)).await;
        let details = &answer["details"][0];
        assert_eq!((status, &answer["code"]), (400, &json!(3)));
        assert_eq!(
            (&details["reason"], &details["metadata"]["field"]),
            (&json!("INVALID_FIELD"), &json!(field))
        );
        let held = get(&registry, CART).await.1;
        assert_eq!((&held["endpointCount"], &held["version"]["seq"]), (&json!(2), &json!("2")));
    }
    for (seq, spec) in [(4, ports(64)), (5, annotations(32))] {
        let mut body = body(spec);
        body["version"]["seq"] = seq.into();
        assert_eq!(call(&registry, "PUT", CART, body).await.0, 200);
        assert_eq!(get(&registry, CART).await.1["version"]["seq"], seq.to_string());
    }
}

#[tokio::test]
async fn a_cluster_is_removed_by_itself_and_by_force() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;
    let remove = async |query: &str| call(&registry, "DELETE", &format!("{EAST}{query}"), Value::Null).await;

    let (status, refused) = remove("").await;
    assert_eq!((status, &refused["code"]), (400, &json!(9)));
    assert_eq!(refused["details"][0]["reason"], "LEASE_ACTIVE");
    assert_eq!(remove("?force=false").await.0, 400);
    assert_eq!(remove("?force=true").await, (200, json!({"exports": 1, "endpoints": 2})));
    assert_eq!(remove("?force=true").await.0, 404);

    registry.register("east").await;
    assert_eq!(remove("?uid=uid-of-another&force=true").await.0, 409);
    assert_eq!(remove("?uid=uid-of-east").await, (200, json!({"exports": 0, "endpoints": 0})));

    registry.register("east").await;
    assert_eq!(remove("?onlyUid=uid-of-another&force=true").await.0, 409);
    assert_eq!(remove("?onlyUid=uid-of-east&force=true").await, (200, json!({"exports": 0, "endpoints": 0})));

    registry.register("east").await;
    registry.pass(LEASE).await;
    assert_eq!(remove("").await, (200, json!({"exports": 0, "endpoints": 0})));
    assert_eq!(registry.client.list_clusters(&prod()).await.unwrap().0, []);
}

/// What one REST caller puts, another reads to the letter.
#[tokio::test]
async fn an_import_of_two_clusters_that_differ_is_told_in_full() {
    let registry = Started::new().await;
    registry.register("east").await;
    registry.register("west").await;
    let file = |name: &str| {
        let path = format!("{}/tests/it/rest/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    for cluster in ["east", "west"] {
        let path = format!("/v1/clustersets/prod/clusters/{cluster}/exports/shop/cart");
        assert_eq!(call(&registry, "PUT", &path, file(&format!("put-{cluster}"))).await.0, 200);
    }
    let import = "/v1/clustersets/prod/imports/shop/cart?includeEndpoints=true";
    assert_eq!(get(&registry, import).await, (200, file("import")));
}

#[tokio::test]
async fn an_old_write_is_answered_and_changes_nothing_and_an_old_term_is_refused() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;
    east.write(&[Op::Delete { key: key("till") }]).await;
    let delete = async |term: u64, seq: u64| {
        call(&registry, "DELETE", &format!("{CART}?uid=uid-of-east&term={term}&seq={seq}"), Value::Null).await
    };
    assert_eq!(delete(1, 2).await.0, 200);
    assert_eq!(get(&registry, CART).await.0, 200);

    let newer = crate::started::registration(&east.member, Version::new(7, 1), Sum::EMPTY);
    registry.client.register(&east.member, &newer).await.unwrap();
    let (status, refused) = delete(6, 9).await;
    let details = &refused["details"][0];
    assert_eq!((status, &details["reason"]), (400, &json!("OLD_TERM")));
    assert_eq!(details["metadata"], json!({"floor": "7"}));
}

/// Sixteen zero bytes.
const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

fn registration(seq: u64) -> Value {
    json!({
        "uid": "uid-of-east",
        "region": "eu-west-1",
        "instance": "by-hand",
        "version": {"term": "1", "seq": seq.to_string()},
        "sum": NONE,
    })
}

/// The definition of `started::spec`.
pub(super) fn spec() -> Value {
    json!({
        "createdAt": "2023-11-14T22:13:20Z",
        "ports": [{"name": "http", "port": 80}],
        "ipFamilies": ["IP_FAMILY_IPV4"],
    })
}

/// Endpoints as those of `started::endpoints`.
pub(super) fn addresses(addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| json!({"address": address, "ready": true, "zone": "eu-west-1a"}))
        .collect();
    json!({"groups": [{
        "family": "IP_FAMILY_IPV4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": endpoints,
    }]})
}
