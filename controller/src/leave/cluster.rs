//! Takes away what this system made of a cluster: told by its marks, in the namespaces that are watched.
//!
//! What cannot be listed or taken away keeps nothing else from going; the first such problem is the error in the end. Each
//! step counts what it took away, whatever becomes of the rest.

#[cfg(test)]
mod tests;

use crate::api::{ServiceExport, ServiceImport};
use crate::pages;
use crate::writes::TEST_FAILED;
use anyhow::Context;
use futures::stream::{self, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{self, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Client, Resource};
use mcs_core::ids::{ClustersetId, Namespace};
use mcs_core::names::{ANNOTATION_CLUSTERSET, FIELD_MANAGER, FINALIZER_EXPORT, LABEL_MANAGED_BY, MANAGED_BY};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many writes are under way at once.
const AT_ONCE: usize = 16;
/// How often one finalizer is tried anew when somebody else changes its object.
const TRIES: usize = 5;

/// What a list has, as far as it could be read, and the first reason why not all of it.
struct Found {
    objects: Vec<ObjectMeta>,
    problem: Option<anyhow::Error>,
}

/// See the module.
pub(super) struct Cleaner {
    client: Client,
    scopes: Vec<Option<String>>,
    clusterset: String,
}

impl Cleaner {
    /// A cleaner of the namespaces that are `watched`, of all when there are none.
    pub(super) fn new(client: Client, watched: &[Namespace], clusterset: &ClustersetId) -> Self {
        let scopes = match watched {
            [] => vec![None],
            watched => watched.iter().map(|namespace| Some(namespace.to_string())).collect(),
        };
        Self { client, scopes, clusterset: clusterset.to_string() }
    }

    /// Those that were made for a label.
    pub(super) async fn delete_service_exports(&self, gone: &AtomicUsize) -> anyhow::Result<()> {
        self.delete_made::<ServiceExport>(gone).await
    }

    /// All of them.
    pub(super) async fn delete_service_imports(&self, gone: &AtomicUsize) -> anyhow::Result<()> {
        self.delete_made::<ServiceImport>(gone).await
    }

    /// Imported ones.
    pub(super) async fn delete_slices(&self, gone: &AtomicUsize) -> anyhow::Result<()> {
        self.delete_made::<EndpointSlice>(gone).await
    }

    /// Derived ones.
    pub(super) async fn delete_services(&self, gone: &AtomicUsize) -> anyhow::Result<()> {
        self.delete_made::<Service>(gone).await
    }

    async fn delete_made<K>(&self, gone: &AtomicUsize) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let ours = ListParams::default().labels(&format!("{LABEL_MANAGED_BY}={MANAGED_BY}"));
        let mut found = self.list::<K>(ours).await;
        found.objects.retain(|meta| {
            let clusterset = meta.annotations.as_ref().and_then(|all| all.get(ANNOTATION_CLUSTERSET));
            meta.deletion_timestamp.is_none() && clusterset == Some(&self.clusterset)
        });
        found.each(gone, |meta| self.delete::<K>(meta)).await
    }

    /// Whether it was there, and still the one that was read.
    async fn delete<K>(&self, meta: ObjectMeta) -> anyhow::Result<bool>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let (namespace, name) = place(&meta);
        match Api::<K>::namespaced(self.client.clone(), namespace).delete(name, &params).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("cannot delete {} {namespace}/{name}", K::kind(&())))
            }
        }
    }

    /// Lets ServiceExports go, whoever made them, and whoever deletes them later.
    pub(super) async fn remove_finalizers(&self, gone: &AtomicUsize) -> anyhow::Result<()> {
        let mut found = self.list::<ServiceExport>(ListParams::default()).await;
        found.objects.retain(|meta| finalizer(meta).is_some());
        found.each(gone, |meta| self.remove_finalizer(meta)).await
    }

    async fn remove_finalizer(&self, mut meta: ObjectMeta) -> anyhow::Result<bool> {
        let (namespace, name) = place(&meta);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let api = Api::<ServiceExport>::namespaced(self.client.clone(), &namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..TRIES {
            let Some(at) = finalizer(&meta) else { return Ok(false) };
            let patch = serde_json::from_value(json!([
                { "op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version },
                { "op": "remove", "path": format!("/metadata/finalizers/{at}") },
            ]))?;
            match api.patch_metadata(&name, &params, &Patch::Json::<()>(patch)).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
                Err(kube::Error::Api(status)) if status.code == 409 || status.message == TEST_FAILED => {
                    match api
                        .list_metadata(&ListParams::default().fields(&format!("metadata.name={name}")))
                        .await
                    {
                        Ok(found) => match found.items.into_iter().next() {
                            Some(found) => meta = found.metadata,
                            None => return Ok(false),
                        },
                        Err(error) => return Err(error).context("cannot read it again"),
                    }
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot change ServiceExport {namespace}/{name}"));
                }
            }
        }
        anyhow::bail!(
            "ServiceExport {namespace}/{name} was changed by somebody else in each of {TRIES} tries"
        )
    }

    /// What a list has, over all pages and namespaces; nothing of a kind that is not served.
    async fn list<K>(&self, params: ListParams) -> Found
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let mut found = Found { objects: Vec::new(), problem: None };
        for scope in &self.scopes {
            let api: Api<K> = match scope {
                Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                None => Api::all(self.client.clone()),
            };
            match pages::each(&api, params.clone(), |object| found.objects.push(object)).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                // Of a namespace that does not exist nothing is left; its Role went with it.
                Err(_) if self.is_gone(scope.as_deref()).await => {}
                Err(error) => {
                    let place = scope.as_ref().map(|namespace| format!(" in namespace {namespace}"));
                    let problem = format!("cannot list {}{}", K::plural(&()), place.unwrap_or_default());
                    found.problem.get_or_insert_with(|| anyhow::Error::new(error).context(problem));
                }
            }
        }
        found
    }

    /// Whether it is known that there is no such namespace.
    async fn is_gone(&self, scope: Option<&str>) -> bool {
        let Some(namespace) = scope else { return false };
        let api = Api::<v1::Namespace>::all(self.client.clone());
        matches!(api.get_metadata_opt(namespace).await, Ok(None))
    }
}

impl Found {
    /// Does `write` to each, whatever becomes of the others; those that it took away are counted in `gone`, so that what was
    /// done is known also where not all was, or there was no time for all.
    async fn each<F: Future<Output = anyhow::Result<bool>>>(
        self,
        gone: &AtomicUsize,
        write: impl FnMut(ObjectMeta) -> F,
    ) -> anyhow::Result<()> {
        let written = stream::iter(self.objects).map(write).buffer_unordered(AT_ONCE);
        let count = |problem: Option<anyhow::Error>, one| {
            ready(match one {
                Ok(taken) => {
                    gone.fetch_add(usize::from(taken), Ordering::Relaxed);
                    problem
                }
                Err(error) => problem.or(Some(error)),
            })
        };
        written.fold(self.problem, count).await.map_or(Ok(()), Err)
    }
}

fn place(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn finalizer(meta: &ObjectMeta) -> Option<usize> {
    meta.finalizers.as_ref()?.iter().position(|finalizer| finalizer == FINALIZER_EXPORT)
}
