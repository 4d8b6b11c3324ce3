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
    if let Some(reference) = schema["$ref"].as_str() {
        let target = DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return conforms(value, target);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let told: Vec<_> = choices.iter().filter_map(|choice| conforms(value, choice).err()).collect();
        return if told.len() < choices.len() { Ok(()) } else { Err(told.join("; ")) };
    }
    let matches = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        other => panic!("the document has the type {other:?}"),
    };
    if !matches {
        return Err(format!("{value} is not of type {}", schema["type"]));
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        return Err(format!("{value} is not one of {names:?}"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            return Err(format!("{required} is missing"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(item, &schema["items"])?;
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let of = match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(properties), _) => {
                properties.get(name).ok_or_else(|| format!("{name} is unknown"))?
            }
            (_, others @ Value::Object(_)) => others,
            // A document, of which nothing more is said.
            _ => continue,
        };
        conforms(member, of).map_err(|problem| format!("{name}: {problem}"))?;
    }
    Ok(())
}
