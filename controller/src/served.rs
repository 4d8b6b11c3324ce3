//! Whether the API server serves the MCS API, and keeps all that this controller writes.
//!
//! A CRD of an older release serves the version that is asked for, and drops the fields that it does not know: half an
//! object would be stored, and written again for ever. The OpenAPI document of the version has the schema; everybody
//! who may use the API server may read it (Kubernetes: the ClusterRole `system:discovery`), unlike the CRD itself. Where
//! it cannot be read, nothing is taken to be missing.
//!
//! One field may be missing, since an import is complete without: `status.endpointSliceObjects` of a ServiceImport, which
//! came with mcs-api v0.5.2.

use crate::crds::crds;
use crate::discover::Unknown;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use mcs_core::names::{
    MCS_API_VERSION, MCS_GROUP, MCS_VERSION, RESOURCE_SERVICE_EXPORTS, RESOURCE_SERVICE_IMPORTS,
};
use serde_json::{Value, json};
use tracing::debug;

/// The field of ServiceImports that may be missing.
const MAY_LACK: &str = "status.endpointSliceObjects";

/// What the API server keeps of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// `status.endpointSliceObjects` of ServiceImports.
    pub(crate) slices_present: bool,
}

/// Asks the API server.
pub(crate) async fn ask(client: &Client) -> Result<Served, Unknown> {
    let served = match client.list_api_group_resources(MCS_API_VERSION).await {
        Ok(served) => served.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(Unknown::Refused(error)),
    };
    for wanted in [RESOURCE_SERVICE_EXPORTS, RESOURCE_SERVICE_IMPORTS] {
        if !served.iter().any(|resource| resource.name == wanted) {
            return Err(Unknown::NotServed(wanted));
        }
    }
    let path = format!("/openapi/v3/apis/{MCS_API_VERSION}");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
    let document = match client.request(request.map_err(Unknown::Refused)?).await {
        Ok(document) => document,
        // The API server publishes it a moment after it serves the CRD.
        Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
            debug!(answer = status.message, "the schema of the CRDs cannot be read");
            Value::Null
        }
        Err(error) => return Err(Unknown::Refused(error)),
    };
    let ours = crds().map_err(|error| Unknown::Refused(kube::Error::SerdeError(error)))?;
    judge(&ours, &document)
}

/// Compares the schemas of our CRDs with those of an OpenAPI document.
fn judge(ours: &[CustomResourceDefinition], document: &Value) -> Result<Served, Unknown> {
    let mut slices_present = true;
    let mut lacking = Vec::new();
    for crd in ours.iter().filter(|crd| crd.spec.group == MCS_GROUP) {
        let Some(theirs) = published(document, &crd.spec.names.kind) else { continue };
        let mut fields = Vec::new();
        for part in ["spec", "status"] {
            compare(&schema(crd)["properties"][part], &theirs["properties"][part], part, &mut fields);
        }
        if crd.spec.names.plural == RESOURCE_SERVICE_IMPORTS {
            let all = fields.len();
            fields.retain(|field| field != MAY_LACK);
            slices_present = fields.len() == all;
        }
        if !fields.is_empty() {
            lacking.push(format!("{}: {}", crd.spec.names.plural, fields.join(", ")));
        }
    }
    match lacking.is_empty() {
        true => Ok(Served { slices_present }),
        false => Err(Unknown::TooOld(lacking.join("; "))),
    }
}

/// The schema that an OpenAPI document has of a kind.
fn published<'a>(document: &'a Value, kind: &str) -> Option<&'a Value> {
    let wanted = json!([{ "group": MCS_GROUP, "kind": kind, "version": MCS_VERSION }]);
    let schemas = document["components"]["schemas"].as_object()?;
    schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == wanted)
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.iter().find(|version| version.name == MCS_VERSION);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    serde_json::to_value(schema).unwrap_or_default()
}

/// Adds the fields of `ours` that `theirs`, the schema at the same place, would drop.
fn compare(ours: &Value, theirs: &Value, place: &str, lacking: &mut Vec<String>) {
    if theirs["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if theirs.is_null() {
        lacking.push(place.to_owned());
        return;
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        compare(field, &theirs["properties"][name], &format!("{place}.{name}"), lacking);
    }
    if !ours["items"].is_null() {
        compare(&ours["items"], &theirs["items"], &format!("{place}[]"), lacking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the schema of ServiceImports.
    type Change = fn(&mut Value);

    /// An OpenAPI document of our CRDs, after a change.
    fn document(change: Change) -> Value {
        let schemas = crds().unwrap().into_iter().map(|crd| {
            let mut schema = schema(&crd);
            let kind = crd.spec.names.kind.clone();
            if crd.spec.names.plural == RESOURCE_SERVICE_IMPORTS {
                change(&mut schema["properties"]);
            }
            let named = json!([{ "group": crd.spec.group, "kind": kind, "version": MCS_VERSION }]);
            schema["x-kubernetes-group-version-kind"] = named;
            (kind, schema)
        });
        json!({ "components": { "schemas": schemas.collect::<serde_json::Map<_, _>>() } })
    }

    fn remove(part: &mut Value, field: &str) {
        part["properties"].as_object_mut().unwrap().remove(field);
    }

    #[test]
    fn a_schema_may_lack_what_tells_that_there_are_slices_and_nothing_else() {
        let cases: [(Change, Result<bool, &str>); 6] = [
            (|_| {}, Ok(true)),
            (|it| remove(&mut it["status"], "endpointSliceObjects"), Ok(false)),
            (|it| it["status"] = json!({ "x-kubernetes-preserve-unknown-fields": true }), Ok(true)),
            (
                |it| {
                    remove(&mut it["spec"], "ips");
                    remove(&mut it["spec"]["properties"]["ports"]["items"], "appProtocol");
                },
                Err("serviceimports: spec.ips, spec.ports[].appProtocol"),
            ),
            (|it| it["status"] = Value::Null, Err("serviceimports: status")),
            (
                |it| remove(&mut it["status"]["properties"]["conditions"]["items"], "observedGeneration"),
                Err("serviceimports: status.conditions[].observedGeneration"),
            ),
        ];
        for (change, wanted) in cases {
            let found = judge(&crds().unwrap(), &document(change)).map_err(|unknown| match unknown {
                Unknown::TooOld(fields) => fields,
                other => other.to_string(),
            });
            assert_eq!(found, wanted.map(|slices_present| Served { slices_present }).map_err(str::to_owned));
        }
    }

    #[test]
    fn what_cannot_be_read_is_taken_to_be_as_it_should_be() {
        for document in [Value::Null, json!({ "components": { "schemas": {} } })] {
            let found = judge(&crds().unwrap(), &document);
            assert_eq!(found.map_err(|unknown| unknown.to_string()), Ok(Served { slices_present: true }));
        }
    }
}
