//! EndpointSlices of the API server → facts, for ever.
//!
//! Lists come from the API server's watch cache (`resourceVersion=0`) and are not paged. A watch resumes with
//! bookmarks and ends after 50 s. Connecting and reading have limits that are below the quiet time of
//! [`mcs_core::pools::completeness`] together, so that a server that stops answering shows as errors in time.
//!
//! Rejected: `kube::runtime::watcher`. It hides bookmarks and accepted watches, which prove a view to be current, and
//! its lists cannot be told from their beginnings.

use crate::driver::Driver;
use crate::metrics::Metrics;
use futures::TryStreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt};
use mcs_core::model::{EndpointPort, Protocol};
use mcs_core::names::LABEL_REGION;
use mcs_core::pools::completeness::QUIET_AFTER;
use mcs_core::pools::directory::WatchNews;
use mcs_core::pools::index::SliceEvent;
use mcs_core::pools::naming::{Naming, Unreadable};
use mcs_core::slices::{SliceEndpoint, SliceFacts, SliceId};
use mcs_core::time::Clock;
use mcs_runtime::kube::{CONNECT_LIMIT, READ_LIMIT};
use mcs_runtime::tasks::with_causes;
use rand::Rng;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

const WATCH_SECS: u32 = 50;
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

// A hanging server must give an error within the quiet time, and a watch must end before its read limit does.
const _: () = assert!(CONNECT_LIMIT.as_secs() + READ_LIMIT.as_secs() < 90 && 90 < QUIET_AFTER.as_secs());
const _: () = assert!((WATCH_SECS as u64) < READ_LIMIT.as_secs());

type Slice = DeserializeGuard<EndpointSlice>;

/// The watch of EndpointSlices in all namespaces.
pub struct SliceWatch {
    api: Api<Slice>,
    naming: Naming,
    driver: Arc<Driver>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    pause: Duration,
    /// Unreadable slices that were logged.
    reported: BTreeSet<SliceId>,
}

impl SliceWatch {
    /// A watch that tells `driver` what it sees.
    pub fn new(
        client: Client,
        naming: Naming,
        driver: Arc<Driver>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Self {
        let (api, reported) = (Api::all(client), BTreeSet::new());
        Self { api, naming, driver, clock, metrics, pause: FIRST_PAUSE, reported }
    }

    /// Follows the slices for ever.
    pub async fn run(mut self) {
        loop {
            match self.relist().await {
                Ok(version) => self.resume(version).await,
                Err(error) => self.failed("list", &error).await,
            }
        }
    }

    /// Lists all slices, and tells of them only when the list is there as a whole.
    async fn relist(&mut self) -> Result<String, kube::Error> {
        let params = ListParams::default().labels(&self.naming.selector()).at("0");
        let list = self.api.list(&params).await?;
        self.reported.clear();
        self.tell(SliceEvent::Init);
        let count = list.items.len();
        for slice in list.items {
            if let Some((id, facts)) = self.read(slice)
                && let Some(facts) = facts
            {
                self.tell(SliceEvent::InitApply(id, facts));
            }
        }
        self.tell(SliceEvent::InitDone);
        self.metrics.relists.inc();
        info!(slices = count, "EndpointSlices listed");
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// Watches from `version` on until only a new list can help.
    async fn resume(&mut self, mut version: String) {
        while !version.is_empty() {
            let start = self.clock.elapsed();
            match self.watch(&mut version).await {
                // A server that ends each watch at once must not be asked without a pause.
                Ok(()) if self.clock.elapsed().since(start) < FIRST_PAUSE => self.rest(Duration::ZERO).await,
                Ok(()) => self.pause = FIRST_PAUSE,
                Err(error) => {
                    self.failed("watch", &error).await;
                    if needs_list(&error) {
                        return;
                    }
                }
            }
        }
    }

    /// One watch: accepted, followed, and ended by the server.
    async fn watch(&mut self, version: &mut String) -> Result<(), kube::Error> {
        let params = WatchParams::default().labels(&self.naming.selector()).timeout(WATCH_SECS);
        let mut events = pin!(self.api.watch(&params, version).await?);
        self.driver.handle_watch(WatchNews::Alive);
        while let Some(event) = events.try_next().await? {
            self.pause = FIRST_PAUSE;
            match event {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    slice.resource_version().unwrap_or_default().clone_into(version);
                    if let Some((id, facts)) = self.read(slice) {
                        let gone = SliceEvent::Delete(id.clone());
                        self.tell(facts.map_or(gone, |facts| SliceEvent::Apply(id, facts)));
                    }
                }
                WatchEvent::Deleted(slice) => {
                    slice.resource_version().unwrap_or_default().clone_into(version);
                    if let Some(id) = id(&slice) {
                        self.reported.remove(&id);
                        self.tell(SliceEvent::Delete(id));
                    }
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    self.driver.handle_watch(WatchNews::Alive);
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    fn tell(&self, event: SliceEvent) {
        self.driver.handle_watch(WatchNews::Event(event));
    }

    async fn failed(&mut self, call: &'static str, error: &kube::Error) {
        self.driver.handle_watch(WatchNews::Failed);
        self.metrics.watch_errors.with_label_values(&[call]).inc();
        warn!(call, error = with_causes(error), "cannot follow EndpointSlices");
        let asked = match error {
            kube::Error::Api(status) => {
                status.details.as_ref().map_or(0, |details| details.retry_after_seconds)
            }
            _ => 0,
        };
        self.rest(Duration::from_secs(asked.into())).await;
    }

    /// Rests for the next pause, at least for `least`.
    async fn rest(&mut self, least: Duration) {
        let jitter = rand::rng().random_range(0.0..0.25);
        let pause = self.pause.max(least).min(LONGEST_PAUSE);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause.mul_f64(1.0 + jitter)).await;
    }

    /// The slice's name and, where it can be used, what it says. An unreadable one is logged once and passed over.
    fn read(&mut self, slice: Slice) -> Option<(SliceId, Option<SliceFacts>)> {
        let id = id(&slice)?;
        let problem = match slice.0 {
            Ok(slice) => match facts(self.naming, &slice) {
                Ok(facts) => {
                    self.reported.remove(&id);
                    return Some((id, facts));
                }
                Err(unreadable) => unreadable.to_string(),
            },
            Err(invalid) => invalid.error,
        };
        if self.reported.insert(id.clone()) {
            self.metrics.unreadable_slices.inc();
            warn!(slice = %id, problem, "EndpointSlice passed over");
        }
        Some((id, None))
    }
}

/// Whether watching from the same version again cannot help: it is too old, or what comes next cannot be read.
fn needs_list(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 410,
        kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

fn id(slice: &Slice) -> Option<SliceId> {
    let meta = slice.meta();
    Some(SliceId::new(meta.namespace.as_deref()?, meta.name.as_deref()?))
}

/// What a slice says; none when it is not an imported one, or not of IP addresses.
///
/// # Errors
/// Why its Service or cluster cannot be told.
pub fn facts(naming: Naming, slice: &EndpointSlice) -> Result<Option<SliceFacts>, Unreadable> {
    let labels = slice.labels();
    let Some((service, cluster)) = naming.read(&slice.name_any(), labels)? else { return Ok(None) };
    if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
        return Ok(None);
    }
    let ports = slice.ports.iter().flatten().map(|port| EndpointPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port
            .protocol
            .as_deref()
            .map_or(Some(Protocol::Tcp), Protocol::parse)
            .unwrap_or(Protocol::Sctp),
        port: port.port.and_then(|number| u16::try_from(number).ok()),
        app_protocol: port.app_protocol.clone(),
    });
    let endpoints = slice.endpoints.iter().map(|endpoint| SliceEndpoint {
        addresses: endpoint.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        ready: endpoint.conditions.as_ref().and_then(|conditions| conditions.ready),
        target: endpoint.target_ref.as_ref().and_then(|target| target.name.clone()),
        hostname: endpoint.hostname.clone(),
    });
    Ok(Some(SliceFacts {
        service: service.into(),
        cluster,
        region: labels
            .get(LABEL_REGION)
            .filter(|region| !region.is_empty())
            .map(|region| region.as_str().into()),
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    }))
}
