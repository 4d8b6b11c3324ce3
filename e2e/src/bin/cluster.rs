//! Starts one cluster, prints the ids of its processes, its kubeconfig and `ready`, and runs until Ctrl-C.

use std::io::{Write, stdout};

use clap::Parser;
use mcs_e2e::{Cluster, ClusterOptions};

/// A Kubernetes control plane on loopback, with played nodes.
#[derive(Parser)]
struct Args {
    /// Name of the cluster.
    #[arg(long, default_value = "east")]
    name: String,
    /// Decides the address ranges; 0 to 50.
    #[arg(long, default_value_t = 0)]
    index: u8,
    /// Region of its nodes.
    #[arg(long, default_value = "us-east-1")]
    region: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { name, index, region } = Args::parse();
    let cluster = Cluster::start(ClusterOptions::new(&name, index, &region)).await?;
    for id in cluster.process_ids() {
        writeln!(stdout(), "pid {id}")?;
    }
    writeln!(stdout(), "export KUBECONFIG={}", cluster.kubeconfig_path().display())?;
    writeln!(stdout(), "ready")?;
    tokio::signal::ctrl_c().await?;
    cluster.stop().await
}
