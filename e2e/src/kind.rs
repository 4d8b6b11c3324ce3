//! `make e2e`: the programs in three clusters of kind, installed with the charts as docs/install.md says, with real
//! traffic between their Pods.
//!
//! `tools` runs docker, kind, helm and kubectl; `member` is one cluster, `network` what joins them, `images` what
//! they run, `charts` what is installed, `shop` the workload and its traffic. `phases` has one file for each phase. A
//! phase makes what it needs and removes it; what an earlier one left is removed first, so that each can run alone.

use std::{fmt, fs, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use mcs_core::time::Clock;
use mcs_runtime::{clock::SystemClock, shutdown::Drain};

use self::{
    charts::{CONTROLLER, DISCOVERY_RELEASE, SYSTEM},
    member::{Member, PLANS, Plan, kubeconfig},
    network::each,
    phases::{PHASES, Phase},
    tools::Tools,
};
use crate::{assets::workspace_root, screen::Screen, table::columns};

mod certificates;
mod charts;
pub(crate) mod conformance;
mod images;
mod logs;
mod member;
mod network;
mod phases;
mod shop;
mod tools;
mod witness;

/// Names the image of the nodes.
const NODE_IMAGE: &str = "KIND_NODE_IMAGE";
const DEFAULT_NODE_IMAGE: &str = "kindest/node:v1.35.0";
/// For what takes seconds on an idle machine: Pods that start, leases that end, nodes that come back.
const LONG: Duration = Duration::from_secs(5 * 60);

/// What to do.
#[derive(Clone, Debug)]
pub enum Command {
    /// Makes the clusters, joins them, and brings the images to them.
    Up,
    /// Deletes the clusters.
    Down,
    /// Makes what is not there and runs the phases of these numbers, or all of them and then deletes the clusters.
    Run(Vec<u8>),
}

/// Does it, and prints how it went.
///
/// # Errors
/// A phase failed, or the clusters could not be made; it has been printed too.
pub async fn run(command: Command, shutdown: &Drain) -> Result<()> {
    let mut screen = Screen::new();
    let done = tokio::select! {
        () = shutdown.draining() => Err(anyhow::anyhow!("interrupted")),
        done = Box::pin(act(command, &mut screen)) => done,
    };
    if let Err(error) = &done {
        screen.progress(format!("FAILED: {error:#}"))?;
    }
    done
}

async fn act(command: Command, screen: &mut Screen) -> Result<()> {
    let tools = Tools::new(&workspace_root().join("target/e2e"))?;
    match command {
        Command::Up => up(screen, &tools, &PLANS).await.map(drop),
        Command::Down => down(screen, &tools).await,
        Command::Run(numbers) => {
            let is_all = numbers.is_empty();
            let wanted = wanted(&numbers)?;
            let members = up(screen, &tools, &PLANS).await?;
            run_phases(screen, &tools, &members, &wanted).await?;
            if is_all { down(screen, &tools).await } else { Ok(()) }
        }
    }
}

/// The phases of these numbers, or all.
fn wanted(numbers: &[u8]) -> Result<Vec<Phase>> {
    let unknown = numbers.iter().find(|number| PHASES.iter().all(|phase| phase.number != **number));
    if let Some(unknown) = unknown {
        bail!("there is no phase {unknown}, there are 1 to {}", PHASES.len());
    }
    let is_wanted = |phase: &Phase| numbers.is_empty() || numbers.contains(&phase.number);
    Ok(PHASES.into_iter().filter(is_wanted).collect())
}

async fn up(screen: &Screen, tools: &Tools, plans: &[Plan]) -> Result<Vec<Member>> {
    let image = std::env::var(NODE_IMAGE).ok().filter(|image| !image.is_empty());
    let image = image.unwrap_or_else(|| DEFAULT_NODE_IMAGE.to_owned());
    screen.during("building the image of the workload", images::build(tools)).await?;
    screen.quote(&images::sizes(tools).await?)?;
    let there = tools.run("kind", &["get", "clusters"]).await?;
    let making = try_join_all(plans.iter().map(|plan| make(*plan, tools, &there, &image)));
    screen.during(&format!("making the clusters of {image}"), making).await?;
    let members = try_join_all(plans.iter().map(|plan| Member::open(*plan, tools))).await?;
    screen.during("joining their networks", join(&members)).await?;
    screen.during("bringing the images to them", images::load(tools, plans)).await?;
    screen.progress("the clusters are up")?;
    Ok(members)
}

async fn make(plan: Plan, tools: &Tools, there: &str, image: &str) -> Result<()> {
    let (name, path) = (plan.kind_name(), kubeconfig(plan, tools).display().to_string());
    if there.lines().any(|line| line == name) {
        return tools
            .run("kind", &["export", "kubeconfig", "--name", &name, "--kubeconfig", &path])
            .await
            .map(drop);
    }
    let arguments = [
        "create",
        "cluster",
        "--name",
        &name,
        "--image",
        image,
        "--kubeconfig",
        &path,
        "--wait",
        "5m",
        "--config",
        "-",
    ];
    tools.pipe("kind", &arguments, &plan.configuration().to_string()).await.map(drop)
}

async fn join(members: &[Member]) -> Result<()> {
    network::route(members).await?;
    each(members, network::name).await.map(drop)
}

async fn down(screen: &Screen, tools: &Tools) -> Result<()> {
    let deleting = try_join_all(PLANS.map(async |plan| {
        let (name, path) = (plan.kind_name(), kubeconfig(plan, tools).display().to_string());
        // One that is paused cannot be deleted.
        let _ = tools.run("docker", &["unpause", &plan.node()]).await;
        tools.run("kind", &["delete", "cluster", "--name", &name, "--kubeconfig", &path]).await
    }));
    screen.during("deleting the clusters", deleting).await.map(drop)
}

/// How a phase went.
struct Outcome {
    phase: Phase,
    took: Duration,
    result: Result<String>,
}

async fn run_phases(screen: &mut Screen, tools: &Tools, members: &[Member], wanted: &[Phase]) -> Result<()> {
    let _balancing = network::balance(members);
    let mut outcomes = Vec::new();
    for phase in wanted {
        screen.section(&format!("{} (phase {})", phase.name, phase.number), phase.caption)?;
        let began = SystemClock.elapsed();
        let result = run_phase(screen, members, *phase).await;
        let took = SystemClock.elapsed().since(began);
        match &result {
            Ok(summary) => screen.progress(format!("passed: {summary}"))?,
            Err(error) => {
                screen.progress(format!("FAILED: {error:#}"))?;
                let folder = tools.folder().join(format!("failed-{}-{}", phase.number, phase.name));
                match logs::keep(members, &folder).await {
                    Ok(()) => screen.progress(format!("what the clusters say is in {}", folder.display()))?,
                    Err(error) => screen.progress(format!("what they say is not kept: {error:#}"))?,
                }
            }
        }
        outcomes.push(Outcome { phase: *phase, took, result });
    }
    let table = Table(&outcomes).to_string();
    screen.text("")?;
    screen.quote(&table)?;
    fs::write(tools.folder().join("phases.txt"), table).context("writing the table of the phases")?;
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    ensure!(failed == 0, "{failed} of {} phases failed; the clusters are left as they are", outcomes.len());
    screen.progress(format!("all {} phases passed", outcomes.len()))?;
    Ok(())
}

async fn run_phase(screen: &Screen, members: &[Member], phase: Phase) -> Result<String> {
    screen.during("removing what is left of earlier phases", clean(members)).await?;
    let summary = phase.run(screen, members).await?;
    screen.during("removing what it made", clean(members)).await?;
    Ok(summary)
}

/// Has CoreDNS answer for clustersets no more, uninstalls everything, controllers while they reach a registry, and deletes
/// the namespaces.
async fn clean(members: &[Member]) -> Result<()> {
    each(members, awake).await?;
    network::route(members).await?;
    each(members, network::forget_clustersets).await?;
    for is_first in [true, false] {
        each(members, async |member| {
            for (release, namespace) in charts::releases(member).await? {
                if (release == CONTROLLER) == is_first {
                    charts::uninstall(member, &release, &namespace).await?;
                }
            }
            Ok(())
        })
        .await?;
    }
    each(members, |member| shop::remove_namespaces(member, &[SYSTEM, DISCOVERY_RELEASE])).await?;
    let roles = ["delete", "clusterrole,clusterrolebinding", charts::COREDNS_ROLE, "--ignore-not-found"];
    each(members, |member| member.kubectl(&roles)).await.map(drop)
}

/// Lets a cluster go on that a phase has stopped and left so.
async fn awake(member: &Member) -> Result<()> {
    let node = member.plan.node();
    let is_paused = member.docker(&["inspect", "-f", "{{.State.Paused}}", &node]).await?;
    if is_paused.trim() == "true" {
        member.docker(&["unpause", &node]).await?;
    }
    Ok(())
}

/// What is shown in the end.
struct Table<'a>(&'a [Outcome]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |Outcome { phase, took, result }: &Outcome| {
            let (state, what) = match result {
                Ok(summary) => ("passed", summary.clone()),
                Err(error) => ("FAILED", error.to_string().lines().next().unwrap_or_default().to_owned()),
            };
            let took = format!("{:.0} s", took.as_secs_f64());
            [phase.number.to_string(), phase.name.to_owned(), state.to_owned(), took, what]
        };
        let rows: Vec<_> = self.0.iter().map(row).collect();
        f.write_str(&columns(["PHASE", "NAME", "STATE", "TOOK", "WHAT"], &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_known_by_their_numbers_and_all_are_run_when_none_is_named() {
        let numbers = |numbers: &[u8]| {
            wanted(numbers).map(|all| all.iter().map(|phase| phase.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(&[4, 2]).expect("both are known"), vec![2, 4]);
        assert_eq!(numbers(&[]).expect("all are known"), (1..=8).collect::<Vec<u8>>());
        let error = numbers(&[4, 9]).expect_err("there is no phase 9");
        assert_eq!(error.to_string(), "there is no phase 9, there are 1 to 8");
    }

    #[test]
    fn the_table_shows_each_phase_and_the_first_line_of_a_failure() {
        let outcome =
            |number, result| Outcome { phase: PHASES[number], took: Duration::from_millis(61_400), result };
        let outcomes =
            [outcome(0, Ok("80 requests".to_owned())), outcome(1, Err(anyhow::anyhow!("no\nmore")))];
        let wanted = "PHASE  NAME    STATE   TOOK  WHAT\n\
                      1      memory  passed  61 s  80 requests\n\
                      2      tls     FAILED  61 s  no";
        assert_eq!(Table(&outcomes).to_string(), wanted);
    }
}
