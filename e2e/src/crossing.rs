//! Measures how long a change of an EndpointSlice takes until a watcher sees it: in another cluster that imports the
//! Service, or in the same cluster, which is the floor of the former.
//!
//! - Slices are written directly: kube-controller-manager waits a second before it writes one.
//! - Open loop: a change is due at its time whether or not the one before has arrived, and one that had to wait counts
//!   from when it was due.
//! - Writer and watcher are in one process and read one clock.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, try_join};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use mcs_core::{
    names::{EXPORT_WANTED, LABEL_EXPORT, LABEL_SERVICE_NAME, LABEL_SLICE_SERVICE},
    time::{Clock, Timestamp},
};
use mcs_runtime::clock::{SystemClock, sleep_until};
use serde_json::json;
use tokio::time::timeout;

use crate::{objects, wait_for};

/// How long the last change may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Watches are ended by the server after this; the API server takes less than 295 s from clients that say so.
const WATCH_SECONDS: u32 = 290;
const PORTS: [objects::Port<'_>; 1] = [("http", 8080)];

/// Services with one slice of one endpoint each, whose addresses change in turns, and the watch that looks for the
/// changes.
#[derive(Debug)]
pub struct Probe {
    names: Vec<String>,
    services: Api<Service>,
    written: Api<EndpointSlice>,
    seen: Numbers,
    /// The number of the last change of each Service.
    last: u16,
}

impl Probe {
    /// Exports a Service from the namespace in `from`, and waits until `to` has imported it.
    ///
    /// # Errors
    /// An API server refused, or the import does not come.
    pub async fn across(from: Client, to: Client, namespace: &str, service: &str) -> Result<Self> {
        Self::across_many(from, to, namespace, service, 1).await
    }

    /// [`Probe::across`] with `count` Services, whose names begin with `prefix`.
    ///
    /// # Errors
    /// An API server refused, or an import does not come.
    pub async fn across_many(
        from: Client,
        to: Client,
        namespace: &str,
        prefix: &str,
        count: u16,
    ) -> Result<Self> {
        Self::start(from, to, namespace, &names(prefix, count), LABEL_SERVICE_NAME, true).await
    }

    /// Makes a Service whose changes are looked for in its own cluster.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn within(client: Client, namespace: &str, service: &str) -> Result<Self> {
        Self::within_many(client, namespace, service, 1).await
    }

    /// [`Probe::within`] with `count` Services, whose names begin with `prefix`.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn within_many(client: Client, namespace: &str, prefix: &str, count: u16) -> Result<Self> {
        Self::start(client.clone(), client, namespace, &names(prefix, count), LABEL_SLICE_SERVICE, false)
            .await
    }

    async fn start(
        from: Client,
        to: Client,
        namespace: &str,
        names: &[String],
        label: &'static str,
        exported: bool,
    ) -> Result<Self> {
        let probe = Self {
            names: names.to_vec(),
            services: Api::namespaced(from.clone(), namespace),
            written: Api::namespaced(from, namespace),
            seen: Numbers::new(to, namespace, label),
            last: 0,
        };
        for name in names {
            let mut service = objects::service_without_selector(namespace, name, &PORTS);
            if exported {
                service.labels_mut().insert(LABEL_EXPORT.to_owned(), EXPORT_WANTED.to_owned());
            }
            let slice = objects::endpoint_slice(namespace, name, name, &[IpAddr::V4(address(0))], &PORTS);
            probe.services.create(&PostParams::default(), &service).await?;
            probe.written.create(&PostParams::default(), &slice).await?;
        }
        probe.seen.are_there(names).await?;
        Ok(probe)
    }

    /// Makes `count` changes, one each `interval`, of each Service in turn, and tells of each how long it took until it
    /// was seen. A change that was seen only together with a later one took until then.
    ///
    /// # Errors
    /// An API server refused or ended the watch, or a change did not arrive within a minute.
    pub async fn run(&mut self, count: u16, interval: Duration) -> Result<Vec<Duration>> {
        ensure!(count > 0, "a measurement needs at least one change");
        let services = u16::try_from(self.names.len())?;
        let each = count.div_ceil(services);
        ensure!(self.last.checked_add(each).is_some(), "a probe tells at most {} changes apart", u16::MAX);
        let before = self.last;
        let changes = |place: u16| count / services + u16::from(place < count % services);
        let wanted = (0..services).zip(&self.names).map(|(place, name)| (name.clone(), changes(place)));
        let wanted: BTreeMap<_, _> = wanted.filter(|(_, changes)| *changes > 0).collect();
        let limit = interval * u32::from(count) + LIMIT;
        let both = async { try_join!(self.write(before, count, interval), self.seen.watch(before, &wanted)) };
        let outcome = timeout(limit, both).await;
        let (written, mut seen) = outcome.with_context(|| {
            format!("not all of {count} changes of {} arrived within {} s", self.names[0], limit.as_secs())
        })??;
        // All count on from one number.
        self.last = before + each;
        let mut took = Vec::with_capacity(written.len());
        for (step, written) in written.into_iter().enumerate() {
            let seen = seen.get_mut(&self.names[step % self.names.len()]).and_then(|seen| seen.pop_front());
            took.push(seen.context("a change that was not seen")?.since(written));
        }
        Ok(took)
    }

    /// When each change began.
    async fn write(&self, before: u16, count: u16, interval: Duration) -> Result<Vec<Timestamp>> {
        let mut began = Vec::with_capacity(usize::from(count));
        // The watch is opened meanwhile.
        let start = SystemClock.elapsed() + interval.max(Duration::from_millis(100));
        let services = u16::try_from(self.names.len())?;
        for step in 0..count {
            let due = start + interval * u32::from(step);
            let late = due.has_passed(SystemClock.elapsed());
            sleep_until(&SystemClock, Some(due)).await;
            // A timer that wakes late is the fault of the measurement, a write that took too long is not.
            began.push(if late { due } else { SystemClock.elapsed() });
            let endpoints = json!([{
                "addresses": [address(before + step / services + 1)],
                "conditions": { "ready": true },
            }]);
            let patch = Patch::Merge(json!({ "endpoints": endpoints }));
            let name = &self.names[usize::from(step % services)];
            self.written.patch(name, &PatchParams::default(), &patch).await?;
        }
        Ok(began)
    }

    /// Deletes the Services and their slices.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn remove(self) -> Result<()> {
        for name in &self.names {
            self.services.delete(name, &DeleteParams::default()).await?;
            self.written.delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// Slices with one endpoint each, whose address says which change they show.
#[derive(Debug)]
pub(crate) struct Numbers {
    slices: Api<EndpointSlice>,
    /// The label that names a slice's Service.
    label: &'static str,
}

impl Numbers {
    /// Those of the Services that `label` names, in a namespace.
    pub(crate) fn new(client: Client, namespace: &str, label: &'static str) -> Self {
        Self { slices: Api::namespaced(client, namespace), label }
    }

    /// Waits until there is a slice of each of `services`.
    pub(crate) async fn are_there(&self, services: &[String]) -> Result<()> {
        wait_for(&format!("the first endpoints of {} Services", services.len()), async || {
            let slices = self.slices.list(&ListParams::default().labels(self.label)).await?.items;
            let there = |name: &&String| slices.iter().any(|slice| self.service(slice) == Some(name));
            let found = services.iter().filter(there).count();
            ensure!(found == services.len(), "those of {found}");
            Ok(())
        })
        .await
    }

    /// When each change of each Service of `wanted` was seen, which is as many as it says, after the one of the number
    /// `before`.
    pub(crate) async fn watch(
        &self,
        before: u16,
        wanted: &BTreeMap<String, u16>,
    ) -> Result<BTreeMap<String, VecDeque<Timestamp>>> {
        let missing = wanted.values().copied().map(usize::from).sum();
        let mut seen = Seen { before, wanted, changes: BTreeMap::new(), missing };
        let list = self.slices.list(&ListParams::default().labels(self.label)).await?;
        let mut version = list.metadata.resource_version.context("a list without a version")?;
        let now = SystemClock.elapsed();
        list.items.iter().for_each(|slice| seen.note(self.service(slice), slice, now));
        let parameters = WatchParams::default().labels(self.label).timeout(WATCH_SECONDS);
        while seen.missing > 0 {
            let mut events = self.slices.watch(&parameters, &version).await?.boxed();
            while let Some(event) = events.try_next().await? {
                let now = SystemClock.elapsed();
                match event {
                    WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                        seen.note(self.service(&slice), &slice, now);
                        version = slice.resource_version().context("a slice without a version")?;
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    WatchEvent::Deleted(_) => {}
                    WatchEvent::Error(error) => return Err(error).context("the watch failed"),
                }
                if seen.missing == 0 {
                    break;
                }
            }
        }
        Ok(seen.changes)
    }

    fn service<'a>(&self, slice: &'a EndpointSlice) -> Option<&'a str> {
        slice.metadata.labels.as_ref()?.get(self.label).map(String::as_str)
    }
}

/// The changes that were seen so far.
struct Seen<'a> {
    before: u16,
    /// How many there are of each Service.
    wanted: &'a BTreeMap<String, u16>,
    changes: BTreeMap<String, VecDeque<Timestamp>>,
    /// How many were not seen.
    missing: usize,
}

impl Seen<'_> {
    fn note(&mut self, service: Option<&str>, slice: &EndpointSlice, now: Timestamp) {
        let known = service.and_then(|service| self.wanted.get_key_value(service));
        let Some((service, changes)) = known else { return };
        let steps = number(slice).map_or(0, |number| number.saturating_sub(self.before));
        let seen = self.changes.entry(service.clone()).or_default();
        let known = seen.len();
        seen.resize(known.max(usize::from(steps.min(*changes))), now);
        self.missing -= seen.len() - known;
    }
}

fn names(prefix: &str, count: u16) -> Vec<String> {
    match count {
        1 => vec![prefix.to_owned()],
        count => (0..count).map(|number| format!("{prefix}-{number:02}")).collect(),
    }
}

/// The address that the change of this number writes.
pub(crate) fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 199, high, low)
}

/// The number of the change that a slice shows.
fn number(slice: &EndpointSlice) -> Option<u16> {
    let address: Ipv4Addr = slice.endpoints.first()?.addresses.first()?.parse().ok()?;
    let [_, _, high, low] = address.octets();
    Some(u16::from_be_bytes([high, low]))
}
