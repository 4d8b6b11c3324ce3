//! Plays scheduler and kubelets: what a control plane waits for that has no machines.
//!
//! There is a Node for each zone. A Pod is bound to one of them, gets addresses of the cluster's range, runs
//! and is ready; a deleted Pod goes at once. No container ever starts.
//!
//! A Pod annotated `e2e/not-ready: "true"` ([`NOT_READY_ANNOTATION`]) runs without being ready; it becomes
//! ready when the annotation goes. A Pod's nodeSelector is respected, a nodeName already set is kept.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{
        controller::{Action, Controller},
        watcher,
    },
};
use serde_json::{Value, json};

use crate::ClusterOptions;

/// Keeps a Pod from becoming ready while it is `"true"`.
pub const NOT_READY_ANNOTATION: &str = "e2e/not-ready";
/// The label that carries the region of a Node.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// The label that carries the zone of a Node.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The address of a Node where the API server looks for its kubelet.
pub(crate) const KUBELET_ADDRESS: &str = "ExternalIP";
/// Nothing listens there, so `kubectl exec` and `logs` fail at once, without asking DNS or sending to a machine.
const KUBELET_PORT: u16 = 1;

const RETRY: Duration = Duration::from_millis(100);
const AT_ONCE: u16 = 16;

/// The machines of one cluster, and where its Pods are.
#[derive(Debug)]
pub(crate) struct Nodes {
    machines: Vec<Machine>,
    places: Mutex<Places>,
}

#[derive(Clone, Debug)]
struct Machine {
    name: String,
    address: Ipv4Addr,
    labels: BTreeMap<String, String>,
}

impl Nodes {
    /// Makes the Node objects.
    pub(crate) async fn create(client: &Client, options: &ClusterOptions) -> Result<Self> {
        let nodes: Api<Node> = Api::all(client.clone());
        let mut machines = Vec::new();
        for (zone, number) in options.zones.iter().zip(1..) {
            let machine = Machine::new(options, zone, number);
            let name = &machine.name;
            nodes
                .create(&PostParams::default(), &machine.object()?)
                .await
                .with_context(|| format!("making Node {name}"))?;
            nodes
                .patch_status(name, &PatchParams::default(), &Patch::Merge(machine.status()))
                .await
                .with_context(|| format!("writing the status of Node {name}"))?;
            machines.push(machine);
        }
        Ok(Self { machines, places: Mutex::new(Places::new(options.index, options.dual_stack)) })
    }

    fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// The Pods of a namespace take turns over the machines that fit.
    fn machine_for(&self, pod: &Pod) -> Option<&Machine> {
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
        let fits = |machine: &&Machine| {
            selector.is_none_or(|wanted| wanted.iter().all(|(k, v)| machine.labels.get(k) == Some(v)))
        };
        let turn = self.places().of(pod).turn;
        let fitting: Vec<&Machine> = self.machines.iter().filter(fits).collect();
        fitting.get(turn.checked_rem(fitting.len())?).copied()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    fn new(options: &ClusterOptions, zone: &str, number: u8) -> Self {
        let name = format!("{}-{zone}", options.name);
        let labels =
            [(REGION_LABEL, options.region.as_str()), (ZONE_LABEL, zone), ("kubernetes.io/hostname", &name)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self { name, address: Ipv4Addr::new(172, 31, options.index, number), labels }
    }

    fn object(&self) -> serde_json::Result<Node> {
        serde_json::from_value(json!({ "metadata": { "name": self.name, "labels": self.labels } }))
    }

    fn status(&self) -> Value {
        let resources = json!({ "cpu": "16", "memory": "64Gi", "pods": "1000" });
        json!({ "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                { "type": "InternalIP", "address": self.address },
                { "type": "Hostname", "address": self.name },
                { "type": KUBELET_ADDRESS, "address": Ipv4Addr::LOCALHOST },
            ],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": KUBELET_PORT } },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Played", "message": "no kubelet" }],
        }})
    }
}

/// What each Pod was given when it was first seen; it keeps that however often it is looked at.
#[derive(Debug)]
struct Places {
    index: u8,
    dual_stack: bool,
    last: u16,
    turns: BTreeMap<String, usize>,
    given: BTreeMap<String, Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Unique in the cluster; the addresses follow from it.
    number: u16,
    /// Counts the Pods of the namespace.
    turn: usize,
}

impl Places {
    fn new(index: u8, dual_stack: bool) -> Self {
        Self { index, dual_stack, last: 0, turns: BTreeMap::new(), given: BTreeMap::new() }
    }

    /// The place of a Pod. A number comes round again only after all others were used, so that a late reader
    /// rarely takes one Pod for another.
    fn of(&mut self, pod: &Pod) -> Place {
        let uid = pod.uid().unwrap_or_default();
        if let Some(place) = self.given.get(&uid) {
            return *place;
        }
        let next = |number: u16| number % (u16::MAX - 1) + 1;
        let mut number = next(self.last);
        while self.given.values().any(|place| place.number == number) {
            number = next(number);
        }
        self.last = number;
        let turn = self.turns.entry(pod.namespace().unwrap_or_default()).or_default();
        let place = Place { number, turn: *turn };
        *turn += 1;
        self.given.insert(uid, place);
        place
    }

    fn addresses(&mut self, pod: &Pod) -> Vec<IpAddr> {
        let number = self.of(pod).number;
        let [high, low] = number.to_be_bytes();
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::new(10, 200 + self.index, high, low))];
        if self.dual_stack {
            let cluster = 0x200 + u16::from(self.index);
            addresses.push(IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, cluster, 0, 0, 0, 0, number)));
        }
        addresses
    }

    fn free(&mut self, uid: &str) {
        self.given.remove(uid);
    }
}

/// Plays until it is dropped.
pub(crate) async fn run(client: Client, nodes: Nodes) {
    let pods: Api<Pod> = Api::all(client.clone());
    Controller::new(pods, watcher::Config::default())
        .with_config(kube::runtime::controller::Config::default().concurrency(AT_ONCE))
        .run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new((client, nodes)))
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                tracing::debug!(%error, "playing a pod failed, it is tried again");
            }
        })
        .await;
}

async fn reconcile(pod: Arc<Pod>, context: Arc<(Client, Nodes)>) -> Result<Action, kube::Error> {
    let (client, nodes) = context.as_ref();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    match play(&pod, &pods, nodes).await {
        // The Pod changed or went meanwhile; the watch brings what it is now.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        played => played,
    }?;
    Ok(Action::await_change())
}

async fn play(pod: &Pod, pods: &Api<Pod>, nodes: &Nodes) -> Result<(), kube::Error> {
    let name = pod.name_any();
    let uid = pod.uid().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        nodes.places().free(&uid);
        // With a grace period of 0 it is already being removed, and only finalizers hold it.
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(());
        }
        let now = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions { uid: Some(uid), resource_version: None });
        return pods.delete(&name, &now).await.map(drop);
    }
    let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let machine = match bound {
        Some(node) => nodes.machine(node),
        None => nodes.machine_for(pod),
    };
    // A Pod of a Node that is not ours, or that fits none, stays as it is.
    let Some(machine) = machine else { return Ok(()) };
    if bound.is_none() {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": name, "uid": uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": machine.name },
        });
        let _: Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
    }
    if let Some(status) = wanted_status(pod, machine, nodes) {
        let patch = Patch::Strategic(json!({ "metadata": { "uid": uid }, "status": status }));
        pods.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// The status to write, or none when it stands already or the Pod has ended.
fn wanted_status(pod: &Pod, machine: &Machine, nodes: &Nodes) -> Option<Value> {
    let ready = pod.annotations().get(NOT_READY_ANNOTATION).is_none_or(|value| value != "true");
    let ready = if ready { "True" } else { "False" };
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => return None,
        Some("Running") => {
            let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == ready) {
                return None;
            }
        }
        _ => {}
    }
    // The time of its making stands for every time: what is played takes none.
    let time = &pod.metadata.creation_timestamp;
    let condition = |kind, status| json!({ "type": kind, "status": status, "lastTransitionTime": time });
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let containers: Vec<Value> = containers
        .iter()
        .map(|container| {
            json!({
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": ready == "True",
                "started": true,
                "restartCount": 0,
                "state": { "running": { "startedAt": time } },
            })
        })
        .collect();
    let addresses = nodes.places().addresses(pod);
    Some(json!({
        "phase": "Running",
        "startTime": time,
        "hostIP": machine.address,
        "hostIPs": [{ "ip": machine.address }],
        "podIP": addresses.first(),
        "podIPs": addresses.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "conditions": [
            condition("PodScheduled", "True"),
            condition("Initialized", "True"),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ],
        "containerStatuses": containers,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_addresses_and_no_other_pod_has_them() {
        let mut places = Places::new(1, true);
        let seen = ["a", "b", "a"].map(|uid| places.addresses(&mk_pod("ns", uid)));
        let first = ips(&["10.201.0.1", "fd00:10:201::1"]);
        assert_eq!(seen, [first.clone(), ips(&["10.201.0.2", "fd00:10:201::2"]), first]);
    }

    #[test]
    fn a_freed_address_is_not_given_to_the_next_pod() {
        let mut places = Places::new(0, false);
        places.of(&mk_pod("ns", "a"));
        places.free("a");
        assert_eq!(places.addresses(&mk_pod("ns", "b")), ips(&["10.200.0.2"]));
    }

    #[test]
    fn numbers_come_round_past_those_still_taken() {
        let mut places = Places::new(0, false);
        places.of(&mk_pod("ns", "a"));
        places.last = u16::MAX - 1;
        assert_eq!(places.addresses(&mk_pod("ns", "b")), ips(&["10.200.0.2"]));
    }

    #[test]
    fn pods_of_one_namespace_take_turns_whatever_happens_in_others() {
        let mut places = Places::new(0, false);
        let pods = [("x", "a"), ("y", "b"), ("x", "c"), ("x", "a"), ("y", "d")];
        let turns = pods.map(|(namespace, uid)| places.of(&mk_pod(namespace, uid)).turn);
        assert_eq!(turns, [0, 0, 1, 0, 1]);
    }

    fn mk_pod(namespace: &str, uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.uid = Some(uid.to_owned());
        pod
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }
}
