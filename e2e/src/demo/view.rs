//! What is looked at in the clusters, as rows of tables and with what must be so.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, Client, ResourceExt, api::ListParams};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::names::{
    ANNOTATION_DERIVED_SERVICE, CONDITION_CONFLICT, CONDITION_READY, CONDITION_VALID, LABEL_REGION,
    LABEL_SERVICE_NAME, LABEL_SLICE_SERVICE, LABEL_SOURCE_CLUSTER,
};

use super::scene::NAMESPACE;
use crate::table::columns;

/// The conditions of the ServiceExports of these names, once all are exported without conflict.
pub(crate) async fn exported(client: &Client, names: &[&str]) -> Result<String> {
    let exports: Api<ServiceExport> = Api::namespaced(client.clone(), NAMESPACE);
    let mut rows = Vec::new();
    for name in names {
        let export = exports.get_opt(name).await?.with_context(|| format!("no ServiceExport {name}"))?;
        let conditions =
            export.status.with_context(|| format!("ServiceExport {name} has no status"))?.conditions;
        let states: Vec<_> = conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        let wanted = [(CONDITION_VALID, "True"), (CONDITION_READY, "True"), (CONDITION_CONFLICT, "False")];
        ensure!(states == wanted, "ServiceExport {name} has conditions {states:?}");
        let mut cells = conditions.into_iter().map(|it| format!("{} ({})", it.status, it.reason));
        let mut cell = || cells.next().unwrap_or_default();
        rows.push([(*name).to_owned(), cell(), cell(), cell()]);
    }
    Ok(columns(["SERVICEEXPORT", "VALID", "READY", "CONFLICT"], &rows))
}

/// The ServiceImports of these names in `west`, once each is usable: it has the address of its derived Service, and the
/// endpoints of `east`, all of them and no others.
pub(crate) async fn imported(east: &Client, west: &Client, names: &[&str]) -> Result<String> {
    let imports: Api<ServiceImport> = Api::namespaced(west.clone(), NAMESPACE);
    let services: Api<Service> = Api::namespaced(west.clone(), NAMESPACE);
    let mut rows = Vec::new();
    for name in names {
        let import = imports.get_opt(name).await?.with_context(|| format!("no ServiceImport {name}"))?;
        let derived = import.annotations().get(ANNOTATION_DERIVED_SERVICE).cloned();
        let derived = derived.with_context(|| format!("ServiceImport {name} names no derived Service"))?;
        let spec = import.spec.with_context(|| format!("ServiceImport {name} has no spec"))?;
        let status = import.status.with_context(|| format!("ServiceImport {name} has no status"))?;
        let service = services.get_opt(&derived).await?.with_context(|| format!("no Service {derived}"))?;
        let ips = service.spec.and_then(|spec| spec.cluster_ips).unwrap_or_default();
        ensure!(
            !ips.is_empty() && spec.ips == ips,
            "ServiceImport {name} has IPs {:?}, Service {derived} {ips:?}",
            spec.ips
        );
        let clusters: Vec<_> = status.clusters.into_iter().map(|it| it.cluster).collect();
        ensure!(clusters == ["east"], "ServiceImport {name} has clusters {clusters:?}");
        let there = addresses_in(east, name).await?;
        let here = addresses(&slices(west, LABEL_SERVICE_NAME, name).await?);
        ensure!(
            !there.is_empty() && here == there,
            "{name} has endpoints {there:?} in east, {here:?} in west"
        );
        rows.push([(*name).to_owned(), spec.type_, spec.ips.join(","), clusters.join(","), derived]);
    }
    Ok(columns(["SERVICEIMPORT", "TYPE", "IPS", "CLUSTERS", "DERIVED SERVICE"], &rows))
}

/// The imported slices of these Services.
pub(crate) async fn imported_slices(client: &Client, names: &[&str]) -> Result<String> {
    let mut rows = Vec::new();
    for name in names {
        for slice in slices(client, LABEL_SERVICE_NAME, name).await? {
            let label = |label: &str| slice.labels().get(label).cloned().unwrap_or_default();
            let ports = slice.ports.iter().flatten().map(|port| {
                format!("{}:{}", port.name.as_deref().unwrap_or_default(), port.port.unwrap_or_default())
            });
            let ports: Vec<_> = ports.collect();
            let endpoints: Vec<_> = addresses(std::slice::from_ref(&slice)).into_iter().collect();
            rows.push([
                slice.name_any(),
                label(LABEL_SOURCE_CLUSTER),
                label(LABEL_REGION),
                ports.join(","),
                endpoints.join(","),
            ]);
        }
    }
    Ok(columns(["ENDPOINTSLICE", "CLUSTER", "REGION", "PORTS", "ENDPOINTS"], &rows))
}

/// The endpoints of a Service of `east`, once there are `count`.
pub(crate) async fn endpoints(east: &Client, name: &str, count: u16) -> Result<BTreeSet<String>> {
    let found = addresses_in(east, name).await?;
    ensure!(found.len() == usize::from(count), "{name} has {} of {count} endpoints", found.len());
    Ok(found)
}

/// The endpoints of a Service of `east`.
pub(crate) async fn addresses_in(east: &Client, name: &str) -> Result<BTreeSet<String>> {
    Ok(addresses(&slices(east, LABEL_SLICE_SERVICE, name).await?))
}

async fn slices(client: &Client, label: &str, name: &str) -> Result<Vec<EndpointSlice>> {
    let selector = ListParams::default().labels(&format!("{label}={name}"));
    Ok(Api::<EndpointSlice>::namespaced(client.clone(), NAMESPACE).list(&selector).await?.items)
}

fn addresses(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let ready = slices.iter().flat_map(|slice| &slice.endpoints);
    let ready = ready.filter(|it| it.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true));
    ready.flat_map(|endpoint| endpoint.addresses.clone()).collect()
}
