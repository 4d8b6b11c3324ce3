use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use mcs_core::names::FIELD_MANAGER;
use std::sync::Arc;

#[test]
fn the_label_decides_what_happens_to_a_service_export() {
    let labelled = || Some(mk_service(&[(LABEL_EXPORT, EXPORT_WANTED)]));
    let plain = || Some(mk_service(&[]));
    let by_hand = || Some(ServiceExport::default());
    let deleted = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let mut service_ends = mk_service(&[]);
    service_ends.metadata.deletion_timestamp.clone_from(&deleted);
    let mut export_ends = made();
    export_ends.metadata.deletion_timestamp = deleted;
    let cases = [
        ("labelled", labelled(), None, Act::Create),
        ("labelled and exported", labelled(), Some(made()), Act::Nothing),
        ("labelled, exported by hand", labelled(), by_hand(), Act::Nothing),
        ("label gone", plain(), Some(made()), Act::Delete),
        ("label gone, deleted before", plain(), Some(export_ends), Act::Nothing),
        ("never labelled, exported by hand", plain(), by_hand(), Act::Nothing),
        ("another value", Some(mk_service(&[(LABEL_EXPORT, "yes")])), None, Act::Nothing),
        ("Service gone", None, Some(made()), Act::Nothing),
        ("Service gone, not the owner any more", None, Some(made_without(&["owner"])), Act::Delete),
        ("Service goes", Some(service_ends), Some(made_without(&["owner"])), Act::Nothing),
        (
            "derived",
            Some(mk_service(&[(LABEL_EXPORT, EXPORT_WANTED), (LABEL_MANAGED_BY, MANAGED_BY)])),
            None,
            Act::Nothing,
        ),
    ];
    for (case, service, export, expected) in cases {
        assert_eq!(act(&objects(export, service), "prod"), expected, "{case}");
    }
}

#[test]
fn marks_are_put_back_while_one_is_left_that_this_controller_wrote() {
    let label = json!({ "op": "add", "path": "/metadata/labels", "value": { LABEL_MANAGED_BY: MANAGED_BY } });
    let annotation =
        json!({ "op": "add", "path": "/metadata/annotations", "value": { ANNOTATION_CLUSTERSET: "prod" } });
    let owner = json!({ "apiVersion": "v1", "kind": "Service", "name": "cart", "uid": "uid" });
    let owners = json!({ "op": "add", "path": "/metadata/ownerReferences", "value": [owner] });
    let cases: [(&[&str], Vec<Value>); 7] = [
        (&["label"], vec![label.clone()]),
        (&["annotation"], vec![annotation.clone()]),
        (&["owner"], vec![owners.clone()]),
        (&["label", "annotation"], vec![label.clone(), annotation.clone()]),
        (&["label", "owner"], vec![label, owners.clone()]),
        (&["annotation", "owner"], vec![annotation, owners]),
        (&["label", "annotation", "owner"], vec![]),
    ];
    for (gone, operations) in cases {
        let service = mk_service(&[(LABEL_EXPORT, EXPORT_WANTED)]);
        let wanted = if operations.is_empty() { Act::Nothing } else { Act::Mend(operations) };
        assert_eq!(act(&objects(Some(made_without(gone)), Some(service)), "prod"), wanted, "{gone:?}");
        let wanted = if gone.len() == 3 { Act::Nothing } else { Act::Delete };
        assert_eq!(
            act(&objects(Some(made_without(gone)), Some(mk_service(&[]))), "prod"),
            wanted,
            "{gone:?}"
        );
    }
}

/// Whoever wrote another value owns the field from then on.
#[test]
fn an_edited_mark_is_mended_in_its_place_and_what_others_added_stays() {
    let mut export = made_without(&["label", "annotation", "owner"]);
    let meta = &mut export.metadata;
    meta.managed_fields = made_without(&["label", "owner"]).metadata.managed_fields;
    let entries = |entries: [(&str, &str); 2]| {
        Some(entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    };
    meta.labels = entries([("team", "shop"), (LABEL_MANAGED_BY, "me")]);
    meta.annotations = entries([("note", "mine"), (ANNOTATION_CLUSTERSET, "prod")]);
    let owner = |kind: &str, name: &str, uid: &str| OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    meta.owner_references = Some(vec![owner("ConfigMap", "cart", "other"), owner("Service", "cart", "old")]);
    let service = mk_service(&[(LABEL_EXPORT, EXPORT_WANTED)]);
    let label = format!("/metadata/labels/{}", LABEL_MANAGED_BY.replace('/', "~1"));
    let reference = json!({ "apiVersion": "v1", "kind": "Service", "name": "cart", "uid": "uid" });
    assert_eq!(
        act(&objects(Some(export), Some(service)), "prod"),
        Act::Mend(vec![
            json!({ "op": "add", "path": label, "value": MANAGED_BY }),
            json!({ "op": "replace", "path": "/metadata/ownerReferences/1", "value": reference }),
        ])
    );
}

#[test]
fn what_another_clusterset_or_a_user_made_is_left_alone_whatever_marks_it_has() {
    let service = || Some(mk_service(&[(LABEL_EXPORT, EXPORT_WANTED)]));
    let mut copied = made_without(&["owner"]);
    copied.metadata.managed_fields = made_by("kubectl", &["label", "annotation"]);
    let mut finalized = ServiceExport::default();
    let fields = json!({ "f:metadata": { "f:finalizers": { ".": {}, "v:\"x\"": {} } } });
    finalized.metadata.managed_fields = Some(vec![record(FIELD_MANAGER, fields)]);
    for (case, export, clusterset) in [
        ("of another clusterset", made(), "other"),
        ("of another clusterset, without its owner", made_without(&["owner"]), "other"),
        ("a copy of a user", copied, "prod"),
        ("by hand, with our finalizer", finalized, "prod"),
    ] {
        for service in [service(), Some(mk_service(&[])), None] {
            assert_eq!(act(&objects(Some(export.clone()), service), clusterset), Act::Nothing, "{case}");
        }
    }

    // Nobody but a user writes another clusterset into what this controller made.
    let mut edited = made();
    edited.metadata.managed_fields = made_without(&["annotation"]).metadata.managed_fields;
    let path = format!("/metadata/annotations/{}", ANNOTATION_CLUSTERSET.replace('/', "~1"));
    assert_eq!(
        act(&objects(Some(edited), service()), "other"),
        Act::Mend(vec![json!({ "op": "add", "path": path, "value": "other" })])
    );
}

/// A record of managers may be lost: what has all its marks is ours all the same.
#[test]
fn all_three_marks_are_enough_without_a_record_of_who_wrote_them() {
    let mut export = made();
    export.metadata.managed_fields = None;
    assert_eq!(act(&objects(Some(export.clone()), Some(mk_service(&[]))), "prod"), Act::Delete);
    export.metadata.annotations = None;
    assert_eq!(act(&objects(Some(export), Some(mk_service(&[]))), "prod"), Act::Nothing);
}

fn objects(export: Option<ServiceExport>, service: Option<Service>) -> ExportObjects {
    ExportObjects { export: export.map(Arc::new), service: service.map(Arc::new), slices: vec![] }
}

/// What this controller made for a label.
fn made() -> ServiceExport {
    made_without(&[])
}

/// The same after somebody removed these marks, which takes them out of the record too.
fn made_without(gone: &[&str]) -> ServiceExport {
    let mut export = wanted(&mk_service(&[]), "prod");
    let left: Vec<_> =
        ["label", "annotation", "owner"].into_iter().filter(|mark| !gone.contains(mark)).collect();
    let meta = &mut export.metadata;
    meta.managed_fields = made_by(FIELD_MANAGER, &left);
    for mark in gone {
        match *mark {
            "label" => meta.labels = None,
            "annotation" => meta.annotations = None,
            _ => meta.owner_references = None,
        }
    }
    export
}

fn made_by(manager: &str, marks: &[&str]) -> Option<Vec<ManagedFieldsEntry>> {
    let mut fields =
        json!({ "f:labels": { ".": {} }, "f:annotations": { ".": {} }, "f:ownerReferences": { ".": {} } });
    for mark in marks {
        match *mark {
            "label" => fields["f:labels"][format!("f:{LABEL_MANAGED_BY}")] = json!({}),
            "annotation" => fields["f:annotations"][format!("f:{ANNOTATION_CLUSTERSET}")] = json!({}),
            _ => fields["f:ownerReferences"]["k:{\"uid\":\"uid\"}"] = json!({}),
        }
    }
    Some(vec![record(manager, json!({ "f:metadata": fields }))])
}

fn record(manager: &str, fields: Value) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Update".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..ManagedFieldsEntry::default()
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
