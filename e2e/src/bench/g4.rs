//! G4: many slices that a controller has never seen, beside a loop that does nothing but create slices on the same API
//! server; and a restart of the controller when nothing has changed.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::PostParams,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use mcs_core::{
    names::LABEL_SERVICE_NAME,
    time::{Clock, Timestamp},
};
use mcs_runtime::clock::SystemClock;
use tokio::time::timeout;

use super::{
    Scale,
    crossing::{kubernetes, options},
    exporters::{ENDPOINTS, Exporters},
    g3::{WRITERS, metric, nothing_waits, slice_of},
    machine::{self, Cores},
    progress,
    report::{Report, Row, Unit},
    stats::{Ratios, median},
};
use crate::{
    Cluster,
    crossing::Numbers,
    programs::Signal,
    shared::pair,
    stack::{Stack, prepare},
};

/// 5,000 slices: each cluster has one of each Service.
const EXPORTERS: usize = 50;
const SERVICES: u16 = 100;
/// Of the goal.
const MOST_RATIO: f64 = 1.5;
const MOST_READY: f64 = 3.0;
/// What the change costs that shows that all before it was worked on: its slice is applied.
const PROBE_WRITES: f64 = 1.0;
/// Something is broken when it takes longer.
const LIMIT: Duration = Duration::from_secs(300);

/// Measures it.
///
/// # Errors
/// Something did not start, or a slice did not come.
pub fn run(scale: &Scale) -> Result<Report> {
    Cores::Shared.generator()?.block_on(Box::pin(measure(scale)))
}

/// How much is imported.
#[derive(Clone, Copy, Debug)]
struct Size {
    exporters: usize,
    services: u16,
}

impl Size {
    fn slices(self) -> usize {
        self.exporters * usize::from(self.services)
    }
}

/// What one controller was seen to do.
#[derive(Clone, Copy, Debug)]
struct Seen {
    import: Duration,
    ready: Duration,
    writes: f64,
}

async fn measure(scale: &Scale) -> Result<Report> {
    let load = machine::load();
    let size = Size {
        exporters: (EXPORTERS / scale.divisor).max(1),
        services: (SERVICES / u16::try_from(scale.divisor)?).max(10),
    };
    let west = &pair().await?.west;
    progress(&format!("g4: {} pairs, {} slices each", scale.pairs, size.slices()));
    let (mut seen, mut bare) = (Vec::new(), Vec::new());
    for pair in 1..=scale.pairs {
        seen.push(import(west, size).await?);
        bare.push(create(west, size.slices()).await?);
        progress(&format!("  pair {pair} of {} measured", scale.pairs));
    }
    let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
    let (imports, bare) = (seconds(&seen.iter().map(|seen| seen.import).collect::<Vec<_>>()), seconds(&bare));
    let worst = |of: fn(&Seen) -> f64| seen.iter().map(of).fold(0.0, f64::max);
    let middle = |numbers: &[f64]| median(numbers.iter().copied()).context("nothing was measured");
    let rows = vec![
        Row {
            most_ratio: Some(MOST_RATIO),
            peer: Some(middle(&bare)?),
            ratio: Ratios::of(imports.iter().copied().zip(bare.iter().copied())),
            ..Row::new(
                "G4",
                format!("{} slices, from the start of the controller", size.slices()),
                Unit::Seconds,
                middle(&imports)?,
            )
        },
        Row {
            most: Some(0.0),
            ..Row::new("G4", "writes after a restart, most", Unit::Count, worst(|seen| seen.writes))
        },
        Row {
            most: Some(MOST_READY),
            ..Row::new(
                "G4",
                "ready after a restart, worst",
                Unit::Seconds,
                worst(|seen| seen.ready.as_secs_f64()),
            )
        },
    ];
    let notes = vec![
        format!(
            "G4: {} Services of {} clusters without API servers, a slice of {ENDPOINTS} endpoints each; the peer is a \
             loop that creates as many slices, {WRITERS} at a time, on the same API server",
            size.services, size.exporters
        ),
        format!("{}, {}", machine::versions()?, kubernetes(west).await?),
        load,
    ];
    Ok(Report { rows, notes })
}

/// A controller in a namespace that has nothing yet, and its restart.
async fn import(west: &Cluster, size: Size) -> Result<Seen> {
    let namespace = pair().await?.namespace("cold").await?;
    let mut stack = Stack::start_without_controllers(options(namespace.name())).await?;
    let exporters = Exporters::join(&stack, namespace.name(), size.exporters).await?;
    for exporter in 0..size.exporters {
        exporters.export(exporter, 0..size.services, 0).await?;
    }
    prepare(west, &stack.system_namespace(), stack.folder()).await?;
    let began = SystemClock.elapsed();
    let there = all_there(west.client(), namespace.name(), size.slices());
    let (started, there) = tokio::join!(stack.start_controller(west, "west"), there);
    started?;
    let import = there?.since(began);
    stack.ready().await?;
    nothing_waits(&stack).await?;

    stack.end_controller("west", Signal::Term).await?;
    let began = SystemClock.elapsed();
    stack.start_controller(west, "west").await?;
    stack.ready().await?;
    let ready = SystemClock.elapsed().since(began);
    // What is seen of this change comes after all that the registry had told before.
    let numbers = Numbers::new(west.client(), namespace.name(), LABEL_SERVICE_NAME);
    let wanted = [(Exporters::service(0), 1)].into();
    let (changed, seen) =
        tokio::join!(exporters.export(0, [0], 1), timeout(LIMIT, numbers.watch(0, &wanted)),);
    changed?;
    seen.context("the change did not arrive")??;
    nothing_waits(&stack).await?;
    let writes = metric(&stack, "mcs_controller_object_writes_total").await? - PROBE_WRITES;
    ensure!(writes >= 0.0, "the change that was seen was not written by this controller");
    stack.end().await?;
    Ok(Seen { import, ready, writes })
}

/// When so many imported slices were seen in a namespace.
async fn all_there(client: Client, namespace: &str, slices: usize) -> Result<Timestamp> {
    let api = Api::<PartialObjectMeta<EndpointSlice>>::namespaced(client, namespace);
    let config = watcher::Config::default().labels(LABEL_SERVICE_NAME);
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut there = BTreeSet::new();
    let all = async {
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) = event {
                there.insert(slice.name_any());
            }
            if there.len() == slices {
                return Ok(SystemClock.elapsed());
            }
        }
        anyhow::bail!("the watch ended")
    };
    let all = timeout(LIMIT, all).await;
    all.with_context(|| format!("not all of {slices} slices came within {} s", LIMIT.as_secs()))?
}

/// How long it takes to create so many slices, and nothing else. They have an owner, as imported ones do.
async fn create(west: &Cluster, slices: usize) -> Result<Duration> {
    let namespace = pair().await?.namespace("bare").await?;
    let name = namespace.name();
    let owner = Api::<ConfigMap>::namespaced(west.client(), name);
    let mut wanted = ConfigMap::default();
    wanted.metadata.name = Some("bare".to_owned());
    let owner = owner.create(&PostParams::default(), &wanted).await?.owner_ref(&());
    let owner = &owner.context("what was created has a UID")?;
    let api = &Api::<EndpointSlice>::namespaced(west.client(), name);
    let began = SystemClock.elapsed();
    stream::iter(0..slices)
        .map(|slice| async move {
            let mut slice = slice_of(name, &format!("bare-{slice:04}"), 0);
            slice.metadata.owner_references = Some(vec![owner.clone()]);
            api.create(&PostParams::default(), &slice).await
        })
        .buffer_unordered(WRITERS)
        .try_for_each(async |_| Ok(()))
        .await?;
    Ok(SystemClock.elapsed().since(began))
}
