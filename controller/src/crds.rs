//! The CustomResourceDefinitions, made from the types of [`crate::api`].
//!
//! ServiceExport and ServiceImport have the structure of mcs-api v0.5.2, ClusterProperty that of about-api's v1beta1,
//! with descriptions of our own. Old and new version of a kind have one schema, as upstream, so no conversion is
//! needed. The YAML in `crds/` is written from here and checked for drift by a test; [`apply_crds`] brings the same to a
//! cluster.

mod apply;

pub use apply::{ApplyFailed, Outcome, apply_crds};

use crate::api::{
    ClusterPropertySpec, ClusterPropertyStatus, ServiceExportSpec, ServiceExportStatus, ServiceImportSpec,
    ServiceImportStatus,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use mcs_core::names;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// The release of mcs-api whose schema the CRDs have; they carry it as a label.
pub const RELEASE: &str = "v0.5.2";

/// The revision of the schema within [`RELEASE`]; they carry it as a label.
pub const REVISION: &str = "0";

/// All CRDs, by name.
///
/// # Errors
/// A schema that is not one a CRD can have; only a change of the types can cause it, and tests would show it.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [cluster_properties(), service_exports(), service_imports()]
        .into_iter()
        .map(serde_json::from_value)
        .collect()
}

fn service_exports() -> Value {
    let schema = root(
        "Asks for the Service of the same namespace and name to be usable in every cluster of the clusterset.",
        schema_of::<ServiceExportSpec>(),
        Some(schema_of::<ServiceExportStatus>()),
    );
    let columns = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    mcs_crd(
        names::RESOURCE_SERVICE_EXPORTS,
        names::KIND_SERVICE_EXPORT,
        &["svcex", "svcexport"],
        &json!({"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}, "additionalPrinterColumns": columns}),
    )
}

fn service_imports() -> Value {
    let schema = root(
        "A Service that clusters of the clusterset export, as it is usable in this cluster.",
        schema_of::<ServiceImportSpec>(),
        Some(schema_of::<ServiceImportStatus>()),
    );
    let columns = json!([
        {"name": "Type", "type": "string", "description": "ClusterSetIP or Headless", "jsonPath": ".spec.type"},
        {"name": "IP", "type": "string", "description": "The addresses of the Service here", "jsonPath": ".spec.ips"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    mcs_crd(
        names::RESOURCE_SERVICE_IMPORTS,
        names::KIND_SERVICE_IMPORT,
        &["svcim", "svcimport"],
        &json!({"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}, "additionalPrinterColumns": columns}),
    )
}

/// A CRD of the MCS API: both versions have the schema and columns of `version`, the newer one is stored.
fn mcs_crd(plural: &str, kind: &str, short_names: &[&str], version: &Value) -> Value {
    let named =
        |name: &str, storage: bool| with(version, &json!({"name": name, "served": true, "storage": storage}));
    json!({
        "metadata": {
            "name": format!("{plural}.{}", names::MCS_GROUP),
            "labels": {names::LABEL_CRD_RELEASE: RELEASE, names::LABEL_CRD_REVISION: REVISION},
        },
        "spec": {
            "group": names::MCS_GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "shortNames": short_names},
            "versions": [named(names::MCS_VERSION_OLD, false), named(names::MCS_VERSION, true)],
        },
    })
}

fn cluster_properties() -> Value {
    let description = "A property of this cluster; the name of the object is the name of the property.";
    let mut old = root(description, schema_of::<ClusterPropertySpec>(), None);
    if let Some(schema) = old.as_object_mut() {
        schema.insert("required".to_owned(), json!(["spec"]));
    }
    let new =
        root(description, schema_of::<ClusterPropertySpec>(), Some(schema_of::<ClusterPropertyStatus>()));
    let columns = json!([
        {"name": "value", "type": "string", "jsonPath": ".spec.value"},
        {"name": "age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let plural = names::RESOURCE_CLUSTER_PROPERTIES;
    let kind = names::KIND_CLUSTER_PROPERTY;
    json!({
        "metadata": {
            "name": format!("{plural}.{}", names::ABOUT_GROUP),
            // The API server refuses CRDs of a `*.k8s.io` group that do not name their review.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/issues/2149"},
        },
        "spec": {
            "group": names::ABOUT_GROUP,
            "scope": "Cluster",
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
            },
            "versions": [
                {
                    "name": names::ABOUT_VERSION_OLD, "served": true, "storage": false,
                    "additionalPrinterColumns": columns, "subresources": {}, "schema": {"openAPIV3Schema": old},
                },
                {
                    "name": names::ABOUT_VERSION, "served": true, "storage": true,
                    "additionalPrinterColumns": columns, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": new},
                },
            ],
        },
    })
}

/// The schema of a whole object.
fn root(description: &str, spec: Value, status: Option<Value>) -> Value {
    let mut properties = json!({
        "apiVersion": {
            "type": "string",
            "description": "The group and version of the schema that this object is written in.",
        },
        "kind": {"type": "string", "description": "The name of the schema that this object is written in."},
        "metadata": {"type": "object"},
        "spec": spec,
    });
    if let (Some(status), Some(properties)) = (status, properties.as_object_mut()) {
        properties.insert("status".to_owned(), status);
    }
    json!({"type": "object", "description": description, "properties": properties})
}

/// The structural schema of one of our types: no references, no null beside a type, no default, prose in one line.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(structural).transform(&mut schema);
    schema.to_value()
}

fn structural(schema: &mut Schema) {
    schema.remove("title");
    schema.remove("default");
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type")
        && let Some(kept) = types.iter().find(|kind| kind.as_str() != Some("null")).cloned()
    {
        schema.insert("type".to_owned(), kept);
    }
}

/// The fields of both objects.
fn with(object: &Value, more: &Value) -> Value {
    let fields = [object, more].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}
