//! What one cluster exports is what the others import, neither more nor less, on real API servers.
//!
//! Most Services here have no selector, so that the tests write their EndpointSlices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Service, discovery::v1::EndpointSlice},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::{
    ids::ServiceKey,
    names::{LABEL_SERVICE_NAME, derived_service_name},
};
use mcs_e2e::{
    objects,
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::path::slices;

mod churn;
mod definition;
mod families;
mod large;
mod marks;
mod ports;
mod repair;
mod steady;

/// A namespace of both clusters with a registry and controllers of its own.
struct Scene {
    ns: String,
    stack: Stack,
    east: Client,
    west: Client,
}

impl Scene {
    async fn start(prefix: &str) -> Result<Self> {
        Self::with(prefix, |_| {}).await
    }

    async fn with(prefix: &str, change: impl FnOnce(&mut StackOptions)) -> Result<Self> {
        let pair = pair().await?;
        let ns = pair.namespace(prefix).await?.name().to_owned();
        let mut options = StackOptions::for_namespace(&ns);
        change(&mut options);
        let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
        Ok(Self { ns, stack, east: pair.east.client(), west: pair.west.client() })
    }

    fn east<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.east.clone(), &self.ns)
    }

    fn west<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.west.clone(), &self.ns)
    }

    /// The name of the derived Service of `name`.
    fn derived(&self, name: &str) -> Result<String> {
        Ok(derived_service_name(&ServiceKey::new(&self.ns, name)?))
    }

    /// Exports from east a Service without a selector, with one slice of these addresses.
    async fn export(&self, name: &str, port: objects::Port<'_>, addresses: &[&str]) -> Result<()> {
        create(&self.east(), &objects::service_without_selector(&self.ns, name, &[port])).await?;
        create(&self.east(), &self.slice(&format!("{name}-a"), name, port, addresses)?).await?;
        create(&self.east(), &service_export(name)).await
    }

    fn slice(
        &self,
        name: &str,
        service: &str,
        port: objects::Port<'_>,
        addresses: &[&str],
    ) -> Result<EndpointSlice> {
        let addresses = addresses.iter().map(|address| Ok(address.parse()?)).collect::<Result<Vec<_>>>()?;
        Ok(objects::endpoint_slice(&self.ns, name, service, &addresses, &[port]))
    }

    /// Waits until the addresses that west imports of `name` are exactly `wanted`.
    async fn imports(&self, name: &str, wanted: &[&str]) -> Result<()> {
        imports(&self.west, &self.ns, name, wanted).await
    }

    /// Restarts west's controller, as an update of its Deployment does.
    async fn restart_west(&mut self) -> Result<()> {
        self.stack.end_controller("west", mcs_e2e::programs::Signal::Term).await?;
        self.start_west().await
    }

    async fn start_west(&mut self) -> Result<()> {
        self.stack.start_controller(&pair().await?.west, "west").await?;
        self.stack.ready().await
    }
}

/// A namespaced kind.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + 'static
{
}

fn service_export(name: &str) -> ServiceExport {
    let mut export = ServiceExport::default();
    export.metadata.name = Some(name.to_owned());
    export
}

async fn create<K: Kind>(api: &Api<K>, object: &K) -> Result<()> {
    let created = api.create(&PostParams::default(), object).await;
    created.map(drop).with_context(|| format!("creating {}", object.name_any()))
}

/// Creates an object that is written as JSON.
pub(crate) async fn create_json<K: Kind>(api: &Api<K>, object: Value) -> Result<()> {
    create(api, &serde_json::from_value(object)?).await
}

pub(crate) async fn merge<K: Kind>(api: &Api<K>, name: &str, patch: Value) -> Result<()> {
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("changing {name}"))
}

async fn delete<K: Kind>(api: &Api<K>, name: &str) -> Result<()> {
    let deleted = api.delete(name, &DeleteParams::default()).await;
    deleted.map(drop).with_context(|| format!("deleting {name}"))
}

async fn list<K: Kind>(api: &Api<K>) -> Result<Vec<K>> {
    Ok(api.list(&ListParams::default()).await?.items)
}

/// Fails with what is there unless it is what is wanted.
fn expect<T: PartialEq + std::fmt::Debug>(is: T, wanted: &T) -> Result<()> {
    anyhow::ensure!(is == *wanted, "{is:?}\n instead of {wanted:?}");
    Ok(())
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn union<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> BTreeSet<String> {
    let endpoints = slices.into_iter().flat_map(|slice| &slice.endpoints);
    endpoints.flat_map(|endpoint| endpoint.addresses.clone()).collect()
}

/// Waits until the addresses that are imported of `name` are exactly `wanted`.
async fn imports(client: &Client, ns: &str, name: &str, wanted: &[&str]) -> Result<()> {
    let what = format!("the addresses {wanted:?} of {name}");
    wait_for(&what, async || expect(union(&slices(client, ns, name).await?), &set(wanted))).await
}

/// The conditions of a ServiceExport as `Type=Status/Reason`.
async fn conditions(api: &Api<ServiceExport>, name: &str) -> Result<Vec<String>> {
    let status = api.get(name).await?.status.unwrap_or_default();
    let conditions = status.conditions.iter();
    Ok(conditions.map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect())
}

async fn wait_for_conditions(api: &Api<ServiceExport>, name: &str, wanted: &[&str]) -> Result<()> {
    let wanted: Vec<_> = wanted.iter().map(|condition| (*condition).to_owned()).collect();
    let what = format!("the conditions of ServiceExport {name}");
    wait_for(&what, async || expect(conditions(api, name).await?, &wanted)).await
}

const ACCEPTED: [&str; 3] = ["Valid=True/Valid", "Ready=True/Ready", "Conflict=False/NoConflicts"];
const INVALID_TYPE: [&str; 2] = ["Valid=False/InvalidServiceType", "Ready=False/Pending"];

/// Every union of imported addresses that an observer of the importing cluster could see, in order.
struct Unions {
    seen: Arc<Mutex<Vec<BTreeSet<String>>>>,
    _task: AbortOnDropHandle<()>,
}

impl Unions {
    /// Watches the imported slices of `name`, from now on.
    async fn follow(api: Api<EndpointSlice>, name: &str) -> Result<Self> {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let config = watcher::Config::default().labels(&format!("{LABEL_SERVICE_NAME}={name}"));
        let mut events = watcher(api, config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            let mut slices: BTreeMap<String, EndpointSlice> = BTreeMap::new();
            let mut listed = false;
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) => {
                        slices.insert(slice.name_any(), slice);
                    }
                    Ok(watcher::Event::Delete(slice)) => drop(slices.remove(&slice.name_any())),
                    Ok(watcher::Event::InitDone) => listed = true,
                    Ok(watcher::Event::Init) | Err(_) => {}
                }
                let union = union(slices.values());
                let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if listed && seen.last() != Some(&union) {
                    seen.push(union);
                }
            }
        });
        let unions = Self { seen, _task: AbortOnDropHandle::new(task) };
        wait_for("the first list", async || !unions.seen().is_empty()).await?;
        Ok(unions)
    }

    fn seen(&self) -> Vec<BTreeSet<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Everything of this system in a namespace, by kind and name.
async fn ours(client: &Client, ns: &str) -> Result<BTreeMap<String, Value>> {
    async fn add<K: Kind>(all: &mut BTreeMap<String, Value>, client: &Client, ns: &str) -> Result<()> {
        for object in list(&Api::<K>::namespaced(client.clone(), ns)).await? {
            let (kind, name) = (K::kind(&()), object.name_any());
            let made = object.labels().contains_key(mcs_core::names::LABEL_MANAGED_BY);
            if made || kind == "ServiceExport" {
                all.insert(format!("{kind} {name}"), serde_json::to_value(object)?);
            }
        }
        Ok(())
    }
    let mut all = BTreeMap::new();
    add::<ServiceExport>(&mut all, client, ns).await?;
    add::<ServiceImport>(&mut all, client, ns).await?;
    add::<Service>(&mut all, client, ns).await?;
    add::<EndpointSlice>(&mut all, client, ns).await?;
    Ok(all)
}

/// The sum of a metric of a controller over all label values.
async fn metric(stack: &Stack, replica: &str, name: &str) -> Result<f64> {
    let body = get(&format!("http://{}/metrics", stack.controller(replica)?.admin)).await?;
    let text = String::from_utf8(body.to_vec())?;
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(values.sum())
}

/// The names and numbers of ports, as `name 80/TCP`.
fn port_texts<T>(ports: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> BTreeSet<String> {
    ports.into_iter().map(text).collect()
}

/// An EndpointSlice for a Service, written as JSON.
fn slice_json(name: &str, service: &str, ports: Value, endpoints: Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    })
}
