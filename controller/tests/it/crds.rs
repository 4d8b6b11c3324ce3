//! The CRDs have the structure of upstream, and the YAML in `crds/` is what the types give.
//!
//! `structure/*.txt` holds the facts of the CRDs of `sigs.k8s.io/mcs-api@v0.5.2` and of about-api's v1beta1, one a
//! line as `path = value`, without descriptions; `versions[*]` holds for every version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use mcs_controller::crds::crds;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Set to write the YAML anew instead of comparing it.
const UPDATE: &str = "UPDATE_CRDS";

#[test]
fn crds_have_the_structure_of_upstream() {
    for crd in crds().unwrap() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/structure/{}.txt", crd.name_any()));
        let upstream = std::fs::read_to_string(file).unwrap();
        let upstream: BTreeSet<String> = upstream.lines().flat_map(expand).collect();
        let mut ours = facts_of(&crd);
        ours.retain(|fact| !fact.contains("api-approved"));
        let differing: Vec<_> = ours.symmetric_difference(&upstream).collect();
        assert_eq!(differing, Vec::<&String>::new(), "{}", crd.name_any());
    }
}

#[test]
fn crds_have_a_description_of_every_field() {
    let mut bare = Vec::new();
    for crd in crds().unwrap() {
        for version in &crd.spec.versions {
            let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
            undescribed(
                &format!("{}/{}", crd.name_any(), version.name),
                &schema["openAPIV3Schema"],
                &mut bare,
            );
        }
    }
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn crds_checked_in_are_those_of_the_types() {
    for crd in crds().unwrap() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crds/{}.yaml", crd.name_any()));
        let made = serde_saphyr::to_string(&serde_json::to_value(&crd).unwrap()).unwrap();
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&file, &made).unwrap();
        }
        let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(made == checked_in, "{} is not what the types give; run with {UPDATE}=1", file.display());
        let read: Value = serde_saphyr::from_str(&checked_in).unwrap();
        assert_eq!(read["spec"]["versions"][1]["storage"], Value::Bool(true));
    }
}

fn expand(line: &str) -> Vec<String> {
    match line.strip_prefix("versions[*]") {
        Some(fact) => ["v1alpha1", "v1beta1"].map(|version| format!("versions[{version}]{fact}")).into(),
        None => vec![line.to_owned()],
    }
}

fn facts_of(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut object = serde_json::to_value(crd).unwrap();
    let mut facts = BTreeSet::new();
    for version in &mut std::mem::take(object["spec"]["versions"].as_array_mut().unwrap()) {
        let name = version.as_object_mut().unwrap().remove("name").unwrap();
        let mut inner = BTreeSet::new();
        walk("", version, &mut inner);
        facts.extend(inner.iter().map(|fact| format!("versions[{}] {fact}", name.as_str().unwrap())));
    }
    for known in ["apiVersion", "kind"] {
        object.as_object_mut().unwrap().remove(known);
    }
    object["spec"].as_object_mut().unwrap().remove("versions");
    walk("", &object, &mut facts);
    facts
}

fn walk(path: &str, value: &Value, facts: &mut BTreeSet<String>) {
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                if name != "description" || !field.is_string() {
                    walk(&under(name), field, facts);
                }
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                walk(&format!("{path}[{at}]"), item, facts);
            }
        }
        // Limits are whole numbers, but are held as floating ones.
        Value::Number(number) => {
            facts.insert(format!("{path} = {}", number.as_f64().unwrap()));
        }
        other => {
            facts.insert(format!("{path} = {other}"));
        }
    }
}

fn undescribed(path: &str, schema: &Value, bare: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) && name != "metadata" {
            bare.push(path.clone());
        }
        undescribed(&path, property, bare);
        undescribed(&path, &property["items"], bare);
    }
}
