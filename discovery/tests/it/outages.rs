//! A view that has become old: flagged and cleared by timers, and served meanwhile.

use crate::objects::{relay, router};
use crate::service::{PATIENCE, Service};
use crate::slices::services;
use global_discovery_service::Discovery;
use mcs_core::pools::naming::Naming;
use mcs_runtime::kube::testing::{ApiServer, api_server, status};
use mcs_runtime::logs::testing::Logged;
use serde_json::{Value, json};
use std::time::Duration;

async fn start() -> (Service, ApiServer) {
    let (api, client) = api_server();
    let discovery = Discovery::Slices { naming: Naming::Mcs, services: Box::new(services()), client };
    (Service::start(discovery).await, api)
}

fn routers(complete: bool) -> Value {
    json!({"routers": [{"id": "east/10.43.1.5", "url": "http://10.43.1.5:50051/"}], "complete": complete})
}

/// Waits until the log has the moves of the lists' completeness that are expected: of pools, then of routers.
async fn until_told(logged: &Logged, expected: &[(&str, &str)]) {
    let told = || -> Vec<(String, String)> {
        let lines = logged.lines().into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let moves = lines.filter(|line| line["message"] == "completeness of the lists changed");
        let field = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        moves.map(|line| (field(&line, "pools"), field(&line, "routers"))).collect()
    };
    let expected: Vec<_> =
        expected.iter().map(|(pools, routers)| ((*pools).into(), (*routers).into())).collect();
    let wait = async {
        while told() != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        assert_eq!(told(), expected);
    }
}

/// Nobody asks, and no error comes, when the flag is set, nor when two minutes without an error clear it.
#[tokio::test]
async fn a_view_is_flagged_a_minute_after_the_first_error_and_cleared_two_after_the_last_by_timers_alone() {
    let (logged, _guard) = Logged::take_over();
    let (service, mut api) = start().await;
    api.list().await.listed("70", json!([router(&["10.43.1.5"])]));
    service.until_listed("/routers", routers(true)).await;
    service.clock.advance(Duration::from_secs(15));
    let synced = [("Estimated", "Exact"), ("Exact", "Exact")];
    until_told(&logged, &synced).await;

    api.watch("70").await.event("ERROR", &status(500, None));
    // The failure was told by the time it is tried again, which is left without an answer.
    let _unanswered = api.asked().await;
    service.clock.advance(Duration::from_secs(60));
    until_told(&logged, &[&synced[..], &[("Estimated", "Estimated")]].concat()).await;
    service.clock.advance(Duration::from_secs(60));
    until_told(&logged, &[&synced[..], &[("Estimated", "Estimated"), ("Exact", "Exact")]].concat()).await;
}

/// What resumes where the view stands proves it to be current, also when nothing has changed since.
#[tokio::test]
async fn a_resumed_watch_that_is_accepted_clears_the_flag_though_it_says_nothing() {
    let (service, mut api) = start().await;
    api.list().await.listed("70", json!([router(&["10.43.1.5"])]));
    service.until_listed("/routers", routers(true)).await;
    let mut watch = api.watch("70").await;
    for _ in 0..2 {
        watch.event("ERROR", &status(500, None));
        let again = api.asked().await;
        service.clock.advance(Duration::from_millis(59_999));
        assert_eq!(service.list("/routers").await, routers(true));
        service.clock.advance(Duration::from_millis(1));
        assert_eq!(service.list("/routers").await, routers(false));
        watch = again.open();
        service.until_listed("/routers", routers(true)).await;
    }
}

/// Lists are answered from what is known: the API server hears of no reader.
#[tokio::test]
async fn no_list_that_is_read_asks_the_api_server() {
    let (service, mut api) = start().await;
    api.list().await.listed("70", json!([relay(&["10.43.1.2"]), router(&["10.43.1.5"])]));
    let watch = api.watch("70").await;
    service.until_listed("/routers", routers(true)).await;
    for _ in 0..20 {
        service.register("chat").await;
        let paths = ["/pools", "/routers", "/healthz", "/readyz", "/metrics"];
        for path in paths {
            assert_eq!(service.get(path).await.0, 200, "{path}");
        }
    }
    // The next that it hears is that the watch goes on.
    service.clock.advance(Duration::from_secs(50));
    drop(watch);
    api.watch("70").await;
}
