//! The discovery service in `west`, and the relay of a pool that registers with it.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

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

    /// What it answers.
    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&get(&self.url(path)).await?)?)
    }
}

/// Registers a pool again and again, as the lease asks, until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    _heartbeat: AbortOnDropHandle<()>,
}

/// What the discovery service grants.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Lease {
    /// How long the pool stays listed.
    pub(crate) lease_duration_secs: u64,
    /// How often it should register.
    pub(crate) heartbeat_interval_secs: u64,
}

impl Relay {
    /// Registers the pool for the first time, and goes on.
    pub(crate) async fn start(discovery: &Discovery, registration: &Value) -> Result<(Self, Lease)> {
        let (url, body) = (discovery.url("pools"), Bytes::from(registration.to_string()));
        let lease = register(&url, &body).await?;
        let heartbeat = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(lease.heartbeat_interval_secs)).await;
                // A service that does not answer now is asked at the next heartbeat.
                let _ = register(&url, &body).await;
            }
        });
        Ok((Self { _heartbeat: AbortOnDropHandle::new(heartbeat) }, lease))
    }
}

async fn register(url: &str, body: &Bytes) -> Result<Lease> {
    let client: HttpClient<_, Full<Bytes>> = HttpClient::builder(TokioExecutor::new()).build_http();
    let request =
        Request::post(url).header(CONTENT_TYPE, "application/json").body(Full::new(body.clone()))?;
    let answer = client.request(request).await.with_context(|| format!("registering at {url}"))?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "POST {url} answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}
