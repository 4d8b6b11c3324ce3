//! Watches what users of a namespace see, and remembers each loss: an object that went, or something that went from
//! one. What came back later was lost all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, ensure};
use futures::{StreamExt, future::join};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::names::LABEL_SERVICE_NAME;
use mcs_e2e::{Cluster, wait_for};
use tokio_util::task::AbortOnDropHandle;

/// What is watched, from its start until it is dropped.
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    clusters: Vec<(String, Client)>,
    namespace: String,
    _watches: Vec<AbortOnDropHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    objects: BTreeMap<String, State>,
    losses: Vec<String>,
    writes: BTreeSet<String>,
    listed: usize,
}

#[derive(Clone, Debug)]
struct State {
    version: u64,
    has: BTreeSet<String>,
}

/// A kind that users see.
trait Seeable: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> {
    const KIND: &'static str;
    /// What must not go from it; none when nobody sees it.
    fn has(&self) -> Option<BTreeSet<String>>;
}

impl Seeable for ServiceImport {
    const KIND: &'static str = "ServiceImport";

    fn has(&self) -> Option<BTreeSet<String>> {
        let spec = self.spec.iter();
        let ips = spec.clone().flat_map(|spec| &spec.ips).map(|ip| format!("ip {ip}"));
        let ports = spec.flat_map(|spec| &spec.ports).map(|port| format!("port {}", port.port));
        let status = self.status.iter();
        let clusters = status.clone().flat_map(|status| &status.clusters);
        let clusters = clusters.map(|status| format!("cluster {}", status.cluster));
        let conditions = status.flat_map(|status| &status.conditions);
        let conditions = conditions.map(|condition| format!("{}={}", condition.type_, condition.status));
        Some(ips.chain(ports).chain(clusters).chain(conditions).collect())
    }
}

impl Seeable for ServiceExport {
    const KIND: &'static str = "ServiceExport";

    fn has(&self) -> Option<BTreeSet<String>> {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        Some(conditions.map(|condition| format!("{}={}", condition.type_, condition.status)).collect())
    }
}

impl Seeable for Service {
    const KIND: &'static str = "Service";

    fn has(&self) -> Option<BTreeSet<String>> {
        self.labels().get(LABEL_SERVICE_NAME)?;
        let spec = self.spec.iter();
        let ips = spec.clone().flat_map(|spec| spec.cluster_ips.iter().flatten().cloned());
        let ports =
            spec.flat_map(|spec| spec.ports.iter().flatten().map(|port| format!("port {}", port.port)));
        Some(ips.chain(ports).collect())
    }
}

impl Seeable for EndpointSlice {
    const KIND: &'static str = "EndpointSlice";

    fn has(&self) -> Option<BTreeSet<String>> {
        self.labels().get(LABEL_SERVICE_NAME)?;
        Some(self.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone()).collect())
    }
}

impl Witness {
    /// Watches `namespace` of `clusters`, and has seen all that is there when this returns.
    pub(crate) async fn start(clusters: &[&Cluster], namespace: &str) -> Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watches = Vec::new();
        for cluster in clusters {
            let client = cluster.client();
            let watch = |watch| AbortOnDropHandle::new(tokio::spawn(watch));
            let (name, seen) = (cluster.name(), || Arc::clone(&seen));
            let imports = follow(name, Api::<ServiceImport>::namespaced(client.clone(), namespace), seen());
            let exports = follow(name, Api::<ServiceExport>::namespaced(client.clone(), namespace), seen());
            let services = follow(name, Api::<Service>::namespaced(client.clone(), namespace), seen());
            let slices = follow(name, Api::<EndpointSlice>::namespaced(client, namespace), seen());
            watches.push(watch(Box::pin(async move {
                join(join(imports, exports), join(services, slices)).await;
            })));
        }
        let clients = clusters.iter().map(|cluster| (cluster.name().to_owned(), cluster.client()));
        let (clients, namespace) = (clients.collect(), namespace.to_owned());
        let witness = Self { seen, clusters: clients, namespace, _watches: watches };
        let lists = clusters.len() * 4;
        wait_for("the lists of the witness", async || {
            let listed = lock(&witness.seen).listed;
            ensure!(listed == lists, "{listed} of {lists}");
            Ok(())
        })
        .await?;
        Ok(witness)
    }

    /// What went since the start.
    pub(crate) async fn losses(&self) -> Result<Vec<String>> {
        self.catch_up().await?;
        Ok(lock(&self.seen).losses.clone())
    }

    /// The objects that were written since the last call.
    pub(crate) async fn take_writes(&self) -> Result<BTreeSet<String>> {
        self.catch_up().await?;
        Ok(mem::take(&mut lock(&self.seen).writes))
    }

    /// Waits until everything that is there now was seen.
    async fn catch_up(&self) -> Result<()> {
        for (cluster, client) in &self.clusters {
            let mut there = BTreeMap::new();
            list::<ServiceImport>(cluster, client, &self.namespace, &mut there).await?;
            list::<ServiceExport>(cluster, client, &self.namespace, &mut there).await?;
            list::<Service>(cluster, client, &self.namespace, &mut there).await?;
            list::<EndpointSlice>(cluster, client, &self.namespace, &mut there).await?;
            wait_for("the witness to have seen what is there", async || {
                let seen = lock(&self.seen);
                for (key, version) in &there {
                    let known = seen.objects.get(key).map(|state| state.version);
                    ensure!(known >= Some(*version), "{key} at {known:?}, not {version}");
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// The versions of what there is of one kind.
async fn list<K>(
    cluster: &str,
    client: &Client,
    namespace: &str,
    versions: &mut BTreeMap<String, u64>,
) -> Result<()>
where
    K: Seeable + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let objects = Api::<K>::namespaced(client.clone(), namespace).list(&Default::default()).await?;
    for object in objects.items.iter().filter(|object| object.has().is_some()) {
        versions.insert(format!("{cluster} {} {}", K::KIND, object.name_any()), version(object));
    }
    Ok(())
}

/// Rises with every write, as Kubernetes 1.35 promises and etcd has always had it.
fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow<K>(cluster: &str, api: Api<K>, seen: Arc<Mutex<Seen>>) -> impl Future<Output = ()> + Send + 'static
where
    K: Seeable + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let id = format!("{cluster} {}", K::KIND);
    async move {
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let (mut listed, mut first) = (BTreeSet::new(), true);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    listed.insert(format!("{id} {}", object.name_any()));
                    lock(&seen).note(&id, &object);
                }
                Ok(watcher::Event::InitDone) => {
                    let mut seen = lock(&seen);
                    let prefix = format!("{id} ");
                    let known: Vec<_> =
                        seen.objects.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
                    for key in known.into_iter().filter(|key| !listed.contains(key)) {
                        seen.gone(&key);
                    }
                    seen.listed += usize::from(mem::take(&mut first));
                }
                Ok(watcher::Event::Apply(object)) => lock(&seen).note(&id, &object),
                Ok(watcher::Event::Delete(object)) => {
                    lock(&seen).gone(&format!("{id} {}", object.name_any()));
                }
                // The watcher goes on where it stood.
                Err(_) => {}
            }
        }
    }
}

impl Seen {
    fn note<K: Seeable>(&mut self, id: &str, object: &K) {
        let Some(has) = object.has() else { return };
        let key = format!("{id} {}", object.name_any());
        let state = State { version: version(object), has };
        let Some(before) = self.objects.insert(key.clone(), state.clone()) else { return };
        if before.version == state.version {
            return;
        }
        for lost in before.has.difference(&state.has) {
            self.losses.push(format!("{key} lost {lost}"));
        }
        self.writes.insert(key);
    }

    fn gone(&mut self, key: &str) {
        if self.objects.remove(key).is_some() {
            self.losses.push(format!("{key} is gone"));
        }
    }
}
