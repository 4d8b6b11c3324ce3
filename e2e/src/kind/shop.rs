//! The workload: servers that are exported, clients that send to them, and what the clusters say of both.

use std::{cell::RefCell, collections::BTreeSet, net::SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mcs_controller::api::ServiceImport;
use mcs_core::names::{EXPORT_WANTED, LABEL_EXPORT, LABEL_MANAGED_BY, LABEL_SERVICE_NAME, MANAGED_BY};
use serde_json::{Value, json};

use super::{LONG, images::WORKLOAD, member::Member};
use crate::{
    wait_at_most,
    workload::{SERVED, TOLD, Totals},
};

/// The label of what a phase has made and the next one removes.
pub(crate) const PHASE_LABEL: &str = "mcs-e2e";
/// The namespace of the workload.
pub(crate) const SHOP: &str = "shop";
/// The exported Service, and the Deployment behind it.
pub(crate) const GREETER: &str = "greeter";
/// Requests by which it is judged who answers: of six servers each is among them but once in ten thousand looks.
const LOOK: u64 = 60;

/// Makes a namespace that goes with the phase.
pub(crate) async fn make_namespace(member: &Member, name: &str) -> Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { PHASE_LABEL: "phase" } },
    });
    member.apply(&[namespace]).await
}

/// Pods of the workload in a role, and the exported Service of their name.
pub(crate) fn servers(namespace: &str, name: &str, port: &str, replicas: u16, role: &[&str]) -> [Value; 2] {
    let container = container(role, &[json!({ "name": port, "containerPort": SERVED })]);
    let labels = json!({ "app": name, LABEL_EXPORT: EXPORT_WANTED });
    [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": namespace, "name": name },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] } },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "namespace": namespace, "name": name, "labels": labels },
            "spec": {
                "selector": { "app": name },
                "ports": [{ "name": port, "port": SERVED, "targetPort": SERVED }],
            },
        }),
    ]
}

/// A container of the workload that is ready when its first port answers.
pub(crate) fn container(arguments: &[&str], ports: &[Value]) -> Value {
    let port = ports.first().map_or(Value::Null, |port| port["containerPort"].clone());
    json!({
        "name": "main", "image": WORKLOAD, "args": arguments, "ports": ports,
        "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
        // Ready soon, and unready late: that a busy node is slow to look must not look as if an endpoint went.
        "readinessProbe": { "tcpSocket": { "port": port }, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 12 },
        // A Pod that asks for none gets next to no CPU on a busy node, and answers after seconds.
        "resources": { "requests": { "cpu": "25m", "memory": "16Mi" } },
    })
}

/// Scales a Deployment.
pub(crate) async fn scale(member: &Member, namespace: &str, name: &str, replicas: u16) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let deployments: Api<Deployment> = member.api(namespace);
    deployments.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until a Deployment has so many Pods that are ready, and no others; answers them.
pub(crate) async fn ready_pods(
    member: &Member,
    namespace: &str,
    app: &str,
    count: usize,
) -> Result<Vec<Pod>> {
    wait_at_most(LONG, &format!("{count} Pods of {app} in {}", member.name()), async || {
        let pods: Api<Pod> = member.api(namespace);
        let pods = pods.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let (ready, rest): (Vec<_>, Vec<_>) = pods.into_iter().partition(is_ready);
        let going = ready.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        ensure!(
            ready.len() == count && going == 0 && rest.is_empty(),
            "{} ready, {going} of them going, {} not ready",
            ready.len(),
            rest.len()
        );
        Ok(ready)
    })
    .await
}

/// What the servers of some clusters answer: `<cluster>/<pod>` of each that is ready.
pub(crate) async fn names(servers: &[(&Member, usize)]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (member, count) in servers {
        let pods = ready_pods(member, SHOP, GREETER, *count).await?;
        names.extend(pods.iter().map(|pod| format!("{}/{}", member.name(), pod.name_any())));
    }
    Ok(names)
}

/// Waits until a Service is imported with so many endpoints that are ready, of these clusters; answers its address here.
pub(crate) async fn imported(
    member: &Member,
    namespace: &str,
    service: &str,
    endpoints: usize,
    clusters: &[&str],
) -> Result<String> {
    let what = format!("{endpoints} endpoints of {namespace}/{service} of {clusters:?} in {}", member.name());
    wait_at_most(LONG, &what, async || {
        let import = member.api::<ServiceImport>(namespace).get(service).await?;
        let told = json!(import.status)["clusters"].clone();
        let mut from: Vec<_> =
            told.as_array().into_iter().flatten().filter_map(|from| from["cluster"].as_str()).collect();
        from.sort_unstable();
        let mut wanted = clusters.to_vec();
        wanted.sort_unstable();
        ensure!(from == wanted, "status.clusters has {from:?}");
        let ready = ready_endpoints(member, namespace, service).await?;
        ensure!(ready.len() == endpoints, "{} are ready: {ready:?}", ready.len());
        let ips = import.spec.map(|spec| spec.ips).unwrap_or_default();
        ips.into_iter().next().context("no clusterset IP")
    })
    .await
}

/// The addresses of endpoints that are ready in the imported slices of a Service.
pub(crate) async fn ready_endpoints(
    member: &Member,
    namespace: &str,
    service: &str,
) -> Result<BTreeSet<String>> {
    let slices: Api<EndpointSlice> = member.api(namespace);
    let slices = slices.list(&ListParams::default().labels(&imported_slices(service))).await?;
    Ok(slices.items.into_iter().flat_map(ready_in).collect())
}

/// The labels of the imported slices of a Service.
pub(crate) fn imported_slices(service: &str) -> String {
    format!("{LABEL_SERVICE_NAME}={service},{LABEL_MANAGED_BY}={MANAGED_BY}")
}

/// The addresses of endpoints that are ready in a slice.
pub(crate) fn ready_in(slice: EndpointSlice) -> BTreeSet<String> {
    let ready = slice.endpoints.into_iter().filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready.flat_map(|endpoint| endpoint.addresses).collect()
}

/// The derived Service of an import.
pub(crate) async fn derived(member: &Member, namespace: &str, service: &str) -> Result<Service> {
    let services: Api<Service> = member.api(namespace);
    let selector = format!("{LABEL_SERVICE_NAME}={service},{LABEL_MANAGED_BY}={MANAGED_BY}");
    let listed = services.list(&ListParams::default().labels(&selector)).await?;
    listed.items.into_iter().next().with_context(|| format!("no derived Service of {namespace}/{service}"))
}

/// A client in a cluster that sends all the time.
pub(crate) struct Traffic<'a> {
    member: &'a Member,
    namespace: String,
    pod: String,
    began: Totals,
}

impl<'a> Traffic<'a> {
    /// Starts a client Pod that sends to a host and port, and waits until it was answered.
    pub(crate) async fn start(member: &'a Member, namespace: &str, pod: &str, to: String) -> Result<Self> {
        // A question to DNS that is lost is asked again after five seconds.
        let limit = if to.parse::<SocketAddr>().is_ok() { "--limit-ms=2000" } else { "--limit-ms=12000" };
        let to = format!("--to={to}");
        let container = container(&["send", &to, limit], &[json!({ "name": "told", "containerPort": TOLD })]);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": namespace, "name": pod },
            // One that began anew would have forgotten what failed.
            "spec": { "containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": "Never" },
        });
        member.apply(&[object]).await?;
        let mut traffic =
            Self { member, namespace: namespace.to_owned(), pod: pod.to_owned(), began: Totals::default() };
        let what = format!("answers to {pod} in {}", member.name());
        traffic.began = wait_at_most(LONG, &what, async || {
            let totals = traffic.totals().await?;
            ensure!(totals.answered() > 0, "{} failed: {:?}", totals.failed, totals.failures);
            anyhow::Ok(totals)
        })
        .await?;
        Ok(traffic)
    }

    /// What became of its requests so far.
    pub(crate) async fn totals(&self) -> Result<Totals> {
        let path = format!("namespaces/{}/pods/{}:{TOLD}/proxy/", self.namespace, self.pod);
        let told = self.member.get(&path).await?;
        serde_json::from_str(&told).with_context(|| format!("the totals of {}: {told}", self.pod))
    }

    /// Forgets what was sent until now, also what has not ended yet: that is waited for.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        let before = self.totals().await?;
        self.began = wait_at_most(LONG, &format!("the end of all requests of {}", self.pod), async || {
            let totals = self.totals().await?;
            is_settled(&totals, &before)?;
            anyhow::Ok(totals)
        })
        .await?;
        Ok(())
    }

    /// Waits until requests are answered by all of these and by no others, and none fails: who is gone answers nothing,
    /// so that only failures tell of requests that still go there.
    pub(crate) async fn is_answered_by(&self, wanted: &BTreeSet<String>) -> Result<()> {
        let before = RefCell::new(self.totals().await?);
        let what = format!("answers by {wanted:?} to {} in {}", self.pod, self.member.name());
        wait_at_most(LONG, &what, async || {
            let totals = self.totals().await?;
            let since = totals.since(&before.borrow())?;
            let answered: BTreeSet<_> = since.answers.keys().cloned().collect();
            if since.answered() < LOOK {
                bail!("{} answers so far, by {answered:?}", since.answered());
            }
            before.replace(totals);
            ensure!(answered == *wanted, "answers by {answered:?}");
            ensure!(since.failed == 0, "{} failed: {:?}", since.failed, since.failures);
            Ok(())
        })
        .await
    }

    /// Waits for so many further answers, and until all that was sent before has ended; says what became of all requests
    /// since [`Traffic::begin`].
    pub(crate) async fn after(&self, further: u64) -> Result<Totals> {
        let before = self.totals().await?;
        wait_at_most(LONG, &format!("{further} answers to {}", self.pod), async || {
            let totals = self.totals().await?;
            let answered = totals.since(&before)?.answered();
            ensure!(answered >= further, "{answered} answers");
            is_settled(&totals, &before)?;
            totals.since(&self.began)
        })
        .await
    }

    /// The same, of which none may have failed.
    pub(crate) async fn without_failure(&self, further: u64) -> Result<u64> {
        let totals = self.after(further).await?;
        ensure!(
            totals.failed == 0,
            "{} of {} requests of {} in {} failed, the last of them: {:#?}",
            totals.failed,
            totals.ended(),
            self.pod,
            self.member.name(),
            totals.failures
        );
        Ok(totals.answered())
    }
}

/// Whether all that was sent before an earlier look has ended.
fn is_settled(totals: &Totals, before: &Totals) -> Result<()> {
    ensure!(
        totals.settled >= before.begun,
        "all have ended of the first {} of {}",
        totals.settled,
        before.begun
    );
    Ok(())
}

/// Deletes the namespaces of phases, and waits until they are gone.
pub(crate) async fn remove_namespaces(member: &Member, besides: &[&str]) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(member.client.clone());
    let parameters = ListParams::default().labels(PHASE_LABEL);
    let labelled = namespaces.list_metadata(&parameters).await?;
    let labelled = labelled.iter().map(ResourceExt::name_any);
    let names: Vec<String> = labelled.chain(besides.iter().map(|name| (*name).to_owned())).collect();
    for name in &names {
        match namespaces.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            deleted => drop(deleted?),
        }
    }
    for name in &names {
        wait_at_most(LONG, &format!("the end of namespace {name} in {}", member.name()), async || {
            match namespaces.get_opt(name).await? {
                None => Ok(()),
                Some(left) => bail!("it is there: {}", json!(left.status)),
            }
        })
        .await?;
    }
    Ok(())
}
