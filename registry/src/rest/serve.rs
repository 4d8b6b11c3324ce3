//! What each route does: a request becomes the message of a call, and its answer a response.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use mcs_core::ids::{ClusterId, ClustersetId, ServiceKey};
use mcs_core::registry::{Refused, TOO_MANY};
use mcs_core::validate::Refusal;
use mcs_proto::pb;
use mcs_proto::pb::op::Act;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::request::{Ids, Input};
use super::routes::{Call, ROUTES, Route};
use super::{OPENAPI, Rest, answer};
use crate::calls;
use crate::calls::sync::{ANSWERS, Sync, each_by_itself, until_over};
use crate::error::{Error, Excess};
use crate::lists::Page;
use crate::metrics::Request as Measured;
use crate::service::Service;

/// The identities that the messages of a member begin with.
const MEMBER: [&str; 2] = ["clusterset", "cluster"];

impl Rest {
    /// Serves a route. What goes on after its answer has begun takes `measured`.
    pub(super) async fn answer(
        &self,
        route: &'static Route,
        request: Request,
        measured: &mut Option<Measured>,
    ) -> Result<Response, Error> {
        let input = Input::read(route, request, self.most).await?;
        let (service, caller) = (&*self.service, input.caller.clone());
        if reads(route.call) {
            service.look_up(input.ids.get("clusterset")).await;
        }
        match route.call {
            Call::Index => answer::message(&index()),
            Call::OpenApi => Ok(([(CONTENT_TYPE, answer::JSON)], OPENAPI).into_response()),
            Call::GetRegistry => answer::message(&calls::get_registry(service, &caller)),
            Call::Register => {
                answer::message(&calls::register(service, &caller, input.message().await?).await?)
            }
            Call::Renew => answer::message(&calls::renew(service, &caller, input.message().await?)?),
            Call::RemoveCluster => {
                answer::message(&calls::remove_cluster(service, &caller, input.message().await?).await?)
            }
            Call::PutExport | Call::PutEndpoints | Call::DeleteExport => self.change(route.call, input).await,
            Call::Write => {
                let requests = input.messages(|ids, message| ids.fill(&MEMBER, message))?;
                answer::message(&calls::write(service, &caller, requests).await?)
            }
            Call::Sync => self.sync(input, measured).await,
            Call::Watch => {
                let steps = calls::watch(service, input.message().await?).await?;
                let unreadable = |_| Status::internal("a step cannot be read");
                Ok(answer::lines(steps.map(move |step| step?.decoded().map_err(unreadable))))
            }
            Call::ListClusters => self.list(input, calls::list_clusters).await,
            Call::ListExports => self.list(input, calls::list_exports).await,
            Call::ListImports => self.list(input, calls::list_imports).await,
            Call::GetCluster => answer::message(&self.cluster(&input.ids)?),
            Call::GetExport => self.export(input).await,
            Call::GetImport => self.import(input).await,
        }
    }

    async fn list<Q, A>(
        &self,
        input: Input,
        list: fn(&Service, Q, usize) -> Result<A, Error>,
    ) -> Result<Response, Error>
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + 'static,
    {
        let (service, request, page) = (Arc::clone(&self.service), input.message().await?, self.page);
        self.large(move || list(&service, request, page)).await
    }

    /// What `make` gives, which may be large.
    async fn large<M: Serialize>(
        &self,
        make: impl FnOnce() -> Result<M, Error> + Send + 'static,
    ) -> Result<Response, Error> {
        let text = Bytes::from(self.pages.make(move || answer::text(&make()?)).await?);
        let length = text.len().to_string();
        let headers = [(CONTENT_TYPE, answer::JSON), (CONTENT_LENGTH, &*length)];
        Ok((headers, self.pages.hold(text, None)?).into_response())
    }

    /// One change as a write of its own. A refused one is an error, as there is no other that it could not block.
    async fn change(&self, call: Call, input: Input) -> Result<Response, Error> {
        let caller = input.caller.clone();
        let key = pb::ServiceKey::from(&key(&input.ids)?);
        let mut fields = input.fields().await?;
        let mut request: pb::WriteRequest = fields.take(&["clusterset", "cluster", "uid", "version"])?;
        let act = match call {
            Call::PutExport => Act::Put(fields.message()?),
            Call::PutEndpoints => Act::PutEndpoints(fields.message()?),
            _ => {
                fields.require("term")?;
                fields.require("seq")?;
                request.version = Some(fields.message()?);
                Act::Delete(pb::DeleteExport {})
            }
        };
        request.ops.push(pb::Op { key: Some(key), act: Some(act), changed_at: None });
        let written = calls::write(&self.service, &caller, stream::iter([Ok(request)])).await?;
        match written.results.iter().find_map(|result| result.refused.clone()) {
            Some(pb::Refusal { field, problem }) if field == TOO_MANY => {
                Err(Error::TooManyExports { problem, most: self.service.max_exports() })
            }
            Some(pb::Refusal { field, problem }) => Err(Refusal::new(field, problem).into()),
            None => answer::message(&written),
        }
    }

    /// Answers when the sync has begun, so that what does not begin is an error like any other.
    async fn sync(&self, input: Input, measured: &mut Option<Measured>) -> Result<Response, Error> {
        let (caller, held) = (input.caller.clone(), input.held());
        let requests = input.messages(|ids, message| match message.get_mut("begin") {
            Some(Value::Object(begin)) => ids.fill(&MEMBER, begin),
            _ => Ok(()),
        })?;
        let requests = each_by_itself(requests, held);
        let service = Arc::clone(&self.service);
        let sync = tokio::select! {
            begun = Sync::begin(Arc::clone(&self.service), &caller, requests) => begun?,
            () = self.service.shutdown().draining() => return Err(Error::Draining),
        };
        let (answers, receiver) = mpsc::channel(ANSWERS);
        let measured = measured.take();
        tokio::spawn(async move {
            let code = until_over(&service, &answers, sync.lead(&answers, true)).await;
            if let (Some(measured), Some(code)) = (measured, code) {
                measured.ended(code);
            }
        });
        Ok(answer::lines(ReceiverStream::new(receiver)))
    }

    fn cluster(&self, ids: &Ids) -> Result<pb::Cluster, Error> {
        let (clusterset, cluster) = (clusterset(ids)?, cluster(ids)?);
        let page = Page::of_one(&[cluster.as_str()], self.page);
        let listed = self.service.list_clusters(&clusterset, &page).clusters.into_iter().next();
        let found = listed.filter(|listed| listed.cluster == cluster.as_str());
        Ok(found.ok_or(Refused::Unknown { cluster })?)
    }

    async fn export(&self, input: Input) -> Result<Response, Error> {
        let (clusterset, cluster, key) = (clusterset(&input.ids)?, cluster(&input.ids)?, key(&input.ids)?);
        let pb::ListExportsRequest { include_endpoints, .. } = input.message().await?;
        let (service, most) = (Arc::clone(&self.service), self.page);
        let find = move || {
            let page = Page::of_one(&[key.namespace.as_str(), key.name.as_str(), cluster.as_str()], most);
            let listed = service.list_exports(&clusterset, Some(&cluster), include_endpoints, &page);
            let found = listed.exports.into_iter().next().filter(|export| export.key == Some((&key).into()));
            whole(found, &listed.next_page_token, &format!("{key}/{cluster}"), most)?
                .ok_or_else(|| Error::Absent { what: format!("export {key} of cluster {cluster}") })
        };
        self.large(find).await
    }

    async fn import(&self, input: Input) -> Result<Response, Error> {
        let (clusterset, key) = (clusterset(&input.ids)?, key(&input.ids)?);
        let pb::ListImportsRequest { include_endpoints, .. } = input.message().await?;
        let (service, most) = (Arc::clone(&self.service), self.page);
        let find = move || {
            let page = Page::of_one(&[key.namespace.as_str(), key.name.as_str()], most);
            let listed = service.list_imports(&clusterset, include_endpoints, &page);
            let found = listed.imports.into_iter().next().filter(|import| import.key == Some((&key).into()));
            whole(found, &listed.next_page_token, &key.to_string(), most)?
                .ok_or_else(|| Error::Absent { what: format!("import {key}") })
        };
        self.large(find).await
    }
}

/// Whether what is held of a clusterset is all that a call asks for.
const fn reads(call: Call) -> bool {
    matches!(
        call,
        Call::ListClusters
            | Call::ListExports
            | Call::ListImports
            | Call::GetCluster
            | Call::GetExport
            | Call::GetImport
    )
}

/// What was found on a page of one entry, when all of it is there.
fn whole<T>(found: Option<T>, next_page: &str, entry: &str, most: usize) -> Result<Option<T>, Error> {
    let goes_on = next_page.strip_prefix(entry).is_some_and(|rest| rest.starts_with('~'));
    if found.is_some() && goes_on {
        return Err(Error::TooMuch { excess: Excess::AnswerBytes, most });
    }
    Ok(found)
}

fn clusterset(ids: &Ids) -> Result<ClustersetId, Refusal> {
    Ok(ClustersetId::new(ids.get("clusterset"))?)
}

fn cluster(ids: &Ids) -> Result<ClusterId, Refusal> {
    Ok(ClusterId::new(ids.get("cluster"))?)
}

fn key(ids: &Ids) -> Result<ServiceKey, Refusal> {
    Ok(ServiceKey::new(ids.get("namespace"), ids.get("name"))?)
}

/// What a person is shown at `/`.
fn index() -> Value {
    let routes: Vec<_> = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    json!({
        "program": "mcs-registry",
        "version": mcs_runtime::version(),
        "api": "dynamo.mcs.v1",
        "document": "/openapi.json",
        "routes": routes,
    })
}
