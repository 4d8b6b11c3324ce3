//! The OpenAPI document of the REST port, made from the table of its routes and from what the proto files say of their
//! messages, so that it cannot tell anything else than these. `docs/openapi.json` is its text, checked in and served.

use std::collections::{BTreeMap, BTreeSet};

use mcs_runtime::openapi::sorted;
use serde_json::{Map, Value, json};

use self::described::{Described, Field, Kind, Message};
use super::answer::{JSON, LINES};
use super::by_path;
use super::routes::{About, Gives, Param, Route, Takes};

mod described;

/// What the document says of the API as a whole.
const INTRODUCTION: &str = "What `dynamo.mcs.v1` offers over gRPC, as proto3 JSON.\n\n\
    - Names of fields are camelCase, enums are their names, 64-bit numbers are strings, bytes are base64, times are in \
    UTC with `Z`, durations are seconds as `30s`. Lists are written also when they are empty.\n\
    - In requests, unknown fields and unknown parameters are ignored, `null` counts as absent, 64-bit numbers may be \
    numbers, and an object that names a key twice is refused. What the path names may be left out of the body.\n\
    - Errors are `google.rpc.Status` with the HTTP code that matches; the reason in `details` is for programs.\n\
    - A stream is one JSON value a line. An error within a stream of answers is its last line, `{\"error\": …}`.\n\
    - A message has at most as many bytes as `--max-message-bytes` says (4 MiB). Larger sets of endpoints go in chunks \
    by a write or a sync.";

/// What the table of routes names and the proto files do not have.
#[derive(Debug, thiserror::Error)]
pub enum Undescribed {
    /// The descriptors are damaged.
    #[error("the descriptors cannot be read")]
    Descriptors(#[from] prost::DecodeError),
    /// A message, field or method.
    #[error("the proto files have no {0}")]
    Name(String),
    /// A parameter that is a flag in the table but not in the message, or the reverse.
    #[error("the parameter {0} is of another type in its message")]
    Flag(String),
}

/// The document.
///
/// # Errors
/// What the table of routes names and the proto files do not have.
pub fn document() -> Result<Value, Undescribed> {
    let described = Described::read()?;
    let mut paths = Map::new();
    let mut schemas = Schemas { described: &described, made: BTreeMap::new() };
    for (path, routes) in by_path() {
        let mut item = Map::new();
        for route in routes {
            item.insert(route.method.as_str().to_lowercase(), schemas.operation(route)?);
        }
        item.insert("parameters".to_owned(), schemas.path_parameters(path)?);
        paths.insert(path.to_owned(), item.into());
    }
    let tag = |name: &str| json!({"name": name, "description": described.comment_of_service(name)});
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Multi-cluster service registry",
            "version": "v1",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [tag("Members"), tag("Imports"), {"name": "Document", "description": "What is served."}],
        "paths": paths,
        "components": {"schemas": schemas.finish(), "responses": {"Refused": refused()}},
    });
    Ok(sorted(document))
}

/// The schemas that the routes need.
struct Schemas<'a> {
    described: &'a Described,
    made: BTreeMap<String, Value>,
}

impl Schemas<'_> {
    fn operation(&mut self, route: &Route) -> Result<Value, Undescribed> {
        let (tag, about) = match route.about {
            About::Rpc(rpc, note) => {
                let (service, _) = rpc.split_once('.').unwrap_or((rpc, ""));
                let about = format!("{} {note}", self.described.comment_of_method(rpc)?);
                (service, about.trim_end().to_owned())
            }
            About::Text(text) => (tag_of(route), text.to_owned()),
        };
        let mut operation = Map::new();
        let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
        set("operationId", route.call.name().into());
        set("summary", route.summary.into());
        set("description", about.into());
        set("tags", json!([tag]));
        let query: Result<Vec<_>, _> = route.query.iter().map(|param| self.parameter(param)).collect();
        set("parameters", query?.into());
        if let Some(body) = self.body(route)? {
            set("requestBody", body);
        }
        set(
            "responses",
            json!({"200": self.answer(&route.gives)?, "default": {"$ref": "#/components/responses/Refused"}}),
        );
        Ok(operation.into())
    }

    fn path_parameters(&mut self, path: &str) -> Result<Value, Undescribed> {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameter = |name: &str| {
            let of = if matches!(name, "clusterset" | "cluster") { "RegisterRequest" } else { "ServiceKey" };
            let field = self.described.field(of, name)?;
            Ok(json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": field.comment,
                "schema": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"},
            }))
        };
        let parameters: Result<Vec<_>, Undescribed> = names.map(parameter).collect();
        Ok(parameters?.into())
    }

    fn parameter(&mut self, param: &Param) -> Result<Value, Undescribed> {
        let field = self.described.field(param.of, param.name)?.clone();
        if (field.kind == Kind::Bool) != param.is_flag {
            return Err(Undescribed::Flag(param.name.to_owned()));
        }
        let schema = self.schema_of(&field)?;
        Ok(json!({"name": param.name, "in": "query", "description": field.comment, "schema": schema}))
    }

    fn body(&mut self, route: &Route) -> Result<Option<Value>, Undescribed> {
        let (kind, schema, about) = match route.takes {
            Takes::Nothing => return Ok(None),
            Takes::Stream(message) => (LINES, self.reference(message)?, "Messages, one after another."),
            Takes::Object(parts) => {
                let name = format!("{}Body", route.call.name());
                let mut fields = Vec::new();
                for (message, names) in parts {
                    for name in *names {
                        fields.push(self.described.field(message, name)?.clone());
                    }
                }
                let comment = format!("{}: what the path does not say.", route.summary);
                let made = self.object(&Message { comment, fields, choices: Vec::new() })?;
                self.made.insert(name.clone(), made);
                (JSON, reference(&name), "One object.")
            }
        };
        let content = Map::from_iter([(kind.to_owned(), json!({"schema": schema}))]);
        Ok(Some(json!({"required": true, "description": about, "content": content})))
    }

    fn answer(&mut self, gives: &Gives) -> Result<Value, Undescribed> {
        let (kind, schema, about) = match gives {
            Gives::Document => (JSON, json!({"type": "object"}), "The document."),
            Gives::Message(message) => (JSON, self.reference(message)?, "Served."),
            Gives::Stream(message) => {
                let lines = json!({"anyOf": [self.reference(message)?, reference("StreamError")]});
                (LINES, lines, "Messages, one a line; the last line may be an error.")
            }
        };
        let content = Map::from_iter([(kind.to_owned(), json!({"schema": schema}))]);
        Ok(json!({"description": about, "content": content}))
    }

    /// A reference to a message or an enum, whose schema is made when it is named first.
    fn reference(&mut self, name: &str) -> Result<Value, Undescribed> {
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), Value::Null);
            let made = match self.described.message(name) {
                Ok(message) => self.object(message)?,
                Err(_) => enumeration(self.described.enumeration(name)?),
            };
            self.made.insert(name.to_owned(), made);
        }
        Ok(reference(name))
    }

    fn object(&mut self, message: &Message) -> Result<Value, Undescribed> {
        let mut properties = Map::new();
        for field in &message.fields {
            let mut schema = self.schema_of(field)?;
            if let Some(schema) = schema.as_object_mut() {
                schema.insert("description".to_owned(), field.comment.as_str().into());
            }
            properties.insert(field.name.clone(), schema);
        }
        let mut description = message.comment.clone();
        for choice in &message.choices {
            description.push_str(&format!(" At most one of {} is there.", choice.join(", ")));
        }
        Ok(json!({"type": "object", "description": description, "properties": properties}))
    }

    fn schema_of(&mut self, field: &Field) -> Result<Value, Undescribed> {
        let one = match &field.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Number => json!({"type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX}),
            Kind::Long => json!({"type": "string", "format": "uint64", "pattern": "^[0-9]{1,20}$"}),
            Kind::Time => json!({"type": "string", "format": "date-time"}),
            Kind::Duration => json!({"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?s$"}),
            Kind::Texts => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Kind::Named(name) => self.reference(name)?,
        };
        Ok(if field.is_list { json!({"type": "array", "items": one}) } else { one })
    }

    fn finish(self) -> Value {
        let mut made: Map<_, _> = self.made.into_iter().collect();
        made.extend([
            ("Status".to_owned(), status()),
            (
                "StreamError".to_owned(),
                json!({
                    "type": "object",
                    "description": "The last line of a stream that could not be told to its end.",
                    "properties": {"error": reference("Status")},
                    "required": ["error"],
                }),
            ),
        ]);
        made.into()
    }
}

fn tag_of(route: &Route) -> &'static str {
    match (&route.gives, &route.takes) {
        (Gives::Document, _) => "Document",
        (Gives::Message("WriteResponse"), _) => "Members",
        _ => "Imports",
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn enumeration(described: &described::Enumeration) -> Value {
    let names: BTreeSet<_> = described.values.iter().map(|(name, _)| name).collect();
    let list: String =
        described.values.iter().map(|(name, comment)| format!("\n- `{name}`: {comment}")).collect();
    json!({
        "type": "string",
        "description": format!("{}\n{list}", described.comment),
        "enum": names,
    })
}

fn refused() -> Value {
    let content = Map::from_iter([(JSON.to_owned(), json!({"schema": reference("Status")}))]);
    json!({
        "description": "Not served. 400: a field is wrong, or the state does not allow it; 403: the certificate does \
            not allow it; 404: not there; 405: not this method; 408: too slow; 409: another cluster has the id, or a \
            sync was overtaken; 413: a message is too large; 415: not JSON; 429: another limit; 500: a fault; 503: \
            not now.",
        "content": content,
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "A google.rpc.Status.",
        "properties": {
            "code": {"type": "integer", "format": "int32", "description": "The google.rpc.Code."},
            "message": {"type": "string", "description": "What is wrong and what to do, for people."},
            "details": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "A google.rpc.ErrorInfo.",
                    "properties": {
                        "@type": {"type": "string"},
                        "reason": {"type": "string", "description": "For programs, as INVALID_FIELD."},
                        "domain": {"type": "string"},
                        "metadata": {
                            "type": "object",
                            "description": "What belongs to the reason, as the field.",
                            "additionalProperties": {"type": "string"},
                        },
                    },
                },
            },
        },
        "required": ["code", "message", "details"],
    })
}
