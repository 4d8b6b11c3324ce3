//! A list is followed by asking again and again.

use std::time::Duration;

use global_discovery_client::{How, List, RouterReplica};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, client, routers};

const POLL: How = How::Poll(Duration::from_millis(20));
const LIST: &str = "GET /routers";

#[tokio::test]
async fn who_says_what_it_has_is_told_only_of_changes() {
    let mut server = Server::start().await;
    let mut followed = client([&server]).follow::<RouterReplica>(POLL);
    let first = server.expects(LIST).await;
    assert_eq!(first.if_none_match, None);
    first.answer_with(200, "etag: \"1\"\r\n", &routers(&["a"], true).to_string()).await;
    let second = server.expects(LIST).await;
    assert_eq!(second.if_none_match.as_deref(), Some("\"1\""));
    second.answer(304, &Value::Null).await;
    let third = server.expects(LIST).await;
    assert_eq!((third.if_none_match.as_deref(), followed.read().len()), (Some("\"1\""), 1));
    third.answer_with(200, "etag: \"2\"\r\n", &routers(&["b"], true).to_string()).await;
    let known = timeout(PATIENCE, followed.until(|known| known.get(&"east/b".to_owned()).is_some())).await;
    assert_eq!(known.expect("it is never known").len(), 1);
    assert_eq!(server.expects(LIST).await.if_none_match.as_deref(), Some("\"2\""));
}

#[tokio::test]
async fn answers_that_are_no_list_change_nothing() {
    let mut server = Server::start().await;
    let followed = client([&server]).follow::<RouterReplica>(POLL);
    server.expects(LIST).await.answer(200, &routers(&["a"], true)).await;
    for body in ["", "{}", r#"{"complete":true}"#, r#"{"routers":[]}"#, r#"{"routers":[{}],"complete":true}"#]
    {
        server.expects(LIST).await.answer_with(200, "", body).await;
    }
    let mut cut = server.expects(LIST).await;
    cut.write("HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{\"routers\":[],\"complete\":true}").await;
    drop(cut);
    server.expects(LIST).await.answer(500, &json!({"error": "no"})).await;
    server.expects(LIST).await;
    assert_eq!((followed.read().len(), followed.read().is_complete()), (1, true));
}

#[tokio::test]
async fn an_entity_tag_is_told_only_to_the_replica_that_gave_it() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let _followed = client([&first, &second]).follow::<RouterReplica>(POLL);
    let list = routers(&["a"], true).to_string();
    first.expects(LIST).await.answer_with(200, "etag: \"1\"\r\n", &list).await;
    let again = first.expects(LIST).await;
    assert_eq!(again.if_none_match.as_deref(), Some("\"1\""));
    again.answer(503, &json!({"error": "no"})).await;
    let other = second.expects(LIST).await;
    assert_eq!(other.if_none_match, None);
    other.answer_with(200, "etag: \"7\"\r\n", &list).await;
    assert_eq!(second.expects(LIST).await.if_none_match.as_deref(), Some("\"7\""));
}

#[tokio::test]
async fn a_list_is_read_once_from_the_first_replica_that_has_it() {
    let (mut first, mut second) = (Server::start().await, Server::start().await);
    let client = client([&first, &second]);
    let list = tokio::spawn(async move { client.list::<RouterReplica>().await });
    first.expects(LIST).await.answer(503, &json!({"error": "no view yet"})).await;
    second.expects(LIST).await.answer(200, &routers(&["a"], false)).await;
    let replica = RouterReplica { id: "east/a".to_owned(), url: "http://a.example/".to_owned() };
    assert_eq!(
        list.await.expect("no panic").expect("a list"),
        List { items: vec![replica], complete: false }
    );
}
