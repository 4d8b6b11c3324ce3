//! The start against a stand-in for the API server, in paused time.

use super::*;
use mcs_core::ids::ClusterId;
use mcs_core::model::IpFamily;
use mcs_runtime::kube::testing::{ApiServer, Asked, api_server};
use serde_json::{Value, json};

/// Case O48: at the start too, a server that fails is asked later and later, and no sooner than it says.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_asked_later_and_later_and_what_it_misses_is_looked_for_soon() {
    let (mut api, client) = api_server();
    let given = Given {
        clusterset: Some("prod".parse().unwrap()),
        cluster: Some(ClusterId::new("east").unwrap()),
        region: Some("eu-1".parse().unwrap()),
    };
    let namespaces = ["default".to_owned()];
    let answers = async {
        for bound in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            group(&mut api).await.refused(503, None);
            api.comes_after(bound, 0.0).await;
        }
        group(&mut api).await.throttled(20);
        api.comes_after(30.0, 20.0).await;
        // Whoever applies the CRDs waits for this.
        for _ in 0..3 {
            group(&mut api).await.json(200, &resources(&["serviceimports"]));
            let early = tokio::time::timeout(RETRY - Duration::from_millis(10), api.peek()).await;
            assert!(early.is_err(), "asked again before {RETRY:?}");
            tokio::time::timeout(Duration::from_millis(20), api.peek()).await.expect("asked again");
        }
        // It answered meanwhile, so a failure is a first one.
        group(&mut api).await.json(200, &resources(&["serviceimports", "serviceexports"]));
        schema(&mut api).await.refused(404, None);
        system(&mut api).await.refused(500, None);
        api.comes_after(0.8, 0.0).await;
        group(&mut api).await.json(200, &resources(&["serviceimports", "serviceexports"]));
        schema(&mut api).await.refused(404, None);
        system(&mut api).await.json(200, &json!({"metadata": {"name": "kube-system", "uid": "u-1"}}));
        api.asked().await.json(201, &json!({"spec": {"ipFamilies": ["IPv4"]}}));
    };
    let (discovered, ()) = tokio::join!(discover(&client, &given, &namespaces), answers);
    assert_eq!((discovered.uid.as_str(), discovered.families.known()), ("u-1", Some(vec![IpFamily::V4])));
}

async fn group(api: &mut ApiServer) -> Asked {
    let asked = api.asked().await;
    assert_eq!(asked.path, "/apis/multicluster.x-k8s.io/v1beta1");
    asked
}

async fn schema(api: &mut ApiServer) -> Asked {
    let asked = api.asked().await;
    assert_eq!(asked.path, "/openapi/v3/apis/multicluster.x-k8s.io/v1beta1");
    asked
}

async fn system(api: &mut ApiServer) -> Asked {
    let asked = api.asked().await;
    assert_eq!(asked.path, "/api/v1/namespaces/kube-system");
    asked
}

fn resources(names: &[&str]) -> Value {
    let resource = |name: &&str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "Any", "verbs": ["list"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "multicluster.x-k8s.io/v1beta1",
        "resources": names.iter().map(resource).collect::<Vec<_>>()
    })
}
