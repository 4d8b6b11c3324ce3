//! A list is followed by its watch.

use std::time::Duration;

use global_discovery_client::{Client, Followed, How, RouterReplica, Settings};
use serde_json::json;
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, client, of, router, routers};

const WATCH: &str = "GET /routers/watch";

fn follow(client: &Client) -> Followed<RouterReplica> {
    client.follow(How::Watch)
}

async fn until(followed: &mut Followed<RouterReplica>, names: &[&str], complete: bool) {
    let expected: Vec<_> = names.iter().map(|name| format!("east/{name}")).collect();
    let mut seen = Vec::new();
    let is_so = timeout(
        PATIENCE,
        followed.until(|known| {
            seen = known.items().map(|replica| replica.id.clone()).collect();
            seen == expected && known.is_complete() == complete && known.is_heard()
        }),
    )
    .await
    .is_ok();
    assert!(is_so, "{seen:?} are known, not {expected:?} with complete: {complete}");
}

#[tokio::test]
async fn events_change_what_is_known_when_they_have_ended_however_they_are_cut() {
    let mut server = Server::start().await;
    let mut followed = follow(&client([&server]));
    let mut stream = server.expects(WATCH).await.stream().await;
    let text = format!(
        ": hello\n\nevent: resync\ndata: {}\n\nevent: upserted\ndata: {}\n",
        routers(&["a"], true),
        router("b")
    );
    for (place, byte) in text.chars().enumerate() {
        stream.send(&byte.to_string()).await;
        if place == text.len() / 2 {
            assert!(!followed.read().is_heard());
        }
    }
    until(&mut followed, &["a"], true).await;
    stream.send("\n").await;
    until(&mut followed, &["a", "b"], true).await;
    stream.event("removed", &json!({"id": "east/a"})).await;
    until(&mut followed, &["b"], true).await;
}

#[tokio::test]
async fn a_service_that_starts_anew_makes_nobody_forget_what_it_does_not_know_yet() {
    let mut server = Server::start().await;
    let mut followed = follow(&client([&server]));
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a", "b"], true)).await;
    until(&mut followed, &["a", "b"], true).await;
    drop(stream);
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&[], false)).await;
    until(&mut followed, &["a", "b"], false).await;
    stream.event("upserted", &router("c")).await;
    stream.event("removed", &json!({"id": "east/a"})).await;
    stream.event("upserted", &router("d")).await;
    until(&mut followed, &["a", "b", "c", "d"], false).await;
    stream.event("resync", &routers(&["b", "c"], true)).await;
    until(&mut followed, &["b", "c"], true).await;
}

#[tokio::test]
async fn a_reader_that_fell_behind_takes_the_list_anew_on_the_same_stream() {
    let mut server = Server::start().await;
    let mut followed = follow(&client([&server]));
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a", "b"], true)).await;
    stream.event("resync", &routers(&["b", "c"], true)).await;
    until(&mut followed, &["b", "c"], true).await;
}

#[tokio::test]
async fn what_cannot_be_read_ends_the_stream_and_changes_nothing() {
    let mut server = Server::start().await;
    let mut followed = follow(&client([&server]));
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a"], true)).await;
    until(&mut followed, &["a"], true).await;
    for bad in [
        "event: upserted\ndata: {\"id\":\"east/x\"\n\n",
        "event: resync\ndata: {\"complete\":true}\n\n",
        "event: resync\ndata:\n\n",
        "event: removed\ndata: east/a\n\n",
    ] {
        stream.send(bad).await;
        // It is left: the next one begins while this one is still open.
        let mut next = server.expects(WATCH).await.stream().await;
        next.event("resync", &routers(&["a"], true)).await;
        stream = next;
    }
    // A stream that says what was removed before it says what there is.
    drop(stream);
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("removed", &json!({"id": "east/a"})).await;
    let mut stream = server.expects(WATCH).await.stream().await;
    assert!(followed.read().get(&"east/a".to_owned()).is_some());
    stream.event("resync", &routers(&["b"], true)).await;
    until(&mut followed, &["b"], true).await;
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_left_for_another_replica_and_what_is_known_stays() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let silence = Duration::from_millis(300);
    let client = of(&Settings { silence, ..Settings::of([first.url.clone(), second.url.clone()]) });
    let mut followed = follow(&client);
    let mut silent = first.expects(WATCH).await.stream().await;
    silent.event("resync", &routers(&["a"], true)).await;
    until(&mut followed, &["a"], true).await;
    let mut stream = second.expects(WATCH).await.stream().await;
    assert_eq!(followed.read().len(), 1);
    stream.event("resync", &routers(&["a", "b"], true)).await;
    until(&mut followed, &["a", "b"], true).await;
    drop(silent);
}

#[tokio::test]
async fn when_a_replica_is_gone_the_next_is_watched_and_the_first_again_when_it_is_well() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let mut followed = follow(&client([&first, &second]));
    let mut stream = first.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a"], true)).await;
    until(&mut followed, &["a"], true).await;
    let url = first.stop().await;
    drop(stream);
    let mut stream = second.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["b"], false)).await;
    until(&mut followed, &["a", "b"], false).await;

    let mut first = Server::start_again(&url).await;
    // While it is not ready, the other one is stayed with.
    first.expects(WATCH).await.answer(503, &json!({"error": "not ready"})).await;
    let asked = first.expects(WATCH).await;
    stream.event("upserted", &router("c")).await;
    until(&mut followed, &["a", "b", "c"], false).await;
    let mut back = asked.stream().await;
    back.event("resync", &routers(&["d"], true)).await;
    until(&mut followed, &["d"], true).await;
}

/// One that has as many watches as it takes: it answers everything else.
#[tokio::test]
async fn a_better_replica_that_works_and_takes_no_watch_costs_the_stream_of_another_nothing() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let client = client([&first, &second]);
    let full = json!({"error": "1024 watches are open, the most that there may be"});
    let mut followed = follow(&client);
    first.expects(WATCH).await.answer(503, &full).await;
    let mut stream = second.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a"], true)).await;
    until(&mut followed, &["a"], true).await;

    // A call that works there says nothing of watches.
    let listing = tokio::spawn(async move { client.list::<RouterReplica>().await });
    let asked = loop {
        let asked = first.asked().await;
        if asked.line != WATCH {
            break asked;
        }
        asked.answer(503, &full).await;
    };
    asked.answer(200, &routers(&["a"], true)).await;
    listing.await.expect("no panic").expect("a list");
    first.expects(WATCH).await.answer(503, &full).await;
    stream.event("upserted", &router("b")).await;
    until(&mut followed, &["a", "b"], true).await;

    // Also not when its list begins, and breaks off.
    let mut half = first.expects(WATCH).await.stream().await;
    half.send("event: resync\ndata: {\"routers\":[").await;
    stream.event("removed", &json!({"id": "east/a"})).await;
    until(&mut followed, &["b"], true).await;
    drop(half);
    let mut back = first.expects(WATCH).await.stream().await;
    stream.event("upserted", &router("c")).await;
    until(&mut followed, &["b", "c"], true).await;
    back.event("resync", &routers(&["e"], true)).await;
    until(&mut followed, &["e"], true).await;
}

#[tokio::test]
async fn a_watch_that_ends_in_order_is_refused_or_is_no_stream_is_asked_for_again() {
    let mut server = Server::start().await;
    let mut followed = follow(&client([&server]));
    let mut stream = server.expects(WATCH).await.stream().await;
    stream.event("resync", &routers(&["a"], true)).await;
    stream.finish().await;
    server.expects(WATCH).await.answer(503, &json!({"error": "shutting down"})).await;
    server.expects(WATCH).await.answer(200, &routers(&[], true)).await;
    let mut stream = server.expects(WATCH).await.stream().await;
    assert_eq!(followed.read().len(), 1);
    stream.event("resync", &routers(&["b"], true)).await;
    until(&mut followed, &["b"], true).await;
}
