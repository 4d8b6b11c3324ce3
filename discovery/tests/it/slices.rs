//! Registrations joined with imported EndpointSlices, by way of the watch.

use crate::objects::{frontend, relay, router, slice};
use crate::service::Service;
use global_discovery_service::Discovery;
use mcs_core::pools::naming::{Naming, Services};
use mcs_runtime::kube::testing::{ApiServer, api_server, list, status};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn services() -> Services {
    Services {
        pool_suffix: "-pool-relay".into(),
        frontend_suffix: "-frontend".into(),
        frontend_port: "http".into(),
        router_namespace: "routing".into(),
        router_service: "global-router".into(),
        router_port: "relay".into(),
    }
}

pub(crate) async fn start() -> (Service, ApiServer) {
    let (api, client) = api_server();
    let discovery = Discovery::Slices { naming: Naming::Mcs, services: Box::new(services()), client };
    (Service::start(discovery).await, api)
}

fn pools(frontends: Value, identities: Value, complete: bool) -> Value {
    json!({
        "pools": [{
            "key": {"cluster_id": "east", "namespace": "ml", "dgd_name": "chat"},
            "location": {"region": "us-east-2", "availability_zone": "us-east-2a", "datacenter": null},
            "model": "llama", "capabilities": ["chat"], "capacity": [{"workers": 4}],
            "frontends": frontends, "relay_identities": identities
        }],
        "complete": complete
    })
}

fn none(complete: bool) -> Value {
    json!({"pools": [], "complete": complete})
}

#[tokio::test]
async fn nothing_but_the_liveness_answers_before_the_first_complete_list() {
    let (service, mut api) = start().await;
    let asked = api.list().await;
    let paths = [
        "/livez",
        "/healthz",
        "/readyz",
        "/pools",
        "/routers",
        "/pools/watch",
        "/routers/watch",
        "/metrics",
        "/x",
    ];
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(service.get(path).await.0);
    }
    assert_eq!(statuses, [200, 503, 503, 503, 503, 503, 503, 503, 503]);
    assert_eq!(service.post("{}").await.0, 503);

    let expected = [
        (
            "labelSelector",
            "multicluster.kubernetes.io/service-name,multicluster.kubernetes.io/source-cluster",
        ),
        ("resourceVersion", "0"),
    ];
    let query: Vec<_> = asked.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!((asked.path.as_str(), query), ("/apis/discovery.k8s.io/v1/endpointslices", expected.to_vec()));
    asked.listed("70", json!([]));
    service.until_listed("/routers", json!({"routers": [], "complete": true})).await;
    assert_eq!((service.get("/healthz").await.0, service.get("/metrics").await.0), (200, 200));
}

#[tokio::test]
async fn a_pool_is_listed_while_it_is_registered_and_its_relay_is_ready() {
    let (service, mut api) = start().await;
    let items = json!([relay(&["10.43.1.2", "10.43.1.3"]), frontend(&["10.43.1.9"]), router(&["10.43.1.5"])]);
    api.list().await.listed("70", items);
    let watch = api.watch("70").await;
    let routers =
        json!({"routers": [{"id": "east/10.43.1.5", "url": "http://10.43.1.5:50051/"}], "complete": true});
    service.until_listed("/routers", routers).await;
    assert_eq!(service.list("/pools").await, none(false));

    service.register("chat").await;
    let identities = json!(["ip:10.43.1.2", "ip:10.43.1.3"]);
    let listed = pools(json!(["http://10.43.1.9:8000/"]), identities, false);
    assert_eq!(service.list("/pools").await, listed);

    watch.event("MODIFIED", &relay(&["10.43.1.3"]));
    let scaled = |complete| pools(json!(["http://10.43.1.9:8000/"]), json!(["ip:10.43.1.3"]), complete);
    service.until_listed("/pools", scaled(false)).await;
    service.pass(Duration::from_millis(14_999)).await;
    assert_eq!(service.list("/pools").await, scaled(false));
    service.pass(Duration::from_millis(1)).await;
    assert_eq!(service.list("/pools").await, none(true));

    service.register("chat").await;
    watch.event("DELETED", &frontend(&["10.43.1.9"]));
    service.until_listed("/pools", pools(json!([]), json!(["ip:10.43.1.3"]), true)).await;
    watch.event("DELETED", &relay(&["10.43.1.3"]));
    service.until_listed("/pools", none(true)).await;
}

/// Cases O44 and a bad object: null lists are empty, and one unreadable slice does not take the others with it.
#[tokio::test]
async fn null_lists_are_empty_and_an_unreadable_slice_is_passed_over() {
    let (service, mut api) = start().await;
    let mut empty = frontend(&[]);
    (empty["endpoints"], empty["ports"]) = (Value::Null, Value::Null);
    let mut broken = slice("ml", "broken", "other-pool-relay", ("relay", 7000), &["10.43.1.8"]);
    broken["endpoints"] = json!("none");
    let mut nameless = slice("ml", "nameless", "other-pool-relay", ("relay", 7000), &["10.43.1.8"]);
    nameless["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] = json!("East_1");
    api.list().await.listed("70", json!([empty, broken, nameless, relay(&["10.43.1.2"])]));
    service.until_listed("/routers", json!({"routers": [], "complete": true})).await;
    service.register("chat").await;
    assert_eq!(service.list("/pools").await, pools(json!([]), json!(["ip:10.43.1.2"]), false));

    let (second, mut api) = start().await;
    api.list().await.listed("70", Value::Null);
    second.until_listed("/routers", json!({"routers": [], "complete": true})).await;
}

/// Cases O43 and O47 at the watch: a list that breaks off changes nothing; after a minute of such lists the view is
/// estimated, still served, and exact again after a finished one, which is also what removes pools.
#[tokio::test]
async fn half_lists_change_nothing_and_do_not_hide_the_outage() {
    let (service, mut api) = start().await;
    api.list().await.listed("70", json!([relay(&["10.43.1.2"]), router(&["10.43.1.5"])]));
    service.until_listed("/pools", none(false)).await;
    service.pass(Duration::from_secs(15)).await;
    let watch = api.watch("70").await;
    watch.event("ERROR", &status(410, None));

    let routers = |complete| json!({"routers": [{"id": "east/10.43.1.5", "url": "http://10.43.1.5:50051/"}], "complete": complete});
    let whole = list("80", "", json!([router(&["10.43.1.5"])])).to_string();
    for _ in 0..2 {
        let list = api.list().await.open();
        list.text(whole[..whole.len() / 2].to_owned());
        drop(list);
        service.pass(Duration::from_secs(29)).await;
        service.register("chat").await;
        let listed = pools(json!([]), json!(["ip:10.43.1.2"]), true);
        assert_eq!((service.list("/pools").await, service.list("/routers").await), (listed, routers(true)));
    }
    let third = api.list().await;
    service.pass(Duration::from_secs(2)).await;
    let estimated = pools(json!([]), json!(["ip:10.43.1.2"]), false);
    assert_eq!((service.list("/pools").await, service.list("/routers").await), (estimated, routers(false)));

    third.listed("80", json!([router(&["10.43.1.5"])]));
    service.until_listed("/pools", none(true)).await;
    assert_eq!(service.list("/routers").await, routers(true));
    api.watch("80").await;
}
