//! What holds of everything that the charts render, whatever the values.

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, ensure};
use mcs_runtime::args::{GDS, MCS, try_parse};
use serde_json::{Value, json};

use crate::chart::{Rendered, list_at, name_of, text_at};

/// Kinds that have no namespace.
const OF_THE_CLUSTER: [&str; 2] = ["ClusterRole", "ClusterRoleBinding"];
/// Kinds that have a Pod template.
const WITH_PODS: [&str; 2] = ["Deployment", "Job"];

/// Checks all laws.
///
/// # Errors
/// The first that does not hold, with the object.
pub(crate) fn hold(rendered: &Rendered) -> Result<()> {
    are_told_apart(rendered)?;
    are_of_a_release(rendered)?;
    hold_together(rendered)
}

/// Checks those that do not depend on helm.
///
/// # Errors
/// The first that does not hold, with the object.
pub(crate) fn hold_together(rendered: &Rendered) -> Result<()> {
    for object in &rendered.objects {
        let law = match text_at(object, "/kind") {
            kind if WITH_PODS.contains(&kind) => {
                let pod = object.pointer("/spec/template/spec").context("no Pod")?;
                is_confined(pod)
                    .and_then(|()| has_its_files(pod))
                    .and_then(|()| program_takes_arguments(pod))
                    .and_then(|()| has_its_account(rendered, pod))
            }
            "Service" | "PodDisruptionBudget" | "NetworkPolicy" => selects_pods(rendered, object),
            "RoleBinding" | "ClusterRoleBinding" => binds_what_is_there(rendered, object),
            _ => Ok(()),
        };
        law.with_context(|| name_of(object))?;
    }
    Ok(())
}

/// Kind, namespace and name are of one object, and what has a namespace names it.
fn are_told_apart(rendered: &Rendered) -> Result<()> {
    let mut seen = BTreeSet::new();
    for object in &rendered.objects {
        let (kind, namespace) = (text_at(object, "/kind"), text_at(object, "/metadata/namespace"));
        ensure!(
            namespace.is_empty() == OF_THE_CLUSTER.contains(&kind),
            "{} has the namespace {namespace:?}",
            name_of(object)
        );
        let id = (kind, namespace, text_at(object, "/metadata/name"));
        ensure!(seen.insert(id), "{id:?} is rendered twice");
    }
    Ok(())
}

/// Every object says of which release it is.
fn are_of_a_release(rendered: &Rendered) -> Result<()> {
    for object in &rendered.objects {
        ensure!(
            text_at(object, "/metadata/labels/app.kubernetes.io~1managed-by") == "Helm",
            "{} lacks the labels of all objects",
            name_of(object)
        );
    }
    Ok(())
}

/// A Pod may do no more than it has to, and is not told of Services by variables.
fn is_confined(pod: &Value) -> Result<()> {
    ensure!(pod["enableServiceLinks"] == false, "enableServiceLinks is {}", pod["enableServiceLinks"]);
    let context = &pod["securityContext"];
    ensure!(context["runAsNonRoot"] == true, "may run as root: {context}");
    ensure!(context["seccompProfile"]["type"] == "RuntimeDefault", "without seccomp: {context}");
    for container in list_at(pod, "/containers") {
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        });
        ensure!(container["securityContext"] == expected, "{}", container["securityContext"]);
    }
    Ok(())
}

/// Every file that an argument names is in a volume that is mounted, and every mount has its volume.
fn has_its_files(pod: &Value) -> Result<()> {
    let volumes: BTreeSet<_> =
        list_at(pod, "/volumes").iter().map(|volume| text_at(volume, "/name")).collect();
    for container in list_at(pod, "/containers") {
        let mounts = list_at(container, "/volumeMounts");
        let mounted: BTreeSet<_> = mounts.iter().map(|mount| text_at(mount, "/name")).collect();
        ensure!(mounted == volumes, "{mounted:?} are mounted of the volumes {volumes:?}");
        let files = list_at(container, "/args").iter().filter_map(Value::as_str);
        let files = files.filter_map(|argument| {
            argument.split_once('=').filter(|(flag, _)| flag.ends_with("-file") || flag.ends_with("-path"))
        });
        for (flag, file) in files {
            let is_mounted = mounts.iter().any(|mount| {
                file.strip_prefix(text_at(mount, "/mountPath")).is_some_and(|rest| rest.starts_with('/'))
            });
            ensure!(is_mounted, "{flag}={file} is not mounted");
        }
    }
    Ok(())
}

/// The program reads its arguments as it would in the Pod, and refuses none.
fn program_takes_arguments(pod: &Value) -> Result<()> {
    for container in list_at(pod, "/containers") {
        let words = list_at(container, "/command").iter().chain(list_at(container, "/args"));
        let words: Vec<String> = words.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
        let program = words.first().context("no command")?.trim_start_matches('/').to_owned();
        let words = || words.iter().cloned();
        let taken = match program.as_str() {
            "mcs-registry" => try_parse::<mcs_registry::args::Args>(&MCS, words()).map(drop),
            "mcs-controller" => try_parse::<mcs_controller::args::Args>(&MCS, words()).map(drop),
            "global-discovery-service" => {
                try_parse::<global_discovery_service::args::Args>(&GDS, words()).map(drop)
            }
            _ => return Err(anyhow!("{program} is no program of ours")),
        };
        taken.map_err(|stop| anyhow!("the program refuses its arguments: {stop:?}"))?;
    }
    Ok(())
}

fn has_its_account(rendered: &Rendered, pod: &Value) -> Result<()> {
    let account = text_at(pod, "/serviceAccountName");
    ensure!(rendered.find(&format!("ServiceAccount/{account}")).is_some(), "no ServiceAccount {account:?}");
    Ok(())
}

/// A selector selects the Pods of one Deployment, and ports are those of its containers.
fn selects_pods(rendered: &Rendered, object: &Value) -> Result<()> {
    let selector = ["/spec/selector/matchLabels", "/spec/podSelector/matchLabels", "/spec/selector"]
        .iter()
        .find_map(|pointer| object.pointer(pointer))
        .and_then(Value::as_object)
        .context("no selector")?;
    let selected: Vec<_> = rendered
        .objects
        .iter()
        .filter(|object| WITH_PODS.contains(&text_at(object, "/kind")))
        .filter(|object| {
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            selector.iter().all(|(label, value)| labels.get(label) == Some(value))
        })
        .collect();
    let [deployment] = selected[..] else {
        return Err(anyhow!(
            "selects {:?}",
            selected.iter().map(|object| name_of(object)).collect::<Vec<_>>()
        ));
    };
    let ports = list_at(deployment, "/spec/template/spec/containers/0/ports");
    let ports: BTreeSet<_> = ports.iter().map(|port| text_at(port, "/name")).collect();
    let named = list_at(object, "/spec/ports").iter().map(|port| text_at(port, "/targetPort"));
    let allowed = list_at(object, "/spec/ingress").iter().flat_map(|rule| list_at(rule, "/ports"));
    for port in named.chain(allowed.map(|port| text_at(port, "/port"))) {
        ensure!(ports.contains(port), "the port {port:?} is none of {ports:?}");
    }
    Ok(())
}

fn binds_what_is_there(rendered: &Rendered, binding: &Value) -> Result<()> {
    let (kind, name) = (text_at(binding, "/roleRef/kind"), text_at(binding, "/roleRef/name"));
    let role = match text_at(binding, "/metadata/namespace") {
        "" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{namespace}/{name}"),
    };
    ensure!(rendered.find(&role).is_some(), "no {role}");
    Ok(())
}
