//! What the log says of a server that cannot be followed; all else is shown by the watches of the programs.

use super::*;
use crate::kube::testing::api_server;
use crate::logs::testing::Logged;
use ::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcs_core::time::ManualClock;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_an_event_and_ends_each_watch_is_told_of_once_until_one_lasts() {
    let (logged, _guard) = Logged::take_over();
    let (mut api, client) = api_server();
    let clock = Arc::<ManualClock>::default();
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let api_of_services = Api::<DynamicObject>::all_with(client, &services);
    tokio::spawn(follow(api_of_services, Query::default(), clock, |_| ()));
    api.list().await.listed("70", json!([]));
    for version in 70..74 {
        api.watch(&version.to_string()).await.event("ADDED", &service(version + 1));
    }
    // It tells something, and lasts.
    let watch = api.watch("74").await;
    watch.event("ADDED", &service(75));
    tokio::time::sleep(FIRST_PAUSE * 2).await;
    drop(watch);
    let _watch = api.watch("75").await;
    let cut = || ("WARN".to_owned(), Some("the watch ended as soon as it was accepted".to_owned()));
    assert_eq!(seen(&logged), [cut(), ("INFO".to_owned(), None), cut()]);
}

/// A list of which half arrives holds nobody up for ever, and what was told of it does not count.
#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_is_given_up_and_asked_for_again() {
    let (mut api, client) = api_server();
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let api_of_services = Api::<DynamicObject>::all_with(client, &services);
    let told = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let teller = told.clone();
    let tell = move |news: News<DynamicObject>| {
        teller.lock().unwrap().push(match news {
            News::Failed(failed) => format!("{} {}", failed.call, failed.problem.label()),
            news => format!("{news:?}").split(['(', ' ']).next().unwrap().to_owned(),
        });
    };
    tokio::spawn(follow(api_of_services, Query::default(), Arc::<ManualClock>::default(), tell));
    let half = api.list().await.open();
    half.text(
        r#"{"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "70"}, "items": ["#
            .to_owned(),
    );
    tokio::time::sleep(LIST_LIMIT - Duration::from_millis(10)).await;
    assert!(!half.is_left(), "given up early");
    tokio::time::timeout(FIRST_PAUSE + Duration::from_millis(20), api.peek()).await.expect("not given up");
    assert!(half.is_left());
    api.list().await.listed("71", json!([service(71)]));
    api.peek().await;
    assert_eq!(*told.lock().unwrap(), ["list silent", "Init", "InitApply", "InitDone"]);
}

fn service(version: u64) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "shop", "name": "cart", "uid": "u", "resourceVersion": version.to_string()}
    })
}

/// The level and the error of each line.
fn seen(logged: &Logged) -> Vec<(String, Option<String>)> {
    let line = |line: String| {
        let line: Value = serde_json::from_str(&line).unwrap();
        let field = |name: &str| line[name].as_str().map(str::to_owned);
        (field("level").unwrap(), field("error"))
    };
    logged.lines().into_iter().map(line).collect()
}
