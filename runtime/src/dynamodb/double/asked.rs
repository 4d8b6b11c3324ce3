//! A request, as what stands before the emulator reads it.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use super::key_of;

/// What stands before an action's name.
const TARGET: &str = "DynamoDB_20120810.";

/// A request.
pub(super) struct Asked {
    pub(super) headers: HeaderMap,
    /// The name of what is asked for.
    pub(super) action: String,
    /// What it says; null where that is no JSON.
    pub(super) body: Value,
    raw: Bytes,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn good(body: &Value) -> Self {
        Self { status: StatusCode::OK, body: body.to_string().into() }
    }

    /// An error of the service itself.
    pub(super) fn refused(code: &str, message: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self::error(StatusCode::BAD_REQUEST, &json!({"__type": kind, "message": message}))
    }

    pub(super) fn error(status: StatusCode, body: &Value) -> Self {
        Self { status, body: body.to_string().into() }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn is_good(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// Whether it is this error.
    pub(super) fn is(&self, code: &str) -> bool {
        !self.is_good() && self.json()["__type"].as_str().is_some_and(|kind| kind.ends_with(code))
    }
}

impl Asked {
    pub(super) fn read(headers: HeaderMap, raw: Bytes) -> Self {
        let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let action = target.strip_prefix(TARGET).unwrap_or_default().to_owned();
        let body = serde_json::from_slice(&raw).unwrap_or_default();
        Self { headers, action, body, raw }
    }

    /// Its body, as it is passed on.
    pub(super) fn bytes(&self) -> Bytes {
        if self.body.is_object() { self.body.to_string().into() } else { self.raw.clone() }
    }

    /// The table, of what asks for a single one.
    pub(super) fn table(&self) -> &str {
        self.body["TableName"].as_str().unwrap_or_default()
    }

    /// The region that it was signed for.
    pub(super) fn region(&self) -> Option<&str> {
        let signed = self.headers.get(AUTHORIZATION)?.to_str().ok()?;
        let scope = signed.split_once("Credential=")?.1;
        scope.split('/').nth(2)
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(
            self.action.as_str(),
            "PutItem" | "UpdateItem" | "DeleteItem" | "BatchWriteItem" | "TransactWriteItems"
        )
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.action.as_str(), "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems")
    }

    /// Whether it may see what was before the last writes.
    pub(super) fn may_be_stale(&self) -> bool {
        let is_consistent = |request: &Value| request["ConsistentRead"] == true;
        match self.action.as_str() {
            "GetItem" | "Query" | "Scan" => !is_consistent(&self.body),
            "BatchGetItem" => match &self.body["RequestItems"] {
                Value::Object(tables) => !tables.values().any(is_consistent),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether it names this partition key: as that of an item, or as a value of the expressions of a Query.
    pub(super) fn names(&self, pk: &str) -> bool {
        names(&self.body, pk)
    }

    /// Tables and keys of the items that a write is about.
    pub(super) fn written(&self) -> Vec<(String, Value)> {
        let body = &self.body;
        let mut keys = Vec::new();
        let mut note =
            |table: &str, item: &Value| keys.extend(key_of(item).map(|key| (table.to_owned(), key)));
        match self.action.as_str() {
            "PutItem" => note(self.table(), &body["Item"]),
            "UpdateItem" | "DeleteItem" => note(self.table(), &body["Key"]),
            "BatchWriteItem" => {
                for (table, requests) in body["RequestItems"].as_object().into_iter().flatten() {
                    for request in requests.as_array().into_iter().flatten() {
                        note(table, &request["PutRequest"]["Item"]);
                        note(table, &request["DeleteRequest"]["Key"]);
                    }
                }
            }
            "TransactWriteItems" => {
                let items = body["TransactItems"].as_array().into_iter().flatten();
                for part in items.flat_map(|item| item.as_object().into_iter().flat_map(|one| one.values())) {
                    let table = part["TableName"].as_str().unwrap_or_default();
                    note(table, &part["Item"]);
                    note(table, &part["Key"]);
                }
            }
            _ => {}
        }
        keys
    }
}

fn names(value: &Value, pk: &str) -> bool {
    match value {
        Value::Object(parts) => parts.iter().any(|(name, part)| match name.as_str() {
            "pk" => part["S"] == pk,
            "ExpressionAttributeValues" => {
                part.as_object().into_iter().flatten().any(|(_, value)| value["S"] == pk)
            }
            _ => names(part, pk),
        }),
        Value::Array(parts) => parts.iter().any(|part| names(part, pk)),
        _ => false,
    }
}
