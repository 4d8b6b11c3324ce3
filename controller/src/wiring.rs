//! The controller's parts and how they are put together: watches, election, leads, admin port.

use crate::config::Config;
use crate::discover::discover;
use crate::events::Events;
use crate::identity::{self, Given};
use crate::index::Index;
use crate::lead::{Lead, Shared};
use crate::leader::{Candidate, Claim, Settings};
use crate::metrics::{Metrics, PREFIX};
use crate::watch::Watches;
use anyhow::Context;
use kube::Client;
use mcs_core::ids::{Build, ClusterId, ClustersetId, Instance, Namespace as NamespaceName, Region};
use mcs_core::time::Clock;
use mcs_core::timing::Timing;
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_proto::url::{InvalidUrl, RegistryUrl, Scheme};
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tasks::Tasks;
use mcs_runtime::tls;
use mcs_runtime::tls::client::{ClientFiles, ClientTls};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::info;

/// Tasks that have not ended this long after the drain began are given up.
const GRACE: Duration = Duration::from_secs(5);

/// What a controller is told by its flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// The registries, in failover order.
    pub registries: Vec<RegistryUrl>,
    /// The files of TLS to registries.
    pub tls: ClientFiles,
    /// The clusterset; that of a ClusterProperty when none.
    pub clusterset: Option<ClustersetId>,
    /// The cluster's id in it; that of a ClusterProperty when none.
    pub cluster: Option<ClusterId>,
    /// The cluster's region; that of its nodes when none.
    pub region: Option<Region>,
    /// The namespaces that are exported from and imported into; all when empty.
    pub watch_namespaces: Vec<NamespaceName>,
    /// Whether missing namespaces of imports are created.
    pub create_namespaces: bool,
    /// Whether ServiceImports that somebody else made are taken over.
    pub adopt_unmanaged: bool,
    /// The Lease that replicas compete for, and as whom.
    pub leader: Settings,
}

/// Runs a controller until the program drains.
///
/// # Errors
/// Files of TLS that cannot be used, a metric that cannot be registered, or a task that ended early.
pub async fn run(
    options: Options,
    client: Client,
    clock: Arc<dyn Clock>,
    admin: TcpListener,
    shutdown: Drain,
) -> anyhow::Result<()> {
    let ready = Ready::new(shutdown.clone());
    let metrics_registry = mcs_runtime::metrics::registry(PREFIX)?;
    let index = Arc::new(Index::default());
    let urls = options.registries.iter().map(ToString::to_string);
    let metrics = Metrics::register(&metrics_registry, Arc::clone(&index), Arc::clone(&clock), urls)?;
    let mut tasks = Tasks::new();
    let secure = options.registries.iter().any(|url| url.scheme() == Scheme::Https);
    let tls = match secure {
        true => {
            let counted = tls::Metrics::register(&metrics_registry, PREFIX, &[])?;
            Some(ClientTls::load(options.tls, Arc::clone(&clock), counted)?)
        }
        false => None,
    };
    let registries = registries(&options.registries, tls.as_ref()).context("--registry-url")?;
    if let Some(tls) = tls {
        tasks.spawn_background("files of TLS", tls.follow());
    }
    let known = ready.wait_for("the cluster's identity");
    let admin = mcs_runtime::admin::serve(admin, metrics_registry, ready.clone(), Arc::clone(&clock));
    tasks.spawn_background("admin", admin);

    let watched = options.watch_namespaces.iter().map(NamespaceName::to_string);
    let probes: Vec<_> = watched.chain(["default".to_owned()]).collect();
    let given = Given { clusterset: options.clusterset, cluster: options.cluster, region: options.region };
    let discovered = tokio::select! {
        discovered = discover(&client, &given, &probes) => discovered,
        () = shutdown.draining() => return Ok(()),
    };
    let instance: Instance = options.leader.identity.parse().context("the name of this process")?;
    let identity = discovered.identity;
    let config = Arc::new(Config {
        member: Member { clusterset: identity.clusterset, cluster: identity.cluster, uid: discovered.uid },
        region: identity.region,
        instance: instance.clone(),
        build: Build::new(mcs_runtime::version())?,
        watch_namespaces: options.watch_namespaces,
        create_namespaces: options.create_namespaces,
        adopt_unmanaged: options.adopt_unmanaged,
        served: discovered.served,
    });
    info!(clusterset = %config.member.clusterset, cluster = %config.member.cluster, uid = %config.member.uid, %instance, "controller starts");

    let watches = Watches {
        client: client.clone(),
        index: Arc::clone(&index),
        clock: Arc::clone(&clock),
        metrics: metrics.clone(),
        ready: ready.clone(),
        stop: shutdown.clone(),
    };
    watches.spawn_all(&mut tasks, &config);
    known.ready();

    let (candidate, claims) =
        Candidate::new(client.clone(), options.leader, Arc::clone(&clock), shutdown.clone());
    tasks.spawn("election", compete(candidate, ready.clone(), shutdown.clone()));
    let (events, record) = Events::new(client.clone(), instance.as_str(), Arc::clone(&clock));
    tasks.spawn_background("events", record);
    if let Some(read) = identity.read {
        let watched =
            identity::watch(client.clone(), read, Arc::clone(&clock), metrics.clone(), events.clone());
        tasks.spawn_background("watch of ClusterProperties", watched);
    }
    let families = Arc::new(discovered.families);
    let shared = Shared { config, client, index, clock, registries, events, metrics, families };
    tasks.spawn("lead", lead(shared, claims, shutdown.clone()));
    tasks.run(&shutdown, GRACE).await.map_err(Into::into)
}

/// The clients of the registries, each with `tls` where its URL asks for it.
pub(crate) fn registries(
    urls: &[RegistryUrl],
    tls: Option<&ClientTls>,
) -> Result<Arc<[RegistryClient]>, InvalidUrl> {
    let timing = Timing::default();
    let client = |url| match tls {
        Some(tls) => RegistryClient::secure(url, timing, tls.configs()),
        None => RegistryClient::new(url, timing),
    };
    urls.iter().map(client).collect()
}

/// Competes for the lead once all watches have listed: a replica that is not ready must not keep it from one that is.
async fn compete(candidate: Candidate, ready: Ready, shutdown: Drain) {
    tokio::select! {
        () = ready.until_ready() => candidate.run().await,
        () = shutdown.draining() => {}
    }
}

/// Acts as the leader whenever this replica is it.
async fn lead(shared: Shared, mut claims: watch::Receiver<Option<Claim>>, shutdown: Drain) {
    while !shutdown.is_draining() {
        let claim = claims.borrow_and_update().clone();
        shared.metrics.leads(claim.is_some());
        let Some(claim) = claim else {
            tokio::select! {
                changed = claims.changed() => if changed.is_err() { return shutdown.draining().await },
                () = shutdown.draining() => return,
            }
            continue;
        };
        let lead = Lead::begin(shared.clone(), claim);
        tokio::select! {
            () = lead.act() => {}
            changed = claims.changed() => if changed.is_err() { return shutdown.draining().await },
            () = shutdown.draining() => return,
        }
        shared.index.forget_held();
        for registry in shared.registries.iter() {
            shared.metrics.connected(&registry.url().to_string(), false);
        }
    }
}
