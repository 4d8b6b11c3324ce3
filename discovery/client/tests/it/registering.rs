//! A pool is kept registered.

use global_discovery_client::{KeptRegistered, PoolKey, PoolRegistration, State};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, client};

fn pool(model: &str) -> PoolRegistration {
    let [cluster_id, namespace, dgd_name] = ["east", "ml", "chat"].map(str::to_owned);
    PoolRegistration {
        key: PoolKey { cluster_id, namespace, dgd_name },
        location: global_discovery_client::Location::default(),
        model: model.to_owned(),
        capabilities: vec!["chat".to_owned()],
        capacity: vec![global_discovery_client::Capacity { workers: 4 }],
        frontends: vec![],
    }
}

async fn until(kept: &mut KeptRegistered, condition: impl Fn(&State) -> bool) -> State {
    let standing = timeout(PATIENCE, kept.until(|standing| condition(&standing.state))).await;
    standing.expect("it never stands so").state
}

fn is_registered(state: &State) -> bool {
    matches!(state, State::Registered(_))
}

#[tokio::test]
async fn a_pool_is_registered_as_it_is_and_again_as_the_lease_says() {
    let mut server = Server::start().await;
    let mut kept = client([&server]).keep_registered(pool("llama"));
    let first = server.expects("POST /pools").await;
    let body: Value = serde_json::from_str(&first.body).expect("JSON");
    let expected = json!({
        "key": {"cluster_id": "east", "namespace": "ml", "dgd_name": "chat"},
        "location": {"region": null, "availability_zone": null, "datacenter": null},
        "model": "llama", "capabilities": ["chat"], "capacity": [{"workers": 4}], "frontends": []
    });
    assert_eq!(body, expected);
    first.grant(3, 1).await;
    until(&mut kept, is_registered).await;
    assert!(kept.standing().listed_until.is_some());
    for _ in 0..2 {
        let again = server.expects("POST /pools").await;
        assert_eq!(serde_json::from_str::<Value>(&again.body).expect("JSON"), expected);
        again.grant(3, 1).await;
    }
}

#[tokio::test]
async fn a_replica_that_cannot_take_a_pool_is_passed_over_in_the_same_round() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let mut kept = client([&first, &second]).keep_registered(pool("llama"));
    first.expects("POST /pools").await.answer(503, &json!({"error": "the table is throttled"})).await;
    second.expects("POST /pools").await.grant(15, 5).await;
    until(&mut kept, is_registered).await;
}

#[tokio::test]
async fn where_no_replica_can_take_a_pool_it_says_why_and_the_next_heartbeat_tries_again() {
    let mut server = Server::start().await;
    let mut kept = client([&server]).keep_registered(pool("llama"));
    server.expects("POST /pools").await.grant(3, 1).await;
    server.expects("POST /pools").await.answer(503, &json!({"error": "the table is throttled"})).await;
    let state = until(&mut kept, |state| !is_registered(state) && *state != State::Pending).await;
    let why = format!("{}/pools answers 503 Service Unavailable: the table is throttled", server.url);
    assert_eq!(state, State::Failing(why));
    server.expects("POST /pools").await.grant(3, 1).await;
    until(&mut kept, is_registered).await;
}

#[tokio::test]
async fn a_refusal_is_told_and_neither_repeated_elsewhere_nor_before_the_registration_changes() {
    let (mut first, second) = (Server::start().await, Server::start().await);
    let mut kept = client([&first, &second]).keep_registered(pool(" "));
    first.expects("POST /pools").await.answer(422, &json!({"error": "model: must not be blank"})).await;
    let state = until(&mut kept, |state| matches!(state, State::Refused(_))).await;
    let why = format!("{}/pools refuses with 422 Unprocessable Entity: model: must not be blank", first.url);
    assert_eq!(state, State::Refused(why));
    kept.set(pool("mixtral"));
    let changed = first.expects("POST /pools").await;
    assert!(changed.body.contains("mixtral"), "the same again: {}", changed.body);
    changed.grant(15, 5).await;
    until(&mut kept, is_registered).await;
    second.stop().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_empty_or_no_lease_is_none() {
    let mut server = Server::start().await;
    let mut kept = client([&server]).keep_registered(pool("llama"));
    let mut cut = server.expects("POST /pools").await;
    cut.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"lease").await;
    drop(cut);
    let mut seen = Vec::new();
    for body in [Value::Null, json!({}), json!({"lease_duration_secs": 5, "heartbeat_interval_secs": 5})] {
        let asked = server.expects("POST /pools").await;
        let standing = kept.standing().state;
        assert!(matches!(standing, State::Failing(_)), "{standing:?}");
        seen.push(standing);
        asked.answer(200, &body).await;
    }
    server.expects("POST /pools").await.grant(15, 5).await;
    until(&mut kept, is_registered).await;
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn a_replica_that_takes_requests_and_says_nothing_is_given_up_for_the_next() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let mut kept = client([&first, &second]).keep_registered(pool("llama"));
    let held = first.expects("POST /pools").await;
    second.expects("POST /pools").await.grant(15, 5).await;
    until(&mut kept, is_registered).await;
    drop(held);
}

/// Each part of its answer comes in time, and the whole never does.
#[tokio::test]
async fn an_answer_that_drips_in_is_given_up_for_the_next_replica() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let mut kept = client([&first, &second]).keep_registered(pool("llama"));
    let mut dripping = first.expects("POST /pools").await;
    dripping.write("HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n").await;
    let mut drops = tokio::time::interval(std::time::Duration::from_millis(100));
    let asked = loop {
        tokio::select! {
            asked = second.expects("POST /pools") => break asked,
            _ = drops.tick() => dripping.write(" ").await,
        }
    };
    asked.grant(15, 5).await;
    until(&mut kept, is_registered).await;
}

#[tokio::test]
async fn a_replica_that_is_gone_is_asked_again_when_it_has_rested() {
    let (first, mut second) = (Server::start().await, Server::start().await);
    let client = client([&first, &second]);
    let url = first.stop().await;
    let mut kept = client.keep_registered(pool("llama"));
    second.expects("POST /pools").await.grant(3, 1).await;
    until(&mut kept, is_registered).await;
    let mut first = Server::start_again(&url).await;
    loop {
        tokio::select! {
            again = first.asked() => {
                again.grant(3, 1).await;
                break;
            }
            meanwhile = second.asked() => meanwhile.grant(3, 1).await,
        }
    }
    first.expects("POST /pools").await.grant(3, 1).await;
}
