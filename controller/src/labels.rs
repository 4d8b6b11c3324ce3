//! The label that asks for an export: a Service that carries it gets a ServiceExport of its name, owned by it; without
//! it that ServiceExport goes. One made by hand is never taken over or deleted.
//!
//! What was made for a label has three marks: a label, an annotation that names the clusterset, the Service as its owner.
//! It stays ours as long as one of them is there that our field manager wrote, by the API server's own record; the others
//! are put back. So a copy that a user applies is the user's, whatever marks it has, and one that has lost all three marks
//! is as if made by hand. Its spec is the user's: what is written there travels.

use crate::api::ServiceExport;
use crate::facts::{is_derived, managed_entries};
use crate::index::{ExportObjects, NamespaceState};
use crate::lead::Lead;
use crate::writes::WriteFailed;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use mcs_core::ids::ServiceKey;
use mcs_core::names::{ANNOTATION_CLUSTERSET, EXPORT_WANTED, LABEL_EXPORT, LABEL_MANAGED_BY, MANAGED_BY};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tracing::info;

/// What a Service's label asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Create,
    /// By these operations of a JSON patch.
    Mend(Vec<Value>),
    Delete,
    Nothing,
}

/// Makes, mends or deletes the ServiceExport of `key` as the Service's label asks; answers whether it wrote.
pub(crate) async fn reconcile(
    lead: &Lead,
    key: &ServiceKey,
    objects: &ExportObjects,
) -> Result<bool, WriteFailed> {
    let clusterset = lead.config.member.clusterset.as_str();
    match (act(objects, clusterset), &objects.service, &objects.export) {
        // It takes nothing new, and what is in it goes. Another namespace of its name queues its Services.
        (Act::Create, ..) if lead.index.namespace_state(key) == NamespaceState::Terminating => Ok(false),
        (Act::Create, Some(service), _) => match lead.writer().create(&wanted(service, clusterset)).await {
            Ok(_) => {
                info!(service = %key, "ServiceExport created for the label");
                Ok(true)
            }
            // Somebody made one meanwhile, or the namespace ends; the watches tell.
            Err(WriteFailed::Conflict(_) | WriteFailed::NamespaceEnds) => Ok(false),
            Err(failed) => Err(failed),
        },
        (Act::Mend(operations), _, Some(export)) => {
            lead.writer().patch(&**export, Value::Array(operations)).await?;
            info!(service = %key, "marks of the label's ServiceExport put back");
            Ok(true)
        }
        (Act::Delete, _, Some(export)) => {
            lead.writer().delete(&**export).await?;
            info!(service = %key, "ServiceExport deleted, the label is gone");
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn act(objects: &ExportObjects, clusterset: &str) -> Act {
    let service = objects.service.as_deref();
    let alive = service.filter(|service| service.metadata.deletion_timestamp.is_none());
    let asking = alive.filter(|service| {
        !is_derived(service) && service.labels().get(LABEL_EXPORT).is_some_and(|value| value == EXPORT_WANTED)
    });
    match (&objects.export, asking) {
        (None, Some(_)) => Act::Create,
        (Some(export), asking) if is_ours(export, clusterset) => match asking {
            _ if export.metadata.deletion_timestamp.is_some() => Act::Nothing,
            Some(service) => match mend(&export.metadata, &wanted(service, clusterset).metadata) {
                operations if operations.is_empty() => Act::Nothing,
                operations => Act::Mend(operations),
            },
            None if alive.is_some() => Act::Delete,
            // With its Service the API server collects it, unless it has lost that owner.
            None if service.is_none() && !is_owned(export) => Act::Delete,
            None => Act::Nothing,
        },
        _ => Act::Nothing,
    }
}

/// Whether a controller of this clusterset made the ServiceExport for a label; see the module.
fn is_ours(export: &ServiceExport, clusterset: &str) -> bool {
    let by_us = |field, entry: &str| managed_entries(&export.metadata, field).any(|managed| managed == entry);
    let set_by_us = by_us("f:annotations", &format!("f:{ANNOTATION_CLUSTERSET}"));
    match export.annotations().get(ANNOTATION_CLUSTERSET) {
        // Its own controller's, unless it is somebody else who wrote that.
        Some(set) if set != clusterset && set_by_us => return false,
        Some(set) if set == clusterset && is_owned(export) && is_labelled(export) => return true,
        Some(_) | None => {}
    }
    set_by_us
        || by_us("f:labels", &format!("f:{LABEL_MANAGED_BY}"))
        || managed_entries(&export.metadata, "f:ownerReferences").any(|entry| entry.starts_with("k:"))
}

fn is_owned(export: &ServiceExport) -> bool {
    let name = export.name_any();
    export.owner_references().iter().any(|owner| owner.kind == "Service" && owner.name == name)
}

fn is_labelled(export: &ServiceExport) -> bool {
    export.labels().get(LABEL_MANAGED_BY).is_some_and(|manager| manager == MANAGED_BY)
}

/// The operations of a JSON patch that put the marks of `wanted` back; none where they are there.
fn mend(is: &ObjectMeta, wanted: &ObjectMeta) -> Vec<Value> {
    let labels = mend_map("labels", is.labels.as_ref(), wanted.labels.as_ref());
    let annotations = mend_map("annotations", is.annotations.as_ref(), wanted.annotations.as_ref());
    let owners = is.owner_references.as_deref().unwrap_or_default();
    let owner = wanted.owner_references.iter().flatten().filter_map(|owner| mend_owner(owners, owner));
    labels.into_iter().chain(annotations).chain(owner).collect()
}

type Entries = BTreeMap<String, String>;

fn mend_map(field: &str, is: Option<&Entries>, wanted: Option<&Entries>) -> Vec<Value> {
    let missing = wanted.into_iter().flatten();
    let missing: Entries = missing
        .filter(|(name, value)| is.and_then(|is| is.get(*name)) != Some(*value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    match is {
        _ if missing.is_empty() => Vec::new(),
        Some(is) if !is.is_empty() => missing
            .iter()
            .map(|(name, value)| {
                // RFC 6901, section 4.
                let name = name.replace('~', "~0").replace('/', "~1");
                json!({ "op": "add", "path": format!("/metadata/{field}/{name}"), "value": value })
            })
            .collect(),
        _ => vec![json!({ "op": "add", "path": format!("/metadata/{field}"), "value": missing })],
    }
}

/// Puts the owner in the place of one that meant the same Service; other owners stay.
fn mend_owner(owners: &[OwnerReference], wanted: &OwnerReference) -> Option<Value> {
    let same = |owner: &OwnerReference| {
        (&owner.api_version, &owner.kind, &owner.name, &owner.uid)
            == (&wanted.api_version, &wanted.kind, &wanted.name, &wanted.uid)
    };
    let meant = |owner: &OwnerReference| {
        owner.uid == wanted.uid || (owner.kind == wanted.kind && owner.name == wanted.name)
    };
    if owners.iter().any(same) {
        return None;
    }
    Some(match owners.iter().position(meant) {
        Some(place) => {
            json!({ "op": "replace", "path": format!("/metadata/ownerReferences/{place}"), "value": wanted })
        }
        None if owners.is_empty() => {
            json!({ "op": "add", "path": "/metadata/ownerReferences", "value": [wanted] })
        }
        None => json!({ "op": "add", "path": "/metadata/ownerReferences/-", "value": wanted }),
    })
}

fn wanted(service: &Service, clusterset: &str) -> ServiceExport {
    ServiceExport {
        metadata: ObjectMeta {
            namespace: service.namespace(),
            name: service.metadata.name.clone(),
            labels: Some([(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned())].into()),
            annotations: Some([(ANNOTATION_CLUSTERSET.to_owned(), clusterset.to_owned())].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name: service.name_any(),
                uid: service.uid().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        ..ServiceExport::default()
    }
}

#[cfg(test)]
mod tests;
