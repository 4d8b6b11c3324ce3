//! Two clusters of kind for the conformance suite, with what docs/install.md installs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use kube::Client;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::{
    charts, clean, logs,
    member::{Member, PLANS, kubeconfig},
    network::{self, answer_clustersets, each},
    phases::install_plaintext,
    tools::Tools,
    up,
};
use crate::{assets::workspace_root, screen::Screen};

/// What the suite runs in its Pods. It says so itself, in no file that could be read.
const IMAGES: [&str; 2] = ["alpine/socat:1.7.4.4", "nicolaka/netshoot:v0.15"];

/// The clusters `east` and `west`, with a registry and controllers. They stay when this ends.
pub(crate) struct Kind {
    members: Vec<Member>,
    tools: Tools,
    _balancing: Vec<AbortOnDropHandle<()>>,
}

impl Kind {
    /// Makes what is not there.
    pub(crate) async fn start(screen: &Screen) -> Result<Self> {
        let tools = Tools::new(&workspace_root().join("target/e2e"))?;
        let plans = &PLANS[..2];
        let members = up(screen, &tools, plans).await?;
        let balancing = network::balance(&members);
        screen.during("removing what is left of other runs", clean(&members)).await?;
        // Those that docker has need not be pulled by the nodes, which may not reach an image registry.
        for image in IMAGES {
            if tools.run("docker", &["image", "inspect", "-f", "{{.Id}}", image]).await.is_err() {
                screen.progress(format!("docker has no {image}: the nodes pull it"))?;
                continue;
            }
            for plan in plans {
                let name = plan.kind_name();
                tools.run("kind", &["load", "docker-image", "--name", &name, image]).await?;
            }
        }
        install_plaintext(screen, &members).await?;
        let answers = each(&members, answer_clustersets);
        let answers = screen.during("having CoreDNS answer for clusterset.local", answers).await?;
        if answers.contains(&false) {
            screen.progress("CoreDNS is older than 1.12.2: the tests that ask DNS will fail")?;
        }
        Ok(Self { members, tools, _balancing: balancing })
    }

    /// By whose names the kubeconfigs know the clusters.
    pub(crate) fn contexts(&self) -> [String; 2] {
        self.two().map(|member| format!("kind-{}", member.plan.kind_name()))
    }

    /// How they are reached.
    pub(crate) fn kubeconfigs(&self) -> [PathBuf; 2] {
        self.two().map(|member| kubeconfig(member.plan, &self.tools))
    }

    /// Clients of their API servers.
    pub(crate) fn clients(&self) -> [Client; 2] {
        self.two().map(|member| member.client.clone())
    }

    fn two(&self) -> [&Member; 2] {
        [&self.members[0], &self.members[1]]
    }

    /// A list of the registry, over REST.
    pub(crate) async fn rest(&self, list: &str) -> Result<Value> {
        charts::rest(&self.members[0], list).await
    }

    /// Writes what the clusters say beside the reports.
    pub(crate) async fn keep_logs(&self, folder: &Path) -> Result<()> {
        logs::keep(&self.members, folder).await
    }

    /// Uninstalls everything.
    pub(crate) async fn end(self) -> Result<()> {
        clean(&self.members).await
    }
}
