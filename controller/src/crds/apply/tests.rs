use super::*;
use serde_json::json;

#[test]
fn a_crd_of_a_newer_schema_stays() {
    let cases = [
        (Some("v0.5.2"), Some("0"), false),
        (Some("v0.5.2"), None, false),
        (Some("v0.5.2"), Some("1"), true),
        (Some("v0.5.10"), Some("0"), true),
        (Some("v1.0.0-rc1"), Some("0"), true),
        (Some("v0.5.2-rc1"), Some("7"), false),
        (Some("v0.5.1"), Some("9"), false),
        (Some("main"), Some("0"), true),
        (None, None, false),
        (None, Some("3"), false),
    ];
    let stays = cases.map(|(release, revision, _)| newer(&labelled(release, revision), &ours()).is_some());
    assert_eq!(stays, cases.map(|(_, _, stays)| stays));
}

#[test]
fn no_stored_version_is_dropped() {
    let versions = |existing: &[&str]| {
        let existing = existing.iter().map(|name| json!({"name": name, "served": true, "storage": false}));
        let existing = crd(json!({"name": "x"}), existing.collect());
        let merged = carrying_over(ours(), Some(&existing));
        merged.spec.versions.into_iter().map(|version| (version.name, version.storage)).collect::<Vec<_>>()
    };
    let named = |versions: &[(&str, bool)]| {
        versions.iter().map(|(name, storage)| ((*name).to_owned(), *storage)).collect::<Vec<_>>()
    };
    assert_eq!(versions(&["v1alpha1"]), named(&[("v1alpha1", false), ("v1beta1", true)]));
    assert_eq!(
        versions(&["v1alpha0"]),
        named(&[("v1alpha1", false), ("v1beta1", true), ("v1alpha0", false)])
    );
    assert_eq!(versions(&["v1", "v1beta1"]), named(&[("v1alpha1", false), ("v1beta1", false), ("v1", true)]));
}

#[test]
fn an_apply_names_the_state_it_was_decided_on() {
    let existing = crd(json!({"name": "x", "resourceVersion": "7"}), vec![]);
    let versions =
        [None, Some(&existing)].map(|existing| carrying_over(ours(), existing).metadata.resource_version);
    assert_eq!(versions, [None, Some("7".to_owned())]);
}

fn ours() -> CustomResourceDefinition {
    crds().unwrap().pop().unwrap()
}

fn labelled(release: Option<&str>, revision: Option<&str>) -> CustomResourceDefinition {
    let labels = [(names::LABEL_CRD_RELEASE, release), (names::LABEL_CRD_REVISION, revision)];
    let labels: BTreeMap<_, _> =
        labels.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    crd(json!({"name": "x", "labels": labels}), vec![])
}

fn crd(metadata: serde_json::Value, versions: Vec<serde_json::Value>) -> CustomResourceDefinition {
    let names = json!({"kind": "X", "plural": "xs"});
    let spec = json!({"group": "g", "scope": "Namespaced", "names": names, "versions": versions});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}
