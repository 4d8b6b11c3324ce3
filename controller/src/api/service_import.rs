//! ServiceImport: a Service of the clusterset as one cluster sees it (KEP-1645: importing services).

use super::{Condition, null_as_default, resource};
use mcs_core::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

resource! {
    /// A Service that clusters of the clusterset export, as it is usable in this cluster.
    ServiceImport { spec: ServiceImportSpec, status: ServiceImportStatus },
    group: names::MCS_GROUP, plural: names::RESOURCE_SERVICE_IMPORTS, scope: kube::core::NamespaceResourceScope,
    version: |_dt: &()| names::MCS_VERSION
}

/// How the Service is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["ports", "type"]))]
pub struct ServiceImportSpec {
    /// Which endpoints take the traffic of this cluster: all of them (Cluster, the default), or only those on the
    /// client's own node (Local).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// The address families of the Service, IPv4 or IPv6, the primary one first.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub ip_families: Vec<String>,
    /// The addresses by which this cluster reaches a Service of type ClusterSetIP.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub ips: Vec<String>,
    /// The ports of the Service.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ImportPort>,
    /// Whether the connections of one client address stay with one endpoint: ClientIP or None (the default). Of no
    /// meaning for a Headless Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// For how long they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Which endpoints are preferred, for example PreferClose for those of the client's zone. A wish, not a promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
    /// ClusterSetIP (reached through an address of this cluster) or Headless (by the endpoints' own addresses).
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    #[schemars(extend("enum" = ["ClusterSetIP", "Headless"]))]
    pub type_: String,
}

/// A port of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["port"]))]
pub struct ImportPort {
    /// The application protocol, such as http or kubernetes.io/h2c: a hint for what carries the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// The name of the port; EndpointSlices call it the same. Needed where there is more than one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of the port.
    #[serde(default, deserialize_with = "null_as_default")]
    pub port: i32,
    /// TCP (the default), UDP or SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// The configuration of session affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionAffinityConfig {
    /// The configuration of affinity by client address.
    #[serde(rename = "clientIP", default, skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// The configuration of affinity by client address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// For how long a client stays with its endpoint, in seconds: 1 to 86400, by default 10800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

/// Where the Service comes from, and whether it is usable here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportStatus {
    /// The clusters whose endpoints make up the Service.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    pub clusters: Vec<ClusterStatus>,
    /// Ready: the Service is usable in this cluster.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Whether the imported endpoints are here as EndpointSlices: Present or Absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Present", "Absent"]))]
    pub endpoint_slice_objects: Option<String>,
}

/// A cluster that the Service comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["cluster"]))]
pub struct ClusterStatus {
    /// The id of the cluster, a DNS label.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cluster: String,
}
