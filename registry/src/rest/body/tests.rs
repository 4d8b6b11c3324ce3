//! Bodies however they are cut, and clients that are slow.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use mcs_runtime::http::{Pace, TooSlow};
use serde_json::json;

use super::*;

/// Objects with all that could be taken for an end of one.
const OBJECTS: &str =
    "{\"a\":\"}{\\\"}\\\\\",\"b\":[{},[\"]\"]]}{}\n\t {\"c\":{\"d\":null}}\r\n{\"e\\u007d\":1.5e-3} ";

#[tokio::test]
async fn objects_are_the_same_however_the_body_is_cut() {
    let expected =
        [json!({"a": "}{\"}\\", "b": [{}, ["]"]]}), json!({}), json!({"c": {}}), json!({"e}": 0.0015})];
    for first in 0..OBJECTS.len() {
        for second in [first, first + 1, OBJECTS.len()] {
            let second = second.min(OBJECTS.len());
            let cuts = [&OBJECTS[..first], &OBJECTS[first..second], &OBJECTS[second..]];
            let mut objects = Objects::new(frames(&cuts), 100);
            let mut read = Vec::new();
            while let Some(object) = objects.next().await.unwrap() {
                read.push(Value::Object(object));
            }
            assert_eq!(read, expected, "{cuts:?}");
        }
    }
}

#[tokio::test]
async fn an_object_has_the_limit_in_bytes_wherever_it_is_cut() {
    for (most, taken) in [(9, true), (8, false)] {
        for cut in 0..9 {
            let (head, tail) = "{\"a\":123}".split_at(cut);
            let mut objects = Objects::new(frames(&[head, tail, "{}"]), most);
            let read = objects.next().await.map(|object| object.map(Value::Object));
            match read {
                Ok(object) => assert_eq!((object, taken), (Some(json!({"a": 123})), true)),
                Err(error) => assert!(matches!(error, Error::TooLarge { most: 8 }) && !taken, "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_object_ends_the_stream_with_its_line() {
    let told = async |text: &'static str| {
        let mut objects = Objects::new(frames(&[text]), 100);
        loop {
            match objects.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return "ended".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    };
    let cases = [
        ("", "ended"),
        ("{}\n\n", "ended"),
        ("{}\n{}\nnull", "the body: must be JSON objects one after another, see line 3"),
        ("{}}", "the body: must be JSON objects one after another, see line 1"),
        ("{}\n{\"a\":\n\"}\n", "the body: ends within the object that begins at line 2"),
        ("{\n]", "the body: is not JSON at line 2, column 1: key must be a string"),
    ];
    for (text, expected) in cases {
        assert_eq!(told(text).await, expected, "{text:?}");
    }
}

#[tokio::test]
async fn a_body_that_came_too_slowly_says_so() {
    let slow = TooSlow { pace: Pace::default(), got: 3 };
    let body = || Body::from_stream(stream::iter([Ok(Bytes::from("{\"a\"")), Err(slow)]));
    let told = [one(body(), 100).await.unwrap_err(), Objects::new(body(), 100).next().await.unwrap_err()];
    assert!(told.iter().all(|error| matches!(error, Error::TooSlow(told) if *told == slow)), "{told:?}");
}

#[tokio::test]
async fn a_body_that_breaks_is_no_end() {
    let broken = || {
        let frames = [Ok(Bytes::from("{} ")), Err(std::io::Error::other("reset"))];
        Body::from_stream(stream::iter(frames))
    };
    assert_eq!(
        one(broken(), 100).await.unwrap_err().to_string(),
        "the stream broke: the body cannot be read: reset"
    );
    let mut objects = Objects::new(broken(), 100);
    assert_eq!(objects.next().await.unwrap(), Some(Map::new()));
    assert!(matches!(objects.next().await.unwrap_err(), Error::Stream(_)));
}

fn frames(texts: &[&'static str]) -> Body {
    let frames: Vec<_> = texts.iter().map(|text| Ok::<_, Infallible>(Bytes::from(*text))).collect();
    Body::from_stream(stream::iter(frames))
}
