//! Every write to the API server: fenced, limited in time, counted, bound to what was read, and seen by the index.
//!
//! What does not exist is created by POST, so that a foreign object of the same name is never taken over. What exists
//! is changed by server-side apply under one field manager with force, with the UID and the resource version that
//! were read: an apply without the UID would create an object anew that somebody has just deleted. Fields that other
//! managers added, which no apply can reach, are removed by a full update.
//!
//! A POST makes its caller the owner of the fields by *Update*, and an apply only removes fields that are owned by
//! *Apply*. So before the first apply that may remove one that record is rewritten; the rewrite changes no field. The
//! lists of a slice are replaced whole, so a change of its endpoints needs no such second request, nor does one that only
//! adds, as of the addresses of a new import.

use crate::index::{Index, Kind};
use crate::leader::Claim;
use crate::metrics::Metrics;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::Status;
use kube::{Client, Resource};
use mcs_core::names::{FIELD_MANAGER, FIELD_MANAGER_STATUS};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long one write may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// The cause that the API server names in its refusal (`NamespaceTerminatingCause` of k8s.io/api/core/v1).
const CAUSE_NAMESPACE_ENDS: &str = "NamespaceTerminating";

/// What the API server says of a JSON patch that does not fit its object (`NewGenericServerResponse` of
/// k8s.io/apimachinery/pkg/api/errors, called by the patch handler of k8s.io/apiserver).
pub(crate) const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// Why a write was not made, or is not known to have been.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteFailed {
    /// This controller no longer leads.
    #[error("this controller does not lead any more")]
    Fenced,
    /// The object changed since it was read, or exists already: read and decide again.
    #[error("the object has changed meanwhile: {0}")]
    Conflict(String),
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// The namespace is being deleted, and takes no new objects: what is in it goes, without us.
    #[error("its namespace is being deleted")]
    NamespaceEnds,
    /// The API server did not answer in time.
    #[error("the API server did not answer within {LIMIT:?}")]
    TimedOut,
    /// The API server refuses it.
    #[error("the API server refuses it ({code}): {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The API server's words.
        message: String,
    },
    /// It failed otherwise.
    #[error(transparent)]
    Other(kube::Error),
}

impl WriteFailed {
    /// Whether the write was decided on what is no longer so: it is decided again, and nothing is wrong.
    pub(crate) const fn is_stale(&self) -> bool {
        matches!(self, Self::Fenced | Self::Conflict(_) | Self::Gone | Self::NamespaceEnds)
    }

    /// How long the API server asks to be left alone; zero when it does not.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Other(error) => mcs_runtime::kube::retry_after(error),
            Self::Fenced
            | Self::Conflict(_)
            | Self::Gone
            | Self::NamespaceEnds
            | Self::TimedOut
            | Self::Refused { .. } => Duration::ZERO,
        }
    }

    /// What the failure of a JSON patch means: a test that does not hold is answered with the code of an invalid object,
    /// which that of a policy is too.
    fn of_patch(self) -> Self {
        match self {
            Self::Refused { code: 422, message } if message == TEST_FAILED => Self::Conflict(message),
            failed => failed,
        }
    }

    /// The object cannot be written as JSON.
    pub(crate) const fn encode(error: serde_json::Error) -> Self {
        Self::Other(kube::Error::SerdeError(error))
    }
}

impl From<kube::Error> for WriteFailed {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 => Self::Gone,
                409 => Self::Conflict(status.message),
                403 if namespace_ends(&status) => Self::NamespaceEnds,
                code @ (400 | 403 | 405 | 422) => Self::Refused { code, message: status.message },
                _ => Self::Other(kube::Error::Api(status)),
            },
            error => Self::Other(error),
        }
    }
}

/// Whether the API server refuses a new object for the end of its namespace.
fn namespace_ends(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == CAUSE_NAMESPACE_ENDS)
}

/// A kind that is written.
pub(crate) trait Written:
    Kind + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned
{
}

impl<K: Kind + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned> Written for K {}

/// The right and the means to write.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The API server.
    pub(crate) client: Client,
    /// Where answers are seen.
    pub(crate) index: Arc<Index>,
    /// The right to write.
    pub(crate) claim: Claim,
    /// Where writes are counted.
    pub(crate) metrics: Metrics,
}

impl Writer {
    /// Creates `object`.
    pub(crate) async fn create<K: Written>(&self, object: &K) -> Result<K, WriteFailed> {
        let params = as_manager();
        let api = self.api::<K>(object.meta());
        let created = self.fenced::<K, _>("create", api.create(&params, object)).await?;
        self.index.apply(created.clone());
        Ok(created)
    }

    /// Makes the fields of `wanted` so in the object that was read as `base`, and removes those that an earlier apply
    /// had and this one has not.
    pub(crate) async fn apply<K: Written>(&self, base: &K, wanted: &K) -> Result<K, WriteFailed> {
        let mut version = base.meta().resource_version.clone();
        if let Some(claimed) = claim_updates(base.meta()).filter(|_| !removes_nothing(base, wanted)) {
            let api = self.api::<K>(base.meta());
            let (params, patch) = (PatchParams::default(), Patch::Json::<()>(claimed));
            let rewritten = self.fenced::<K, _>("patch", api.patch(name(base.meta()), &params, &patch)).await;
            let rewritten = rewritten.map_err(WriteFailed::of_patch)?;
            version.clone_from(&rewritten.meta().resource_version);
        }
        let body = bound(wanted, base.meta(), version)?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api::<K>(base.meta());
        let applied =
            self.fenced::<K, _>("apply", api.patch(name(base.meta()), &params, &Patch::Apply(body))).await?;
        self.index.apply(applied.clone());
        Ok(applied)
    }

    /// Creates a namespace.
    pub(crate) async fn create_namespace(&self, namespace: &Namespace) -> Result<(), WriteFailed> {
        let params = as_manager();
        let api = Api::<Namespace>::all(self.client.clone());
        let created = self.fenced::<Namespace, _>("create", api.create(&params, namespace)).await?;
        self.index.apply(created);
        Ok(())
    }

    /// Replaces an object that was read, e.g. without the fields that other managers added.
    pub(crate) async fn replace<K: Written>(&self, object: &K) -> Result<K, WriteFailed> {
        let params = as_manager();
        let api = self.api::<K>(object.meta());
        let replaced =
            self.fenced::<K, _>("update", api.replace(name(object.meta()), &params, object)).await?;
        self.index.apply(replaced.clone());
        Ok(replaced)
    }

    /// Makes the fields of `status` so in the object that was read as `base`.
    pub(crate) async fn apply_status<K: Written>(&self, base: &K, status: Value) -> Result<K, WriteFailed> {
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {
                "name": base.meta().name,
                "namespace": base.meta().namespace,
                "uid": base.meta().uid,
                "resourceVersion": base.meta().resource_version,
            },
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER_STATUS).force();
        let api = self.api::<K>(base.meta());
        let patch = Patch::Apply(body);
        let patched = api.patch_status(name(base.meta()), &params, &patch);
        let applied = self.fenced::<K, _>("apply-status", patched).await?;
        self.index.apply(applied.clone());
        Ok(applied)
    }

    /// Makes one field of the status `value`, without what other managers added to it, which no apply can remove.
    pub(crate) async fn replace_status_field<K: Written>(
        &self,
        base: &K,
        field: &str,
        value: Value,
    ) -> Result<K, WriteFailed> {
        let replace = json!([{ "op": "replace", "path": format!("/status/{field}"), "value": value }]);
        let patch = Patch::Json::<()>(json_patch(base.meta(), replace)?);
        let manager = FIELD_MANAGER_STATUS.to_owned();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        let api = self.api::<K>(base.meta());
        let patched = api.patch_status(name(base.meta()), &params, &patch);
        let patched = self.fenced::<K, _>("patch-status", patched).await.map_err(WriteFailed::of_patch)?;
        self.index.apply(patched.clone());
        Ok(patched)
    }

    /// Changes an object that was read by a JSON patch that tests its resource version.
    pub(crate) async fn patch<K: Written>(&self, base: &K, operations: Value) -> Result<K, WriteFailed> {
        let patch = Patch::Json::<()>(json_patch(base.meta(), operations)?);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api::<K>(base.meta());
        let patched = api.patch(name(base.meta()), &params, &patch);
        let patched = self.fenced::<K, _>("patch", patched).await.map_err(WriteFailed::of_patch)?;
        self.index.apply(patched.clone());
        Ok(patched)
    }

    /// Deletes the object that was read; one that is gone already counts as deleted.
    pub(crate) async fn delete<K: Written>(&self, base: &K) -> Result<(), WriteFailed> {
        let preconditions = Preconditions {
            uid: base.meta().uid.clone(),
            resource_version: base.meta().resource_version.clone(),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let api = self.api::<K>(base.meta());
        match self.fenced::<K, _>("delete", api.delete(name(base.meta()), &params)).await {
            // With finalizers the object lives on; its watch tells.
            Ok(answer) => {
                let finished = answer
                    .left()
                    .is_none_or(|left| left.meta().finalizers.as_ref().is_none_or(Vec::is_empty));
                if finished {
                    self.index.delete(base);
                }
                Ok(())
            }
            Err(WriteFailed::Gone) => {
                self.index.delete(base);
                Ok(())
            }
            Err(failed) => Err(failed),
        }
    }

    fn api<K: Written>(&self, meta: &ObjectMeta) -> Api<K> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    async fn fenced<K: Resource<DynamicType = ()>, T>(
        &self,
        verb: &'static str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteFailed> {
        if !self.claim.may_write() {
            return Err(WriteFailed::Fenced);
        }
        let answer = tokio::time::timeout(LIMIT, write).await;
        self.metrics.written(&K::kind(&()), verb, matches!(answer, Ok(Ok(_))));
        Ok(answer.map_err(|_| WriteFailed::TimedOut)??)
    }
}

/// The JSON patch that turns what our manager owns by Update into what it owns by Apply; none where there is nothing.
fn claim_updates(meta: &ObjectMeta) -> Option<json_patch::Patch> {
    let entries = meta.managed_fields.as_ref()?;
    let ours = |operation: &str| {
        entries.iter().position(|entry| {
            entry.manager.as_deref() == Some(FIELD_MANAGER)
                && entry.operation.as_deref() == Some(operation)
                && entry.subresource.is_none()
        })
    };
    let updated = ours("Update")?;
    // An apply of ours owns all that is wanted already; what an update of ours touched besides is nobody's then.
    let change = match ours("Apply") {
        None => {
            json!([{ "op": "replace", "path": format!("/metadata/managedFields/{updated}/operation"), "value": "Apply" }])
        }
        Some(_) => json!([{ "op": "remove", "path": format!("/metadata/managedFields/{updated}") }]),
    };
    json_patch(meta, change).ok()
}

/// Whether an apply of `wanted` removes no field of `base` but what the API server replaces as one.
fn removes_nothing<K: Written>(base: &K, wanted: &K) -> bool {
    let keeps = |has: Option<&BTreeMap<String, String>>, wanted: Option<&BTreeMap<String, String>>| {
        has.into_iter()
            .flat_map(BTreeMap::keys)
            .all(|key| wanted.is_some_and(|wanted| wanted.contains_key(key)))
    };
    let (is, will) = (base.meta(), wanted.meta());
    let owners = |meta: &ObjectMeta| {
        let owners = meta.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect::<BTreeSet<_>>()
    };
    keeps(is.labels.as_ref(), will.labels.as_ref())
        && keeps(is.annotations.as_ref(), will.annotations.as_ref())
        && owners(is).is_subset(&owners(will))
        && (K::kind(&()) == EndpointSlice::kind(&()) || keeps_spec(base, wanted))
}

/// Whether each field of the spec of `base` is in that of `wanted` too, and each entry of a list as it is.
fn keeps_spec<K: Written>(base: &K, wanted: &K) -> bool {
    fn keeps(is: &Value, wanted: &Value) -> bool {
        match (is, wanted) {
            (Value::Object(is), Value::Object(wanted)) => {
                is.iter().all(|(field, is)| wanted.get(field).is_some_and(|wanted| keeps(is, wanted)))
            }
            (Value::Array(is), Value::Array(wanted)) => is.iter().all(|entry| wanted.contains(entry)),
            (is, wanted) => !wanted.is_null() && is.is_object() == wanted.is_object(),
        }
    }
    let spec = |object: &K| Some(serde_json::to_value(object).ok()?.get("spec")?.clone());
    spec(base).zip(spec(wanted)).is_some_and(|(is, wanted)| keeps(&is, &wanted))
}

fn json_patch(meta: &ObjectMeta, operations: Value) -> Result<json_patch::Patch, WriteFailed> {
    let test = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version });
    let mut all = vec![test];
    if let Value::Array(operations) = operations {
        all.extend(operations);
    }
    serde_json::from_value(Value::Array(all)).map_err(WriteFailed::encode)
}

/// The body of an apply: the wanted fields, bound to the object that was read.
fn bound<K: Serialize>(wanted: &K, base: &ObjectMeta, version: Option<String>) -> Result<Value, WriteFailed> {
    let mut body = serde_json::to_value(wanted).map_err(WriteFailed::encode)?;
    body["metadata"]["uid"] = json!(base.uid);
    body["metadata"]["resourceVersion"] = json!(version);
    Ok(body)
}

/// How this controller sends whole objects.
pub(crate) fn as_manager() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ServiceImport;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    #[test]
    fn a_refusal_is_stale_when_the_namespace_ends_and_final_when_a_permission_lacks() {
        let ends = json!({ "causes": [{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }] });
        let refused = |code: u16, details: Value| {
            let status = json!({ "status": "Failure", "message": "no", "code": code, "details": details });
            WriteFailed::from(kube::Error::Api(serde_json::from_value(status).expect("a status")))
        };
        let other = json!({ "causes": [{ "reason": "FieldValueInvalid" }] });
        let failures =
            [(403, ends), (403, other.clone()), (403, Value::Null), (422, other), (409, Value::Null)]
                .map(|(code, details)| refused(code, details))
                .map(|failed| (failed.is_stale(), failed.to_string()));
        let refusal = |code: u16| (false, format!("the API server refuses it ({code}): no"));
        assert_eq!(
            failures,
            [
                (true, "its namespace is being deleted".to_owned()),
                refusal(403),
                refusal(403),
                refusal(422),
                (true, "the object has changed meanwhile: no".to_owned()),
            ]
        );
    }

    #[test]
    fn a_patch_whose_test_does_not_hold_is_stale_and_one_that_a_policy_refuses_is_refused() {
        let refused = |message: &str| WriteFailed::Refused { code: 422, message: message.to_owned() };
        let policy = "services \"cart\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: not now";
        let stale = [TEST_FAILED, policy].map(|message| refused(message).of_patch().is_stale());
        assert_eq!(stale, [true, false]);
    }

    #[test]
    fn an_apply_to_a_slice_that_keeps_labels_annotations_and_owners_removes_nothing() {
        let base = mk_slice(&["app", "region"], "import");
        let with = |wanted| removes_nothing(&base, &wanted);
        let same = mk_slice(&["app", "region"], "import");
        let more = mk_slice(&["app", "region", "zone"], "import");
        assert_eq!((with(same), with(more)), (true, true));
        let (fewer, other_owner) = (mk_slice(&["app"], "import"), mk_slice(&["app", "region"], "other"));
        assert_eq!((with(fewer), with(other_owner)), (false, false));
    }

    #[test]
    fn an_apply_to_another_object_removes_nothing_when_it_names_all_fields_and_entries_that_are() {
        let import = |spec: Value| -> ServiceImport {
            let metadata = json!({"name": "cart", "namespace": "shop"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a ServiceImport")
        };
        let port = |number: u16| json!({"name": "http", "port": number, "protocol": "TCP"});
        let base = json!({"type": "ClusterSetIP", "ports": [port(80)], "sessionAffinity": "None"});
        let with = |field: &str, value: Value| {
            let mut wanted = base.clone();
            wanted[field] = value;
            removes_nothing(&import(base.clone()), &import(wanted))
        };
        let adds = [
            with("ips", json!(["10.0.0.1"])),
            with("ports", json!([port(80), port(81)])),
            with("sessionAffinity", json!("ClientIP")),
        ];
        let removes = [
            with("ports", json!([port(81)])),
            with("ports", json!([])),
            with("sessionAffinity", Value::Null),
        ];
        assert_eq!((adds, removes), ([true; 3], [false; 3]));
        // What the API server has filled in stays too, but nobody can tell it from what was ours.
        let service = |spec: Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "cart"}, "spec": spec})).expect("a Service")
        };
        let made = service(json!({"clusterIP": "10.0.0.1", "type": "ClusterIP"}));
        assert!(!removes_nothing(&made, &service(json!({"type": "ClusterIP"}))));
    }

    fn mk_slice(labels: &[&str], owner: &str) -> EndpointSlice {
        let owner = OwnerReference { uid: owner.to_owned(), ..OwnerReference::default() };
        let metadata = ObjectMeta {
            labels: Some(labels.iter().map(|label| ((*label).to_owned(), String::new())).collect()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        EndpointSlice { metadata, ..EndpointSlice::default() }
    }
}
