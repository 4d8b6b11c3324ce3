//! Measures how long a change of an EndpointSlice takes until a watcher sees it: in another cluster that imports the
//! Service, or in the same cluster, which is the floor of the former.
//!
//! - Slices are written directly: kube-controller-manager waits a second before it writes one.
//! - Open loop: a change is due at its time whether or not the one before has arrived, and one that had to wait counts
//!   from when it was due.
//! - Writer and watcher are in one process and read one clock.

use std::{
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

/// A Service with one slice of one endpoint, whose address changes, and the watch that looks for the changes.
#[derive(Debug)]
pub struct Probe {
    service: String,
    services: Api<Service>,
    written: Api<EndpointSlice>,
    watched: Api<EndpointSlice>,
    selector: String,
    /// The number of the last change.
    last: u16,
}

impl Probe {
    /// Exports a Service from the namespace in `from`, and waits until `to` has imported it.
    ///
    /// # Errors
    /// An API server refused, or the import does not come.
    pub async fn across(from: Client, to: Client, namespace: &str, service: &str) -> Result<Self> {
        Self::start(from, to, namespace, service, LABEL_SERVICE_NAME, true).await
    }

    /// Makes a Service whose changes are looked for in its own cluster.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn within(client: Client, namespace: &str, service: &str) -> Result<Self> {
        Self::start(client.clone(), client, namespace, service, LABEL_SLICE_SERVICE, false).await
    }

    async fn start(
        from: Client,
        to: Client,
        namespace: &str,
        name: &str,
        label: &str,
        exported: bool,
    ) -> Result<Self> {
        let mut service = objects::service_without_selector(namespace, name, &PORTS);
        if exported {
            service.labels_mut().insert(LABEL_EXPORT.to_owned(), EXPORT_WANTED.to_owned());
        }
        let probe = Self {
            service: name.to_owned(),
            services: Api::namespaced(from.clone(), namespace),
            written: Api::namespaced(from, namespace),
            watched: Api::namespaced(to, namespace),
            selector: format!("{label}={name}"),
            last: 0,
        };
        let slice = objects::endpoint_slice(namespace, name, name, &[IpAddr::V4(address(0))], &PORTS);
        probe.services.create(&PostParams::default(), &service).await?;
        probe.written.create(&PostParams::default(), &slice).await?;
        wait_for(&format!("the first endpoint of {name}"), async || {
            let slices = probe.watched.list(&ListParams::default().labels(&probe.selector)).await?;
            ensure!(
                slices.items.iter().any(|slice| number(slice) == Some(0)),
                "{} slices",
                slices.items.len()
            );
            Ok(())
        })
        .await?;
        Ok(probe)
    }

    /// Makes `count` changes, one each `interval`, and tells of each how long it took until it was seen. A change that
    /// was seen only together with a later one took until then.
    ///
    /// # Errors
    /// An API server refused or ended the watch, or a change did not arrive within a minute.
    pub async fn run(&mut self, count: u16, interval: Duration) -> Result<Vec<Duration>> {
        ensure!(count > 0, "a measurement needs at least one change");
        ensure!(self.last.checked_add(count).is_some(), "a probe tells at most {} changes apart", u16::MAX);
        let before = self.last;
        let limit = interval * u32::from(count) + LIMIT;
        let both = async { try_join!(self.write(before, count, interval), self.watch(before, count)) };
        let outcome = timeout(limit, both).await;
        let (written, seen) = outcome.with_context(|| {
            format!("not all of {count} changes of {} arrived within {} s", self.service, limit.as_secs())
        })??;
        self.last = before + count;
        Ok(written.into_iter().zip(seen).map(|(written, seen)| seen.since(written)).collect())
    }

    /// When each change began.
    async fn write(&self, before: u16, count: u16, interval: Duration) -> Result<Vec<Timestamp>> {
        let mut began = Vec::with_capacity(usize::from(count));
        // The watch is opened meanwhile.
        let start = SystemClock.elapsed() + interval.max(Duration::from_millis(100));
        for step in 0..count {
            let due = start + interval * u32::from(step);
            let late = due.has_passed(SystemClock.elapsed());
            sleep_until(&SystemClock, Some(due)).await;
            // A timer that wakes late is the fault of the measurement, a write that took too long is not.
            began.push(if late { due } else { SystemClock.elapsed() });
            let endpoints =
                json!([{ "addresses": [address(before + step + 1)], "conditions": { "ready": true } }]);
            let patch = Patch::Merge(json!({ "endpoints": endpoints }));
            self.written.patch(&self.service, &PatchParams::default(), &patch).await?;
        }
        Ok(began)
    }

    /// When each change was seen.
    async fn watch(&self, before: u16, count: u16) -> Result<Vec<Timestamp>> {
        let list = self.watched.list(&ListParams::default().labels(&self.selector)).await?;
        let mut version = list.metadata.resource_version.context("a list without a version")?;
        let parameters = WatchParams::default().labels(&self.selector).timeout(WATCH_SECONDS);
        let mut seen: Vec<Timestamp> = Vec::with_capacity(usize::from(count));
        loop {
            let mut events = self.watched.watch(&parameters, &version).await?.boxed();
            while let Some(event) = events.try_next().await? {
                let now = SystemClock.elapsed();
                match event {
                    WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                        version = slice.resource_version().context("a slice without a version")?;
                        let steps = number(&slice).map_or(0, |number| number.saturating_sub(before));
                        seen.resize(seen.len().max(usize::from(steps.min(count))), now);
                        if seen.len() == usize::from(count) {
                            return Ok(seen);
                        }
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    WatchEvent::Deleted(_) => {}
                    WatchEvent::Error(error) => return Err(error).context("the watch failed"),
                }
            }
        }
    }

    /// Deletes the Service and its slice.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn remove(self) -> Result<()> {
        self.services.delete(&self.service, &DeleteParams::default()).await?;
        self.written.delete(&self.service, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The address that the change of this number writes.
fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 199, high, low)
}

/// The number of the change that a slice shows.
fn number(slice: &EndpointSlice) -> Option<u16> {
    let address: Ipv4Addr = slice.endpoints.first()?.addresses.first()?.parse().ok()?;
    let [_, _, high, low] = address.octets();
    Some(u16::from_be_bytes([high, low]))
}
