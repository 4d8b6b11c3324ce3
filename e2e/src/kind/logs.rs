//! What is kept of a phase that failed.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};

use super::member::Member;

/// What is asked for in each cluster, by the file that has the answer.
const LOOKS: [(&str, &[&str]); 5] = [
    ("pods.txt", &["get", "pods", "-A", "-o", "wide"]),
    ("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"]),
    ("described.txt", &["describe", "pods", "-n", "mcs-system"]),
    ("services.yaml", &["get", "services,endpointslices", "-A", "-o", "yaml"]),
    ("mcs.yaml", &["get", "serviceexports,serviceimports", "-A", "-o", "yaml"]),
];
/// Namespaces whose logs say nothing about us.
const OTHERS: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// Writes what each cluster says, and the logs of its Pods, into a folder. What cannot be had is told in its place.
pub(crate) async fn keep(members: &[Member], folder: &Path) -> Result<()> {
    for member in members {
        let folder = folder.join(member.name());
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        for (file, arguments) in LOOKS {
            let said = member.kubectl(arguments).await.unwrap_or_else(|error| format!("{error:#}"));
            fs::write(folder.join(file), said)?;
        }
        let pods: Api<Pod> = Api::all(member.client.clone());
        let Ok(pods) = pods.list_metadata(&ListParams::default()).await else { continue };
        for pod in &pods.items {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            if OTHERS.contains(&namespace.as_str()) && !name.starts_with("coredns") {
                continue;
            }
            let logs = ["-n", &namespace, "logs", &name, "--all-containers"];
            let said = member.kubectl(&logs).await.unwrap_or_else(|error| format!("{error:#}"));
            fs::write(folder.join(format!("{namespace}-{name}.log")), said)?;
            let before = [&logs[..], &["--previous"]].concat();
            if let Ok(said) = member.kubectl(&before).await {
                fs::write(folder.join(format!("{namespace}-{name}-previous.log")), said)?;
            }
        }
    }
    Ok(())
}
