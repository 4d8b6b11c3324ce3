//! G3: how many slices one controller updates, beside a loop that does nothing but apply slices to the same API server.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream, try_join};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use mcs_core::{
    names::{
        ANNOTATION_CLUSTERSET, ANNOTATION_SOURCE_UID, ANNOTATION_SOURCE_VERSION, LABEL_MANAGED_BY,
        LABEL_REGION, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, LABEL_SOURCE_CLUSTER,
    },
    time::Clock,
};
use mcs_runtime::clock::{SystemClock, sleep_until};
use tokio::time::timeout;

use super::{
    Scale,
    crossing::{changes, kubernetes, options},
    exporters::{ENDPOINTS, Exporters},
    machine::{self, Cores},
    progress,
    report::{Report, Row, Unit},
    stats::{Ratios, Times, in_turns, together},
};
use crate::{
    crossing::{Numbers, address},
    objects,
    shared::pair,
    stack::{Stack, get, prepare},
    wait_for,
};

/// Services, each with one slice, that some clusters export.
const SERVICES: u16 = 400;
const EXPORTERS: usize = 4;
/// Of the goal.
const RATE: u16 = 200;
/// In milliseconds: so long each of them may take at that rate.
const MOST_EACH: f64 = 1000.0 / 200.0;
/// In seconds: a controller without a backlog has nothing left to do this long after the last change.
const MOST_IDLE: f64 = 1.0;
/// Writes at a time, as many as the controller makes.
pub(super) const WRITERS: usize = 16;
/// Something is broken when it takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures it.
///
/// # Errors
/// Something did not start, or a change did not arrive.
pub fn run(scale: &Scale) -> Result<Report> {
    Cores::Shared.generator()?.block_on(Box::pin(measure(scale)))
}

/// Exporters and what the cluster shows of them.
struct Scene {
    exporters: Exporters,
    numbers: Numbers,
    /// The number of the last change of each Service.
    last: u16,
    services: u16,
}

async fn measure(scale: &Scale) -> Result<Report> {
    let load = machine::load();
    let services = (SERVICES / u16::try_from(scale.divisor)?).max(8);
    let west = &pair().await?.west;
    let namespace = pair().await?.namespace("updates").await?;
    let mut stack = Stack::start_without_controllers(options(namespace.name())).await?;
    let exporters = Exporters::join(&stack, namespace.name(), EXPORTERS).await?;
    let numbers = Numbers::new(west.client(), namespace.name(), LABEL_SERVICE_NAME);
    let mut scene = Scene { exporters, numbers, last: 0, services };
    scene.change_all(0).await?;
    prepare(west, &stack.system_namespace(), stack.folder()).await?;
    stack.start_controller(west, "west").await?;
    stack.ready().await?;
    let names: Vec<_> = (0..services).map(Exporters::service).collect();
    scene.numbers.are_there(&names).await?;
    let bare = Bare::new(west.client(), namespace.name(), services);
    // Once to warm up.
    scene.at_once().await?;
    bare.apply(0).await?;

    progress(&format!("g3: {} pairs, {services} slices at once", scale.pairs));
    let rounds = u16::try_from(scale.block.as_secs() / 6)?.max(1);
    let at_once = in_turns(
        scale.pairs,
        async |_| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                took += scene.at_once().await?;
            }
            Ok(took)
        },
        async |pair| {
            let mut took = Duration::ZERO;
            for round in 0..rounds {
                took += bare.apply(pair * rounds + round).await?;
            }
            Ok(took)
        },
    )
    .await?;
    progress(&format!("g3: {} blocks at {RATE}/s", scale.pairs));
    let (mut blocks, mut idle) = (Vec::new(), Vec::new());
    for _ in 0..scale.pairs {
        blocks.push(Times::of(scene.at_rate(scale.block / 3).await?)?);
        let last = SystemClock.elapsed();
        nothing_waits(&stack).await?;
        idle.push(SystemClock.elapsed().since(last).as_secs_f64());
    }
    let report = Report {
        rows: rows(&at_once, f64::from(rounds) * f64::from(services), &blocks, &idle)?,
        notes: vec![
            format!(
                "G3: {services} Services of {EXPORTERS} clusters without API servers, a slice of {ENDPOINTS} endpoints \
                 each; the peer is a loop that applies as many slices, {WRITERS} at a time, to the same API server"
            ),
            format!("{}, {}", machine::versions()?, kubernetes(west).await?),
            load,
        ],
    };
    stack.end().await?;
    namespace.delete().await?;
    Ok(report)
}

fn rows(at_once: &[(Duration, Duration)], updates: f64, blocks: &[Times], idle: &[f64]) -> Result<Vec<Row>> {
    let each = |took: Duration| took.as_secs_f64() * 1000.0 / updates;
    #[expect(clippy::cast_precision_loss, reason = "a few pairs")]
    let mean = |of: fn(&(Duration, Duration)) -> Duration| {
        at_once.iter().map(|pair| each(of(pair))).sum::<f64>() / at_once.len() as f64
    };
    let all = together(blocks)?;
    let what = format!("at {RATE}/s, to the slice");
    Ok(vec![
        Row {
            most: Some(MOST_EACH),
            peer: Some(mean(|(_, bare)| *bare)),
            ratio: Ratios::of(at_once.iter().map(|(ours, bare)| (each(*ours), each(*bare)))),
            ..Row::new("G3", "an update of many at once", Unit::Millis, mean(|(ours, _)| *ours))
        },
        Row::new("G3", format!("{what}, p50"), Unit::Millis, all.millis(0.5)),
        Row::new("G3", format!("{what}, p99"), Unit::Millis, all.millis(0.99)),
        Row {
            most: Some(MOST_IDLE),
            ..Row::new(
                "G3",
                "nothing left to do after the last slice, worst",
                Unit::Seconds,
                idle.iter().copied().fold(0.0, f64::max),
            )
        },
    ])
}

/// Waits until no key waits in the controller.
pub(super) async fn nothing_waits(stack: &Stack) -> Result<()> {
    wait_for("an idle controller", async || {
        let waiting = metric(stack, "mcs_controller_queue_length").await?;
        ensure!(waiting == 0.0, "{waiting} keys");
        Ok(())
    })
    .await
}

/// The sum of a metric of the controller in west over its labels.
pub(super) async fn metric(stack: &Stack, name: &str) -> Result<f64> {
    let body = get(&format!("http://{}/metrics", stack.controller("west")?.admin)).await?;
    let text = String::from_utf8(body.to_vec())?;
    let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = text.lines().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(values.sum())
}

impl Scene {
    /// Lets each Service have the endpoints of a change, each exporter in one write.
    async fn change_all(&self, number: u16) -> Result<()> {
        let exporters = self.exporters.len();
        for exporter in 0..exporters {
            let services = (0..self.services).filter(|service| usize::from(*service) % exporters == exporter);
            self.exporters.export(exporter, services, number).await?;
        }
        Ok(())
    }

    /// How long it takes until all have changed that change at once.
    async fn at_once(&mut self) -> Result<Duration> {
        let wanted = (0..self.services).map(|service| (Exporters::service(service), 1)).collect();
        let change = async {
            // The watch is opened meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let began = SystemClock.elapsed();
            self.change_all(self.last + 1).await?;
            Ok(began)
        };
        let both = async { try_join!(change, self.numbers.watch(self.last, &wanted)) };
        let (began, seen) = timeout(LIMIT, both).await.context("not all changes arrived")??;
        self.last += 1;
        let end = seen.values().flatten().max().context("no change was seen")?;
        Ok(end.since(began))
    }

    /// How long each change takes while they come at the rate of the goal.
    async fn at_rate(&mut self, duration: Duration) -> Result<Vec<Duration>> {
        let interval = Duration::from_secs(1) / u32::from(RATE);
        let count = changes(duration, interval)?;
        let services = self.services;
        let each = |service: u16| count / services + u16::from(service < count % services);
        let wanted = (0..services).map(|service| (Exporters::service(service), each(service)));
        let wanted: BTreeMap<_, _> = wanted.filter(|(_, changes)| *changes > 0).collect();
        let start = SystemClock.elapsed() + Duration::from_millis(100);
        let due = |step: u16| start + interval * u32::from(step);
        let changing = async {
            for step in 0..count {
                sleep_until(&SystemClock, Some(due(step))).await;
                let (service, number) = (step % services, self.last + step / services + 1);
                let exporter = usize::from(service) % self.exporters.len();
                self.exporters.export(exporter, [service], number).await?;
            }
            Ok(())
        };
        let both = async { try_join!(changing, self.numbers.watch(self.last, &wanted)) };
        let ((), mut seen) = timeout(duration + LIMIT, both).await.context("not all changes arrived")??;
        self.last += count.div_ceil(services);
        (0..count)
            .map(|step| {
                let seen = seen.get_mut(&Exporters::service(step % services));
                let seen = seen.and_then(|seen| seen.pop_front()).context("a change that was not seen")?;
                Ok(seen.since(due(step)))
            })
            .collect()
    }
}

/// What does nothing but apply slices.
struct Bare {
    api: Api<EndpointSlice>,
    namespace: String,
    slices: u16,
}

impl Bare {
    fn new(client: Client, namespace: &str, slices: u16) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned(), slices }
    }

    /// How long it takes to apply all.
    async fn apply(&self, number: u16) -> Result<Duration> {
        let began = SystemClock.elapsed();
        stream::iter(0..self.slices)
            .map(|slice| async move {
                let name = format!("bare-{slice:03}");
                let slice = slice_of(&self.namespace, &name, number);
                let params = PatchParams::apply("bench").force();
                self.api.patch(&name, &params, &Patch::Apply(&slice)).await
            })
            .buffer_unordered(WRITERS)
            .try_for_each(async |_| Ok(()))
            .await?;
        Ok(SystemClock.elapsed().since(began))
    }
}

/// A slice that says as much as those that are imported.
pub(super) fn slice_of(namespace: &str, name: &str, number: u16) -> EndpointSlice {
    let others = (1..ENDPOINTS).map(|place| IpAddr::V4(Ipv4Addr::new(10, 200, 0, place)));
    let addresses: Vec<_> = [IpAddr::V4(address(number))].into_iter().chain(others).collect();
    let mut slice = objects::endpoint_slice(namespace, name, "bare", &addresses, &[("http", 8080)]);
    for endpoint in &mut slice.endpoints {
        endpoint.zone = Some("us-east-1a".to_owned());
    }
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let labels = [
        (LABEL_SERVICE_NAME, "bare"),
        (LABEL_SOURCE_CLUSTER, "cluster-001"),
        (LABEL_SLICE_MANAGED_BY, "bench"),
        (LABEL_REGION, "us-east-1"),
        (LABEL_MANAGED_BY, "bench"),
    ];
    slice.metadata.labels.get_or_insert_default().extend(labels.map(owned));
    let annotations = [
        (ANNOTATION_CLUSTERSET, "bare"),
        (ANNOTATION_SOURCE_UID, "00000000-0000-4000-8000-000000000000"),
        (ANNOTATION_SOURCE_VERSION, "1700000000000000/1"),
    ];
    slice.metadata.annotations = Some(annotations.map(owned).into());
    slice
}
