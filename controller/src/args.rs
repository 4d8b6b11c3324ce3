//! Flags → [`Options`]. Every flag has a variable `DYN_MCS_<FLAG>`; lists are repeatable and comma-separated.
//!
//! Flags stand before or after the subcommand. Those that only `run` needs are checked when it is run, so that
//! `apply-crds` needs none.

use crate::crds::{Outcome, apply_crds};
use crate::leader::Settings;
use crate::leave::leave;
use crate::wiring::{self, Options};
use clap::{Parser, Subcommand};
use mcs_core::election::Policy;
use mcs_core::ids::{ClusterId, ClustersetId, Namespace, Region};
use mcs_proto::url::{RegistryUrl, Scheme};
use mcs_runtime::args::{AdminArgs, Check, LogArgs, MCS};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::tls::client::RegistryTlsArgs;
use mcs_runtime::{kube, logs, program};
use std::process::ExitCode;
use std::sync::Arc;
use tracing::{info, warn};

/// Exports the Services of this cluster to a registry, and makes those of its clusterset usable here
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "mcs-controller", mut_args(|flag| flag.global(true)))]
pub struct Args {
    /// What to do; `run` when nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Where the registries are.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Who this cluster is.
    #[command(flatten)]
    pub member: MemberArgs,
    /// What is exported and imported.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Which replica leads.
    #[command(flatten)]
    pub leader: LeaderArgs,
    /// Where it is asked how it is.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// How logs are written.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// What a controller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Exports and imports until a signal ends it: what is done when no subcommand is given
    Run,
    /// Brings the CRDs of this build to the cluster, and ends. A newer schema and stored versions are kept
    ApplyCrds,
    /// Takes the cluster out of its clusterset, and ends: a registry forgets it, and all that was made in the cluster goes,
    /// with the finalizers. Controllers that run meanwhile do nothing any more until they are started anew
    Leave,
}

/// Where the registries are.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Registry")]
pub struct RegistryArgs {
    /// Where a registry answers, as in `https://registry.example:9090`; several in failover order, all of one scheme.
    /// Without a port: 443 for https, 80 for http
    #[arg(long, value_name = "URL")]
    pub registry_url: Vec<RegistryUrl>,
    /// Takes http URLs, over which anyone on the way can read and change what is exported
    #[arg(long)]
    pub registry_allow_insecure_http: bool,
    /// Whom to believe, and as whom.
    #[command(flatten)]
    pub tls: RegistryTlsArgs,
}

/// Who this cluster is.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct MemberArgs {
    /// The clusterset this cluster belongs to, a DNS label [default: the ClusterProperty clusterset.k8s.io]
    #[arg(long, value_name = "ID")]
    pub clusterset_id: Option<ClustersetId>,
    /// The id of this cluster in its clusterset, a DNS label that no other member has [default: the ClusterProperty
    /// cluster.clusterset.k8s.io]
    #[arg(long, value_name = "ID")]
    pub cluster_id: Option<ClusterId>,
    /// The region of this cluster, which its imported endpoints are labelled with [default: the region that most nodes are
    /// labelled with, no label where none is]
    #[arg(long, value_name = "REGION")]
    pub region: Option<Region>,
}

/// What is exported and imported.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Exports and imports")]
pub struct ScopeArgs {
    /// The namespaces that are exported from and imported into [default: all]
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespaces: Vec<Namespace>,
    /// Creates the namespace of an import where it does not exist. Without it the import waits for the namespace
    #[arg(long)]
    pub create_namespaces: bool,
    /// Takes over ServiceImports that this controller did not make. Without it they are left alone, with an Event
    #[arg(long)]
    pub adopt_unmanaged_imports: bool,
}

/// Which replica leads.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderArgs {
    /// The namespace of the Lease that replicas compete for [default: the one this program runs in]
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<Namespace>,
    /// The name of the Lease that replicas compete for; two clustersets in one namespace need two
    #[arg(long, value_name = "NAME", default_value = "mcs-controller", value_parser = lease_name)]
    pub leader_election_id: String,
}

fn lease_name(text: &str) -> Result<String, String> {
    match mcs_core::ids::check_dns_label(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(problem) => Err(problem.to_string()),
    }
}

impl Check for Args {
    fn check(&self) -> Result<(), String> {
        match self.command {
            Some(Command::ApplyCrds) => Ok(()),
            // Without a registry it still cleans the cluster.
            Some(Command::Leave) if self.registry.registry_url.is_empty() => Ok(()),
            _ if self.registry.registry_url.is_empty() => {
                Err("--registry-url is needed: where a registry answers, such as https://registry.example"
                    .to_owned())
            }
            _ => {
                let RegistryArgs { registry_url, registry_allow_insecure_http, tls } = &self.registry;
                RegistryUrl::check_all(registry_url, *registry_allow_insecure_http)
                    .map_err(|problem| format!("--registry-url: {problem}"))?;
                let plaintext = registry_url.iter().find(|url| url.scheme() == Scheme::Http);
                match (plaintext, tls.first_given()) {
                    (Some(url), Some(flag)) => {
                        Err(format!("{flag} needs https, but registry URL {url} is plaintext"))
                    }
                    _ => tls.check(),
                }
            }
        }
    }
}

impl Args {
    /// Reads the flags, or ends the process: with exit code 2 and one line when they are refused.
    pub fn parse() -> Self {
        mcs_runtime::args::parse(&MCS)
    }

    /// Does what is asked for. Exit code 1, with the reason in the log, when it cannot.
    pub fn run(self) -> ExitCode {
        program::run(|shutdown| async move {
            logs::init(&self.logs)?;
            // Kube would choose one by itself, but only when its first client is made.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let client = kube::client().await?;
            let namespace = client.default_namespace().to_owned();
            if self.command == Some(Command::ApplyCrds) {
                return report(apply_crds(client).await?);
            }
            if self.command == Some(Command::Leave) {
                let options = self.options(&namespace);
                return leave(options, client, Arc::new(SystemClock)).await;
            }
            let admin = self.admin.admin_listen.bind().await?;
            let options = self.options(&namespace);
            wiring::run(options, client, Arc::new(SystemClock), admin, shutdown.watch()).await
        })
    }

    /// What the flags say of the controller itself, in a program that runs in `namespace`.
    fn options(self, namespace: &str) -> Options {
        let Self { command: _, registry, member, scope, leader, admin: _, logs: _ } = self;
        let lease_namespace = leader.leader_election_namespace.map(|namespace| namespace.to_string());
        Options {
            registries: registry.registry_url,
            tls: registry.tls.files(),
            clusterset: member.clusterset_id,
            cluster: member.cluster_id,
            region: member.region,
            watch_namespaces: scope.watch_namespaces,
            create_namespaces: scope.create_namespaces,
            adopt_unmanaged: scope.adopt_unmanaged_imports,
            leader: Settings {
                namespace: lease_namespace.unwrap_or_else(|| namespace.to_owned()),
                name: leader.leader_election_id,
                identity: identity(),
                policy: Policy::default(),
            },
        }
    }
}

/// The host's name, as people look for it, and what makes it this process's alone. Upper case stays; what no host name
/// has, and no log should show, is left out.
fn identity() -> String {
    let host = gethostname::gethostname();
    let host: String = host.to_string_lossy().chars().filter(char::is_ascii_graphic).take(200).collect();
    format!("{host}_{:016x}", rand::random::<u64>())
}

fn report(outcomes: std::collections::BTreeMap<String, Outcome>) -> anyhow::Result<()> {
    for (crd, outcome) in outcomes {
        match outcome {
            Outcome::Applied => info!(crd, "applied"),
            Outcome::Newer { release, revision } => {
                warn!(crd, release, revision, "left alone: its schema is newer")
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
