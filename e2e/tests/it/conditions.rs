//! What people are told of their exports and imports: every condition, with its message, and every Event.
//!
//! The words are compared whole, since they are all that somebody has who runs `kubectl describe` at night;
//! docs/troubleshooting.md has a row for each reason. Other exporters are played by [`mcs_e2e::peer::Peer`], so that
//! one cluster is enough.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Event, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{Condition, ServiceExport, ServiceImport};
use mcs_core::{names, timing::Timing};
use mcs_e2e::{
    TempNamespace,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use mcs_proto::client::RegistryClient;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::support::Place;

mod conflicts;
mod exports;
mod imports;
mod leases;

/// Status, reason and message of a condition, by its type.
type Conditions = BTreeMap<String, [String; 3]>;
/// Kind and name of an object, reason and note of an Event about it.
type Told = BTreeSet<[String; 4]>;

const VALID: [&str; 4] = [names::CONDITION_VALID, "True", names::REASON_VALID, "the Service can be exported"];
const READY: [&str; 4] =
    [names::CONDITION_READY, "True", names::REASON_READY, "the registry holds the export"];
const NO_CONFLICTS: [&str; 4] =
    [names::CONDITION_CONFLICT, "False", names::REASON_NO_CONFLICTS, "all clusters export the Service alike"];

/// What people are told to do.
const GUIDE: &str = include_str!("../../../docs/troubleshooting.md");
/// How the guide has people look for Events.
const OF_CONTROLLERS: &str = "reportingComponent=mcs-controller.dynamo.nvidia.com";

/// An object that has conditions.
trait Conditioned:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
    /// Those that are not in its status have not been written yet.
    fn conditions(&self) -> Vec<Condition>;
}

impl Conditioned for ServiceExport {
    fn conditions(&self) -> Vec<Condition> {
        self.status.clone().unwrap_or_default().conditions
    }
}

impl Conditioned for ServiceImport {
    fn conditions(&self) -> Vec<Condition> {
        self.status.clone().unwrap_or_default().conditions
    }
}

/// A namespace of the cluster east, and a registry whose lease is 3 s.
struct Scene {
    client: Client,
    namespace: String,
    stack: Stack,
}

impl Scene {
    /// All but the controller, so that it meets what a test has made.
    async fn prepare(prefix: &str, registry_flags: &[&str]) -> Result<Self> {
        let cluster = &pair().await?.east;
        let namespace = TempNamespace::new(cluster.client(), prefix).await?.name().to_owned();
        let mut options = StackOptions::for_namespace(&namespace);
        options.registry_flags.extend(registry_flags.iter().map(|flag| (*flag).to_owned()));
        let stack = Stack::start_without_controllers(options).await?;
        stack.prepare(cluster).await?;
        Ok(Self { client: cluster.client(), namespace, stack })
    }

    async fn start_controller(&mut self) -> Result<()> {
        self.stack.start_controller(&pair().await?.east, "east").await?;
        self.stack.ready().await
    }

    /// Waits until the registry lists just these exports as refused, with their cluster.
    async fn reports_refused(&self, names: BTreeSet<&str>) -> Result<()> {
        let registry = format!("http://{}", self.stack.registry().grpc).parse()?;
        let client = RegistryClient::new(&registry, Timing::default())?;
        let clusterset = self.stack.clusterset().parse()?;
        wait_for(&format!("{names:?} as refused in the registry"), async || {
            let (clusters, _) = client.list_clusters(&clusterset).await?;
            let refused = clusters.iter().flat_map(|cluster| &cluster.refused_exports);
            let keys = refused.flat_map(|refused| refused.first.iter().flat_map(|export| &export.key));
            let listed: BTreeSet<&str> = keys.map(|key| key.name.as_str()).collect();
            ensure!(listed == names, "{listed:?}");
            Ok(())
        })
        .await
    }

    fn place(&self, name: &str) -> Place {
        Place::new(self.client.clone(), &self.namespace, name)
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object that is written as JSON.
    async fn create<K>(&self, object: Value) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let context = || format!("creating {object}");
        let object_of_kind: K = serde_json::from_value(object.clone()).with_context(context)?;
        self.api::<K>().create(&PostParams::default(), &object_of_kind).await.with_context(context)?;
        Ok(())
    }

    /// Makes a ServiceExport with this spec.
    async fn create_export(&self, name: &str, spec: Value) -> Result<()> {
        self.create::<ServiceExport>(json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    /// Makes a Service with this spec, and one slice of IPv4 `addresses`.
    async fn create_service(&self, name: &str, spec: Value, addresses: &[&str]) -> Result<()> {
        let ports = json!([{ "name": "http", "port": 80 }]);
        self.create::<Service>(json!({ "metadata": { "name": name }, "spec": spec })).await?;
        self.create::<EndpointSlice>(slice(name, "x", "IPv4", &ports, addresses)).await
    }

    /// Waits until the conditions are these, and answers them as they are.
    async fn says<K: Conditioned>(&self, name: &str, wanted: &[[&str; 4]]) -> Result<Vec<Condition>> {
        let wanted: Conditions = wanted
            .iter()
            .map(|[kind, status, reason, message]| {
                ((*kind).to_owned(), [status, reason, message].map(|text| (*text).to_owned()))
            })
            .collect();
        wait_for(&format!("the conditions {wanted:?} of {} {name}", K::kind(&())), async || {
            let found = self.api::<K>().get(name).await?.conditions();
            let said: Conditions =
                found.iter().cloned().map(|it| (it.type_, [it.status, it.reason, it.message])).collect();
            ensure!(said == wanted, "{said:?}");
            Ok::<_, anyhow::Error>(found)
        })
        .await
    }

    /// Waits until exactly these Events were told in the namespace, however often each.
    async fn tells(&self, wanted: &Told) -> Result<()> {
        wait_for(&format!("the Events {wanted:?}"), async || {
            let events = self.api::<Event>().list(&ListParams::default().fields(OF_CONTROLLERS)).await?.items;
            let found: Told = events
                .into_iter()
                .map(|event| {
                    let about = event.involved_object;
                    [about.kind, about.name, event.reason, event.message].map(Option::unwrap_or_default)
                })
                .collect();
            ensure!(found == *wanted, "{found:?}");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }

    /// Says something about an object as another writer of its status.
    async fn say_as_another<K: Conditioned>(&self, name: &str) -> Result<()> {
        let status = Patch::Apply(json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": name },
            "status": { "conditions": [foreign()] },
        }));
        let params = PatchParams::apply("another.example");
        self.api::<K>().patch_status(name, &params, &status).await?;
        Ok(())
    }

    async fn merge<K: Conditioned>(&self, name: &str, change: Value) -> Result<()> {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }
}

/// A condition of another writer.
fn foreign() -> Condition {
    serde_json::from_value(json!({
        "type": "example.com/Audited", "status": "Unknown", "reason": "Later", "message": "not looked at yet",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }))
    .unwrap_or_default()
}

/// An EndpointSlice of a Service.
fn slice(service: &str, suffix: &str, family: &str, ports: &Value, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    json!({
        "metadata": {
            "name": format!("{service}-{suffix}"), "labels": { names::LABEL_SLICE_SERVICE: service },
        },
        "addressType": family, "ports": ports, "endpoints": endpoints,
    })
}

/// So many entries `key-0`, `key-1` and so on.
fn many(key: &str, count: usize) -> Value {
    (0..count)
        .map(|number| (format!("{key}-{number}"), Value::from("x")))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A Service of one port.
fn http() -> Value {
    json!({ "ports": [{ "name": "http", "port": 80 }] })
}

fn told(kind: &str, name: &str, reason: &str, note: impl Into<String>) -> [String; 4] {
    [kind.to_owned(), name.to_owned(), reason.to_owned(), note.into()]
}

#[test]
fn events_are_looked_for_as_the_guide_says() {
    assert!(GUIDE.contains(&format!("--field-selector {OF_CONTROLLERS}\n")));
    assert_eq!(OF_CONTROLLERS, format!("reportingComponent={}", names::EVENT_CONTROLLER));
}

/// Every reason and Event that there is, is made by a test of this module, or by the one that is named here.
#[test]
fn no_reason_and_no_event_is_without_a_test() {
    let elsewhere = [("EVENT_IDENTITY_CHANGED", include_str!("identity.rs"))];
    let here = [
        include_str!("conditions.rs"),
        include_str!("conditions/conflicts.rs"),
        include_str!("conditions/exports.rs"),
        include_str!("conditions/imports.rs"),
        include_str!("conditions/leases.rs"),
    ];
    let constants = include_str!("../../../core/src/names.rs").lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("pub const ")?.split_once(':')?;
        (name.starts_with("REASON_") || name.starts_with("EVENT_")).then_some(name)
    });
    let tested = |name: &str| {
        let used = format!("names::{name}");
        here.iter().any(|text| text.contains(&used))
            || elsewhere.iter().any(|(known, text)| *known == name && text.contains(known))
    };
    let missing: Vec<_> = constants.filter(|name| !tested(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
