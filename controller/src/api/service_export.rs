//! ServiceExport: "the Service of this name is for the whole clusterset" (KEP-1645: exporting services).

use super::{Condition, null_as_default, resource};
use mcs_core::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

resource! {
    /// Asks for the Service of the same namespace and name to be usable in every cluster of the clusterset.
    ServiceExport { spec: ServiceExportSpec, status: ServiceExportStatus },
    group: names::MCS_GROUP, plural: names::RESOURCE_SERVICE_EXPORTS, scope: kube::core::NamespaceResourceScope,
    version: |_dt: &()| names::MCS_VERSION
}

/// What else is exported with the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportSpec {
    /// Annotations that the ServiceImport carries in every cluster. The oldest export's are taken.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_annotations: BTreeMap<String, String>,
    /// Labels that the ServiceImport carries in every cluster. The oldest export's are taken.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_labels: BTreeMap<String, String>,
}

/// What became of the export, told by the implementation of the Multi-Cluster Services API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportStatus {
    /// Valid: the Service can be exported. Ready: it is exported. Conflict: exports of other clusters differ from it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
