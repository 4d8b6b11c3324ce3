//! One cluster: etcd, kube-apiserver, kube-controller-manager and the tasks that play its nodes.
//!
//! It listens on loopback alone, with ports and credentials of its own. Address ranges follow from its index:
//! Services 10.{96+index}.0.0/16, Pods 10.{200+index}.0.0/16, so those of two clusters never overlap.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    apply,
    assets::{Assets, Program},
    background,
    credentials::Credentials,
    directory::Directory,
    node::{self, Nodes},
    ports,
    process::Process,
    wait::wait_at_most,
};

pub(crate) mod arguments;

const START_ATTEMPTS: u32 = 5;
/// Generous: many tests may share two cores.
const START_LIMIT: Duration = Duration::from_secs(180);
const HIGHEST_INDEX: u8 = 50;
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// What a cluster shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// Name of the cluster; names of its nodes start with it.
    pub name: String,
    /// Decides the address ranges; clusters that are joined need different ones. At most 50.
    pub index: u8,
    /// `topology.kubernetes.io/region` of its nodes.
    pub region: String,
    /// `topology.kubernetes.io/zone` of its nodes: one node a zone.
    pub zones: Vec<String>,
    /// Whether to run kube-controller-manager. Without it a cluster takes 100 MB less, and Deployments and
    /// Services have no effect.
    pub controller_manager: bool,
    /// Whether Services and Pods get IPv6 addresses beside those of IPv4.
    pub dual_stack: bool,
}

impl ClusterOptions {
    /// A cluster of one family with two zones (`<region>a`, `<region>b`) and a controller manager.
    pub fn new(name: &str, index: u8, region: &str) -> Self {
        Self {
            name: name.to_owned(),
            index,
            region: region.to_owned(),
            zones: ["a", "b"].map(|zone| format!("{region}{zone}")).into(),
            controller_manager: true,
            dual_stack: false,
        }
    }

    /// The cluster `east` of the tests and the demo.
    pub fn east() -> Self {
        Self::new("east", 0, "us-east-1")
    }

    /// The cluster `west` of the tests and the demo.
    pub fn west() -> Self {
        Self::new("west", 1, "us-west-2")
    }

    /// Addresses of its Services, in the form of kube-apiserver's `--service-cluster-ip-range`.
    pub fn service_ranges(&self) -> String {
        let octet = 96 + self.index;
        let second = if self.dual_stack { format!(",fd00:10:{octet}::/112") } else { String::new() };
        format!("10.{octet}.0.0/16{second}")
    }

    fn kubernetes_service_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.index, 0, 1)
    }
}

/// A running cluster. Dropping it kills its processes and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    // The order matters at drop: tasks, then processes, then the folder they write to.
    nodes: AbortOnDropHandle<()>,
    controller_manager: Option<Process>,
    api_server: Mutex<Option<Process>>,
    etcd: Process,
    options: ClusterOptions,
    assets: Assets,
    ports: Ports,
    credentials: Credentials,
    config: Config,
    directory: Directory,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    etcd: u16,
    api_server: u16,
}

impl Cluster {
    /// Starts a cluster and waits until it takes work. Its tasks do not need the caller's runtime.
    ///
    /// # Errors
    /// Binaries are missing, or a program did not start: the end of its log is in the message.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        ensure!(
            options.index <= HIGHEST_INDEX,
            "index {} of {} is over {HIGHEST_INDEX}",
            options.index,
            options.name
        );
        ensure!(!options.zones.is_empty(), "cluster {} has no zones, so no nodes", options.name);
        let assets = Assets::find()?;
        let name = options.name.clone();
        let starting = background::handle()?.spawn(Self::start_with_retries(options, assets));
        starting.await?.with_context(|| format!("starting cluster {name}"))
    }

    async fn start_with_retries(options: ClusterOptions, assets: Assets) -> Result<Self> {
        for _ in 1..START_ATTEMPTS {
            if let Some(cluster) = Self::try_start(&options, &assets).await? {
                return Ok(cluster);
            }
        }
        bail!("another process took one of the ports in each of {START_ATTEMPTS} attempts")
    }

    /// None when another process took a port in between.
    async fn try_start(options: &ClusterOptions, assets: &Assets) -> Result<Option<Self>> {
        let directory = Directory::create(&options.name)?;
        let ports = Ports { etcd: ports::free_port()?, api_server: ports::free_port()? };
        let service_address = options.kubernetes_service_address();
        let credentials =
            Credentials::create(&options.name, directory.path(), ports.api_server, service_address)?;
        let config = read_kubeconfig(&credentials.admin_kubeconfig()).await?;
        let client = Client::try_from(config.clone())?;

        let etcd_arguments = arguments::etcd(directory.path(), ports.etcd);
        let mut etcd = Process::spawn(assets, Program::Etcd, &etcd_arguments, directory.path())?;
        let server_arguments = arguments::api_server(options, &credentials, ports.etcd, ports.api_server);
        let mut api_server = Process::spawn(assets, Program::ApiServer, &server_arguments, directory.path())?;
        if let Err(error) = wait_until_ready(&client, &mut [&mut etcd, &mut api_server]).await {
            if etcd.lost_its_port() || api_server.lost_its_port() {
                return Ok(None);
            }
            return Err(error);
        }

        let controller_manager = if options.controller_manager {
            let arguments = arguments::controller_manager(&credentials);
            Some(Process::spawn(assets, Program::ControllerManager, &arguments, directory.path())?)
        } else {
            None
        };
        let nodes = Nodes::create(&client, options).await?;
        let nodes = AbortOnDropHandle::new(tokio::spawn(node::run(client, nodes)));
        Ok(Some(Self {
            nodes,
            controller_manager,
            api_server: Mutex::new(Some(api_server)),
            etcd,
            options: options.clone(),
            assets: assets.clone(),
            ports,
            credentials,
            config,
            directory,
        }))
    }

    /// What it was started with.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// `https://127.0.0.1:<port>` of its API server.
    pub fn server_url(&self) -> &str {
        self.credentials.server()
    }

    /// How to connect as an administrator.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A kubeconfig file of an administrator.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.credentials.admin_kubeconfig()
    }

    /// Where its logs are.
    pub fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// The ids of its processes.
    pub fn process_ids(&self) -> Vec<u32> {
        let api_server = self.api_server.lock().unwrap_or_else(PoisonError::into_inner);
        let processes = [Some(&self.etcd), api_server.as_ref(), self.controller_manager.as_ref()];
        processes.into_iter().flatten().map(Process::id).collect()
    }

    /// A new client of an administrator. Its connections belong to the runtime of the caller: do not keep it
    /// in what tests share.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> Client {
        Client::try_from(self.config())
            .unwrap_or_else(|error| panic!("the credentials of cluster {} are gone: {error}", self.name()))
    }

    /// A kubeconfig file with a token of a ServiceAccount, which is made when there is none: what runs with it
    /// may do what RBAC allows that account and nothing else. The namespace must exist.
    ///
    /// # Errors
    /// The API server refused to make the account or the token.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        if accounts.get_opt(name).await?.is_none() {
            let mut account = ServiceAccount::default();
            account.metadata.name = Some(name.to_owned());
            match accounts.create(&PostParams::default(), &account).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                made => drop(made.with_context(|| format!("making ServiceAccount {namespace}/{name}"))?),
            }
        }
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() },
            ..Default::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.context("a TokenRequest without a status came back")?.token;
        self.credentials.write_token_kubeconfig(&format!("{namespace}-{name}"), &token)
    }

    /// A client with the permissions of a ServiceAccount, as [`Cluster::kubeconfig_for_service_account`].
    ///
    /// # Errors
    /// As there.
    pub async fn client_for_service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        let path = self.kubeconfig_for_service_account(namespace, name).await?;
        Ok(Client::try_from(read_kubeconfig(&path).await?)?)
    }

    /// Brings YAML or JSON documents of any kinds into the cluster, see [`apply::apply_yaml`].
    ///
    /// # Errors
    /// As there.
    pub async fn apply_yaml(&self, documents: &str) -> Result<()> {
        apply::apply_yaml(&self.client(), documents)
            .await
            .with_context(|| format!("applying to cluster {}", self.name()))
    }

    /// Ends the API server, as an outage would. Data and port stay for [`Cluster::start_api_server`].
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop_api_server(&self) -> Result<()> {
        let running = self.api_server.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running {
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }

    /// Kills the API server with SIGKILL. Data and port stay for [`Cluster::start_api_server`].
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill_api_server(&self) -> Result<()> {
        let running = self.api_server.lock().unwrap_or_else(PoisonError::into_inner).take();
        match running {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Starts the API server that was stopped or killed, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start: the end of its log is in the message.
    pub async fn start_api_server(&self) -> Result<()> {
        let folder = self.directory.path();
        let Ports { etcd, api_server } = self.ports;
        let arguments = arguments::api_server(&self.options, &self.credentials, etcd, api_server);
        let mut process = Process::spawn(&self.assets, Program::ApiServer, &arguments, folder)?;
        wait_until_ready(&self.client(), &mut [&mut process]).await?;
        *self.api_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(())
    }

    /// [`Cluster::stop_api_server`], then [`Cluster::start_api_server`].
    ///
    /// # Errors
    /// As these.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server().await?;
        self.start_api_server().await
    }

    /// Ends the cluster and waits until its processes are gone. Dropping it does the same by force.
    ///
    /// # Errors
    /// A process does not end.
    pub async fn stop(self) -> Result<()> {
        drop(self.nodes);
        if let Some(process) = self.controller_manager {
            process.stop().await?;
        }
        let api_server = self.api_server.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = api_server {
            process.stop().await?;
        }
        self.etcd.stop().await
    }
}

async fn read_kubeconfig(path: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // HTTPS_PROXY of the environment is not for loopback.
    config.proxy_url = None;
    Ok(config)
}

/// Waits until the API server has its own objects too: Namespaces are made after it reports to be ready.
async fn wait_until_ready(client: &Client, processes: &mut [&mut Process]) -> Result<()> {
    let ready = wait_at_most(START_LIMIT, "an API server that is ready", || {
        let running = processes.iter_mut().try_for_each(|process| process.check());
        let client = client.clone();
        async move {
            if running.is_err() {
                return Ok(running);
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            Api::<Namespace>::all(client).get("default").await?;
            anyhow::Ok(running)
        }
    })
    .await;
    match ready {
        Ok(ready_or_ended) => ready_or_ended,
        Err(error) => {
            let tails: Vec<String> = processes.iter().map(|process| process.log_tail()).collect();
            Err(error.context(tails.join("\n")))
        }
    }
}
