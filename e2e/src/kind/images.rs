//! The images that the clusters run: ours, built before by `make docker-build`, and that of the workload.

use std::fs;

use anyhow::{Context, Result};
use futures::future::try_join_all;

use super::{member::Plan, tools::Tools};
use crate::{assets::workspace_root, programs::find};

/// Our images but for the tag.
pub(crate) const MCS: &str = "global-discovery-mcs";
/// That of the discovery service.
pub(crate) const DISCOVERY: &str = "global-discovery-service";
/// That of what runs beside them.
pub(crate) const WORKLOAD: &str = "mcs-e2e-workload:e2e";
/// The tag of what is installed.
pub(crate) const TAG: &str = "e2e";
/// The tag of what is upgraded to.
pub(crate) const NEXT_TAG: &str = "e2e-next";
/// Another base for the image of the workload, as for ours.
const RUNTIME_IMAGE: &str = "RUNTIME_IMAGE";

/// All of them.
pub(crate) fn all() -> Vec<String> {
    let ours = [MCS, DISCOVERY].iter().flat_map(|name| [TAG, NEXT_TAG].map(|tag| format!("{name}:{tag}")));
    ours.chain([WORKLOAD.to_owned()]).collect()
}

/// Builds what `make docker-build IMG=global-discovery-mcs:e2e` has not: the image of the workload, and an image of
/// each of ours that differs by a label, to upgrade to.
pub(crate) async fn build(tools: &Tools) -> Result<()> {
    let context = tools.folder().join("image");
    fs::create_dir_all(&context)?;
    let program = find("workload")?;
    fs::copy(&program, context.join("workload")).with_context(|| format!("copying {}", program.display()))?;
    let dockerfile = workspace_root().join("e2e/kind/Dockerfile").display().to_string();
    let context = context.display().to_string();
    let base = std::env::var(RUNTIME_IMAGE).ok().filter(|base| !base.is_empty());
    let base = base.map(|base| format!("RUNTIME_IMAGE={base}"));
    let argument = base.iter().flat_map(|base| ["--build-arg", base]);
    let arguments: Vec<_> = ["build", "-t", WORKLOAD, "-f", &dockerfile]
        .into_iter()
        .chain(argument)
        .chain([context.as_str()])
        .collect();
    tools.run("docker", &arguments).await?;
    for name in [MCS, DISCOVERY] {
        let dockerfile = format!("FROM {name}:{TAG}\nLABEL e2e=next\n");
        let built =
            tools.pipe("docker", &["build", "-t", &format!("{name}:{NEXT_TAG}"), "-"], &dockerfile).await;
        built.with_context(|| format!("is {name}:{TAG} built? `make e2e-up` does that"))?;
    }
    Ok(())
}

/// What `docker` says of each: name and size.
pub(crate) async fn sizes(tools: &Tools) -> Result<String> {
    let mut lines = Vec::new();
    for image in all() {
        let size = tools.run("docker", &["image", "inspect", "-f", "{{.Size}}", &image]).await?;
        let bytes: f64 = size.trim().parse().with_context(|| format!("the size of {image}"))?;
        lines.push(format!("{image}: {:.1} MB", bytes / 1e6));
    }
    Ok(lines.join("\n"))
}

/// Brings them to the nodes of the clusters; kind leaves out those that are there.
pub(crate) async fn load(tools: &Tools, plans: &[Plan]) -> Result<()> {
    let images = all();
    let load = async |plan: &Plan| {
        let name = plan.kind_name();
        let mut arguments = vec!["load", "docker-image", "--name", name.as_str()];
        arguments.extend(images.iter().map(String::as_str));
        tools.run("kind", &arguments).await.map(drop)
    };
    try_join_all(plans.iter().map(load)).await.map(drop)
}
