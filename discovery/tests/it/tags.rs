//! Entity tags: who has a list is told so in a few bytes.

use crate::lists::registrations;
use crate::service::{Answer, Service, registration};
use global_discovery_service::Discovery;
use mcs_runtime::kube::testing::api_server;
use serde_json::json;
use std::time::Duration;

async fn tag(service: &Service, path: &str) -> String {
    let answer = service.ask("GET", path, &[]).await;
    assert_eq!(answer.status, 200);
    answer.header("etag").to_owned()
}

async fn known(service: &Service, path: &str, tags: &str) -> Answer {
    service.ask("GET", path, &[&format!("if-none-match: {tags}")]).await
}

#[tokio::test]
async fn a_list_that_the_caller_has_is_not_sent_again() {
    let service = Service::start(registrations()).await;
    service.register("chat").await;
    for path in ["/pools", "/routers"] {
        let tag = tag(&service, path).await;
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag} is no strong tag");
        for sent in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
            let answer = known(&service, path, &sent).await;
            let headers = (answer.header("etag"), answer.header("cache-control"));
            assert_eq!((answer.status, &*answer.body, headers), (304, "", (&*tag, "no-cache")), "{sent}");
        }
        assert_eq!(known(&service, path, "\"other\"").await.status, 200);
    }
}

#[tokio::test]
async fn the_tag_changes_with_the_list_and_with_completeness_and_with_nothing_else() {
    let service = Service::start(registrations()).await;
    let mut tags = vec![tag(&service, "/pools").await];
    let routers = tag(&service, "/routers").await;
    service.register("chat").await;
    tags.push(tag(&service, "/pools").await);
    // A heartbeat changes nothing.
    service.pass(Duration::from_secs(5)).await;
    service.register("chat").await;
    assert_eq!(known(&service, "/pools", &tags[1]).await.status, 304);
    let mut changed = registration("chat");
    changed["model"] = json!("mixtral");
    service.post(&changed.to_string()).await;
    tags.push(tag(&service, "/pools").await);
    // Then the list is complete, and then the pool lapses.
    service.pass(Duration::from_secs(10)).await;
    tags.push(tag(&service, "/pools").await);
    assert_eq!(service.list("/pools").await["complete"], json!(true));
    service.pass(Duration::from_secs(5)).await;
    tags.push(tag(&service, "/pools").await);
    assert_eq!(service.list("/pools").await["pools"], json!([]));

    let count = tags.len();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), count, "two states have one tag: {tags:?}");
    assert_eq!(known(&service, "/routers", &routers).await.status, 304);
}

#[tokio::test]
async fn tags_of_two_processes_never_meet() {
    let services = [Service::start(registrations()).await, Service::start(registrations()).await];
    let tag = tag(&services[0], "/pools").await;
    assert_eq!(known(&services[1], "/pools", &tag).await.status, 200);
}

#[tokio::test]
async fn a_tag_before_the_first_view_is_not_looked_at() {
    let (_api, client) = api_server();
    let naming = mcs_core::pools::naming::Naming::Mcs;
    let services = Box::new(crate::slices::services());
    let service = Service::start(Discovery::Slices { naming, services, client }).await;
    assert_eq!(known(&service, "/pools", "*").await.status, 503);
}
