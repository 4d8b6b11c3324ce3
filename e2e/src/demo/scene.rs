//! All that runs in the demo: clusters, registry, controllers, discovery service, and the workload in `east`.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use futures::try_join;
use global_discovery_client::KeptRegistered;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Service},
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use mcs_core::names::{EXPORT_WANTED, LABEL_EXPORT};
use serde_json::json;

use super::service::Discovery;
use crate::{
    directory::{copy_logs, emptied},
    objects,
    programs::Signal,
    screen::Screen,
    shared::Pair,
    stack::{Stack, StackOptions, prepare},
};

/// The clusterset.
pub(crate) const CLUSTERSET: &str = "demo";
/// Where the workload is, and in `west` its imports.
pub(crate) const NAMESPACE: &str = "demo";
/// The pool: a DynamoGraphDeployment of this name would have the two Services below.
pub(crate) const DGD: &str = "my-dgd";
/// Where the pool's relays are reached.
pub(crate) const RELAY: &str = "my-dgd-pool-relay";
/// Where the pool takes requests; this is what is scaled.
pub(crate) const FRONTEND: &str = "my-dgd-frontend";
/// Where relays of all clusters connect to.
pub(crate) const ROUTER: &str = "global-router";
/// Pods of each Service at first.
pub(crate) const REPLICAS: u16 = 2;
/// The Services of `east`, with their port.
pub(crate) const SERVICES: [(&str, objects::Port<'_>); 3] =
    [(FRONTEND, ("http", 8000)), (RELAY, ("grpc", 50052)), (ROUTER, ("grpc", 50051))];
/// The registry's default.
const LEASE: Duration = mcs_core::timing::DEFAULT_LEASE;

/// What runs. Dropping it kills everything; [`Scene::end`] does it in order.
#[derive(Debug)]
pub(crate) struct Scene {
    /// Keeps the pool registered.
    pub(crate) relay: Option<KeptRegistered>,
    /// In `west`.
    pub(crate) discovery: Discovery,
    /// Registry and controllers.
    pub(crate) stack: Stack,
    /// The clusters.
    pub(crate) pair: Pair,
}

impl Scene {
    /// Starts everything but the workload.
    pub(crate) async fn start(screen: &Screen) -> Result<Self> {
        let options = StackOptions {
            clusterset: CLUSTERSET.to_owned(),
            watch_namespaces: Vec::new(),
            lease: LEASE,
            controller_flags: Vec::new(),
            registry_flags: Vec::new(),
            registry_environment: Vec::new(),
            registry_urls: Vec::new(),
        };
        let mut stack =
            screen.during("starting mcs-registry", Stack::start_without_controllers(options)).await?;
        let pair = screen
            .during("starting clusters east and west: etcd, API server, controllers", Pair::start())
            .await?;
        screen
            .during("installing CRDs and permissions in both clusters", Box::pin(prepare_both(&pair, &stack)))
            .await?;
        let controllers = async {
            stack.start_controller(&pair.east, "east").await?;
            stack.start_controller(&pair.west, "west").await?;
            stack.ready().await
        };
        screen.during("starting an mcs-controller for each cluster", controllers).await?;
        let flags = [
            format!("--router-namespace={NAMESPACE}"),
            format!("--router-service={ROUTER}"),
            "--router-port-name=grpc".to_owned(),
        ];
        let discovery = screen
            .during(
                "starting global-discovery-service in west",
                Discovery::start(&pair.west, stack.folder(), &flags),
            )
            .await?;
        Ok(Self { relay: None, discovery, stack, pair })
    }

    /// Deploys the workload in `east`, its Services labelled for export.
    pub(crate) async fn deploy(&self) -> Result<()> {
        let client = self.pair.east.client();
        for (name, port) in SERVICES {
            let mut service = objects::service(NAMESPACE, name, &[port]);
            service.labels_mut().insert(LABEL_EXPORT.to_owned(), EXPORT_WANTED.to_owned());
            let deployment = objects::deployment(NAMESPACE, name, REPLICAS, &[port]);
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
            deployments.create(&PostParams::default(), &deployment).await?;
            let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
            services.create(&PostParams::default(), &service).await?;
        }
        Ok(())
    }

    /// Scales a Deployment in `east`.
    pub(crate) async fn scale(&self, name: &str, replicas: u16) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let deployments: Api<Deployment> = Api::namespaced(self.pair.east.client(), NAMESPACE);
        deployments.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Fails when one of our programs has ended by itself, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.discovery.program.check()?;
        self.stack.check()
    }

    /// Copies the logs of everything to where they outlive the demo.
    pub(crate) fn keep_logs(&self) -> Result<PathBuf> {
        let kept = emptied("demo-logs")?;
        for (name, folder) in
            [("", self.stack.folder()), ("east", self.pair.east.folder()), ("west", self.pair.west.folder())]
        {
            copy_logs(folder, &kept.join(name))?;
        }
        Ok(kept)
    }

    /// Ends everything in order, and waits until it has ended.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { relay, discovery, stack, pair } = self;
        drop(relay);
        let status = discovery.program.end(Signal::Term).await?;
        anyhow::ensure!(status.success(), "global-discovery-service ended with {status}");
        stack.end().await?;
        try_join!(pair.east.stop(), pair.west.stop()).map(drop)
    }
}

async fn prepare_both(pair: &Pair, stack: &Stack) -> Result<()> {
    let system = stack.system_namespace();
    let one = async |cluster: &crate::Cluster| -> Result<()> {
        prepare(cluster, &system, stack.folder()).await?;
        make_namespace(&cluster.client()).await
    };
    try_join!(one(&pair.east), one(&pair.west)).map(drop)
}

/// A Service is imported into the namespace of the same name, where that exists.
async fn make_namespace(client: &Client) -> Result<()> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}
