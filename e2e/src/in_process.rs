//! Controllers within the process of a test: the product's own [`wiring::run`], over a client with a [`Tap`].
//!
//! Each has a runtime of its own, so that it can end as a process does that is killed: all that it does stops where it
//! stands, its connections close, and nothing is released. They have the permissions of the checked-in RBAC files.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use mcs_controller::{
    crds::apply_crds,
    leader::Settings,
    wiring::{self, Options},
};
use mcs_core::election::Policy;
use mcs_runtime::{clock::SystemClock, shutdown::Shutdown, tls::client::ClientFiles};
use serde_json::json;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    sync::{OnceCell, oneshot},
    task::JoinHandle,
};

use crate::{
    Cluster,
    permissions::{CONTROLLER_ACCOUNT, permit},
    stack::{Stack, StackOptions, get},
    tap::Tap,
    wait_for,
};

/// The Lease of controllers.
pub const LEASE: &str = "mcs-controller";

/// Where the controllers of one clusterset run in one cluster, and what they are told.
#[derive(Clone, Debug)]
pub struct Place {
    kubeconfig: PathBuf,
    leases: Api<Lease>,
    /// What controllers that are started from now on are told; each gets an identity of its own besides.
    pub options: Options,
}

/// A running controller. It is killed when this is dropped.
#[derive(Debug)]
pub struct Controller {
    /// What it sends.
    pub tap: Tap,
    admin: SocketAddr,
    shutdown: Shutdown,
    ended: JoinHandle<Result<()>>,
}

/// The registry that tests share which do not harm it: each has a clusterset of its own.
///
/// # Errors
/// It did not start. It is not tried again.
pub async fn registry() -> Result<&'static Stack> {
    static REGISTRY: OnceCell<Result<Stack, String>> = OnceCell::const_new();
    let start = async || {
        let mut options = StackOptions::for_namespace("shared");
        // Nobody's lease ends by the load of a machine that runs all tests at once.
        options.lease = mcs_core::timing::DEFAULT_LEASE;
        Stack::start_without_controllers(options).await.map_err(|error| format!("{error:#}"))
    };
    let started = REGISTRY.get_or_init(start).await;
    started.as_ref().map_err(|error| anyhow!("{error}")).context("the shared registry did not start")
}

impl Place {
    /// Prepares `cluster` for controllers of `clusterset` that watch the namespaces `watched` and tell the registry at
    /// `url`. They run in the namespace `<clusterset>-system`.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn prepare(cluster: &Cluster, clusterset: &str, watched: &[&str], url: &str) -> Result<Self> {
        let system = format!("{clusterset}-system");
        apply_crds(cluster.client()).await?;
        permit(cluster, &system, watched).await?;
        let kubeconfig = cluster.kubeconfig_for_service_account(&system, CONTROLLER_ACCOUNT).await?;
        let options = Options {
            registries: vec![url.parse()?],
            tls: ClientFiles::default(),
            clusterset: Some(clusterset.parse()?),
            cluster: Some(cluster.name().parse()?),
            region: Some(cluster.options().region.parse()?),
            watch_namespaces: watched.iter().map(|it| FromStr::from_str(it)).collect::<Result<_, _>>()?,
            create_namespaces: false,
            adopt_unmanaged: false,
            leader: Settings {
                namespace: system.clone(),
                name: LEASE.to_owned(),
                identity: String::new(),
                policy: Policy::default(),
            },
        };
        Ok(Self { kubeconfig, leases: Api::namespaced(cluster.client(), &system), options })
    }

    /// Starts a controller whose requests go through `tap`.
    ///
    /// # Errors
    /// It did not start.
    pub async fn start(&self, tap: Tap) -> Result<Controller> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        // As mcs_runtime::kube has it: each request is one.
        config.default_retry = false;
        let mut options = self.options.clone();
        options.leader.identity = format!("in-process_{:016x}", rand::random::<u64>());

        let shutdown = Shutdown::manual();
        let (tapped, stop) = (tap.clone(), shutdown.watch());
        let (listens, listening) = oneshot::channel();
        let run = async move {
            let admin = TcpListener::bind("127.0.0.1:0").await?;
            let client = tapped.around(Client::try_from(config)?);
            // Nobody waits any more when this fails.
            let _ = listens.send(admin.local_addr()?);
            wiring::run(options, client, Arc::new(SystemClock), admin, stop).await
        };
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("controller").enable_all().build()?;
        let ended = runtime.spawn(run);
        tap.keep(runtime);
        let admin = listening.await;
        let mut controller =
            Controller { tap, admin: SocketAddr::from(([127, 0, 0, 1], 0)), shutdown, ended };
        let Ok(admin) = admin else {
            (&mut controller.ended).await.context("starting a controller")??;
            bail!("the controller ended at its start");
        };
        controller.admin = admin;
        Ok(controller)
    }

    /// The Lease.
    pub const fn leases(&self) -> &Api<Lease> {
        &self.leases
    }

    /// Lets the next controller lead at once where one was killed, instead of a lease duration later.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn release_lease(&self) -> Result<()> {
        let released = Patch::Merge(json!({ "spec": { "holderIdentity": null } }));
        self.leases.patch(LEASE, &PatchParams::default(), &released).await?;
        Ok(())
    }
}

impl Controller {
    /// Waits until it leads, its registry has accepted it, and no work waits.
    ///
    /// # Errors
    /// It does not, or it has ended.
    pub async fn idle(&self) -> Result<()> {
        self.idle_but_for(0).await
    }

    /// [`Controller::idle`], but for so many keys that only somebody else can mend: these are looked at now and then.
    ///
    /// # Errors
    /// As there.
    pub async fn idle_but_for(&self, keys: u8) -> Result<()> {
        wait_for("a controller that leads and is idle", async || {
            anyhow::ensure!(!self.ended.is_finished(), "it has ended");
            let found = [
                self.metric("mcs_controller_leader").await?,
                self.metric("mcs_controller_registry_connected").await?,
                self.metric("mcs_controller_queue_length").await?,
            ];
            let idle = found[..2] == [1.0, 1.0] && found[2] <= f64::from(keys);
            anyhow::ensure!(idle, "leader, connected, queue_length are {found:?}");
            Ok(())
        })
        .await
    }

    /// The sum of the lines of its metrics that begin so.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metric(&self, line: &str) -> Result<f64> {
        let text = String::from_utf8(get(&format!("http://{}/metrics", self.admin)).await?.to_vec())?;
        let lines = text.lines().filter(|it| it.starts_with(line));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    /// Ends it in order, as SIGTERM does.
    ///
    /// # Errors
    /// It ended before, or not well.
    pub async fn end(mut self) -> Result<()> {
        self.shutdown.drain();
        (&mut self.ended).await.context("the end of a controller")?
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.tap.kill();
    }
}
