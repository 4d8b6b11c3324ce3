use super::*;
use mcs_runtime::kube::testing::{ApiServer, Asked, api_server};
use serde_json::Value;

const SHOP: &str = "/api/v1/namespaces/shop/services";
const BANK: &str = "/api/v1/namespaces/bank/services";

#[tokio::test]
async fn a_namespace_that_cannot_be_listed_keeps_nothing_in_the_others_and_is_told() {
    let told = leave(async |api| {
        asked(api, "GET", SHOP).await.refused(403, None);
        asked(api, "GET", "/api/v1/namespaces/shop").await.json(200, &namespace());
        asked(api, "GET", BANK).await.listed("1", json!([ours("bank", "a")]));
        asked(api, "DELETE", &format!("{BANK}/a")).await.json(200, &ours("bank", "a"));
    });
    let (gone, problem) = told.await;
    assert_eq!((gone, said(&problem)), (1, Some("cannot list services in namespace shop")));
}

#[tokio::test]
async fn a_namespace_that_is_not_known_to_be_gone_counts_as_left() {
    let told = leave(async |api| {
        asked(api, "GET", SHOP).await.refused(403, None);
        asked(api, "GET", "/api/v1/namespaces/shop").await.refused(403, None);
        asked(api, "GET", BANK).await.listed("1", json!([]));
    });
    let (gone, problem) = told.await;
    assert_eq!((gone, said(&problem)), (0, Some("cannot list services in namespace shop")));
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_has_nothing_left() {
    let told = leave(async |api| {
        asked(api, "GET", SHOP).await.refused(403, None);
        asked(api, "GET", "/api/v1/namespaces/shop").await.refused(404, None);
        asked(api, "GET", BANK).await.listed("1", json!([ours("bank", "a")]));
        asked(api, "DELETE", &format!("{BANK}/a")).await.json(200, &ours("bank", "a"));
    });
    assert_eq!(told.await, (1, None));
}

#[tokio::test]
async fn a_delete_that_is_refused_keeps_no_other_of_its_kind_and_the_first_one_is_told() {
    let names: Vec<_> = (0..40).map(|n| format!("s-{n:02}")).collect();
    let told = leave(async |api| {
        let all: Vec<_> = names.iter().map(|name| ours("shop", name)).collect();
        asked(api, "GET", SHOP).await.listed("1", all.into());
        asked(api, "GET", BANK).await.listed("1", json!([]));
        for name in &names {
            let delete = asked(api, "DELETE", &format!("{SHOP}/{name}")).await;
            match name.as_str() {
                "s-00" | "s-07" => delete.refused(403, None),
                "s-01" => delete.refused(404, None),
                _ => delete.json(200, &ours("shop", name)),
            }
        }
    });
    let (gone, problem) = told.await;
    assert_eq!((gone, said(&problem)), (37, Some("cannot delete Service shop/s-00")));
}

/// How many Services the deletion of those in the namespaces shop and bank took away, and what kept it from all, with what
/// `serve` answers.
async fn leave(serve: impl AsyncFnOnce(&mut ApiServer)) -> (usize, Option<String>) {
    let (mut api, client) = api_server();
    let watched = ["shop", "bank"].map(Namespace::new).into_iter().collect::<Result<Vec<_>, _>>();
    let clusterset = ClustersetId::new("prod");
    let cleaner = Cleaner::new(client, &watched.unwrap(), &clusterset.unwrap());
    let gone = AtomicUsize::default();
    let (left, ()) = tokio::join!(cleaner.delete_services(&gone), serve(&mut api));
    (gone.into_inner(), left.err().map(|problem| format!("{problem:#}")))
}

/// What was tried, without the API server's words.
fn said(problem: &Option<String>) -> Option<&str> {
    problem.as_ref()?.split(": ").next()
}

async fn asked(api: &mut ApiServer, method: &str, path: &str) -> Asked {
    let asked = api.asked().await;
    assert_eq!((asked.method.as_str(), asked.path.as_str()), (method, path));
    asked
}

fn ours(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": namespace, "name": name, "uid": "u",
            "labels": {LABEL_MANAGED_BY: MANAGED_BY}, "annotations": {ANNOTATION_CLUSTERSET: "prod"}
        }
    })
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
}
