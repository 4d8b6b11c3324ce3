//! One cluster, in a namespace and a clusterset of its own: controllers that run within the test's process, and `beta`, a
//! member that the test plays.

use std::{cell::Cell, collections::BTreeMap};

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Client, ResourceExt, api::ListParams};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::{
    ids::ServiceKey,
    names::{ANNOTATION_DERIVED_SERVICE, ANNOTATION_SOURCE_VERSION, derived_service_name},
};
use mcs_e2e::{
    in_process::{Controller, Place, registry},
    peer::Peer,
    shared::pair,
    stack::Stack,
    tap::Tap,
    wait_for,
};
use serde_json::{Value, json};

use crate::{
    exports::Kind,
    support::{Place as Named, peer_endpoints, peer_spec},
};

/// The port of what `beta` exports.
pub(crate) const HTTP: (&str, u16) = ("http", 8080);

/// What objects say, by kind and name.
pub(crate) type Content = BTreeMap<String, Value>;

/// See the module. The cluster is `east`.
pub(crate) struct Site<'a> {
    pub(crate) ns: String,
    pub(crate) client: Client,
    pub(crate) place: Place,
    pub(crate) registry: &'a Stack,
    pub(crate) beta: Peer,
    /// How many keys only somebody else can mend.
    pub(crate) blocked: u8,
    probes: Cell<u8>,
}

impl Site<'static> {
    /// A site at the registry that tests share.
    pub(crate) async fn begin(prefix: &str) -> Result<Self> {
        Site::at(registry().await?, prefix).await
    }
}

impl<'a> Site<'a> {
    /// A site at `registry`.
    pub(crate) async fn at(registry: &'a Stack, prefix: &str) -> Result<Self> {
        let pair = pair().await?;
        let ns = pair.namespace(prefix).await?.name().to_owned();
        let place = Place::prepare(&pair.east, &ns, &[&ns], &registry.url()).await?;
        let beta = Peer::join_clusterset(registry, &ns, "beta").await?;
        Ok(Self { ns, client: pair.east.client(), place, registry, beta, blocked: 0, probes: Cell::new(0) })
    }

    pub(crate) fn key(&self, name: &str) -> Result<ServiceKey> {
        Ok(ServiceKey::new(&self.ns, name)?)
    }

    pub(crate) fn named(&self, name: &str) -> Named {
        Named::new(self.client.clone(), &self.ns, name)
    }

    /// Lets `beta` export `name` with these endpoints of 10.1.0.0/24.
    pub(crate) async fn beta_exports(&self, name: &str, hosts: &[u8]) -> Result<()> {
        let addresses: Vec<_> = hosts.iter().map(|host| format!("10.1.0.{host}")).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        let endpoints = peer_endpoints(&[HTTP], &addresses)?;
        self.beta.export(&self.key(name)?, peer_spec(&[HTTP], 1_000), endpoints).await
    }

    /// Waits until `name` is imported from `beta` with these endpoints of 10.1.0.0/24.
    pub(crate) async fn imports_of_beta(&self, name: &str, hosts: &[u8]) -> Result<()> {
        let addresses: Vec<_> = hosts.iter().map(|host| format!("10.1.0.{host}")).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        self.named(name).imports(&[("beta", &addresses)]).await.map(drop)
    }

    /// A tap that does not number what the probes make a controller write.
    pub(crate) fn tap(&self) -> Result<Tap> {
        Ok(Tap::without(&["probe".to_owned(), derived_service_name(&self.key("probe")?)]))
    }

    /// Starts a controller, and waits until it has looked at everything.
    pub(crate) async fn start(&self) -> Result<Controller> {
        let controller = self.place.start(self.tap()?).await?;
        self.work_ends(&controller).await?;
        Ok(controller)
    }

    /// Waits until the controller has worked on all that it was told before: when the first probe arrives it is in the
    /// queue, when the queue is empty it is in hand, and when the second one arrives its writes have been sent.
    pub(crate) async fn work_ends(&self, controller: &Controller) -> Result<()> {
        self.probe().await?;
        controller.idle_but_for(self.blocked).await?;
        self.probe().await
    }

    /// Changes the export `probe` and waits for it: all that the registry told before it is planned then.
    async fn probe(&self) -> Result<()> {
        self.probes.set(self.probes.get() % 250 + 1);
        let address = format!("10.1.2.{}", self.probes.get());
        let endpoints = peer_endpoints(&[HTTP], &[&address])?;
        self.beta.export(&self.key("probe")?, peer_spec(&[HTTP], 1_000), endpoints).await?;
        self.named("probe").imports(&[("beta", &[&address])]).await.map(drop)
    }

    /// Waits until all that there is in the namespace says this.
    pub(crate) async fn becomes(&self, wanted: &Content) -> Result<()> {
        wait_for("all that there shall be", async || {
            let is = self.content().await?;
            let names = is.keys().chain(wanted.keys());
            let differs = names.filter(|name| is.get(*name) != wanted.get(*name));
            let differs: Vec<_> = differs.map(|name| (name, is.get(name), wanted.get(name))).collect();
            ensure!(differs.is_empty(), "{differs:?}");
            Ok(())
        })
        .await
    }

    /// All that there is in the namespace, but for the probe: what it says, without what each object has of its own.
    pub(crate) async fn content(&self) -> Result<Content> {
        let objects = self.objects().await?;
        let mut own = vec![(self.ns.clone(), "NAMESPACE".to_owned())];
        for (name, object) in &objects {
            if let Some(uid) = object["metadata"]["uid"].as_str() {
                own.push((uid.to_owned(), format!("the uid of {name}")));
            }
            if let Some(import) = name.strip_prefix("ServiceImport ") {
                own.push((derived_service_name(&self.key(import)?), format!("derived-{import}")));
            }
        }
        let services: BTreeMap<_, _> =
            objects.iter().filter(|(name, _)| name.starts_with("Service ")).cloned().collect();
        let said = objects.into_iter().map(|(name, mut object)| {
            let derived = object["metadata"]["annotations"][ANNOTATION_DERIVED_SERVICE].as_str();
            if let Some(service) = derived.and_then(|derived| services.get(&format!("Service {derived}"))) {
                let same = object["spec"]["ips"] == service["spec"]["clusterIPs"];
                object["spec"]["ips"] = json!(if same { "those of the Service" } else { "others" });
            }
            strip(&mut object);
            let mut text = serde_json::to_string(&(name, object))?;
            for (own, shown) in &own {
                text = text.replace(own, shown);
            }
            Ok(serde_json::from_str::<(String, Value)>(&text)?)
        });
        let said = said.collect::<Result<BTreeMap<_, _>>>()?;
        Ok(said.into_iter().filter(|(name, _)| !name.contains("probe")).collect())
    }

    /// UID and resource version of all that there is in the namespace, but for the probe.
    pub(crate) async fn versions(&self) -> Result<BTreeMap<String, (Option<String>, Option<String>)>> {
        let derived = derived_service_name(&self.key("probe")?);
        let objects = self.objects().await?.into_iter();
        let others = objects.filter(|(name, _)| !name.contains("probe") && !name.contains(&derived));
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let versions = others.map(|(name, object)| {
            let metadata = &object["metadata"];
            (name, (text(&metadata["uid"]), text(&metadata["resourceVersion"])))
        });
        Ok(versions.collect())
    }

    async fn objects(&self) -> Result<Vec<(String, Value)>> {
        let mut objects = self.list::<ServiceExport>().await?;
        objects.extend(self.list::<ServiceImport>().await?);
        objects.extend(self.list::<Service>().await?);
        objects.extend(self.list::<EndpointSlice>().await?);
        Ok(objects)
    }

    async fn list<K: Kind>(&self) -> Result<Vec<(String, Value)>> {
        let objects = self.named("").api::<K>().list(&ListParams::default()).await?;
        let told = objects.items.into_iter().map(|object| {
            Ok((format!("{} {}", K::kind(&()), object.name_any()), serde_json::to_value(object)?))
        });
        told.collect()
    }
}

/// Takes off what differs between two objects that say the same.
fn strip(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| {
            ["labels", "annotations", "finalizers", "deletionTimestamp", "ownerReferences"]
                .contains(&field.as_str())
        });
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ANNOTATION_SOURCE_VERSION);
    }
    // Which addresses a Service has is Kubernetes' choice.
    for field in ["clusterIP", "clusterIPs"] {
        if let Some(addresses) = object["spec"].get_mut(field) {
            let none = *addresses == json!(["None"]) || *addresses == json!("None");
            *addresses = json!(if none { "None" } else { "an address" });
        }
    }
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
        condition["observedGeneration"].take();
    }
}
