//! What a controller makes of what other clusters export, on a real API server: whatever is in its way, and whatever the
//! exporters change.
//!
//! The exporters are played, so that one cluster is enough; it is `west` of the shared pair.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Service, discovery::v1::EndpointSlice},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mcs_controller::api::ServiceImport;
use mcs_core::{
    model::{
        Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, GroupKey, InternalTrafficPolicy,
        IpFamily, Protocol, ServiceType,
    },
    names::{LABEL_REGION, LABEL_SOURCE_CLUSTER},
};
use mcs_e2e::{
    objects::{Port, service_without_selector},
    peer::Peer,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::support::{Import, Place, peer_endpoints, peer_spec};

mod others;

const HTTP: [Port<'_>; 1] = [("http", 80)];
const ALPHA: &[(&str, &[&str])] = &[("alpha", &["10.1.0.1"])];
/// Before any object of a test was made.
const OLD: i64 = 1_000_000_000;
/// Afterwards.
const LATE: i64 = 4_000_000_000;

/// West, which imports what `alpha` exports.
struct Scene {
    stack: Stack,
    alpha: Peer,
    client: Client,
    ns: String,
}

impl Scene {
    async fn start(prefix: &str, flags: &[&str]) -> Result<Self> {
        let pair = pair().await?;
        let ns = pair.namespace(prefix).await?.name().to_owned();
        let mut options = StackOptions::for_namespace(&ns);
        options.controller_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let stack = Stack::start(options, &[&pair.west]).await?;
        let alpha = Peer::join(&stack, "alpha").await?;
        Ok(Self { stack, alpha, client: pair.west.client(), ns })
    }

    fn place(&self, name: &str) -> Place {
        Place::new(self.client.clone(), &self.ns, name)
    }

    /// Has alpha export one endpoint of `place`.
    async fn export(&self, place: &Place) -> Result<()> {
        self.export_with(place, |_| {}).await
    }

    /// Has alpha export one endpoint of `place`, whose Service it changes before.
    async fn export_with(&self, place: &Place, change: impl FnOnce(&mut ExportSpec)) -> Result<()> {
        let mut spec = peer_spec(&HTTP, OLD);
        change(&mut spec);
        self.alpha.export(&place.key()?, spec, peer_endpoints(&HTTP, &["10.1.0.1"])?).await
    }
}

/// Beta exports the Service too, all the time. For a while a finalizer of somebody else holds the derived Service.
#[tokio::test]
async fn a_change_of_type_replaces_the_derived_service_and_nothing_else() -> Result<()> {
    let scene = Scene::start("type", &[]).await?;
    let beta = Peer::join(&scene.stack, "beta").await?;
    let cart = scene.place("cart");
    let both: &[(&str, &[&str])] = &[("alpha", &["10.1.0.1"]), ("beta", &["10.2.0.1"])];
    scene.export(&cart).await?;
    beta.export(&cart.key()?, peer_spec(&HTTP, LATE), peer_endpoints(&HTTP, &["10.2.0.1"])?).await?;
    let first = cart.imports(both).await?;
    let derived = first.service.name_any();

    merge::<Service>(&cart, &derived, json!({ "metadata": { "finalizers": ["their.example/x"] } })).await?;
    scene.export_with(&cart, |spec| spec.service_type = ServiceType::Headless).await?;
    ready(&cart, "False/Pending").await?;
    let held = cart.imports(both).await?;
    ensure!(held.service.metadata.deletion_timestamp.is_some(), "{:?}", held.service.metadata);
    merge::<Service>(&cart, &derived, json!({ "metadata": { "finalizers": null } })).await?;
    ready(&cart, "True/Ready").await?;
    let headless = cart.imports(both).await?;
    scene.export(&cart).await?;
    wait_for("a derived Service with an address", async || {
        let ips = cart.import().await?.import.spec.unwrap_or_default().ips;
        ensure!(ips.len() == 1, "{ips:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let last = cart.imports(both).await?;

    let kept = |import: &Import| {
        (
            import.import.uid(),
            import.slices.iter().map(|it| (it.uid(), it.resource_version())).collect::<BTreeSet<_>>(),
        )
    };
    for later in [&held, &headless, &last] {
        assert_eq!(kept(later), kept(&first));
    }
    let services: BTreeSet<_> = [&first, &headless, &last].map(|import| import.service.uid()).into();
    assert_eq!(services.len(), 3);
    let spec = |import: &Import| {
        let (is, derived) = (import.import.spec.clone(), import.service.spec.clone());
        (
            is.map(|is| (is.type_, is.ips.len())),
            derived.and_then(|derived| derived.cluster_ip).map(|ip| ip == "None"),
        )
    };
    assert_eq!(spec(&headless), (Some(("Headless".to_owned(), 0)), Some(true)));
    assert_eq!(spec(&last), (Some(("ClusterSetIP".to_owned(), 1)), Some(false)));
    Ok(())
}

/// A node hint is for local endpoints only: a node of that name elsewhere is another one.
#[tokio::test]
async fn hints_are_made_by_the_traffic_distribution_of_the_import() -> Result<()> {
    let scene = Scene::start("hints", &[]).await?;
    let cart = scene.place("cart");
    let endpoint = Endpoint {
        ready: Some(true),
        zone: Some("us-west-2a".to_owned()),
        node_name: Some("node-1".to_owned()),
        ..Endpoint::default()
    };
    let mut endpoints = EndpointMap::default();
    endpoints.insert(group(&HTTP), "10.1.0.1".parse()?, endpoint);
    let endpoints = endpoints.pack();
    let service = service_without_selector(&scene.ns, "cart", &HTTP);
    cart.api::<Service>().create(&PostParams::default(), &service).await?;
    let slice = json!({
        "metadata": { "name": "cart-x", "labels": { "kubernetes.io/service-name": "cart" } },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 80 }],
        "endpoints": [{ "addresses": ["10.2.0.1"], "zone": "us-west-2b", "nodeName": "node-1" }],
    });
    create::<EndpointSlice>(&cart, slice).await?;
    cart.create_export().await?;

    let none = [None, None];
    let [a, b, node] = ["us-west-2a", "us-west-2b", "node-1"].map(|hint| Some(hint.to_owned()));
    for (distribution, policy, alpha, west) in [
        (None, InternalTrafficPolicy::Cluster, &none, &none),
        (Some("PreferClose"), InternalTrafficPolicy::Local, &[a.clone(), None], &[b.clone(), None]),
        (Some("PreferSameNode"), InternalTrafficPolicy::Local, &[a.clone(), None], &[b.clone(), node]),
        (Some("PreferSameZone"), InternalTrafficPolicy::Cluster, &[a, None], &[b, None]),
        (None, InternalTrafficPolicy::Cluster, &none, &none),
    ] {
        let mut spec = peer_spec(&HTTP, OLD);
        spec.traffic_distribution = distribution.map(str::to_owned);
        spec.internal_traffic_policy = policy;
        scene.alpha.export(&cart.key()?, spec, endpoints.clone()).await?;
        let wanted = BTreeMap::from([("alpha".to_owned(), alpha.clone()), ("west".to_owned(), west.clone())]);
        wait_for(&format!("hints of {distribution:?}"), async || {
            let found = cart.import().await?;
            let hints = hints(&found.slices);
            ensure!(hints == wanted, "{hints:?}");
            let spec = found.import.spec.context("a spec")?;
            let derived = found.service.spec.context("a spec")?;
            let is = [
                (spec.traffic_distribution, spec.internal_traffic_policy),
                (derived.traffic_distribution, derived.internal_traffic_policy),
            ];
            let wanted = (distribution.map(str::to_owned), Some(policy.as_str().to_owned()));
            ensure!(is == [wanted.clone(), wanted], "{is:?}");
            Ok::<_, anyhow::Error>(())
        })
        .await?;
    }
    let found = cart.import().await?;
    let regions = found
        .slices
        .iter()
        .map(|slice| [LABEL_SOURCE_CLUSTER, LABEL_REGION].map(|label| slice.labels().get(label).cloned()));
    let regions: BTreeSet<_> = regions.collect();
    let [alpha, west, region] = ["alpha", "west", "us-west-2"].map(|text| Some(text.to_owned()));
    assert_eq!(regions, [[alpha, None], [west, region]].into());
    Ok(())
}

/// O09: a port name of the greatest length; O11: without a name in one cluster and with one in another.
#[tokio::test]
async fn the_ports_of_several_exporters_have_one_name_each_everywhere() -> Result<()> {
    let scene = Scene::start("named", &[]).await?;
    let beta = Peer::join(&scene.stack, "beta").await?;
    let [cart, long, many] = ["cart", "long", "many"].map(|name| scene.place(name));

    let (bare, http, web) = ([("", 80)], [("http", 80)], [("web", 9090)]);
    scene.alpha.export(&cart.key()?, peer_spec(&bare, OLD), peer_endpoints(&bare, &["10.1.0.1"])?).await?;
    beta.export(&cart.key()?, peer_spec(&http, LATE), peer_endpoints(&http, &["10.2.0.1"])?).await?;
    // Beta's port has another name than the import's, so none of its endpoints could be reached.
    has_ports(&cart, &bare, &[("alpha", &bare)]).await?;
    beta.export(&cart.key()?, peer_spec(&web, LATE), peer_endpoints(&web, &["10.2.0.1"])?).await?;
    has_ports(&cart, &[("tcp-80", 80), ("web", 9090)], &[("alpha", &[("tcp-80", 80)]), ("beta", &web)])
        .await?;
    scene.alpha.withdraw(&cart.key()?).await?;
    has_ports(&cart, &web, &[("beta", &web)]).await?;
    beta.export(&cart.key()?, peer_spec(&http, LATE), peer_endpoints(&http, &["10.2.0.1"])?).await?;
    has_ports(&cart, &http, &[("beta", &http)]).await?;

    let name = format!("{}z", "a".repeat(62));
    let longest = [(name.as_str(), 8080)];
    scene
        .alpha
        .export(&long.key()?, peer_spec(&longest, OLD), peer_endpoints(&longest, &["10.1.0.2"])?)
        .await?;
    has_ports(&long, &longest, &[("alpha", &longest)]).await?;

    // Slices of one Service that reach it by other numbers, as during a rollout that changes the target port.
    let mut endpoints = EndpointMap::default();
    for (number, address) in [(8080, "10.1.0.3"), (9090, "10.1.0.4")] {
        endpoints.insert(group(&[("http", number)]), address.parse()?, Endpoint::default());
    }
    scene.alpha.export(&many.key()?, peer_spec(&HTTP, OLD), endpoints.pack()).await?;
    let import = many.imports(&[("alpha", &["10.1.0.3", "10.1.0.4"])]).await?;
    let found: BTreeMap<_, _> = import
        .slices
        .iter()
        .map(|slice| {
            (slice.ports.iter().flatten().filter_map(|port| port.port).collect(), addresses([slice]))
        })
        .collect();
    let of = |number: i32, address: &str| (vec![number], BTreeSet::from([address.to_owned()]));
    assert_eq!(found, [of(8080, "10.1.0.3"), of(9090, "10.1.0.4")].into());
    Ok(())
}

/// O18: from three clusters; O19: 30,000 endpoints of one of them.
#[tokio::test]
async fn tens_of_thousands_of_endpoints_of_three_clusters_are_imported_in_small_slices() -> Result<()> {
    let scene = Scene::start("many", &[]).await?;
    let (beta, gamma) = (Peer::join(&scene.stack, "beta").await?, Peer::join(&scene.stack, "gamma").await?);
    let cart = scene.place("cart");
    let key = cart.key()?;
    let of = |net: u8, count: u32| {
        (0..count).map(move |number| Ipv4Addr::from_bits((u32::from(net) << 24) + number))
    };
    for (peer, net, count) in [(&scene.alpha, 11, 30_000), (&beta, 12, 100), (&gamma, 13, 101)] {
        peer.export(&key, peer_spec(&HTTP, OLD), many(of(net, count))).await?;
    }
    let before = sized(&cart, [("alpha", 30_000, 300), ("beta", 100, 1), ("gamma", 101, 2)]).await?;
    let wanted: BTreeSet<_> =
        of(11, 30_000).chain(of(12, 100)).chain(of(13, 101)).map(|address| address.to_string()).collect();
    ensure!(addresses(&before) == wanted, "other addresses than those that were exported");

    let moved = of(11, 29_999).chain([Ipv4Addr::new(14, 0, 0, 1)]);
    scene.alpha.export(&key, peer_spec(&HTTP, OLD), many(moved)).await?;
    gamma.withdraw(&key).await?;
    let after = sized(&cart, [("alpha", 30_000, 300), ("beta", 100, 1), ("gamma", 0, 0)]).await?;
    wait_for("the endpoint that moved", async || {
        let slices = cart.import().await?.slices;
        ensure!(addresses(&slices).contains("14.0.0.1"), "not there yet");
        let versions = |slices: &[EndpointSlice]| -> BTreeMap<_, _> {
            slices.iter().map(|slice| (slice.name_any(), slice.resource_version())).collect()
        };
        let (before, after) = (versions(&before), versions(&slices));
        let written = after.iter().filter(|(name, version)| before.get(*name) != Some(*version)).count();
        ensure!((after.len(), written) == (301, 1), "{} slices, {written} written", after.len());
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    assert_eq!(after.len(), 301);
    Ok(())
}

/// The ports that an import has: those of the ServiceImport and the derived Service, and those of slices by source.
async fn has_ports(place: &Place, service: &[Port<'_>], slices: &[(&str, &[Port<'_>])]) -> Result<()> {
    let texts = |ports: &[Port<'_>]| -> BTreeSet<(String, i32)> {
        ports.iter().map(|(name, number)| ((*name).to_owned(), i32::from(*number))).collect()
    };
    let by_source: BTreeMap<_, _> =
        slices.iter().map(|(source, ports)| ((*source).to_owned(), texts(ports))).collect();
    wait_for(&format!("the ports {service:?} and {slices:?} of {}", place.name), async || {
        let import = place.import().await?;
        let found: [BTreeSet<_>; 2] =
            [import.ports(), import.service_ports()].map(|ports| ports.into_iter().collect());
        ensure!(found == [texts(service), texts(service)], "{found:?}");
        ensure!(import.slice_ports() == by_source, "{:?}", import.slice_ports());
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// Waits until each source has so many endpoints in so many slices, none too large or empty, and no address is twice.
async fn sized(place: &Place, wanted: [(&str, usize, usize); 3]) -> Result<Vec<EndpointSlice>> {
    let wanted: BTreeMap<_, _> = wanted
        .into_iter()
        .filter(|(_, _, slices)| *slices > 0)
        .map(|(source, endpoints, slices)| (source.to_owned(), (endpoints, slices)))
        .collect();
    wait_for(&format!("slices of {wanted:?}"), async || {
        // What is large is read when it is said to be complete.
        let status = place.api::<ServiceImport>().get(&place.name).await?.status.unwrap_or_default();
        let clusters: BTreeSet<_> = status.clusters.into_iter().map(|entry| entry.cluster).collect();
        ensure!(clusters == wanted.keys().cloned().collect(), "{clusters:?}");
        let slices = place.import().await?.slices;
        let mut found = BTreeMap::<String, (usize, usize)>::new();
        for slice in &slices {
            ensure!((1..=100).contains(&slice.endpoints.len()), "{} in one", slice.endpoints.len());
            let source = slice.labels().get(LABEL_SOURCE_CLUSTER).cloned().unwrap_or_default();
            let of_source = found.entry(source).or_default();
            *of_source = (of_source.0 + slice.endpoints.len(), of_source.1 + 1);
        }
        ensure!(found == wanted, "{found:?}");
        Ok::<_, anyhow::Error>(slices)
    })
    .await
}

/// Waits until the condition `Ready` of the ServiceImport is this.
async fn ready(place: &Place, wanted: &str) -> Result<()> {
    wait_for(&format!("Ready of {} to be {wanted}", place.name), async || {
        let status = place.api::<ServiceImport>().get(&place.name).await?.status.unwrap_or_default();
        let conditions = status.conditions.iter().filter(|it| it.type_ == "Ready");
        let is: Vec<_> = conditions.map(|it| format!("{}/{}", it.status, it.reason)).collect();
        ensure!(is == [wanted], "{is:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// The hint of a zone and of a node of the one endpoint of each source.
fn hints(slices: &[EndpointSlice]) -> BTreeMap<String, [Option<String>; 2]> {
    let hint = |slice: &EndpointSlice| {
        let hints = slice.endpoints.first()?.hints.clone()?;
        let zone = hints.for_zones.and_then(|zones| Some(zones.first()?.name.clone()));
        Some([zone, hints.for_nodes.and_then(|nodes| Some(nodes.first()?.name.clone()))])
    };
    let source =
        |slice: &EndpointSlice| slice.labels().get(LABEL_SOURCE_CLUSTER).cloned().unwrap_or_default();
    slices.iter().map(|slice| (source(slice), hint(slice).unwrap_or_default())).collect()
}

fn addresses<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> BTreeSet<String> {
    let endpoints = slices.into_iter().flat_map(|slice| &slice.endpoints);
    endpoints.flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect()
}

fn group(ports: &[Port<'_>]) -> GroupKey {
    let ports = ports.iter().map(|(name, number)| EndpointPort {
        name: (*name).to_owned(),
        protocol: Protocol::Tcp,
        port: Some(*number),
        app_protocol: None,
    });
    GroupKey::new(IpFamily::V4, ports)
}

fn many(addresses: impl IntoIterator<Item = Ipv4Addr>) -> EndpointSet {
    let mut endpoints = EndpointMap::default();
    for address in addresses {
        endpoints.insert(group(&HTTP), IpAddr::V4(address), Endpoint::default());
    }
    endpoints.pack()
}

async fn create<K>(place: &Place, object: Value) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    place.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn merge<K>(place: &Place, name: &str, patch: Value) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = place.api();
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
