//! What the tests of exports and imports say in one line: objects of one Service in one namespace of one cluster.
//!
//! The Services here have no selector, so that their endpoints are exactly those that a test writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::{
    ids::ServiceKey,
    model::{
        Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, IpFamily, Port as ExportPort,
        Protocol,
    },
    names::{LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER, derived_service_name},
    time::WallTime,
};
use mcs_e2e::{
    objects::{self, Port},
    stack::{Stack, get},
    wait_for,
};
use serde_json::json;

/// What is said of an export that all is well with.
pub(crate) const READY: [(&str, &str, &str); 3] =
    [("Valid", "True", "Valid"), ("Ready", "True", "Ready"), ("Conflict", "False", "NoConflicts")];

/// Makes a namespace.
pub(crate) async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Waits until the metric of the controller in `cluster` says that so many imports are held.
pub(crate) async fn held_imports(stack: &Stack, cluster: &str, count: usize) -> Result<()> {
    let url = format!("http://{}/metrics", stack.controller(cluster)?.admin);
    wait_for(&format!("{count} held imports"), async || {
        let metrics = String::from_utf8(get(&url).await?.to_vec())?;
        let line = metrics.lines().find(|line| line.starts_with("mcs_controller_held_imports "));
        let line = line.context("no such metric")?;
        ensure!(line.ends_with(&format!(" {count}")), "{line}");
        Ok(())
    })
    .await
}

/// A Service's place: a namespace of a cluster, and its name.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The addresses of an import by source cluster; a cluster without endpoints is not in it.
pub(crate) type Imported = BTreeMap<String, BTreeSet<String>>;

/// All that makes up an import.
pub(crate) struct Import {
    pub(crate) import: ServiceImport,
    pub(crate) service: Service,
    pub(crate) slices: Vec<EndpointSlice>,
}

/// Type, status and reason of a condition.
pub(crate) type Said = (String, String, String);

impl Place {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn key(&self) -> Result<ServiceKey> {
        Ok(ServiceKey::new(&self.namespace, &self.name)?)
    }

    pub(crate) fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes the Service, and one slice `<name>-x` of its endpoints.
    pub(crate) async fn create_service(&self, ports: &[Port<'_>], addresses: &[&str]) -> Result<()> {
        let service = objects::service_without_selector(&self.namespace, &self.name, ports);
        self.api::<Service>().create(&PostParams::default(), &service).await?;
        self.create_slice(&format!("{}-x", self.name), ports, addresses).await
    }

    /// Makes a slice of the Service.
    pub(crate) async fn create_slice(
        &self,
        slice: &str,
        ports: &[Port<'_>],
        addresses: &[&str],
    ) -> Result<()> {
        let addresses =
            addresses.iter().map(|address| address.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
        let slice = objects::endpoint_slice(&self.namespace, slice, &self.name, &addresses, ports);
        self.api::<EndpointSlice>().create(&PostParams::default(), &slice).await?;
        Ok(())
    }

    /// Makes the addresses of the slice `<name>-x` these.
    pub(crate) async fn set_addresses(&self, addresses: &[&str]) -> Result<()> {
        let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
        let patch = Patch::Merge(json!({ "endpoints": endpoints }));
        let slices = self.api::<EndpointSlice>();
        slices.patch(&format!("{}-x", self.name), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Makes a ServiceExport, as a user does.
    pub(crate) async fn create_export(&self) -> Result<()> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let export = ServiceExport { metadata, ..ServiceExport::default() };
        self.api::<ServiceExport>().create(&PostParams::default(), &export).await?;
        Ok(())
    }

    /// Makes the Service and its ServiceExport.
    pub(crate) async fn export(&self, ports: &[Port<'_>], addresses: &[&str]) -> Result<()> {
        self.create_service(ports, addresses).await?;
        self.create_export().await
    }

    /// Deletes an object of this namespace; a name of none is an error.
    pub(crate) async fn delete<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the ServiceExport is gone.
    pub(crate) async fn export_is_gone(&self) -> Result<()> {
        wait_for(&format!("the end of ServiceExport {}", self.name), async || {
            let found = self.api::<ServiceExport>().get_opt(&self.name).await?;
            ensure!(found.is_none(), "{found:?}");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }

    /// The conditions of the ServiceExport.
    pub(crate) async fn conditions(&self) -> Result<Vec<Said>> {
        let export = self.api::<ServiceExport>().get(&self.name).await?;
        let conditions = export.status.context("no status yet")?.conditions.into_iter();
        Ok(conditions.map(|it| (it.type_, it.status, it.reason)).collect())
    }

    /// What a condition of the ServiceExport says to people.
    pub(crate) async fn message(&self, kind: &str) -> Result<String> {
        let export = self.api::<ServiceExport>().get(&self.name).await?;
        let mut conditions = export.status.context("no status yet")?.conditions.into_iter();
        Ok(conditions.find(|it| it.type_ == kind).with_context(|| format!("no condition {kind}"))?.message)
    }

    /// Waits until the conditions of the ServiceExport are these.
    pub(crate) async fn says(&self, wanted: &[(&str, &str, &str)]) -> Result<()> {
        let wanted: Vec<Said> = wanted
            .iter()
            .map(|(kind, status, reason)| ((*kind).to_owned(), (*status).to_owned(), (*reason).to_owned()))
            .collect();
        wait_for(&format!("the conditions {wanted:?} of {}", self.name), async || {
            let found = self.conditions().await?;
            ensure!(found == wanted, "{found:?}");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }

    /// All of the import, when it is there.
    pub(crate) async fn import(&self) -> Result<Import> {
        let derived = derived_service_name(&self.key()?);
        Ok(Import {
            import: self.api::<ServiceImport>().get(&self.name).await?,
            service: self.api::<Service>().get(&derived).await?,
            slices: self.imported_slices().await?,
        })
    }

    async fn imported_slices(&self) -> Result<Vec<EndpointSlice>> {
        let selector = ListParams::default().labels(&format!("{LABEL_SERVICE_NAME}={}", self.name));
        Ok(self.api::<EndpointSlice>().list(&selector).await?.items)
    }

    /// Waits until the import has these clusters in its status, each with these addresses, and answers all of it.
    pub(crate) async fn imports(&self, wanted: &[(&str, &[&str])]) -> Result<Import> {
        let clusters: Vec<String> = wanted.iter().map(|(cluster, _)| (*cluster).to_owned()).collect();
        let addresses: Imported = wanted
            .iter()
            .filter(|(_, addresses)| !addresses.is_empty())
            .map(|(cluster, addresses)| {
                ((*cluster).to_owned(), addresses.iter().map(|it| (*it).to_owned()).collect())
            })
            .collect();
        wait_for(&format!("the import of {}/{} from {wanted:?}", self.namespace, self.name), async || {
            let import = self.import().await?;
            let found = (import.clusters(), import.addresses());
            ensure!(found == (clusters.clone(), addresses.clone()), "{found:?}");
            Ok::<_, anyhow::Error>(import)
        })
        .await
    }

    /// Waits until nothing is left of the import.
    pub(crate) async fn imports_nothing(&self) -> Result<()> {
        let derived = derived_service_name(&self.key()?);
        wait_for(&format!("the end of the import {}/{}", self.namespace, self.name), async || {
            let import = self.api::<ServiceImport>().get_opt(&self.name).await?.is_some();
            let service = self.api::<Service>().get_opt(&derived).await?.is_some();
            let left = (import, service, self.imported_slices().await?.len());
            ensure!(left == (false, false, 0), "import, Service, slices: {left:?}");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }
}

impl Import {
    /// `status.clusters`.
    pub(crate) fn clusters(&self) -> Vec<String> {
        let status = self.import.status.clone().unwrap_or_default();
        status.clusters.into_iter().map(|entry| entry.cluster).collect()
    }

    /// The addresses by source cluster.
    pub(crate) fn addresses(&self) -> Imported {
        let mut found = Imported::new();
        for slice in &self.slices {
            let source = slice.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_SOURCE_CLUSTER));
            let addresses = slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone());
            let addresses: Vec<_> = addresses.collect();
            if !addresses.is_empty() {
                found.entry(source.cloned().unwrap_or_default()).or_default().extend(addresses);
            }
        }
        found
    }

    /// Names and numbers of the ServiceImport's ports.
    pub(crate) fn ports(&self) -> Vec<(String, i32)> {
        let spec = self.import.spec.clone().unwrap_or_default();
        spec.ports.into_iter().map(|port| (port.name.unwrap_or_default(), port.port)).collect()
    }

    /// Names and numbers of the derived Service's ports.
    pub(crate) fn service_ports(&self) -> Vec<(String, i32)> {
        let ports = self.service.spec.clone().and_then(|spec| spec.ports).unwrap_or_default();
        ports.into_iter().map(|port| (port.name.unwrap_or_default(), port.port)).collect()
    }

    /// Names and numbers of the slices' ports by source cluster.
    pub(crate) fn slice_ports(&self) -> BTreeMap<String, BTreeSet<(String, i32)>> {
        let mut found = BTreeMap::<_, BTreeSet<_>>::new();
        for slice in &self.slices {
            let source = slice.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_SOURCE_CLUSTER));
            let ports = slice.ports.iter().flatten();
            let ports =
                ports.map(|port| (port.name.clone().unwrap_or_default(), port.port.unwrap_or_default()));
            found.entry(source.cloned().unwrap_or_default()).or_default().extend(ports);
        }
        found
    }
}

/// What a peer exports: TCP ports, as old as `created_at` seconds after 1970.
pub(crate) fn peer_spec(ports: &[Port<'_>], created_at: i64) -> ExportSpec {
    let ports = ports.iter().map(|(name, number)| ExportPort {
        name: (*name).to_owned(),
        protocol: Protocol::Tcp,
        port: *number,
        app_protocol: None,
    });
    ExportSpec {
        created_at: WallTime::from_unix_secs(created_at),
        ports: ports.collect(),
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    }
}

/// Ready endpoints of a peer, reached by the numbers of the Service's ports.
pub(crate) fn peer_endpoints(ports: &[Port<'_>], addresses: &[&str]) -> Result<EndpointSet> {
    let ports = ports.iter().map(|(name, number)| EndpointPort {
        name: (*name).to_owned(),
        protocol: Protocol::Tcp,
        port: Some(*number),
        app_protocol: None,
    });
    let group = GroupKey::new(IpFamily::V4, ports);
    let mut endpoints = EndpointMap::default();
    for address in addresses {
        let ready = Endpoint { ready: Some(true), ..Endpoint::default() };
        endpoints.insert(group.clone(), address.parse()?, ready);
    }
    Ok(endpoints.pack())
}
