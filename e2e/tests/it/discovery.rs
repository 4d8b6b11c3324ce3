//! The Global Discovery Service beside a controller: the pools and routers it lists are those of imported slices, with
//! the permissions of its checked-in RBAC file.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{ObjectReference, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcs_core::names::LABEL_EXPORT;
use mcs_e2e::{
    Cluster, ClusterOptions, TempNamespace, objects,
    programs::{Program, Signal, free_address},
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::{Value, json};

use crate::path::{export_deployment, imported, scale};

const RBAC: &str = include_str!("../../../discovery/deploy/rbac.yaml");
const ACCOUNT: &str = "global-discovery-service";
/// The account's namespace in [`RBAC`], and the name of its binding.
const ACCOUNT_NAMESPACE: &str = "namespace: global-discovery";
/// Relays register this often in the test; the list of pools is complete one lease after the start.
const LEASE: [&str; 2] = ["--lease-duration-secs=3", "--heartbeat-interval-secs=1"];

#[tokio::test]
async fn a_pool_is_listed_with_the_imported_slices_of_its_services_and_routers_with_theirs() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("pools").await?;
    let ns = namespace.name();
    let _stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east, &pair.west]).await?;
    let (east, west) = (pair.east.client(), pair.west.client());
    let service = Discovery::start(&pair.west, ns, "mcs").await?;
    service.must_not_read_more().await?;

    export_deployment(&east, ns, "my-dgd-pool-relay", 2).await?;
    export_deployment(&east, ns, "my-dgd-frontend", 1).await?;
    export_router(&east, ns).await?;
    let relays = wait_for("relays", async || imported(&west, ns, "my-dgd-pool-relay", 2).await).await?;
    let frontends = wait_for("a frontend", async || imported(&west, ns, "my-dgd-frontend", 1).await).await?;

    let body = registration(ns);
    let lease = service.register(&body).await?;
    assert_eq!(lease, json!({ "lease_duration_secs": 3, "heartbeat_interval_secs": 1 }));
    let expected = |relays: &std::collections::BTreeSet<String>| {
        let identities: Vec<_> = relays.iter().map(|address| format!("ip:{address}")).collect();
        let frontends: Vec<_> = frontends.iter().map(|address| format!("http://{address}:8080/")).collect();
        json!({
            "key": { "cluster_id": "east", "namespace": ns, "dgd_name": "my-dgd" },
            // The registration names no region: the slices do.
            "location": { "region": "us-east-1", "availability_zone": null, "datacenter": null },
            "model": "llama", "capabilities": ["chat"], "capacity": [{ "workers": 4 }],
            "frontends": frontends, "relay_identities": identities,
        })
    };
    service.lists_pools(&body, &json!([expected(&relays)])).await?;
    let router = |host: u8| json!({ "id": format!("east/10.200.250.{host}"), "url": format!("http://10.200.250.{host}:50051/") });
    service.lists_routers(&json!([router(1), router(2)])).await?;

    scale(&east, ns, "my-dgd-pool-relay", 3).await?;
    let relays = wait_for("relays", async || imported(&west, ns, "my-dgd-pool-relay", 3).await).await?;
    service.lists_pools(&body, &json!([expected(&relays)])).await?;
    set_routers(&east, ns, &[2]).await?;
    service.lists_routers(&json!([router(2)])).await?;

    scale(&east, ns, "my-dgd-pool-relay", 0).await?;
    service.lists_pools(&body, &json!([])).await?;
    set_routers(&east, ns, &[]).await?;
    service.lists_routers(&json!([])).await?;
    // Those that end are still in the slices for a while, not ready.
    wait_for("no relays", async || imported(&west, ns, "my-dgd-pool-relay", 0).await).await?;
    scale(&east, ns, "my-dgd-pool-relay", 1).await?;
    let relays = wait_for("a relay", async || imported(&west, ns, "my-dgd-pool-relay", 1).await).await?;
    service.lists_pools(&body, &json!([expected(&relays)])).await?;

    // Nobody registers it any more.
    wait_for("the pool to lapse", async || {
        let list = service.get("pools").await?;
        ensure!(list == json!({ "pools": [], "complete": true }), "{list}");
        Ok(())
    })
    .await?;
    let ended = service.program.end(Signal::Term).await?;
    assert!(ended.success(), "{ended}");
    Ok(())
}

/// Slices as Karmada writes them into a member cluster, of pods that are named, in both families.
#[tokio::test]
async fn slices_that_karmada_named_give_pools_and_routers() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("karmada").await?;
    let ns = namespace.name();
    let slices = Api::<EndpointSlice>::namespaced(pair.west.client(), ns);
    let write =
        async |name: &str, service: &str, port: objects::Port<'_>, pods: &[(&str, &str)]| -> Result<()> {
            let slice = of_karmada(ns, name, service, port, pods)?;
            slices.create(&PostParams::default(), &slice).await?;
            Ok(())
        };
    let service = Discovery::start(&pair.west, ns, "karmada").await?;
    let (relay, http, router) = (("relay", 7000), ("http", 8000), ("relay", 50051));
    write("imported-member-1-my-dgd-pool-relay-b2c4d", "my-dgd-pool-relay", relay, &[("r-0", "10.43.1.2")])
        .await?;
    write("imported-member-1-my-dgd-pool-relay-f6g8h", "my-dgd-pool-relay", relay, &[("r-0", "fd00:43::2")])
        .await?;
    write("imported-member-1-my-dgd-frontend-b2c4d", "my-dgd-frontend", http, &[("f-0", "10.43.1.9")])
        .await?;
    let both = [("f-0", "fd00:43::9"), ("f-1", "fd00:43::a")];
    write("imported-member-1-my-dgd-frontend-f6g8h", "my-dgd-frontend", http, &both).await?;
    // The name of the Service within that of the cluster.
    let cluster = "imported-at-global-router-1-global-router-b2c4d";
    write(cluster, "global-router", router, &[("gr-0", "10.43.2.5")]).await?;

    let mut body = registration(ns);
    body["key"]["cluster_id"] = json!("member-1");
    let pool = |frontends: &[&str]| {
        json!([{
            "key": { "cluster_id": "member-1", "namespace": ns, "dgd_name": "my-dgd" },
            "location": { "region": null, "availability_zone": null, "datacenter": null },
            "model": "llama", "capabilities": ["chat"], "capacity": [{ "workers": 4 }],
            "frontends": frontends, "relay_identities": ["ip:10.43.1.2", "ip:fd00:43::2"],
        }])
    };
    service.lists_pools(&body, &pool(&["http://10.43.1.9:8000/", "http://[fd00:43::a]:8000/"])).await?;
    service
        .lists_routers(&json!([{ "id": "at-global-router-1/gr-0", "url": "http://10.43.2.5:50051/" }]))
        .await?;
    slices.delete("imported-member-1-my-dgd-frontend-f6g8h", &DeleteParams::default()).await?;
    service.lists_pools(&body, &pool(&["http://10.43.1.9:8000/"])).await?;
    slices.delete(cluster, &DeleteParams::default()).await?;
    service.lists_routers(&json!([])).await?;
    let ended = service.program.end(Signal::Term).await?;
    assert!(ended.success(), "{ended}");
    Ok(())
}

/// An API server that is killed and started again takes nothing from a list, is listed at most once more, and what
/// changed meanwhile is seen.
#[tokio::test]
async fn an_api_server_that_is_killed_takes_nothing_from_the_lists() -> Result<()> {
    let options =
        ClusterOptions { controller_manager: false, ..ClusterOptions::new("lone", 2, "eu-north-1") };
    let cluster = Cluster::start(options).await?;
    let namespace = TempNamespace::in_all([cluster.client()], "killed").await?;
    let ns = namespace.name();
    let slices = Api::<EndpointSlice>::namespaced(cluster.client(), ns);
    let name = "imported-member-1-global-router-b2c4d";
    let of_router =
        |address: &str| of_karmada(ns, name, "global-router", ("relay", 50051), &[("gr-0", address)]);
    slices.create(&PostParams::default(), &of_router("10.43.2.5")?).await?;
    let service = Discovery::start(&cluster, ns, "karmada").await?;
    let router =
        |address: &str| json!([{ "id": "member-1/gr-0", "url": format!("http://{address}:50051/") }]);
    service.lists_routers(&router("10.43.2.5")).await?;

    cluster.kill_api_server().await?;
    wait_for("an error of the watch", async || {
        let errors = service.metric("global_discovery_watch_errors_total").await?;
        ensure!(errors > 0.0, "{errors} errors");
        Ok(())
    })
    .await?;
    service.lists_routers(&router("10.43.2.5")).await?;
    cluster.start_api_server().await?;
    let changed = json!({ "endpoints": of_router("10.43.2.6")?.endpoints });
    slices.patch(name, &PatchParams::default(), &Patch::Merge(changed)).await?;
    service.lists_routers(&router("10.43.2.6")).await?;
    let relists = service.metric("global_discovery_relists_total").await?;
    ensure!((1.0..=2.0).contains(&relists), "{relists} lists");
    let log = service.program.log();
    ensure!(!log.contains("is not listed any more"), "{log}");
    Ok(())
}

/// A slice of a Service as Karmada imports it, whose name has the cluster; of ready pods that are named.
fn of_karmada(
    ns: &str,
    name: &str,
    service: &str,
    port: objects::Port<'_>,
    pods: &[(&str, &str)],
) -> Result<EndpointSlice> {
    let addresses: Vec<IpAddr> = pods.iter().map(|(_, address)| address.parse()).collect::<Result<_, _>>()?;
    let mut slice = objects::endpoint_slice(ns, name, &format!("derived-{service}"), &addresses, &[port]);
    for (endpoint, (pod, _)) in slice.endpoints.iter_mut().zip(pods) {
        let pod = ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some((*pod).to_owned()),
            ..Default::default()
        };
        endpoint.target_ref = Some(pod);
    }
    Ok(slice)
}

/// The service in one cluster.
struct Discovery {
    program: Program,
    url: String,
    client: Client,
}

impl Discovery {
    async fn start(cluster: &Cluster, ns: &str, pool_discovery: &str) -> Result<Self> {
        // Tests that share clusters have bindings of their own.
        let rbac = RBAC
            .replace(ACCOUNT_NAMESPACE, &format!("namespace: {ns}"))
            .replace(&format!("  name: {ACCOUNT}\n  labels"), &format!("  name: {ns}-gds\n  labels"))
            .replace(
                "kind: ClusterRole\n  name: global-discovery-service",
                &format!("kind: ClusterRole\n  name: {ns}-gds"),
            );
        cluster.apply_yaml(&rbac).await?;
        let kubeconfig = cluster.kubeconfig_for_service_account(ns, ACCOUNT).await?;
        let client = cluster.client_for_service_account(ns, ACCOUNT).await?;
        let address = free_address()?;
        let mut arguments = vec![
            format!("--pool-discovery={pool_discovery}"),
            format!("--listen={address}"),
            format!("--router-namespace={ns}"),
            "--router-service=global-router".to_owned(),
            "--router-port-name=relay".to_owned(),
            "--frontend-port-name=http".to_owned(),
            "--drain-delay-secs=0".to_owned(),
        ];
        arguments.extend(LEASE.map(str::to_owned));
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        let folder = cluster.folder();
        let name = format!("discovery-{pool_discovery}-{ns}");
        let mut program =
            Program::start("global-discovery-service", &name, folder, &arguments, &environment).await?;
        let url = format!("http://{address}");
        program.ready(&format!("{url}/healthz")).await?;
        Ok(Self { program, url, client })
    }

    /// Its account may read EndpointSlices and nothing that is secret.
    async fn must_not_read_more(&self) -> Result<()> {
        let may = async |group: &str, resource: &str| -> Result<bool> {
            let attributes = ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some("list".to_owned()),
                ..Default::default()
            };
            let spec =
                SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
            Ok(answer.status.context("a status")?.allowed)
        };
        let found = (may("discovery.k8s.io", "endpointslices").await?, may("", "secrets").await?);
        assert_eq!(found, (true, false), "(reads EndpointSlices, reads Secrets)");
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&get(&format!("{}/{path}", self.url)).await?)?)
    }

    /// The sum of a metric's series.
    async fn metric(&self, name: &str) -> Result<f64> {
        let text = String::from_utf8(get(&format!("{}/metrics", self.url)).await?.to_vec())?;
        let series = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let numbers =
            series.map(|line| -> Result<f64> { Ok(line.rsplit_once(' ').context("a number")?.1.parse()?) });
        numbers.sum()
    }

    /// Registers a pool, and answers with its lease.
    async fn register(&self, body: &Value) -> Result<Value> {
        let client: HttpClient<_, Full<Bytes>> = HttpClient::builder(TokioExecutor::new()).build_http();
        let request = Request::post(format!("{}/pools", self.url))
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))?;
        let answer = client.request(request).await?;
        let (status, body) = (answer.status(), answer.into_body().collect().await?.to_bytes());
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    /// Waits for exactly these pools, in a list that is complete, while a relay keeps registering.
    async fn lists_pools(&self, registration: &Value, pools: &Value) -> Result<()> {
        wait_for("a complete list of pools", async || {
            self.register(registration).await?;
            let list = self.get("pools").await?;
            ensure!(list == json!({ "pools": pools, "complete": true }), "{list}, wanted {pools}");
            Ok(())
        })
        .await
    }

    async fn lists_routers(&self, routers: &Value) -> Result<()> {
        wait_for("a complete list of routers", async || {
            let list = self.get("routers").await?;
            ensure!(list == json!({ "routers": routers, "complete": true }), "{list}, wanted {routers}");
            Ok(())
        })
        .await
    }
}

fn registration(ns: &str) -> Value {
    json!({
        "key": { "cluster_id": "east", "namespace": ns, "dgd_name": "my-dgd" },
        "model": "llama", "capabilities": ["chat"], "capacity": [{ "workers": 4 }],
    })
}

/// A router Service with two replicas, by a slice that the test writes.
async fn export_router(client: &Client, ns: &str) -> Result<()> {
    let ports = [("relay", 50051)];
    let mut service = objects::service_without_selector(ns, "global-router", &ports);
    service.labels_mut().insert(LABEL_EXPORT.to_owned(), "true".to_owned());
    let slice = objects::endpoint_slice(ns, "global-router", "global-router", &routers(&[1, 2]), &ports);
    let parameters = PostParams::default();
    Api::<EndpointSlice>::namespaced(client.clone(), ns).create(&parameters, &slice).await?;
    Api::<Service>::namespaced(client.clone(), ns).create(&parameters, &service).await?;
    Ok(())
}

async fn set_routers(client: &Client, ns: &str, hosts: &[u8]) -> Result<()> {
    let slice = objects::endpoint_slice(ns, "global-router", "global-router", &routers(hosts), &[]);
    let patch = Patch::Merge(json!({ "endpoints": slice.endpoints }));
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), ns);
    slices.patch("global-router", &PatchParams::default(), &patch).await?;
    Ok(())
}

fn routers(hosts: &[u8]) -> Vec<IpAddr> {
    hosts.iter().map(|host| IpAddr::from([10, 200, 250, *host])).collect()
}
