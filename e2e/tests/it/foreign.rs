//! Controllers that are started again among objects that look like theirs.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use mcs_controller::api::ServiceImport;
use mcs_core::{
    model::{Endpoint, EndpointMap, EndpointPort, ExportSpec, GroupKey, IpFamily, Protocol, ServiceType},
    names::{
        ANNOTATION_CLUSTERSET, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, LABEL_SLICE_SERVICE,
        LABEL_SOURCE_CLUSTER, derived_service_name,
    },
};
use mcs_e2e::{
    in_process::{Controller, Place},
    peer::Peer,
    shared::pair,
    tap::Tap,
};
use serde_json::json;

use crate::{
    exports::create_json,
    site::{HTTP, Site},
    support::{READY, peer_endpoints, peer_spec},
};

/// Kills a controller, and starts another one that finds nothing to do.
async fn restart(site: &Site<'_>, controller: Controller) -> Result<Controller> {
    controller.tap.kill();
    site.place.release_lease().await?;
    let next = site.start().await?;
    let writes = next.tap.writes();
    ensure!(writes.is_empty(), "written after a restart: {writes:?}");
    Ok(next)
}

/// O13: a Service has the name that another one's endpoint has as a host.
#[tokio::test]
async fn a_service_that_is_called_as_an_endpoint_of_another_stays_when_the_controller_restarts() -> Result<()>
{
    let site = Site::begin("hosts").await?;
    let port = EndpointPort {
        name: HTTP.0.to_owned(),
        protocol: Protocol::Tcp,
        port: Some(HTTP.1),
        app_protocol: None,
    };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut endpoints = EndpointMap::default();
    for (host, address) in [("db-0", "10.1.5.1"), ("db-1", "10.1.5.2")] {
        let endpoint = Endpoint { ready: Some(true), hostname: Some(host.to_owned()), ..Endpoint::default() };
        endpoints.insert(group.clone(), address.parse()?, endpoint);
    }
    let headless = ExportSpec { service_type: ServiceType::Headless, ..peer_spec(&[HTTP], 1_000) };
    site.beta.export(&site.key("db")?, headless, endpoints.pack()).await?;
    site.beta_exports("db-0", &[1]).await?;
    let controller = site.start().await?;
    let import = site.named("db").imports(&[("beta", &["10.1.5.1", "10.1.5.2"])]).await?;
    let hosts: Vec<_> =
        import.slices.iter().flat_map(|slice| &slice.endpoints).map(|it| it.hostname.as_deref()).collect();
    assert_eq!(hosts, [Some("db-0"), Some("db-1")]);
    site.imports_of_beta("db-0", &[1]).await?;
    site.work_ends(&controller).await?;
    let before = site.versions().await?;

    let controller = restart(&site, controller).await?;
    assert_eq!(site.versions().await?, before);
    // The end of either leaves the other alone.
    site.beta.withdraw(&site.key("db-0")?).await?;
    site.named("db-0").imports_nothing().await?;
    site.work_ends(&controller).await?;
    let after = site.versions().await?;
    let others = before.iter().filter(|(name, _)| after.contains_key(*name));
    assert_eq!(others.map(|(name, it)| (name.clone(), it.clone())).collect::<BTreeMap<_, _>>(), after);
    site.named("db").imports(&[("beta", &["10.1.5.1", "10.1.5.2"])]).await?;
    controller.end().await
}

/// O38: in one namespace are imports of two clustersets, those of another implementation, and some that were made by
/// hand, of a name that is exported too.
#[tokio::test]
async fn a_start_among_what_others_made_deletes_and_changes_nothing() -> Result<()> {
    let mut site = Site::begin("foreign").await?;
    // The import of `tool`, whose place is taken.
    site.blocked = 1;
    let (imports, services, slices) = (
        site.named("").api::<ServiceImport>(),
        site.named("").api::<Service>(),
        site.named("").api::<EndpointSlice>(),
    );
    let spec =
        json!({ "type": "ClusterSetIP", "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] });
    let by_hand = |name: &str| json!({ "metadata": { "name": name }, "spec": spec });
    create_json(&imports, by_hand("hand")).await?;
    create_json(&imports, by_hand("tool")).await?;
    // As Karmada has them in its member clusters, with the labels of the MCS API.
    let labels = json!({ "app.kubernetes.io/managed-by": "karmada" });
    create_json(&imports, json!({ "metadata": { "name": "karma", "labels": labels }, "spec": spec })).await?;
    let ports = json!([{ "name": "http", "port": 80 }]);
    let derived =
        json!({ "metadata": { "name": "derived-karma", "labels": labels }, "spec": { "ports": ports } });
    create_json(&services, derived).await?;
    let labels = json!({
        LABEL_SLICE_SERVICE: "derived-karma",
        LABEL_SERVICE_NAME: "karma",
        LABEL_SOURCE_CLUSTER: "member1",
        LABEL_SLICE_MANAGED_BY: "endpointslice-dispatch-controller.karmada.io",
    });
    let slice = json!({
        "metadata": { "name": "imported-member1-karma-x7f2q", "labels": labels },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{ "addresses": ["10.3.0.1"] }],
    });
    create_json(&slices, slice).await?;

    site.named("shop").export(&[HTTP], &["10.0.0.1"]).await?;
    site.beta_exports("cart", &[1, 2]).await?;
    site.beta_exports("tool", &[1]).await?;
    let controller = site.start().await?;
    site.named("shop").says(&READY).await?;
    site.named("shop").imports(&[("east", &["10.0.0.1"])]).await?;
    site.imports_of_beta("cart", &[1, 2]).await?;

    // Another clusterset, with an export of the same name and one of its own; this cluster is in both.
    let other = format!("{}-other", site.ns);
    let place = Place::prepare(&pair().await?.east, &other, &[&site.ns], &site.registry.url()).await?;
    let peer = Peer::join_clusterset(site.registry, &other, "beta").await?;
    for (name, address) in [("pay", "10.4.0.1"), ("cart", "10.4.0.2")] {
        peer.export(&site.key(name)?, peer_spec(&[HTTP], 1_000), peer_endpoints(&[HTTP], &[address])?)
            .await?;
    }
    let second = place.start(Tap::default()).await?;
    site.named("pay").imports(&[("beta", &["10.4.0.1"])]).await?;
    site.work_ends(&controller).await?;
    let owner = |import: &ServiceImport| {
        import.metadata.annotations.clone().unwrap_or_default().get(ANNOTATION_CLUSTERSET).cloned()
    };
    assert_eq!(owner(&imports.get("cart").await?), Some(site.ns.clone()));
    assert_eq!(owner(&imports.get("pay").await?), Some(other.clone()));
    let before = site.versions().await?;

    let controller = restart(&site, controller).await?;
    second.tap.kill();
    place.release_lease().await?;
    let second = place.start(Tap::default()).await?;
    peer.export(&site.key("pay")?, peer_spec(&[HTTP], 1_000), peer_endpoints(&[HTTP], &["10.4.0.3"])?)
        .await?;
    site.named("pay").imports(&[("beta", &["10.4.0.3"])]).await?;
    site.work_ends(&controller).await?;
    let pay = |name: &String| site.key("pay").is_ok_and(|key| name.contains(&derived_service_name(&key)));
    let without = |versions: BTreeMap<String, _>| -> Vec<_> {
        versions.into_iter().filter(|(name, _)| !pay(name)).collect()
    };
    assert_eq!(without(site.versions().await?), without(before.clone()));
    let deletes = second.tap.writes().into_iter().filter(|write| write.request.starts_with("DELETE")).count();
    assert_eq!(deletes, 0);

    // What its clusterset exports no more is all that a controller takes away.
    site.beta.withdraw(&site.key("tool")?).await?;
    peer.withdraw(&site.key("cart")?).await?;
    peer.withdraw(&site.key("pay")?).await?;
    site.named("pay").imports_nothing().await?;
    site.work_ends(&controller).await?;
    let after = site.versions().await?;
    let mut left = without(before);
    left.retain(|(name, _)| name != "ServiceImport pay");
    assert_eq!(after.into_iter().collect::<Vec<_>>(), left);
    controller.end().await?;
    second.end().await
}
