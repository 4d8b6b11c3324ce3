//! One cluster of kind, and what is done in it.

use std::{net::Ipv4Addr, path::PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::tools::Tools;
use crate::apply::apply_yaml;

/// What the names of our clusters begin with.
const PREFIX: &str = "mcs-e2e-";

/// A cluster before it is there: its name decides nothing, its index all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its id in the clusterset.
    pub(crate) name: &'static str,
    /// Decides its addresses.
    pub(crate) index: u8,
    /// The region of its node.
    pub(crate) region: &'static str,
}

/// The clusters.
pub(crate) const PLANS: [Plan; 3] = [
    Plan { name: "east", index: 0, region: "eu-west-1" },
    Plan { name: "west", index: 1, region: "us-east-1" },
    Plan { name: "north", index: 2, region: "eu-north-1" },
];

impl Plan {
    /// What kind calls it.
    pub(crate) fn kind_name(self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// Its node, which is a container of that name.
    pub(crate) fn node(self) -> String {
        format!("{PREFIX}{}-control-plane", self.name)
    }

    /// Addresses of its Pods, no other cluster's.
    pub(crate) fn pods(self) -> String {
        format!("10.{}.0.0/16", 11 + self.index)
    }

    /// Addresses of its Services, no other cluster's.
    pub(crate) fn services(self) -> String {
        format!("10.{}.0.0/16", 111 + self.index)
    }

    /// Addresses of its load balancers.
    pub(crate) fn edge(self) -> String {
        format!("10.201.{}.0/24", self.index)
    }

    /// The address of a Service of type LoadBalancer, by its place in [`super::network::BALANCED`].
    pub(crate) fn balancer(self, place: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 201, self.index, place + 1)
    }

    /// What kind makes it of, in JSON, which is YAML.
    pub(crate) fn configuration(self) -> Value {
        let labels = json!({
            "topology.kubernetes.io/region": self.region,
            "topology.kubernetes.io/zone": format!("{}a", self.region),
        });
        json!({
            "kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4",
            "networking": { "podSubnet": self.pods(), "serviceSubnet": self.services() },
            "nodes": [{ "role": "control-plane", "labels": labels }],
        })
    }
}

/// A cluster that runs.
#[derive(Clone)]
pub(crate) struct Member {
    /// How it was made.
    pub(crate) plan: Plan,
    /// A client of its API server.
    pub(crate) client: Client,
    tools: Tools,
}

impl Member {
    /// The cluster of a plan, whose kubeconfig lies in the folder of the tools.
    pub(crate) async fn open(plan: Plan, tools: &Tools) -> Result<Self> {
        let path = kubeconfig(plan, tools);
        let kubeconfig = Kubeconfig::read_from(&path);
        let kubeconfig = kubeconfig.with_context(|| format!("{}: run `make e2e-up`", path.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { plan, client: Client::try_from(config)?, tools: tools.clone() })
    }

    /// Its id in the clusterset.
    pub(crate) fn name(&self) -> &'static str {
        self.plan.name
    }

    /// Objects of a kind in a namespace.
    pub(crate) fn api<T>(&self, namespace: &str) -> Api<T>
    where
        T: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Runs kubectl.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(arguments, "").await
    }

    /// Runs kubectl with a text on its standard input.
    pub(crate) async fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let path = kubeconfig(self.plan, &self.tools).display().to_string();
        let arguments = [&["--kubeconfig", path.as_str()], arguments].concat();
        self.tools.pipe("kubectl", &arguments, input).await
    }

    /// Runs helm.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let path = kubeconfig(self.plan, &self.tools).display().to_string();
        let arguments = [&["--kubeconfig", path.as_str()], arguments].concat();
        self.tools.run(self.tools.helm(), &arguments).await
    }

    /// Runs docker, as for the container that is its node.
    pub(crate) async fn docker(&self, arguments: &[&str]) -> Result<String> {
        self.tools.run("docker", arguments).await
    }

    /// Runs a program on its node.
    pub(crate) async fn on_node(&self, command: &[&str]) -> Result<String> {
        let node = self.plan.node();
        self.docker(&[&["exec", node.as_str()], command].concat()).await
    }

    /// Brings objects into it.
    pub(crate) async fn apply(&self, documents: &[Value]) -> Result<()> {
        let documents: Vec<_> = documents.iter().map(Value::to_string).collect();
        let applied = apply_yaml(&self.client, &documents.join("\n---\n")).await;
        applied.with_context(|| format!("in cluster {}", self.name()))
    }

    /// What a port in it answers, asked through its API server: `path` is as in
    /// `namespaces/shop/pods/client:8081/proxy/`.
    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        let request = http::Request::get(format!("/api/v1/{path}")).body(Vec::new())?;
        let answer = self.client.request_text(request).await;
        answer.with_context(|| format!("asking cluster {} for {path}", self.name()))
    }

    /// The address of its node, and the addresses of the Pods there.
    pub(crate) async fn node_addresses(&self) -> Result<(String, String)> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let listed = nodes.list(&ListParams::default()).await?;
        let node = listed.items.into_iter().next().context("no node")?;
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        let address = addresses.into_iter().find(|address| address.type_ == "InternalIP");
        let pods = node.spec.and_then(|spec| spec.pod_cidr).context("the node has no addresses of Pods")?;
        Ok((address.context("the node has no address")?.address, pods))
    }
}

/// Where the kubeconfig of a cluster lies.
pub(crate) fn kubeconfig(plan: Plan, tools: &Tools) -> PathBuf {
    tools.folder().join(format!("kubeconfig-{}", plan.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_clusters_share_an_address() {
        let ranges = PLANS.iter().flat_map(|plan| [plan.pods(), plan.services(), plan.edge()]);
        let ranges: Vec<_> = ranges.collect();
        let different: BTreeSet<_> = ranges.iter().collect();
        assert_eq!(different.len(), ranges.len());
        assert_eq!(PLANS[1].balancer(0), Ipv4Addr::new(10, 201, 1, 1));
    }
}
