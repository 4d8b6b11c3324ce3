//! The OpenAPI document as a judge of answers: as much of JSON Schema as the document uses.

use std::sync::LazyLock;

use mcs_registry::openapi;
use serde_json::Value;

use super::http::Answer;

/// The document.
pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::document().unwrap());

/// Panics when the document does not allow an answer.
pub(crate) fn check(method: &str, path: &str, answer: &Answer) {
    let operation = operation(method, path);
    let response = match (answer.status, operation) {
        (200, Some(operation)) => &operation["responses"]["200"],
        (200, None) => panic!("{method} {path} is served but not documented"),
        _ => &DOCUMENT["components"]["responses"]["Refused"],
    };
    let schema = &response["content"][answer.header("content-type")]["schema"];
    assert!(
        schema.is_object(),
        "{method} {path}: {} of type {}",
        answer.status,
        answer.header("content-type")
    );
    let values = match answer.header("content-type") {
        "application/x-ndjson" => answer.lines(),
        _ => vec![answer.json()],
    };
    for value in values {
        if let Err(problem) = conforms(&value, schema) {
            panic!("{method} {path}: {problem}: {value:#}");
        }
    }
}

/// What the document says of a request.
pub(crate) fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let same = |template: &str| {
        let (template, path) = (template.split('/'), path.split('/'));
        template.clone().count() == path.clone().count()
            && template.zip(path).all(|(part, given)| part.starts_with('{') || part == given)
    };
    let paths = DOCUMENT["paths"].as_object()?;
    paths.iter().find(|(template, _)| same(template))?.1.get(method.to_lowercase())
}

/// Says where a value is not what a schema says.
pub(crate) fn conforms(value: &Value, schema: &Value) -> Result<(), String> {
    mcs_runtime::openapi::conforms(&DOCUMENT, value, schema)
}
