//! The examples of `docs/rest.md`, run as they stand.

use std::time::Duration;

use mcs_core::timing::Timing;
use serde_json::Value;

use super::http::{request, send};
use crate::started::Started;

#[tokio::test]
async fn the_examples_of_the_guide_answer_what_it_says() {
    let registry = Started::with(|policy| policy.timing = Timing::of_lease(Duration::from_secs(30))).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rest.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let (commands, answers) = (blocks(&guide, "sh"), blocks(&guide, "json"));
    assert_eq!((commands.len(), answers.len()), (8, 8));
    for (command, answer) in commands.into_iter().zip(answers) {
        let (mut method, mut path, mut body) = ("GET".to_owned(), String::new(), String::new());
        let mut words = words(command).into_iter();
        while let Some(word) = words.next() {
            match &*word {
                "curl" => {}
                "-X" => method = words.next().unwrap(),
                "-H" => assert_eq!(words.next().unwrap(), "content-type: application/json"),
                "-d" => body = words.next().unwrap(),
                url => path = url.strip_prefix("http://localhost:8080").unwrap().to_owned(),
            }
        }
        let told = send(&registry, request(&method, &path, body)).await;
        let expected: Value = serde_json::from_str(answer).unwrap();
        assert_eq!((told.status, as_in(&expected, told.json())), (200, expected), "{command}");
    }
}

/// The code blocks of a language.
fn blocks<'a>(guide: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    guide.split(&begin).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// The words of a command, as a shell that knows single quotes and continued lines splits it.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in command.split('\'').enumerate() {
        match place % 2 {
            0 => words.extend(part.replace("\\\n", " ").split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What was told, with the ellipsis where the guide has it.
fn as_in(guide: &Value, told: Value) -> Value {
    match (guide, told) {
        (Value::String(text), Value::String(_)) if text == "…" => guide.clone(),
        (Value::Array(guide), Value::Array(told)) => {
            let guide = guide.iter().chain(std::iter::repeat(&Value::Null));
            guide.zip(told).map(|(guide, told)| as_in(guide, told)).collect()
        }
        (Value::Object(guide), Value::Object(told)) => {
            let told = told.into_iter().map(|(key, told)| {
                let value = as_in(guide.get(&key).unwrap_or(&Value::Null), told);
                (key, value)
            });
            Value::Object(told.collect())
        }
        (_, told) => told,
    }
}
