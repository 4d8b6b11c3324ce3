//! `make conformance`: the conformance suite of the MCS API against two clusters with a registry and controllers.
//!
//! The suite is a Go test binary that is built elsewhere, from the folder `conformance` of kubernetes-sigs/mcs-api. In
//! control planes of our own Pods are played, so of what it tests only what is seen in API objects can be judged there:
//! [`FILTER`] leaves out what sends packets or asks DNS. Clusters of kind run all of it.

use std::{
    fs,
    future::ready,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};
use mcs_runtime::shutdown::Drain;
use serde_json::Value;

use self::{control_planes::ControlPlanes, report::Report};
use crate::{
    directory::emptied, kind::conformance::Kind, programs::Program, screen::Screen, wait::wait_at_most,
};

mod control_planes;
mod report;

/// The tests that control planes without machines can serve, in Ginkgo's language of label filters.
pub const FILTER: &str = "Required || ExportedLabels || (EndpointSlice && !DNS)";
/// A run takes minutes; when everything is wrong, each of its 27 tests gives up after two minutes at most.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// What the names of the suite's namespaces begin with.
const NAMESPACES: &str = "mcs-conformance-";
/// kube-controller-manager takes the namespaces that are deleted one after the other.
const END_LIMIT: Duration = Duration::from_secs(3 * 60);
/// What Ginkgo writes before the time of each test that ended.
const ENDED: char = '•';
/// The suite's report as Ginkgo writes it.
const GINKGO_REPORT: &str = "ginkgo.json";

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The test binary of the suite.
    pub suite: PathBuf,
    /// Where.
    pub provider: Provider,
    /// Further flags of the suite, after ours.
    pub flags: Vec<String>,
}

/// The clusters to run it against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Control planes without machines, with both address families.
    DualStack,
    /// The same with IPv4 alone.
    SingleStack,
    /// Two of the clusters of `make e2e`, for all tests.
    Kind,
}

/// Runs the suite, prints how each test ended, and leaves its reports and all logs in `target/conformance`.
///
/// # Errors
/// A test did not pass, none that is required ran, or something did not start or end; it has been printed too.
pub async fn run(options: &Options, shutdown: &Drain) -> Result<()> {
    let screen = Screen::new();
    let ran = tokio::select! {
        () = shutdown.draining() => Err(anyhow::anyhow!("interrupted before every test ended")),
        ran = Box::pin(start_and_judge(options, &screen)) => ran,
    };
    if let Err(error) = &ran {
        screen.progress(format!("FAILED: {error:#}"))?;
    }
    ran
}

async fn start_and_judge(options: &Options, screen: &Screen) -> Result<()> {
    let suite = options.suite.canonicalize();
    let suite = suite.with_context(|| format!("finding the suite at {}", options.suite.display()))?;
    let folder = emptied("conformance")?;
    let scene = match options.provider {
        Provider::Kind => Scene::Kind(Box::pin(Kind::start(screen)).await?),
        provider => {
            let starting = ControlPlanes::start(provider == Provider::DualStack);
            let what = "starting two clusters, mcs-registry and mcs-controllers";
            Scene::ControlPlanes(Box::new(screen.during(what, starting).await?))
        }
    };
    screen.progress("running the suite")?;
    let mut ran = scene.suite(screen, &suite, &folder, &options.flags).await;
    if ran.is_ok() {
        let left = screen.during("waiting until nothing is left of its namespaces", scene.nothing_is_left());
        ran = left.await.and(ran);
    }
    // Before the end of what writes them: their folders go with it.
    match &scene {
        Scene::ControlPlanes(scene) => scene.keep_logs(&folder)?,
        Scene::Kind(scene) => scene.keep_logs(&folder).await?,
    }
    let judged = ran.and_then(|status| judge(screen, &folder, status));
    screen.text(format!("\nThe reports and the logs of all programs are in {}\n", folder.display()))?;
    screen.progress("ending everything")?;
    let ended = match scene {
        Scene::ControlPlanes(scene) => scene.end().await,
        Scene::Kind(scene) => scene.end().await,
    };
    // What does not end after a failure is killed, and not what the failure is about.
    screen.progress(judged?)?;
    ended
}

/// Prints the table of the tests; answers the verdict in a line.
fn judge(screen: &Screen, folder: &Path, status: ExitStatus) -> Result<String> {
    let log = folder.join("suite.log");
    let text = fs::read_to_string(folder.join(GINKGO_REPORT));
    let text =
        text.with_context(|| format!("the suite ended ({status}) without a report, see {}", log.display()))?;
    let report = Report::read(&text)?;
    screen.text("")?;
    screen.quote(&report.to_string())?;
    let verdict = report.verdict()?;
    ensure!(status.success(), "{verdict}, but the suite ended with {status}, see {}", log.display());
    Ok(verdict)
}

/// What the suite runs against.
enum Scene {
    ControlPlanes(Box<ControlPlanes>),
    Kind(Kind),
}

impl Scene {
    /// By whose names the suite knows the clusters.
    fn contexts(&self) -> [String; 2] {
        match self {
            Self::ControlPlanes(scene) => scene.clusters().map(|cluster| cluster.name().to_owned()),
            Self::Kind(scene) => scene.contexts(),
        }
    }

    fn kubeconfigs(&self) -> [PathBuf; 2] {
        match self {
            Self::ControlPlanes(scene) => scene.clusters().map(crate::Cluster::kubeconfig_path),
            Self::Kind(scene) => scene.kubeconfigs(),
        }
    }

    fn clients(&self) -> [Client; 2] {
        match self {
            Self::ControlPlanes(scene) => scene.clusters().map(crate::Cluster::client),
            Self::Kind(scene) => scene.clients(),
        }
    }

    /// A list of the registry, over REST.
    async fn rest(&self, list: &str) -> Result<Value> {
        match self {
            Self::ControlPlanes(scene) => scene.rest(list).await,
            Self::Kind(scene) => scene.rest(list).await,
        }
    }

    /// Runs the suite in `folder`, where it writes.
    async fn suite(
        &self,
        screen: &Screen,
        suite: &Path,
        folder: &Path,
        flags: &[String],
    ) -> Result<ExitStatus> {
        let mut arguments = vec![
            format!("-contexts={}", self.contexts().join(",")),
            format!("-ginkgo.json-report={GINKGO_REPORT}"),
            "-ginkgo.junit-report=junit.xml".to_owned(),
            "-ginkgo.no-color".to_owned(),
            "-ginkgo.v".to_owned(),
            "-project=mcs-controller".to_owned(),
            format!("-version={}", env!("CARGO_PKG_VERSION")),
        ];
        if let Self::ControlPlanes(_) = self {
            arguments.push(format!("-ginkgo.label-filter={FILTER}"));
        }
        arguments.extend_from_slice(flags);
        let kubeconfigs = std::env::join_paths(self.kubeconfigs())?;
        let environment = [("KUBECONFIG", kubeconfigs.to_string_lossy().into_owned())];
        let mut running = Program::start_foreign(suite, "suite", folder, &arguments, &environment).await?;
        let mut tests = 0;
        let mut look = || -> Result<ExitStatus> {
            let ended = running.log().lines().filter(|line| line.starts_with(ENDED)).count();
            if ended > tests {
                screen.progress(format!("  tests that ended: {ended}"))?;
                tests = ended;
            }
            running.status()?.with_context(|| running.log_tail())
        };
        wait_at_most(LIMIT, "the end of the suite", || ready(look())).await
    }

    /// Waits until the namespaces that the suite deleted are gone, none of which may hang on a finalizer of ours, and
    /// the registry has no export more.
    async fn nothing_is_left(&self) -> Result<()> {
        wait_at_most(END_LIMIT, "the end of all that the suite made", async || {
            for (context, client) in self.contexts().iter().zip(self.clients()) {
                let namespaces: Api<Namespace> = Api::all(client);
                let listed = namespaces.list_metadata(&ListParams::default()).await?;
                let names: Vec<_> = listed.iter().map(ResourceExt::name_any).collect();
                let left: Vec<_> = names.iter().filter(|name| name.starts_with(NAMESPACES)).collect();
                ensure!(left.is_empty(), "cluster {context} still has {left:?}");
            }
            for list in ["exports", "imports"] {
                let answer = self.rest(list).await?;
                let left = answer[list].as_array().with_context(|| format!("no list of {list}: {answer}"))?;
                ensure!(left.is_empty(), "the registry still has {list}: {answer}");
            }
            Ok(())
        })
        .await
    }
}
