//! The discovery service in `west`.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Result;
use global_discovery_client::{Client, Settings};
use mcs_runtime::clock::SystemClock;
use serde_json::Value;

use crate::{
    Cluster,
    programs::{Program, free_address},
    stack::get,
};

const NAME: &str = "global-discovery-service";
const NAMESPACE: &str = "global-discovery";
/// The namespace and the permissions of the service.
const RBAC: &str = include_str!("../../../discovery/deploy/rbac.yaml");

/// A running discovery service.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// The process.
    pub(crate) program: Program,
    address: SocketAddr,
}

impl Discovery {
    /// Starts it in a cluster, with its checked-in permissions.
    pub(crate) async fn start(cluster: &Cluster, folder: &Path, flags: &[String]) -> Result<Self> {
        cluster.apply_yaml(RBAC).await?;
        let kubeconfig = cluster.kubeconfig_for_service_account(NAMESPACE, NAME).await?;
        let address = free_address()?;
        // No Service in front of it has to learn first that it ends.
        let own = [
            "--pool-discovery=mcs".to_owned(),
            "--drain-delay-secs=0".to_owned(),
            format!("--listen={address}"),
        ];
        let arguments = [own.as_slice(), flags].concat();
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        let mut program = Program::start(NAME, NAME, folder, &arguments, &environment).await?;
        program.ready(&format!("http://{address}/healthz")).await?;
        Ok(Self { program, address })
    }

    /// A URL of its API.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// A client of it, as relays and routers have.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(&Settings::of([format!("http://{}", self.address)]), Arc::new(SystemClock))?)
    }

    /// What it answers.
    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&get(&self.url(path)).await?)?)
    }
}
