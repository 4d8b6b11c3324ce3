//! Brings YAML of any kinds into a cluster by server-side apply, or asks whether the cluster would take it.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
    runtime::wait::conditions::is_crd_established,
};

use crate::wait::wait_for;

const FIELD_MANAGER: &str = "e2e";

/// Applies the documents in their order; each may be YAML or JSON. After a CustomResourceDefinition it waits
/// until its kind is served, so objects of it may follow. An object without a namespace goes to `default`.
///
/// # Errors
/// A document is no object, its kind is unknown to the cluster, or it was refused.
pub async fn apply_yaml(client: &Client, documents: &str) -> Result<()> {
    let objects: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(documents).context("reading the documents")?;
    for object in objects.into_iter().flatten() {
        let name = object.name_any();
        let types =
            object.types.clone().with_context(|| format!("object {name} has no apiVersion and kind"))?;
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        apply(client, object, &parameters)
            .await
            .with_context(|| format!("applying {} {name}", types.kind))?;
        if types.kind == "CustomResourceDefinition" {
            wait_until_served(client, &name).await?;
        }
    }
    Ok(())
}

/// Asks whether the cluster would take each of the documents: nothing is changed, and a field that it does not know is
/// an error. Namespaces of the objects must be there.
///
/// # Errors
/// As [`apply_yaml`].
pub async fn dry_run_yaml(client: &Client, documents: &str) -> Result<()> {
    let objects: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(documents).context("reading the documents")?;
    for object in objects.into_iter().flatten() {
        let name = object.name_any();
        let parameters =
            PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force().validation_strict() };
        apply(client, object, &parameters).await.with_context(|| format!("trying {name}"))?;
    }
    Ok(())
}

async fn apply(client: &Client, object: DynamicObject, parameters: &PatchParams) -> Result<()> {
    let types = object.types.as_ref().context("no apiVersion and kind")?;
    let (resource, capabilities) =
        discovery::pinned_kind(client, &GroupVersionKind::try_from(types)?).await?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
            Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    api.patch(&object.name_any(), parameters, &Patch::Apply(&object)).await?;
    Ok(())
}

/// Established comes before the version is listed and served, so ask for both.
async fn wait_until_served(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    wait_for(&format!("CustomResourceDefinition {name} to be served"), async || {
        let definition = definitions.get(name).await?;
        if !is_crd_established_now(&definition) {
            anyhow::bail!("not established: {:?}", definition.status.and_then(|status| status.conditions));
        }
        let spec = &definition.spec;
        for version in spec.versions.iter().filter(|version| version.served) {
            let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            discovery::pinned_kind(client, &kind).await?;
            objects.list_metadata(&Default::default()).await?;
        }
        Ok(())
    })
    .await
}

fn is_crd_established_now(definition: &CustomResourceDefinition) -> bool {
    use kube::runtime::wait::Condition;
    is_crd_established().matches_object(Some(definition))
}
