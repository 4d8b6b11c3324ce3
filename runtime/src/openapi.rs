//! OpenAPI documents: their text, and, for tests, what they say of values.

use std::collections::BTreeMap;

use serde_json::Value;

/// The text of a document, the same whatever order its objects are kept in.
pub fn text(document: &Value) -> String {
    format!("{:#}\n", sorted(document.clone()))
}

/// A value whose objects are in the order of their keys.
pub fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.into_iter().collect();
            Value::Object(members.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// Says where a value is not what a schema of a document says: as much of JSON Schema as the documents use. What a
/// schema does not name, a value must not have.
///
/// # Errors
/// What is wrong, and where.
///
/// # Panics
/// The document uses more, or refers to what it does not have.
#[cfg(any(test, feature = "test-util"))]
pub fn conforms(document: &Value, value: &Value, schema: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        let target = target.unwrap_or_else(|| panic!("{reference} leads nowhere"));
        return conforms(document, value, target);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let told: Vec<_> =
            choices.iter().filter_map(|choice| conforms(document, value, choice).err()).collect();
        return if told.len() < choices.len() { Ok(()) } else { Err(told.join("; ")) };
    }
    let is_of = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        other => panic!("the document has the type {other:?}"),
    };
    let matches = match &schema["type"] {
        Value::Array(names) => names.iter().any(is_of),
        name => is_of(name),
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
        if required.as_str().is_none_or(|name| value.get(name).is_none()) {
            return Err(format!("{required} is missing"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(document, item, &schema["items"])?;
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
        conforms(document, member, of).map_err(|problem| format!("{name}: {problem}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_conforms_where_each_part_does() {
        let document = json!({"names": {"type": "array", "items": {"type": ["string", "null"]}}});
        let schema = json!({
            "type": "object",
            "required": ["names"],
            "properties": {"names": {"$ref": "#/names"}, "kind": {"type": "string", "enum": ["a", "b"]}},
        });
        let told = |value: Value| conforms(&document, &value, &schema).err().unwrap_or_default();
        assert_eq!(told(json!({"names": ["x", null], "kind": "a"})), "");
        assert_eq!(told(json!({"kind": "a"})), "\"names\" is missing");
        assert_eq!(told(json!({"names": [7]})), "names: 7 is not of type [\"string\",\"null\"]");
        assert_eq!(told(json!({"names": [], "more": 1})), "more is unknown");
        assert!(told(json!({"names": [], "kind": "c"})).starts_with("kind: \"c\" is not one of"));
    }
}
