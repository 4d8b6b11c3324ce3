//! A registry with a controller in each of some clusters, as users run them: processes with flags, and with the
//! permissions of the checked-in RBAC files.
//!
//! Tests that share clusters keep apart by clusterset, Lease and namespace: each has a [`Stack`] of its own whose
//! controllers watch only the test's namespace.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request, body::Bytes};
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
use serde_json::Value;

use crate::{
    Cluster,
    directory::Directory,
    permissions::{self, CONTROLLER_ACCOUNT},
    programs::{Program, Signal, free_address},
};

/// How a stack differs from the default.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The clusterset; unique among the stacks of a cluster.
    pub clusterset: String,
    /// The namespaces that controllers watch; all when empty.
    pub watch_namespaces: Vec<String>,
    /// The registry's lease.
    pub lease: Duration,
    /// Further flags of every controller.
    pub controller_flags: Vec<String>,
    /// Further flags of the registry.
    pub registry_flags: Vec<String>,
    /// What the registry has in its environment besides that of this process.
    pub registry_environment: Vec<(&'static str, String)>,
    /// Where controllers look for registries, in order; at the registry of the stack, in plaintext, when empty.
    pub registry_urls: Vec<String>,
}

impl StackOptions {
    /// A stack whose controllers watch one namespace, with a lease of 3 s so that everything is ten times as fast.
    pub fn for_namespace(namespace: &str) -> Self {
        Self {
            clusterset: namespace.to_owned(),
            watch_namespaces: vec![namespace.to_owned()],
            lease: Duration::from_secs(3),
            controller_flags: Vec::new(),
            registry_flags: Vec::new(),
            registry_environment: Vec::new(),
            registry_urls: Vec::new(),
        }
    }
}

/// A running registry and its controllers.
#[derive(Debug)]
pub struct Stack {
    options: StackOptions,
    folder: Directory,
    registry: RegistryAddresses,
    running: Option<Program>,
    starts: u32,
    controllers: BTreeMap<String, Controller>,
    discovers_identity: bool,
    /// The kubeconfig files of controllers by cluster. A new one cannot be made while an API server is away.
    kubeconfigs: Mutex<BTreeMap<String, PathBuf>>,
}

/// Where a registry listens; the same after a restart.
#[derive(Clone, Copy, Debug)]
pub struct RegistryAddresses {
    /// gRPC, for controllers.
    pub grpc: SocketAddr,
    /// REST.
    pub rest: SocketAddr,
    /// Metrics and probes.
    pub admin: SocketAddr,
}

/// One replica of a controller.
#[derive(Debug)]
pub struct Controller {
    /// The process.
    pub program: Program,
    /// Metrics and probes.
    pub admin: SocketAddr,
}

/// Prepares a cluster for controllers of all namespaces that run in the namespace `system`: CRDs by `mcs-controller
/// apply-crds`, namespace, permissions. Again is harmless.
///
/// # Errors
/// The API server refused, or the program failed.
pub async fn prepare(cluster: &Cluster, system: &str, folder: &Path) -> Result<()> {
    apply_crds(cluster, folder).await?;
    permissions::permit_everywhere(cluster, system).await
}

async fn apply_crds(cluster: &Cluster, folder: &Path) -> Result<()> {
    let environment = [("KUBECONFIG", cluster.kubeconfig_path().display().to_string())];
    let name = format!("apply-crds-{}", cluster.name());
    let mut program =
        Program::start("mcs-controller", &name, folder, &["apply-crds".to_owned()], &environment).await?;
    let status = program.ended().await?;
    anyhow::ensure!(status.success(), "mcs-controller apply-crds failed: {}", program.log_tail());
    Ok(())
}

impl Stack {
    /// Starts a registry, and one controller in each of `clusters`.
    ///
    /// # Errors
    /// Something did not start; the message has the end of its log.
    pub async fn start(options: StackOptions, clusters: &[&Cluster]) -> Result<Self> {
        let mut stack = Self::start_without_controllers(options).await?;
        stack.start_controllers(clusters).await?;
        Ok(stack)
    }

    /// Starts a registry; controllers come by [`prepare`] and [`Stack::start_controller`].
    ///
    /// # Errors
    /// It did not start; the message has the end of its log.
    pub async fn start_without_controllers(options: StackOptions) -> Result<Self> {
        let folder = Directory::create(&format!("stack-{}", options.clusterset))?;
        let registry =
            RegistryAddresses { grpc: free_address()?, rest: free_address()?, admin: free_address()? };
        let mut stack = Self {
            options,
            folder,
            registry,
            running: None,
            starts: 0,
            controllers: BTreeMap::new(),
            discovers_identity: false,
            kubeconfigs: Mutex::default(),
        };
        stack.start_registry().await?;
        Ok(stack)
    }

    /// Ends the controllers and then the registry, in order.
    ///
    /// # Errors
    /// One does not end, or not well.
    pub async fn end(mut self) -> Result<()> {
        let programs =
            std::mem::take(&mut self.controllers).into_values().map(|controller| controller.program);
        for mut program in programs.chain(self.running.take()) {
            program.signal(Signal::Term)?;
            let status = program.ended().await?;
            let name = program.name();
            anyhow::ensure!(status.success(), "{name} ended with {status}; {}", program.log_tail());
        }
        Ok(())
    }

    /// Waits until every controller that was started is ready.
    ///
    /// # Errors
    /// One is not; the message has the end of its log.
    pub async fn ready(&mut self) -> Result<()> {
        for controller in self.controllers.values_mut() {
            controller.program.ready(&format!("http://{}/readyz", controller.admin)).await?;
        }
        Ok(())
    }

    /// Fails when a program of the stack has ended by itself, with the end of its log.
    ///
    /// # Errors
    /// One has ended.
    pub fn check(&mut self) -> Result<()> {
        let controllers = self.controllers.values_mut().map(|controller| &mut controller.program);
        controllers.chain(&mut self.running).try_for_each(Program::check)
    }

    /// Starts the registry, at the same addresses as before.
    ///
    /// # Errors
    /// It did not start.
    pub async fn start_registry(&mut self) -> Result<()> {
        let addresses = self.registry;
        let mut arguments = vec![
            format!("--grpc-listen={}", addresses.grpc),
            format!("--rest-listen={}", addresses.rest),
            format!("--admin-listen={}", addresses.admin),
            format!("--lease-duration={}ms", self.options.lease.as_millis()),
        ];
        arguments.extend(self.options.registry_flags.iter().cloned());
        self.starts += 1;
        let name = format!("registry-{}", self.starts);
        let environment = &self.options.registry_environment;
        let mut program =
            Program::start("mcs-registry", &name, self.folder.path(), &arguments, environment).await?;
        program.ready(&format!("http://{}/readyz", addresses.admin)).await?;
        self.running = Some(program);
        Ok(())
    }

    /// Ends the registry.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn end_registry(&mut self, signal: Signal) -> Result<()> {
        let running = self.running.take().context("the registry does not run")?;
        running.end(signal).await.map(drop)
    }

    /// Waits for the end of a registry that was signalled.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn registry_ended(&mut self) -> Result<ExitStatus> {
        let mut running = self.running.take().context("the registry does not run")?;
        running.ended().await
    }

    /// The running registry's process.
    ///
    /// # Errors
    /// It does not run.
    pub fn registry_program(&self) -> Result<&Program> {
        self.running.as_ref().context("the registry does not run")
    }

    /// Where the registry listens.
    pub const fn registry(&self) -> RegistryAddresses {
        self.registry
    }

    /// The registry's lease.
    pub const fn lease(&self) -> Duration {
        self.options.lease
    }

    /// The flags that controllers which are started from now on get besides those of all.
    pub const fn controller_flags(&mut self) -> &mut Vec<String> {
        &mut self.options.controller_flags
    }

    /// Where controllers that are started from now on look for registries, see [`StackOptions`].
    pub const fn registry_urls(&mut self) -> &mut Vec<String> {
        &mut self.options.registry_urls
    }

    /// The plaintext URL of the registry, for controllers.
    pub fn url(&self) -> String {
        format!("http://{}", self.registry.grpc)
    }

    /// Prepares clusters, starts a controller in each, and waits until they are ready.
    ///
    /// # Errors
    /// One did not start; the message has the end of its log.
    pub async fn start_controllers(&mut self, clusters: &[&Cluster]) -> Result<()> {
        for cluster in clusters {
            self.prepare(cluster).await?;
            self.start_controller(cluster, cluster.name()).await?;
        }
        self.ready().await
    }

    /// Prepares a cluster for controllers of this stack, with permissions in the namespaces that they watch and no
    /// more; in those of them that do not exist, [`Stack::allow_in`] gives them later.
    ///
    /// # Errors
    /// As [`prepare`].
    pub async fn prepare(&self, cluster: &Cluster) -> Result<()> {
        apply_crds(cluster, self.folder.path()).await?;
        self.allow(cluster).await
    }

    /// The permissions of [`Stack::prepare`] alone.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow(&self, cluster: &Cluster) -> Result<()> {
        permissions::permit(cluster, &self.system_namespace(), &self.options.watch_namespaces).await
    }

    /// Gives controllers of this stack their permissions in a namespace that they watch.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow_in(&self, cluster: &Cluster, namespace: &str) -> Result<()> {
        permissions::permit_in(cluster, &self.system_namespace(), namespace).await
    }

    /// Gives controllers of this stack what those have that watch all namespaces.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow_everywhere(&self, cluster: &Cluster) -> Result<()> {
        permissions::permit_everywhere(cluster, &self.system_namespace()).await
    }

    /// The clusterset.
    pub fn clusterset(&self) -> &str {
        &self.options.clusterset
    }

    /// The namespace that the controllers of this stack run in.
    pub fn system_namespace(&self) -> String {
        format!("{}-system", self.options.clusterset)
    }

    /// Where logs are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts one more controller replica in a cluster, called `replica` in this stack.
    ///
    /// # Errors
    /// It did not start.
    pub async fn start_controller(&mut self, cluster: &Cluster, replica: &str) -> Result<()> {
        self.start_controller_as(cluster, replica, cluster.name()).await
    }

    /// [`Stack::start_controller`] with another cluster id than the cluster's name. The cluster must be prepared.
    ///
    /// # Errors
    /// It did not start.
    pub async fn start_controller_as(
        &mut self,
        cluster: &Cluster,
        replica: &str,
        cluster_id: &str,
    ) -> Result<()> {
        let admin = free_address()?;
        let mut arguments = self.controller_arguments(cluster, cluster_id);
        arguments.push(format!("--admin-listen={admin}"));
        let program = self.run_controller(cluster, &format!("controller-{replica}"), &arguments).await?;
        self.controllers.insert(replica.to_owned(), Controller { program, admin });
        Ok(())
    }

    /// Runs `mcs-controller leave` in a cluster, as a controller of this stack would be run.
    ///
    /// # Errors
    /// It did not start.
    pub async fn leave(&self, cluster: &Cluster) -> Result<Program> {
        let mut arguments = vec!["leave".to_owned()];
        arguments.extend(self.controller_arguments(cluster, cluster.name()));
        self.run_controller(cluster, &format!("leave-{}", cluster.name()), &arguments).await
    }

    async fn run_controller(&self, cluster: &Cluster, name: &str, arguments: &[String]) -> Result<Program> {
        let kubeconfig = self.kubeconfig(cluster).await?;
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        Program::start("mcs-controller", name, self.folder.path(), arguments, &environment).await
    }

    async fn kubeconfig(&self, cluster: &Cluster) -> Result<PathBuf> {
        let known = || self.kubeconfigs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(cluster.name()).cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let made =
            cluster.kubeconfig_for_service_account(&self.system_namespace(), CONTROLLER_ACCOUNT).await?;
        known().insert(cluster.name().to_owned(), made.clone());
        Ok(made)
    }

    fn controller_arguments(&self, cluster: &Cluster, cluster_id: &str) -> Vec<String> {
        let mut arguments = vec![format!("--leader-election-namespace={}", self.system_namespace())];
        if !self.discovers_identity {
            arguments.extend([
                format!("--clusterset-id={}", self.options.clusterset),
                format!("--cluster-id={cluster_id}"),
                format!("--region={}", cluster.options().region),
            ]);
        }
        let urls = match self.options.registry_urls.as_slice() {
            [] => vec![self.url()],
            urls => urls.to_vec(),
        };
        if urls.iter().any(|url| url.starts_with("http:")) {
            arguments.push("--registry-allow-insecure-http".to_owned());
        }
        arguments.push(format!("--registry-url={}", urls.join(",")));
        if !self.options.watch_namespaces.is_empty() {
            arguments.push(format!("--watch-namespaces={}", self.options.watch_namespaces.join(",")));
        }
        arguments.extend(self.options.controller_flags.iter().cloned());
        arguments
    }

    /// Controllers that are started from now on are not told who their cluster is, or are again.
    pub const fn discover_identity(&mut self, discovers: bool) {
        self.discovers_identity = discovers;
    }

    /// Lets controllers of this stack find out who their cluster is. The cluster must be prepared.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow_identity(&self, cluster: &Cluster) -> Result<()> {
        permissions::permit_identity(cluster, &self.system_namespace()).await
    }

    /// Lets controllers of this stack take their finalizer off in namespaces whose Role has gone. The cluster must be prepared.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow_finalizers(&self, cluster: &Cluster) -> Result<()> {
        permissions::permit_finalizers(cluster, &self.system_namespace()).await
    }

    /// Lets controllers of this stack create namespaces. The cluster must be prepared.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn allow_namespaces(&self, cluster: &Cluster) -> Result<()> {
        permissions::permit_namespaces(cluster, &self.system_namespace()).await
    }

    /// A controller replica.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn controller(&self, replica: &str) -> Result<&Controller> {
        self.controllers.get(replica).with_context(|| format!("no controller {replica}"))
    }

    /// Ends a controller replica.
    ///
    /// # Errors
    /// There is none of that name, or it does not end.
    pub async fn end_controller(&mut self, replica: &str, signal: Signal) -> Result<ExitStatus> {
        let controller =
            self.controllers.remove(replica).with_context(|| format!("no controller {replica}"))?;
        controller.program.end(signal).await
    }

    /// What the registry's REST port answers below `/v1/clustersets/{clusterset}/`.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn rest(&self, path: &str) -> Result<Value> {
        self.rest_of(&self.options.clusterset, path).await
    }

    /// What the registry's REST port answers below `/v1/clustersets/{clusterset}/` of any clusterset.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn rest_of(&self, clusterset: &str, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&get(&self.rest_url(clusterset, path)).await?)?)
    }

    /// What the registry's REST port answers to a DELETE below `/v1/clustersets/{clusterset}/`.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn rest_delete(&self, path: &str) -> Result<Value> {
        let url = self.rest_url(&self.options.clusterset, path);
        Ok(serde_json::from_slice(&ask(Method::DELETE, &url).await?)?)
    }

    fn rest_url(&self, clusterset: &str, path: &str) -> String {
        format!("http://{}/v1/clustersets/{clusterset}/{path}", self.registry.rest)
    }
}

/// The body of a GET.
///
/// # Errors
/// No answer, or one that is no success; the message has its body.
pub async fn get(url: &str) -> Result<Bytes> {
    ask(Method::GET, url).await
}

async fn ask(method: Method, url: &str) -> Result<Bytes> {
    let client: HttpClient<_, Empty<Bytes>> = HttpClient::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(method).uri(url).body(Empty::new())?;
    let answer = client.request(request).await.with_context(|| format!("asking {url}"))?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "{url} answered {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
