//! Services of both address families.

use super::*;
use crate::support::{Import, Place, peer_endpoints, peer_spec};
use mcs_core::model::IpFamily;
use mcs_e2e::{Cluster, ClusterOptions, TempNamespace, peer::Peer};

fn versions(slices: &[EndpointSlice]) -> BTreeMap<String, Option<String>> {
    let version = |slice: &EndpointSlice| (slice.address_type.clone(), slice.resource_version());
    slices.iter().map(version).collect()
}

async fn wait_for_ready(api: &Api<ServiceImport>, name: &str, wanted: &str) -> Result<()> {
    wait_for(&format!("{wanted} of the import {name}"), async || {
        let status = api.get(name).await?.status.unwrap_or_default();
        let conditions = status.conditions.iter();
        let is: Vec<_> = conditions.map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect();
        expect(is, &vec![wanted.to_owned()])
    })
    .await
}

/// O16, O17: one slice a family, each with its own addresses; a cluster of one family takes what it can serve, and says
/// what it cannot.
#[tokio::test]
async fn each_family_has_slices_of_its_own_and_a_cluster_imports_those_that_it_serves() -> Result<()> {
    let options = ClusterOptions { dual_stack: true, ..ClusterOptions::new("dual", 2, "eu-west-1") };
    let dual = Cluster::start(ClusterOptions { controller_manager: false, ..options }).await?;
    let single = &pair().await?.west;
    let (both, one) = (dual.client(), single.client());
    let namespace = TempNamespace::in_all([both.clone(), one.clone()], "families").await?;
    let ns = namespace.name();
    let stack = Stack::start(StackOptions::for_namespace(ns), &[&dual, single]).await?;
    let slices_api = Api::<EndpointSlice>::namespaced(both.clone(), ns);
    let services = Api::<Service>::namespaced(both.clone(), ns);
    let exports = Api::<ServiceExport>::namespaced(both.clone(), ns);
    for (name, families, policy) in
        [("cart", json!(["IPv4", "IPv6"]), "RequireDualStack"), ("six", json!(["IPv6"]), "SingleStack")]
    {
        let ports = json!([{ "name": "http", "port": 80 }]);
        let spec = json!({ "ports": ports, "ipFamilies": families, "ipFamilyPolicy": policy });
        create_json(&services, json!({ "metadata": { "name": name }, "spec": spec })).await?;
        create(&exports, &service_export(name)).await?;
    }
    for (name, service, address) in
        [("cart-v4", "cart", "10.0.0.1"), ("cart-v6", "cart", "fd00::1"), ("six-a", "six", "fd00::2")]
    {
        let port = [("http", 8080)];
        create(&slices_api, &objects::endpoint_slice(ns, name, service, &[address.parse()?], &port)).await?;
    }
    imports(&both, ns, "cart", &["10.0.0.1", "fd00::1"]).await?;
    imports(&both, ns, "six", &["fd00::2"]).await?;
    imports(&one, ns, "cart", &["10.0.0.1"]).await?;
    let local = slices(&both, ns, "cart").await?;
    let by_family = |slice: &EndpointSlice| (slice.address_type.clone(), union([slice]));
    assert_eq!(
        local.iter().map(by_family).collect::<BTreeMap<_, _>>(),
        [("IPv4".to_owned(), set(&["10.0.0.1"])), ("IPv6".to_owned(), set(&["fd00::1"]))].into()
    );
    let derived = derived_service_name(&ServiceKey::new(ns, "cart")?);
    for (client, families) in [(&both, vec!["IPv4", "IPv6"]), (&one, vec!["IPv4"])] {
        let api = Api::<ServiceImport>::namespaced(client.clone(), ns);
        wait_for_ready(&api, "cart", "Ready=True/Ready").await?;
        let import = api.get("cart").await?.spec.context("a spec")?;
        let service = Api::<Service>::namespaced(client.clone(), ns).get(&derived).await?;
        let service = service.spec.context("a spec")?;
        let families: Vec<_> = families.into_iter().map(str::to_owned).collect();
        assert_eq!((&import.ip_families, import.ips.len()), (&families, families.len()));
        assert_eq!((service.ip_families, service.cluster_ips), (Some(families), Some(import.ips)));
    }
    let imports_of_one = Api::<ServiceImport>::namespaced(one.clone(), ns);
    wait_for_ready(&imports_of_one, "six", "Ready=False/IPFamilyNotSupported").await?;
    imports(&one, ns, "six", &[]).await?;

    // Another primary family takes another Service, and nothing else of the import.
    let alpha = Peer::join(&stack, "alpha").await?;
    let flip = Place::new(both.clone(), ns, "flip");
    let primary = async |families: [IpFamily; 2]| -> Result<Import> {
        let mut spec = peer_spec(&[("http", 80)], 1_000_000_000);
        spec.ip_families = families.to_vec();
        alpha.export(&flip.key()?, spec, peer_endpoints(&[("http", 80)], &["10.0.0.7"])?).await?;
        let wanted: Vec<_> = families.iter().map(|family| family.as_str().to_owned()).collect();
        wait_for(&format!("an import of {wanted:?}"), async || {
            let import = flip.import().await?;
            let spec = import.import.spec.clone().unwrap_or_default();
            let service = import.service.spec.clone().unwrap_or_default();
            expect(spec.ip_families, &wanted)?;
            expect(service.ip_families, &Some(wanted.clone()))?;
            expect(service.ip_family_policy, &Some("RequireDualStack".to_owned()))?;
            expect((spec.ips.len(), Some(spec.ips)), &(2, service.cluster_ips))?;
            expect(import.addresses(), &[("alpha".to_owned(), set(&["10.0.0.7"]))].into())?;
            Ok::<_, anyhow::Error>(import)
        })
        .await
    };
    let first = primary([IpFamily::V4, IpFamily::V6]).await?;
    let second = primary([IpFamily::V6, IpFamily::V4]).await?;
    let kept = |import: &Import| {
        let slices: Vec<_> = import.slices.iter().map(|it| (it.uid(), it.resource_version())).collect();
        (import.import.uid(), slices)
    };
    assert_eq!(kept(&second), kept(&first));
    assert_ne!(second.service.uid(), first.service.uid());

    let before = versions(&local);
    for (name, touch) in [("cart-v4", "1"), ("cart-v6", "1"), ("cart-v4", "2")] {
        merge(&slices_api, name, json!({ "metadata": { "annotations": { "other.example/x": touch } } }))
            .await?;
    }
    delete(&slices_api, "cart-v6").await?;
    imports(&both, ns, "cart", &["10.0.0.1"]).await?;
    let after = versions(&slices(&both, ns, "cart").await?);
    assert_eq!(after, BTreeMap::from([("IPv4".to_owned(), before["IPv4"].clone())]));
    Ok(())
}
