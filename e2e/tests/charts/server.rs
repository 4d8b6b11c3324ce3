//! A real API server takes what the charts render, and helm installs, upgrades and uninstalls on it.
//!
//! No Job runs there: the tests do what those of hooks do, as their ServiceAccounts.

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use mcs_controller::api::ServiceExport;
use mcs_e2e::{Cluster, ClusterOptions, apply::dry_run_yaml, programs::Program};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    chart::{Chart, Rendered, text_at},
    goldens::goldens,
    helm,
    manifest::manifests,
};

/// The kinds of the Prometheus operator, without their schemas.
const MONITORING: &str = include_str!("server/monitoring.yaml");
/// Where things are that are not of the release.
const USERS: &str = "shop";
/// Namespaces that goldens name, beside those of the releases.
const NAMESPACES: [&str; 3] = [USERS, "till", "leases"];

/// Names of what is installed are fixed, so tests that install take turns, and what is tried is not there.
static TURN: Mutex<()> = Mutex::const_new(());

/// The cluster of these tests.
///
/// # Errors
/// It did not start.
pub(crate) async fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<Result<Cluster, String>> = OnceCell::const_new();
    let started = CLUSTER.get_or_init(async || start().await.map_err(|error| format!("{error:#}"))).await;
    started.as_ref().map_err(|error| anyhow!("{error}")).context("the cluster did not start")
}

async fn start() -> Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions::new("charts", 9, "eu-west-1")).await?;
    cluster.apply_yaml(MONITORING).await?;
    for name in NAMESPACES.into_iter().chain([Chart::Mcs, Chart::Discovery].map(Chart::namespace)) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(cluster.client()).create(&PostParams::default(), &namespace).await?;
    }
    Ok(cluster)
}

#[tokio::test]
async fn an_api_server_takes_every_field_of_what_is_checked_in() -> Result<()> {
    let client = cluster().await?.client();
    let _turn = TURN.lock().await;
    for chart in Chart::ALL {
        for golden in goldens(chart)? {
            let rendered = golden.render()?;
            dry_run_yaml(&client, &rendered.text).await.with_context(|| golden.name.clone())?;
        }
    }
    dry_run_yaml(&client, &manifests()?.text).await.context("discovery/deploy")
}

/// O65, what Helm does with CRDs.
#[tokio::test]
async fn a_release_is_installed_upgraded_and_uninstalled_and_leaves_what_users_made() -> Result<()> {
    let cluster = cluster().await?;
    let _turn = TURN.lock().await;
    let namespace = Chart::Mcs.namespace();
    let both = |more: Value| {
        let mut values = json!({
            "registry": {"enabled": true},
            "controller": {"enabled": true, "registryAllowInsecureHttp": true, "clusterId": "east"},
        });
        merge(&mut values, more);
        values.to_string()
    };
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    // What the hook before an install does.
    let values = both(json!({}));
    apply_crds(cluster, &Chart::Mcs.render(&values).map_err(|refusal| anyhow!(refusal))?).await?;
    let notes = release(cluster, Chart::Mcs, "install", &values)?;
    for told in ["rollout status deployment/mcs-registry", "/mcs-admin check", "Its ports are plaintext"] {
        ensure!(notes.contains(told), "{told:?} is not in {notes}");
    }
    assert_eq!(strategy(&deployments, "mcs-registry").await?, ("Recreate".to_owned(), false, Some(1)));

    let exports: Api<ServiceExport> = Api::namespaced(cluster.client(), USERS);
    let metadata = ObjectMeta { name: Some("cart".to_owned()), ..ObjectMeta::default() };
    let export = ServiceExport { metadata, ..ServiceExport::default() };
    exports.create(&PostParams::default(), &export).await?;

    // The strategy follows the store, also back: a Recreate with limits of a rolling update would be refused.
    let shared =
        json!({"registry": {"store": "dynamodb", "replicas": 2, "dynamodb": {"region": "eu-west-1"}}});
    release(cluster, Chart::Mcs, "upgrade", &both(shared))?;
    assert_eq!(strategy(&deployments, "mcs-registry").await?, ("RollingUpdate".to_owned(), true, Some(2)));
    release(cluster, Chart::Mcs, "upgrade", &values)?;
    assert_eq!(strategy(&deployments, "mcs-registry").await?, ("Recreate".to_owned(), false, Some(1)));

    uninstall(cluster, Chart::Mcs)?;
    let left: Vec<_> =
        deployments.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, Vec::<String>::new());
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    crds.get("serviceexports.multicluster.x-k8s.io").await?;
    exports.get("cart").await?;
    Ok(())
}

#[tokio::test]
async fn replicas_that_keep_registrations_elsewhere_never_run_beside_each_other() -> Result<()> {
    let cluster = cluster().await?;
    let _turn = TURN.lock().await;
    let chart = Chart::Discovery;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), chart.namespace());
    let over =
        |table: &str| json!({"registrationStorage": "dynamodb", "dynamodb": {"table": table}}).to_string();
    // Said in words: with no values at all, helm takes those of the release before.
    let memory = json!({"registrationStorage": "memory"}).to_string();
    let rolling = ("RollingUpdate".to_owned(), true, Some(1));
    let recreate = ("Recreate".to_owned(), false, Some(1));
    for (verb, values, expected) in [
        ("install", memory.clone(), &recreate),
        ("upgrade", over("pools"), &recreate),
        ("upgrade", over("pools"), &rolling),
        ("upgrade", over("other"), &recreate),
        ("upgrade", over("other"), &rolling),
        ("upgrade", memory, &recreate),
    ] {
        release(cluster, chart, verb, &values)?;
        let found = strategy(&deployments, "global-discovery-service").await?;
        assert_eq!(&found, expected, "{verb} {values}");
    }
    uninstall(cluster, chart)
}

/// Installs or upgrades a chart's release, without its hooks, and gives the notes.
fn release(cluster: &Cluster, chart: Chart, verb: &str, values: &str) -> Result<String> {
    let (folder, kubeconfig) =
        (chart.folder().display().to_string(), cluster.kubeconfig_path().display().to_string());
    let arguments =
        [verb, chart.release(), &folder, "--namespace", chart.namespace(), "--kubeconfig", &kubeconfig];
    let more = ["--no-hooks", "--wait", "--timeout", "2m", "--values", "-"];
    helm::run(&[&arguments[..], &more].concat(), values)
}

/// Uninstalls a chart's release, without its hooks.
fn uninstall(cluster: &Cluster, chart: Chart) -> Result<()> {
    let kubeconfig = cluster.kubeconfig_path().display().to_string();
    let arguments =
        ["uninstall", chart.release(), "--namespace", chart.namespace(), "--kubeconfig", &kubeconfig];
    helm::run(&[&arguments[..], &["--no-hooks", "--wait", "--timeout", "2m"]].concat(), "").map(drop)
}

/// The strategy of a Deployment, whether it has limits of a rolling update, and how many replicas it asks for.
async fn strategy(deployments: &Api<Deployment>, name: &str) -> Result<(String, bool, Option<i32>)> {
    let spec = deployments.get(name).await?.spec.context("a spec")?;
    let strategy = spec.strategy.context("a strategy")?;
    Ok((strategy.type_.context("a type")?, strategy.rolling_update.is_some(), spec.replicas))
}

/// Does what the Job of the hook does, as its ServiceAccount with what the hook gives it.
async fn apply_crds(cluster: &Cluster, rendered: &Rendered) -> Result<()> {
    let is_of_hook =
        |object: &&Value| text_at(object, "/metadata/annotations/helm.sh~1hook") == "pre-install,pre-upgrade";
    let (jobs, others): (Vec<&Value>, Vec<_>) =
        rendered.objects.iter().filter(is_of_hook).partition(|object| text_at(object, "/kind") == "Job");
    let [job] = jobs[..] else { return Err(anyhow!("{} Jobs before an install", jobs.len())) };
    for object in others {
        cluster.apply_yaml(&object.to_string()).await?;
    }
    let account = text_at(job, "/spec/template/spec/serviceAccountName");
    let kubeconfig = cluster.kubeconfig_for_service_account(Chart::Mcs.namespace(), account).await?;
    let words = job.pointer("/spec/template/spec/containers/0/command").and_then(Value::as_array);
    let words: Vec<&str> = words.context("a command")?.iter().filter_map(Value::as_str).collect();
    let (program, arguments) = words.split_first().context("a program")?;
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
    let program = program.trim_start_matches('/');
    let mut job = Program::start(program, "hook", cluster.folder(), &arguments, &environment).await?;
    let ended = job.ended().await?;
    ensure!(ended.success(), "{}", job.log_tail());
    Ok(())
}

/// Puts what is in `more` into `values`.
fn merge(values: &mut Value, more: Value) {
    match (values, more) {
        (Value::Object(values), Value::Object(more)) => {
            for (key, value) in more {
                merge(values.entry(key).or_insert(Value::Null), value);
            }
        }
        (place, value) => *place = value,
    }
}
