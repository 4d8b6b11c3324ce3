//! The custom resources this program reads and writes: ServiceExport and ServiceImport of `multicluster.x-k8s.io`
//! (KEP-1645) and ClusterProperty of `about.k8s.io` (KEP-2149).
//!
//! The types decode whatever a server may hold: `spec` and `status` may be absent, lists and maps may be null, and
//! what the API calls an enum is a `String`, since what does not decode is skipped by its watch. Meaning is
//! given to the values in `facts`. The CRDs are generated from the same types ([`crate::crds`]); the doc
//! comments of their fields are the descriptions that `kubectl explain` shows.

mod cluster_property;
mod service_export;
mod service_import;

pub use cluster_property::{AboutVersion, ClusterProperty, ClusterPropertySpec, ClusterPropertyStatus};
pub use service_export::{ServiceExport, ServiceExportSpec, ServiceExportStatus};
pub use service_import::{
    ClientIpConfig, ClusterStatus, ImportPort, ServiceImport, ServiceImportSpec, ServiceImportStatus,
    SessionAffinityConfig,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// One aspect of the state of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["lastTransitionTime", "message", "reason", "status", "type"]))]
pub struct Condition {
    /// When the condition's status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Option<Time>,
    /// What a person should know of the last change of status. May be empty.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The `metadata.generation` of the object that the condition speaks of. A lower number than the object's own
    /// means that the condition is out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The cause of the last change of status, in CamelCase; several are joined with commas.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Whether the condition holds: True, False or Unknown.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The name of the condition, in CamelCase, where needed after a domain and a slash.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
}

/// Reads null like an absent field: the API server writes null for empty lists of objects made by Go programs.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Makes a custom resource with optional `spec` and `status`; `$dynamic` tells its version where more than one is used.
macro_rules! resource {
    (
        $(#[$doc:meta])*
        $name:ident { spec: $spec:ty, status: $status:ty },
        group: $group:expr, plural: $plural:expr, scope: $scope:ty,
        version: |$dt:ident: &$dynamic:ty| $version:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $name {
            /// Name, labels, annotations and the like.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted; objects without one are valid.
            #[serde(default)]
            pub spec: Option<$spec>,
            /// What is; written by controllers.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl kube::Resource for $name {
            type DynamicType = $dynamic;
            type Scope = $scope;

            fn kind(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version($dt: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $name {
            /// Writes the object as the API server wants it, `apiVersion` and `kind` first.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let dynamic = Default::default();
                let fields = 3 + usize::from(self.spec.is_some()) + usize::from(self.status.is_some());
                let mut object = serializer.serialize_struct(stringify!($name), fields)?;
                object.serialize_field("apiVersion", &<Self as kube::Resource>::api_version(&dynamic))?;
                object.serialize_field("kind", &<Self as kube::Resource>::kind(&dynamic))?;
                object.serialize_field("metadata", &self.metadata)?;
                if let Some(spec) = &self.spec {
                    object.serialize_field("spec", spec)?;
                }
                if let Some(status) = &self.status {
                    object.serialize_field("status", status)?;
                }
                object.end()
            }
        }
    };
}
pub(crate) use resource;
