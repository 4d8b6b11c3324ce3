//! The phases, and what several of them do.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use super::{
    LONG,
    charts::{CLUSTERSET, REGISTRY, SYSTEM, install_controller, install_registry},
    member::Member,
    network::each,
    shop::{GREETER, SHOP, make_namespace, servers},
};
use crate::{screen::Screen, wait_at_most};

mod dynamodb;
mod karmada;
mod memory;
mod pools;
mod tls;
mod traffic;
mod uninstall;
mod upgrade;

/// A phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// By which it is asked for.
    pub(crate) number: u8,
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) caption: &'static str,
}

/// All of them, in their order.
pub(crate) const PHASES: [Phase; 8] = [
    Phase {
        number: 1,
        name: "memory",
        caption: "A registry in east with its records in memory, in plaintext; an export of east is used from west and north,\n\
                  also while the registry is restarted.",
    },
    Phase {
        number: 2,
        name: "tls",
        caption: "The same with certificates of a private CA on both sides, which are then replaced, and the CA too,\n\
                  with traffic flowing.",
    },
    Phase {
        number: 3,
        name: "dynamodb",
        caption: "Two registries over one table, in east and west; each in turn is killed with traffic flowing.",
    },
    Phase {
        number: 4,
        name: "traffic",
        caption: "Three clusters serve one Service; clients reach it by its clusterset IP and by its name in DNS, while it\n\
                  is scaled, and while a cluster is lost and comes back.",
    },
    Phase {
        number: 5,
        name: "pools",
        caption: "The discovery service in east lists the pools and routers of west and north, by slices of mcs-controller,\n\
                  and then by slices that are named as Karmada does.",
    },
    Phase {
        number: 6,
        name: "upgrade",
        caption: "All releases are upgraded to another image, registries first, with traffic flowing.",
    },
    Phase {
        number: 7,
        name: "uninstall",
        caption: "Releases are uninstalled, also with no registry in reach: what users made stays, and nothing of ours does.",
    },
    Phase {
        number: 8,
        name: "karmada",
        caption: "East uses a Service by Karmada's objects. The controller is installed beside them, takes the\n\
                  ServiceImport over, and Karmada's objects go, with traffic flowing.",
    },
];

impl Phase {
    /// Runs it; answers what was seen, in a line.
    pub(crate) async fn run(self, screen: &Screen, members: &[Member]) -> Result<String> {
        let scene = Scene::of(screen, members)?;
        match self.number {
            1 => Box::pin(memory::run(&scene)).await,
            2 => Box::pin(tls::run(&scene)).await,
            3 => Box::pin(dynamodb::run(&scene)).await,
            4 => Box::pin(traffic::run(&scene)).await,
            5 => Box::pin(pools::run(&scene)).await,
            6 => Box::pin(upgrade::run(&scene)).await,
            7 => Box::pin(uninstall::run(&scene)).await,
            8 => Box::pin(karmada::run(&scene)).await,
            number => anyhow::bail!("there is no phase {number}"),
        }
    }
}

/// The registry of east.
const EU: &str = "registry.eu.example:9090";
/// The registry of west.
const US: &str = "registry.us.example:9090";

/// What a phase has.
struct Scene<'a> {
    screen: &'a Screen,
    members: &'a [Member],
    east: &'a Member,
    west: &'a Member,
    north: &'a Member,
}

impl<'a> Scene<'a> {
    fn of(screen: &'a Screen, members: &'a [Member]) -> Result<Self> {
        let [east, west, north] = members else { anyhow::bail!("there are not three clusters") };
        Ok(Self { screen, members, east, west, north })
    }

    /// Says what is done, and does it.
    async fn step<T>(&self, what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
        self.screen.during(what, Box::pin(doing)).await.with_context(|| what.to_owned())
    }

    /// A registry in east and a controller in each cluster, in plaintext.
    async fn install_plaintext(&self) -> Result<()> {
        install_plaintext(self.screen, self.members).await
    }

    /// The workload's namespace in each cluster, and exported servers in one.
    async fn serve(&self, member: &Member, replicas: u16) -> Result<()> {
        each(self.members, |member| make_namespace(member, SHOP)).await?;
        member.apply(&greeter(member, replicas)).await
    }
}

/// The servers that most phases export.
fn greeter(member: &Member, replicas: u16) -> [serde_json::Value; 2] {
    let named = format!("--name={}/$(POD)", member.name());
    servers(SHOP, GREETER, "http", replicas, &["serve", &named])
}

/// A registry in the first cluster and a controller in each, in plaintext.
pub(super) async fn install_plaintext(screen: &Screen, members: &[Member]) -> Result<()> {
    let first = members.first().context("no cluster")?;
    screen.during("installing a registry in east", install_registry(first, &[])).await?;
    let installing = each(members, |member| install_controller_plaintext(member, &[EU]));
    screen.during("installing a controller in each cluster", installing).await?;
    let url = format!("http://{EU}");
    let checking = each(members, |member| check(members, member, &url, &[]));
    screen.during("mcs-admin check, in each cluster", checking).await.map(drop)
}

async fn install_controller_plaintext(member: &Member, registries: &[&str]) -> Result<()> {
    let urls: Vec<_> = registries.iter().map(|registry| format!("http://{registry}")).collect();
    let urls = format!("controller.registryUrls={{{}}}", urls.join(","));
    install_controller(member, &[&urls, "controller.registryAllowInsecureHttp=true"]).await
}

/// Waits until `mcs-admin check` in the Pod of a controller finds nothing that failed, and all clusters active: one that
/// is missing, or not known whole yet, is no failure for it.
async fn check(members: &[Member], member: &Member, urls: &str, flags: &[&str]) -> Result<String> {
    let url = format!("--registry-url={urls}");
    let first = ["-n", SYSTEM, "exec", "deploy/mcs-controller", "--", "/mcs-admin", "check", &url];
    let arguments = [&first, flags].concat();
    let what = format!("mcs-admin check in {} to find all clusters active", member.name());
    wait_at_most(LONG, &what, async || {
        let found = member.kubectl(&arguments).await?;
        for member in members {
            let cluster = format!("{CLUSTERSET}/{}", member.name());
            let is_active = has_finding(&found, &["ok", "cluster", &cluster, "active,"]);
            ensure!(is_active, "{cluster} is not active: {found}");
        }
        Ok(found)
    })
    .await
}

/// Whether a line of the table of `mcs-admin check` begins with these words.
fn has_finding(found: &str, words: &[&str]) -> bool {
    found.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()))
}

/// The Pods of one of our programs.
async fn pods_of(member: &Member, namespace: &str, program: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = member.api(namespace);
    let selector = format!("app.kubernetes.io/name={program}");
    Ok(pods.list(&ListParams::default().labels(&selector)).await?.items)
}

/// Kills the registry of a cluster with SIGKILL.
async fn kill_registry(member: &Member) -> Result<()> {
    member.on_node(&["pkill", "-KILL", "-x", REGISTRY]).await.map(drop)
}

/// Kills it, and waits until the kubelet has seen that, and has started it again: until then all looks well.
async fn restart_registry(member: &Member) -> Result<()> {
    let before = restarts(&pods_of(member, SYSTEM, REGISTRY).await?);
    kill_registry(member).await?;
    wait_at_most(LONG, "the registry to be there again", async || {
        let pods = pods_of(member, SYSTEM, REGISTRY).await?;
        let now = restarts(&pods);
        let statuses = pods.iter().flat_map(|pod| &pod.status).flat_map(|status| &status.container_statuses);
        let is_ready = statuses.flatten().all(|status| status.ready);
        ensure!(now > before && is_ready, "{now} restarts after {before}, ready: {is_ready}");
        anyhow::Ok(())
    })
    .await?;
    rolled_out(member, SYSTEM, REGISTRY).await
}

/// How often containers of Pods were started again.
fn restarts(pods: &[Pod]) -> i32 {
    let statuses = pods.iter().flat_map(|pod| &pod.status).flat_map(|status| &status.container_statuses);
    statuses.flatten().map(|status| status.restart_count).sum()
}

/// Waits until a Pod of one run has ended; whether it succeeded, and what it said.
async fn ended(member: &Member, namespace: &str, pod: &str) -> Result<(bool, String)> {
    let phase = wait_at_most(LONG, &format!("the end of {pod} in {}", member.name()), async || {
        let pod = member.api::<Pod>(namespace).get(pod).await?;
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        ensure!(["Succeeded", "Failed"].contains(&phase.as_str()), "{phase}");
        anyhow::Ok(phase)
    })
    .await?;
    Ok((phase == "Succeeded", member.kubectl(&["-n", namespace, "logs", pod]).await?))
}

/// Waits until a Deployment is as it should be.
async fn rolled_out(member: &Member, namespace: &str, deployment: &str) -> Result<()> {
    let deployment = format!("deployment/{deployment}");
    member.kubectl(&["-n", namespace, "rollout", "status", &deployment, "--timeout=300s"]).await.map(drop)
}

/// A metric of a Pod: the sum of the series of a name that have all of these labels, each as `name="value"`.
async fn metric(member: &Member, pod: &Pod, port: u16, name: &str, labels: &[&str]) -> Result<f64> {
    let namespace = pod.namespace().unwrap_or_default();
    let path = format!("namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
    let text = member.get(&path).await?;
    let series = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values
        .reduce(|sum, value| sum + value)
        .with_context(|| format!("{} has no {name} {labels:?}", json!(pod.name_any())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_known_by_its_first_words() {
        let found = "RESULT   CHECK       OF         FOUND\n\
                     ok       cluster     prod/east  active, renewed at T\n\
                     warning  cluster     prod/west  syncing, not all of its exports are known yet";
        let is_active = |cluster: &str| has_finding(found, &["ok", "cluster", cluster, "active,"]);
        assert_eq!(["prod/east", "prod/west", "prod/north"].map(is_active), [true, false, false]);
    }
}
