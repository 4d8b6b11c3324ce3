//! The harness itself: its control planes do what a real cluster does, and leave nothing behind.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mcs_e2e::{
    Cluster, ClusterOptions,
    node::NOT_READY_ANNOTATION,
    objects::{SERVICE_NAME_LABEL, deployment, service},
    shared, wait_for, with_temp_ns,
};
use serde_json::json;

#[tokio::test]
async fn a_deployment_and_a_service_give_an_endpoint_slice_and_scaling_changes_it() -> Result<()> {
    let east = &shared::pair().await?.east;
    let client = east.client();
    with_temp_ns(client.clone(), "scale", |ns| async move {
        let pods = create_web(&client, &ns, 2).await?;
        let two = wait_for_endpoints(&client, &ns, 2, 2).await?;
        ensure!(
            two.iter().all(|address| address.starts_with("10.200.")),
            "addresses of another range: {two:?}"
        );
        scale(&client, &ns, 3).await?;
        let three = wait_for_endpoints(&client, &ns, 3, 3).await?;
        ensure!(three.is_superset(&two), "{two:?} lost an address at the scaling to {three:?}");
        scale(&client, &ns, 1).await?;
        wait_for_endpoints(&client, &ns, 1, 1).await?;
        wait_for("the pods scaled away to be gone", async || {
            let left = pods.list(&ListParams::default()).await?.items.len();
            ensure!(left == 1, "{left} pods");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn endpoints_carry_the_zone_of_their_node() -> Result<()> {
    let west = &shared::pair().await?.west;
    let client = west.client();
    with_temp_ns(client.clone(), "zones", |ns| async move {
        create_web(&client, &ns, 2).await?;
        wait_for_endpoints(&client, &ns, 2, 2).await?;
        let zones: BTreeSet<String> =
            endpoints(&client, &ns).await?.into_iter().filter_map(|endpoint| endpoint.zone).collect();
        assert_eq!(zones, ["us-west-2a", "us-west-2b"].map(String::from).into());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_annotated_as_not_ready_makes_an_endpoint_that_is_not_ready_until_the_annotation_goes()
-> Result<()> {
    let client = shared::pair().await?.east.client();
    with_temp_ns(client.clone(), "unready", |ns| async move {
        let pods = create_web(&client, &ns, 2).await?;
        wait_for_endpoints(&client, &ns, 2, 2).await?;
        let list = pods.list(&ListParams::default()).await?;
        let name = list.items.first().context("no pod")?.name_any();
        for (value, ready) in [(json!("true"), 1), (json!(null), 2)] {
            let patch = json!({ "metadata": { "annotations": { NOT_READY_ANNOTATION: value } } });
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            wait_for_endpoints(&client, &ns, 2, ready).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deleted_namespace_goes_with_its_pods() -> Result<()> {
    let client = shared::pair().await?.east.client();
    let namespace = mcs_e2e::TempNamespace::new(client.clone(), "gone").await?;
    let ns = namespace.name().to_owned();
    create_web(&client, &ns, 2).await?;
    wait_for_endpoints(&client, &ns, 2, 2).await?;
    namespace.delete().await?;
    let namespaces: Api<Namespace> = Api::all(client);
    wait_for("the namespace to be gone", async || match namespaces.get_opt(&ns).await {
        Ok(None) => Ok(()),
        Ok(Some(left)) => Err(format!("{:?}", left.status)),
        Err(error) => Err(error.to_string()),
    })
    .await
}

#[tokio::test]
async fn a_service_account_may_do_what_its_role_allows_and_nothing_else() -> Result<()> {
    let east = &shared::pair().await?.east;
    with_temp_ns(east.client(), "rbac", |ns| async move {
        east.apply_yaml(&format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: reader, namespace: {ns} }}
rules:
  - {{ apiGroups: [""], resources: [configmaps], verbs: [list] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: reader, namespace: {ns} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader }}
subjects: [{{ kind: ServiceAccount, name: program, namespace: {ns} }}]
"#
        ))
        .await?;
        let client = east.client_for_service_account(&ns, "program").await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &ns);
        wait_for("the role to count", async || maps.list(&ListParams::default()).await).await?;
        let services: Api<Service> = Api::namespaced(client, &ns);
        let refused = services.list(&ListParams::default()).await;
        ensure!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
            "listing Services without a rule for it gave {refused:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn objects_may_follow_their_definition_in_one_text() -> Result<()> {
    let east = &shared::pair().await?.east;
    let definition = include_str!("controlplane/widgets.yaml");
    east.apply_yaml(definition).await?;
    east.apply_yaml(definition).await.context("a second time")
}

#[tokio::test]
async fn credentials_of_one_cluster_are_refused_by_another() -> Result<()> {
    let pair = shared::pair().await?;
    let mut config = pair.west.config();
    config.cluster_url = pair.east.config().cluster_url;
    let answer = Client::try_from(config)?.apiserver_version().await;
    ensure!(answer.is_err(), "east answered with its version to credentials of west");
    let version = pair.east.client().apiserver_version().await?;
    assert_eq!(version.git_version, "v1.34.4");
    Ok(())
}

#[tokio::test]
async fn a_restarted_api_server_has_its_objects_and_the_nodes_play_on() -> Result<()> {
    let cluster = Cluster::start(ClusterOptions::new("restarted", 2, "eu-west-1")).await?;
    let client = cluster.client();
    create_web(&client, "default", 1).await?;
    let before = wait_for_endpoints(&client, "default", 1, 1).await?;
    cluster.restart_api_server().await?;
    scale(&client, "default", 2).await?;
    let after = wait_for_endpoints(&client, "default", 2, 2).await?;
    ensure!(after.is_superset(&before), "{before:?} became {after:?}");
    cluster.stop().await
}

#[tokio::test]
async fn dual_stack_pods_have_an_endpoint_of_each_family() -> Result<()> {
    let options = ClusterOptions { dual_stack: true, ..ClusterOptions::new("dual", 3, "eu-west-1") };
    let cluster = Cluster::start(options).await?;
    let client = cluster.client();
    let mut both = service("default", "web", &[("http", 80)]);
    both.spec.as_mut().context("no spec")?.ip_family_policy = Some("RequireDualStack".to_owned());
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &both).await?;
    Api::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &deployment("default", "web", 1, &[("http", 80)]))
        .await?;
    let addresses = wait_for_endpoints(&client, "default", 2, 2).await?;
    assert_eq!(addresses, ["10.203.0.1", "fd00:10:203::1"].map(String::from).into());
    cluster.stop().await
}

#[tokio::test]
async fn a_killed_harness_leaves_no_processes() -> Result<()> {
    let mut harness = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .args(["--name", "killed", "--index", "4"])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(harness.stdout.take().context("no output")?);
    let mut ids = Vec::new();
    for line in output.lines() {
        let line = line?;
        if line == "ready" {
            break;
        }
        ids.extend(line.strip_prefix("pid ").map(str::parse::<u32>).transpose()?);
    }
    let alive: Vec<bool> = ids.iter().map(|id| runs(*id)).collect();
    assert_eq!(alive, [true, true, true]);
    harness.kill()?;
    harness.wait()?;
    wait_for("the processes to end", async || {
        let left: Vec<u32> = ids.iter().copied().filter(|id| runs(*id)).collect();
        ensure!(left.is_empty(), "{left:?} run");
        Ok(())
    })
    .await
}

/// Whether a process runs. One that ended and was not waited for by its new parent does not.
fn runs(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

async fn create_web(client: &Client, ns: &str, replicas: u16) -> Result<Api<Pod>> {
    let ports = [("http", 80)];
    let create = PostParams::default();
    Api::namespaced(client.clone(), ns).create(&create, &service(ns, "web", &ports)).await?;
    Api::namespaced(client.clone(), ns).create(&create, &deployment(ns, "web", replicas, &ports)).await?;
    Ok(Api::namespaced(client.clone(), ns))
}

async fn scale(client: &Client, ns: &str, replicas: u16) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), ns);
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    deployments.patch_scale("web", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn endpoints(
    client: &Client,
    ns: &str,
) -> Result<Vec<k8s_openapi::api::discovery::v1::Endpoint>, kube::Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), ns);
    let of_web = ListParams::default().labels(&format!("{SERVICE_NAME_LABEL}=web"));
    let list = slices.list(&of_web).await?;
    Ok(list.items.into_iter().flat_map(|slice| slice.endpoints).collect())
}

/// Waits until there are `all` endpoints of which `ready` are ready, and answers their addresses.
async fn wait_for_endpoints(client: &Client, ns: &str, all: usize, ready: usize) -> Result<BTreeSet<String>> {
    wait_for(&format!("{all} endpoints in {ns}, {ready} of them ready"), async || {
        let endpoints = endpoints(client, ns).await?;
        let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
        };
        let counts = (endpoints.len(), endpoints.iter().filter(is_ready).count());
        ensure!(counts == (all, ready), "{} endpoints, {} ready", counts.0, counts.1);
        Ok(endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect())
    })
    .await
}
