//! EndpointSlices of the API server → facts, for ever.
//!
//! Lists come from the API server's watch cache and are not paged. Connecting, reading and pausing have limits that are
//! below the quiet time of [`mcs_core::pools::completeness`] together, so that a server that stops answering shows as
//! errors in time. How lists and watches are made and tried again is [`mcs_runtime::kube::follow`]'s matter.

use crate::driver::Driver;
use crate::metrics::Metrics;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource, ResourceExt};
use mcs_core::model::{EndpointPort, Protocol};
use mcs_core::names::LABEL_REGION;
use mcs_core::pools::completeness::{ERROR_WITHIN, QUIET_AFTER};
use mcs_core::pools::directory::WatchNews;
use mcs_core::pools::index::SliceEvent;
use mcs_core::pools::naming::{Naming, Unreadable};
use mcs_core::pools::slices::{SliceEndpoint, SliceFacts, SliceId};
use mcs_core::time::Clock;
use mcs_runtime::kube::follow::{LIST_LIMIT, LONGEST_PAUSE, Lists, News, Query, WATCH_LIMIT, follow};
use mcs_runtime::kube::{CONNECT_LIMIT, READ_LIMIT};
use std::collections::BTreeSet;
use std::sync::Arc;
use tracing::{info, warn};

// A server that hangs must show as an error in time, also after the longest pause; a watch must end before the limit of
// its reads does.
const _: () = assert!(CONNECT_LIMIT.as_secs() + READ_LIMIT.as_secs() < ERROR_WITHIN.as_secs());
const _: () = assert!(LIST_LIMIT.as_secs() < ERROR_WITHIN.as_secs());
const _: () = assert!(LONGEST_PAUSE.as_secs() + ERROR_WITHIN.as_secs() <= QUIET_AFTER.as_secs());
const _: () = assert!(WATCH_LIMIT.as_secs() < READ_LIMIT.as_secs());

type Slice = DeserializeGuard<EndpointSlice>;

/// The watch of EndpointSlices in all namespaces.
pub struct SliceWatch {
    api: Api<Slice>,
    clock: Arc<dyn Clock>,
    teller: Teller,
}

struct Teller {
    naming: Naming,
    driver: Arc<Driver>,
    metrics: Metrics,
    /// Slices of the list that is under way, and those among them that cannot be read.
    listed: usize,
    unreadable: BTreeSet<SliceId>,
    /// Unreadable slices that were logged, each once until it can be read or is gone.
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
        let teller = Teller {
            naming,
            driver,
            metrics,
            listed: 0,
            unreadable: BTreeSet::new(),
            reported: BTreeSet::new(),
        };
        Self { api: Api::all(client), clock, teller }
    }

    /// Follows the slices for ever.
    pub async fn run(self) {
        let Self { api, clock, mut teller } = self;
        let query =
            Query { labels: Some(teller.naming.selector()), lists: Lists::Cached, ..Query::default() };
        match follow(api, query, clock, |news| teller.take(news)).await {}
    }
}

impl Teller {
    fn take(&mut self, news: News<Slice>) {
        match news {
            News::Init => {
                self.listed = 0;
                self.unreadable.clear();
                self.tell(SliceEvent::Init);
            }
            News::InitApply(slice) => {
                self.listed += 1;
                match self.read(slice) {
                    Some((id, Seen::Facts(facts))) => self.tell(SliceEvent::InitApply(id, *facts)),
                    Some((id, Seen::Unreadable)) => drop(self.unreadable.insert(id)),
                    Some((_, Seen::Nothing)) | None => {}
                }
            }
            News::InitDone(_) => {
                self.reported = std::mem::take(&mut self.unreadable);
                self.tell(SliceEvent::InitDone);
                self.metrics.relists.inc();
                info!(slices = self.listed, "EndpointSlices listed");
            }
            News::Apply(slice) => match self.read(slice) {
                Some((id, Seen::Facts(facts))) => self.tell(SliceEvent::Apply(id, *facts)),
                Some((id, Seen::Unreadable | Seen::Nothing)) => self.tell(SliceEvent::Delete(id)),
                None => {}
            },
            News::Delete(slice) => {
                if let Some(id) = id(&slice) {
                    self.reported.remove(&id);
                    self.tell(SliceEvent::Delete(id));
                }
            }
            News::Alive => self.driver.handle_watch(WatchNews::Alive),
            News::Failed(failed) => {
                self.driver.handle_watch(WatchNews::Failed);
                self.metrics.watch_errors.with_label_values(&[failed.call]).inc();
            }
        }
    }

    fn tell(&self, event: SliceEvent) {
        self.driver.handle_watch(WatchNews::Event(event));
    }

    /// The slice's name and what it is. An unreadable one is logged once and passed over.
    fn read(&mut self, slice: Slice) -> Option<(SliceId, Seen)> {
        let id = id(&slice)?;
        let problem = match slice.0 {
            Ok(slice) => match facts(self.naming, &slice) {
                Ok(facts) => {
                    self.reported.remove(&id);
                    return Some((id, facts.map_or(Seen::Nothing, |facts| Seen::Facts(Box::new(facts)))));
                }
                Err(unreadable) => unreadable.to_string(),
            },
            Err(invalid) => invalid.error,
        };
        if self.reported.insert(id.clone()) {
            self.metrics.unreadable_slices.inc();
            warn!(slice = %id, problem, "EndpointSlice cannot be read, and is passed over");
        }
        Some((id, Seen::Unreadable))
    }
}

/// What a slice is.
enum Seen {
    /// One that is imported.
    Facts(Box<SliceFacts>),
    /// One that cannot be read.
    Unreadable,
    /// None of ours.
    Nothing,
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
