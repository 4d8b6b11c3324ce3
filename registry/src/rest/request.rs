//! What a request gives by its path, its query and its body, as the members of one JSON object: fields of the messages
//! are read from it, whichever of the three they come by.

use axum::body::Body;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use futures::{Stream, stream};
use mcs_core::ids::{ClusterId, ClustersetId, InvalidId, Namespace, ServiceName};
use mcs_core::validate::Refusal;
use mcs_runtime::http::Held;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::body::Objects;
use super::routes::{Route, Takes};
use super::{body, json};
use crate::caller::Caller;
use crate::error::Error;

/// What the path gives: identities, which are valid ones, by the names of their fields.
pub(super) struct Ids(Vec<(String, String)>);

impl Ids {
    /// Reads the path, which is decoded once.
    async fn read(parts: &mut Parts) -> Result<Self, Refusal> {
        let Path(ids) =
            Path::<Vec<(String, String)>>::from_request_parts(parts, &()).await.map_err(unreadable)?;
        for (name, value) in &ids {
            check(name, value)?;
        }
        Ok(Self(ids))
    }

    /// One of them; empty when the path has none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Gives these of them to a message, which may have left them out.
    ///
    /// # Errors
    /// One that the message names otherwise.
    pub(super) fn fill(&self, names: &[&str], members: &mut Map<String, Value>) -> Result<(), Refusal> {
        for (name, value) in self.0.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            if let Some(given) = members.get(name).filter(|given| *given != value.as_str()) {
                let problem = format!("is {} in the body, but {value:?} in the path", json::shown(given));
                return Err(Refusal::new(name, problem));
            }
            members.insert(name.clone(), value.as_str().into());
        }
        Ok(())
    }
}

fn unreadable(rejection: PathRejection) -> Refusal {
    let problem = "is not UTF-8 when it is decoded";
    match rejection {
        PathRejection::FailedToDeserializePathParams(failed) => match failed.into_kind() {
            ErrorKind::InvalidUtf8InPathParam { key } => Refusal::new(key, problem),
            other => Refusal::new("the path", other.to_string()),
        },
        other => Refusal::new("the path", other.body_text()),
    }
}

fn check(name: &str, value: &str) -> Result<(), InvalidId> {
    match name {
        "clusterset" => ClustersetId::new(value).map(drop),
        "cluster" => ClusterId::new(value).map(drop),
        "namespace" => Namespace::new(value).map(drop),
        _ => ServiceName::new(value).map(drop),
    }
}

/// A request to a route, whose path was read.
pub(super) struct Input {
    route: &'static Route,
    pub(super) ids: Ids,
    pub(super) caller: Caller,
    parts: Parts,
    body: Body,
    /// The largest message that is read, in bytes.
    most: usize,
}

impl Input {
    /// Reads the path.
    ///
    /// # Errors
    /// The identity that is wrong.
    pub(super) async fn read(route: &'static Route, request: Request, most: usize) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let ids = Ids::read(&mut parts).await?;
        Ok(Self { route, ids, caller: Caller::of(&parts.extensions), parts, body, most })
    }

    /// What the body holds.
    pub(super) fn held(&self) -> Option<Held> {
        Held::of(&self.parts.extensions)
    }

    /// Reads the query and, where there is one object, the body.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn fields(self) -> Result<Fields, Error> {
        let mut members = query(self.route, &self.parts.uri)?;
        if matches!(self.route.takes, Takes::Object(_)) {
            body::check_type(&self.parts.headers)?;
            members.append(&mut body::one(self.body, self.most).await?);
        }
        self.ids.fill(&["clusterset", "cluster", "namespace", "name"], &mut members)?;
        Ok(Fields(members))
    }

    /// The message that path, query and body give together.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn message<M: DeserializeOwned>(self) -> Result<M, Error> {
        Ok(self.fields().await?.message()?)
    }

    /// The messages of a body, one after another; `fill` gives each what the path says.
    ///
    /// # Errors
    /// The body is said to be something else than JSON. What is wrong with a message ends the stream.
    pub(super) fn messages<M: DeserializeOwned + Send>(
        self,
        fill: impl Fn(&Ids, &mut Map<String, Value>) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<impl Stream<Item = Result<M, Error>> + Unpin + Send, Error> {
        body::check_type(&self.parts.headers)?;
        let state = (Objects::new(self.body, self.most), self.ids, fill);
        Ok(Box::pin(stream::try_unfold(state, |(mut objects, ids, fill)| async move {
            let Some(mut members) = objects.next().await? else { return Ok(None) };
            fill(&ids, &mut members)?;
            Ok(Some((json::read(members)?, (objects, ids, fill))))
        })))
    }
}

/// What a request gives, by the names of the fields.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// A message of all of them.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(super) fn message<M: DeserializeOwned>(self) -> Result<M, Refusal> {
        json::read(self.0)
    }

    /// A message of these fields alone, which are taken.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(super) fn take<M: DeserializeOwned>(&mut self, names: &[&str]) -> Result<M, Refusal> {
        json::read(names.iter().filter_map(|name| self.0.remove_entry(*name)).collect())
    }

    /// Refuses a field that is not given.
    ///
    /// # Errors
    /// It is missing.
    pub(super) fn require(&self, name: &str) -> Result<(), Refusal> {
        if self.0.contains_key(name) { Ok(()) } else { Err(Refusal::missing(name)) }
    }
}

/// What the query gives of the fields that the route knows. Others are ignored, as unknown fields are.
fn query(route: &Route, uri: &Uri) -> Result<Map<String, Value>, Refusal> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|rejection| Refusal::new("the query", rejection.body_text()))?;
    let mut members = Map::new();
    for (name, text) in pairs {
        let Some(param) = route.query.iter().find(|param| param.name == name) else { continue };
        let value = match text.as_str() {
            "true" if param.is_flag => Value::Bool(true),
            "false" if param.is_flag => Value::Bool(false),
            "" => Value::Null,
            _ if param.is_flag => return Err(Refusal::new(name, "must be true or false")),
            // A plus sign of base64 that was not escaped.
            _ if param.name == "epoch" => text.replace(' ', "+").into(),
            _ => text.into(),
        };
        if members.insert(name, value).is_some() {
            return Err(Refusal::new(param.name, "is named twice in the query"));
        }
    }
    members.retain(|_, value| !value.is_null());
    Ok(members)
}
