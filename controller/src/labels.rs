//! The label that asks for an export: a Service that carries it gets a ServiceExport of its name, owned by it; without
//! it that ServiceExport goes. One made by hand is never taken over or deleted.

use crate::api::ServiceExport;
use crate::facts::is_derived;
use crate::index::ExportObjects;
use crate::lead::Lead;
use crate::writes::WriteFailed;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use mcs_core::ids::ServiceKey;
use mcs_core::names::{ANNOTATION_CLUSTERSET, EXPORT_WANTED, LABEL_EXPORT, LABEL_MANAGED_BY, MANAGED_BY};
use tracing::info;

/// What a Service's label asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create,
    Delete,
    Nothing,
}

/// Makes or deletes the ServiceExport of `key` as the Service's label asks.
pub(crate) async fn reconcile(
    lead: &Lead,
    key: &ServiceKey,
    objects: &ExportObjects,
) -> Result<(), WriteFailed> {
    let clusterset = lead.config.member.clusterset.as_str();
    match (act(objects, clusterset), &objects.service, &objects.export) {
        (Act::Create, Some(service), _) => {
            let export = wanted(service, clusterset);
            match lead.writer().create(&export).await {
                Ok(_) => info!(service = %key, "ServiceExport created for the label"),
                // Somebody made one meanwhile; the watch tells.
                Err(WriteFailed::Conflict(_)) => {}
                Err(failed) => return Err(failed),
            }
        }
        (Act::Delete, _, Some(export)) => {
            lead.writer().delete(&**export).await?;
            info!(service = %key, "ServiceExport deleted, the label is gone");
        }
        _ => {}
    }
    Ok(())
}

fn act(objects: &ExportObjects, clusterset: &str) -> Act {
    let service = objects.service.as_deref().filter(|service| service.metadata.deletion_timestamp.is_none());
    let asked = service.is_some_and(|service| {
        !is_derived(service) && service.labels().get(LABEL_EXPORT).is_some_and(|value| value == EXPORT_WANTED)
    });
    match &objects.export {
        None if asked => Act::Create,
        // Without a Service the API server collects the ServiceExport, since the Service owned it.
        Some(export)
            if !asked
                && service.is_some()
                && is_ours(export, clusterset)
                && export.metadata.deletion_timestamp.is_none() =>
        {
            Act::Delete
        }
        _ => Act::Nothing,
    }
}

/// Whether a controller of this clusterset made the ServiceExport for a label.
fn is_ours(export: &ServiceExport, clusterset: &str) -> bool {
    let owned = export
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "Service" && owner.name == export.name_any());
    let marked = export.annotations().get(ANNOTATION_CLUSTERSET).is_some_and(|set| set == clusterset);
    owned && marked && export.labels().get(LABEL_MANAGED_BY).is_some_and(|manager| manager == MANAGED_BY)
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
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_label_decides_what_happens_to_a_service_export() {
        let labelled = || Some(mk_service(&[(LABEL_EXPORT, EXPORT_WANTED)]));
        let plain = || Some(mk_service(&[]));
        let ours = || Some(Arc::new(wanted(&mk_service(&[]), "prod")));
        let by_hand = || Some(Arc::new(ServiceExport::default()));
        let cases = [
            ("labelled", labelled(), None, Act::Create),
            ("labelled and exported", labelled(), ours(), Act::Nothing),
            ("labelled, exported by hand", labelled(), by_hand(), Act::Nothing),
            ("label gone", plain(), ours(), Act::Delete),
            ("never labelled, exported by hand", plain(), by_hand(), Act::Nothing),
            ("another value", Some(mk_service(&[(LABEL_EXPORT, "yes")])), None, Act::Nothing),
            ("Service gone", None, ours(), Act::Nothing),
            (
                "derived",
                Some(mk_service(&[(LABEL_EXPORT, EXPORT_WANTED), (LABEL_MANAGED_BY, MANAGED_BY)])),
                None,
                Act::Nothing,
            ),
        ];
        for (case, service, export, expected) in cases {
            let objects = ExportObjects { export, service: service.map(Arc::new), slices: vec![] };
            assert_eq!(act(&objects, "prod"), expected, "{case}");
        }
    }

    fn mk_service(labels: &[(&str, &str)]) -> Service {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let metadata = ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("cart".to_owned()),
            uid: Some("uid".to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        Service { metadata, ..Service::default() }
    }
}
