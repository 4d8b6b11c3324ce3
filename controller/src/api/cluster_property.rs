//! ClusterProperty: what a cluster says of itself, such as its id and its clusterset (KEP-2149).

use super::{null_as_default, resource};
use mcs_core::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

resource! {
    /// A property of this cluster; the name of the object is the name of the property.
    ClusterProperty { spec: ClusterPropertySpec, status: ClusterPropertyStatus },
    group: names::ABOUT_GROUP, plural: names::RESOURCE_CLUSTER_PROPERTIES, scope: kube::core::ClusterResourceScope,
    version: |version: &AboutVersion| version.as_str()
}

/// The version of `about.k8s.io` in use; a cluster may serve the older one only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AboutVersion {
    /// Where it is served.
    #[default]
    V1beta1,
    /// Else.
    V1alpha1,
}

impl AboutVersion {
    /// As it stands in `apiVersion`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1beta1 => names::ABOUT_VERSION,
            Self::V1alpha1 => names::ABOUT_VERSION_OLD,
        }
    }
}

/// The value of the property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["value"]))]
pub struct ClusterPropertySpec {
    /// The value; what it means depends on the property.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 1))]
    pub value: String,
}

/// Nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPropertyStatus {}
