//! Registrations in a table of DynamoDB that any number of replicas share, in any number of regions.
//!
//! What a registration means is decided in [`mcs_core::pools::stored`]; here are the calls:
//!
//! - [`Table::run`]: prepares and checks the table, then reads it once every poll interval
//! - [`Table::register`]: one `UpdateItem`, unless the table has this renewal already
//!
//! Guarantees: nothing but these two calls AWS, so lists and probes are answered without; a read is taken whole or as
//! failed, though what was read of it still renews leases; one that is long goes on as long as each of its pages comes in time; relays that register the same at the same moment share one write;
//! a write sets single attributes, so that those of a later release stay; nothing is ever deleted.
//!
//! Rejected: writing under a condition on `renewed_at` (across regions it holds nowhere, and within one a lost race is
//! repaired by the next heartbeat); a write for each relay (twice the cost of all that this service does).

use super::{NotKept, StoreFault};
use crate::driver::Driver;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::join_all;
use mcs_core::ids::Region;
use mcs_core::pools::stored::{LATE_AFTER, Settings, TableNews, TableRead, Unreadable};
use mcs_core::pools::{Lease, PoolKey, PoolRegistration};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::sleep_until;
use mcs_runtime::dynamodb::{Action, Class, Client, Failed, Why, until_prepared, until_usable};
use mcs_runtime::ready::Handle;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{Instrument, info, info_span, warn};

pub mod item;
mod metrics;

use metrics::{Metrics, Write};

/// A call is over within this: a relay waits for it, and a table that takes calls and answers none is to be noticed
/// before its silence matters.
pub const CALL_LIMIT: Duration = Duration::from_secs(3);

// A table that is silent shows as one whose reads fail, and not before.
const _: () = assert!(CALL_LIMIT.as_secs() == LATE_AFTER.as_secs());

/// How this replica uses its table.
#[derive(Clone, Debug)]
pub struct Config {
    /// The table.
    pub client: Client,
    /// The region of the table, as items name it.
    pub region: Region,
    /// Whether it is made where it is not.
    pub ensure_table: bool,
    /// How often it is read.
    pub poll_interval: Duration,
    /// How much longer pools are listed that were written through another region.
    pub grace: Duration,
    /// How far the wall clocks of two replicas may be apart without an effect.
    pub skew: Duration,
}

impl Config {
    /// What decides about its items.
    pub fn settings(&self, lease: Lease) -> Settings {
        let Self { region, poll_interval, grace, skew, .. } = self;
        Settings { lease, skew: *skew, grace: *grace, poll_interval: *poll_interval, region: region.clone() }
    }
}

/// The table.
pub struct Table {
    client: Client,
    settings: Settings,
    ensure_table: bool,
    driver: Arc<Driver>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    reading: Told,
    writing: Told,
    /// Writes under way.
    writes: Mutex<BTreeMap<PoolKey, UnderWay>>,
}

/// A write under way.
struct UnderWay {
    registration: Arc<PoolRegistration>,
    began: Timestamp,
    ended: watch::Receiver<Option<Result<(), NotKept>>>,
}

/// What was last told of something that fails; each change is told once.
#[derive(Debug, Default)]
struct Told(Mutex<Option<String>>);

impl Told {
    /// It fails; gives why, where that is news.
    fn failed(&self, failed: &Failed) -> Option<String> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let why = failed.to_string();
        (told.as_ref() != Some(&why)).then(|| told.insert(why).clone())
    }

    /// It works; says whether that is news.
    fn works(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

/// What a relay is told of a write that failed.
const fn outwards(why: &Why) -> StoreFault {
    match why {
        Why::TimedOut { .. } => StoreFault::TimedOut,
        Why::Away { .. } => StoreFault::Away,
        Why::Throttled { .. } => StoreFault::Throttled,
        Why::NoTable { .. } | Why::NoCredentials { .. } | Why::AccessDenied { .. } | Why::Refused { .. } => {
            StoreFault::Refused
        }
    }
}

/// What a read gave.
struct Read {
    table: TableRead,
    /// Why it is not whole.
    failed: Option<Failed>,
}

/// What was read of a partition.
struct Partition {
    found: item::Known,
    unreadable: Vec<Unreadable>,
    /// Why it is not all.
    failed: Option<Failed>,
}

impl Table {
    /// The table of `config`, whose items `driver` takes in. Its metrics are added to `registry`.
    ///
    /// # Errors
    /// A metric of the same name is there already.
    pub fn new(
        config: Config,
        lease: Lease,
        driver: Arc<Driver>,
        clock: Arc<dyn Clock>,
        registry: &prometheus::Registry,
    ) -> Result<Self, prometheus::Error> {
        let settings = config.settings(lease);
        let metrics = Metrics::register(registry, driver.clone())?;
        let client = config.client.observed(Arc::new(metrics.clone()));
        Ok(Self {
            client,
            settings,
            ensure_table: config.ensure_table,
            driver,
            clock,
            metrics,
            reading: Told::default(),
            writing: Told::default(),
            writes: Mutex::default(),
        })
    }

    /// Prepares and checks the table, then reads it for ever; `view` is told when the first read is there.
    pub async fn run(self: Arc<Self>, view: Handle) {
        if self.ensure_table {
            until_prepared(&self.client).await;
        }
        until_usable(&self.client, &[Action::UpdateItem]).await;
        let mut known: [item::Known; item::PARTITIONS] = Default::default();
        loop {
            let Read { table, failed } = self.read(&mut known).await;
            let next = table.began + self.settings.poll_interval;
            match failed {
                None => {
                    self.driver.handle_table(TableNews::Read(table));
                    view.ready();
                    if self.reading.works() {
                        info!(table = %self.client.place(), "the table is read again");
                    }
                }
                Some(failed) => {
                    self.driver.handle_table(TableNews::ReadInPart(table));
                    if let Some(error) = self.reading.failed(&failed) {
                        warn!(error, "the table is not read: pools are listed as they were last seen");
                    }
                }
            }
            sleep_until(&*self.clock, Some(next)).await;
        }
    }

    /// Registers a pool or renews its lease.
    ///
    /// # Errors
    /// The table did not take it, or not in time.
    pub async fn register(self: &Arc<Self>, registration: PoolRegistration) -> Result<(), NotKept> {
        if self.driver.is_renewed(&registration) {
            self.metrics.wrote(Write::Skipped);
            return Ok(());
        }
        self.driver.admit(&registration.key)?;
        let mut ended = self.write(registration);
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(result)) => result.clone(),
            Ok(None) | Err(_) => Err(NotKept::Store(StoreFault::Unasked)),
        }
    }

    /// The write of a registration: one that is under way, or a new one. It goes on without its caller, since others may
    /// wait for it.
    fn write(
        self: &Arc<Self>,
        registration: PoolRegistration,
    ) -> watch::Receiver<Option<Result<(), NotKept>>> {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.elapsed();
        if let Some(under_way) = writes.get(&registration.key)
            && under_way.registration.says_the_same(&registration)
            && now.since(under_way.began) < self.settings.skip_window()
            // Else it has ended without an answer.
            && under_way.ended.has_changed().is_ok()
        {
            self.metrics.wrote(Write::Skipped);
            return under_way.ended.clone();
        }
        let registration = Arc::new(registration);
        let (tell, ended) = watch::channel(None);
        let under_way = UnderWay { registration: registration.clone(), began: now, ended: ended.clone() };
        writes.insert(registration.key.clone(), under_way);
        drop(writes);
        let table = Arc::clone(self);
        let span = info_span!("write", pool = %registration.key);
        let writing = async move {
            let result = table.update(&registration).await;
            table.metrics.wrote(if result.is_ok() { Write::Written } else { Write::Failed });
            let mut writes = table.writes.lock().unwrap_or_else(PoisonError::into_inner);
            let is_this = |under_way: &UnderWay| Arc::ptr_eq(&under_way.registration, &registration);
            if writes.get(&registration.key).is_some_and(is_this) {
                writes.remove(&registration.key);
            }
            drop(writes);
            tell.send_replace(Some(result));
        };
        tokio::spawn(writing.instrument(span));
        ended
    }

    async fn update(&self, registration: &Arc<PoolRegistration>) -> Result<(), NotKept> {
        let (began, renewed_at) = (self.clock.elapsed(), self.driver.wall());
        let Settings { lease, region, .. } = &self.settings;
        let attributes = item::attributes(registration, renewed_at, lease.duration, region);
        let (bytes, most) = (attributes.registration_bytes, item::MAX_REGISTRATION);
        if bytes > most {
            return Err(NotKept::TooLarge { bytes, most });
        }
        let (pk, sk) = item::key(&registration.key);
        let mut request = self.client.sdk().update_item().table_name(self.client.table());
        request = request.key("pk", AttributeValue::S(pk)).key("sk", AttributeValue::S(sk));
        let mut assignments = Vec::new();
        for (number, (name, value)) in attributes.values.into_iter().enumerate() {
            assignments.push(format!("#{number} = :{number}"));
            request = request.expression_attribute_names(format!("#{number}"), name);
            request = request.expression_attribute_values(format!(":{number}"), value);
        }
        let request = request.update_expression(format!("SET {}", assignments.join(", ")));
        let written = self.client.call(Class::Urgent, Action::UpdateItem, || request.clone().send()).await;
        if let Err(failed) = written {
            if let Some(error) = self.writing.failed(&failed) {
                warn!(
                    error,
                    "a registration is not written, and answered 503: so are others until this is over"
                );
            }
            self.driver.handle_table(TableNews::NotWritten);
            return Err(NotKept::Store(outwards(&failed.why)));
        }
        if self.writing.works() {
            info!(table = %self.client.place(), "registrations are written again");
        }
        self.driver.handle_table(TableNews::Written {
            registration: registration.as_ref().into(),
            renewed_at,
            began,
        });
        Ok(())
    }

    /// Reads all partitions, side by side. `known` is what was read of each before, and is then what there is.
    async fn read(&self, known: &mut [item::Known; item::PARTITIONS]) -> Read {
        let began = self.clock.elapsed();
        let mut read =
            Read { table: TableRead { began, items: Vec::new(), unreadable: Vec::new() }, failed: None };
        let partitions = known.iter().enumerate().map(|(number, known)| self.read_partition(number, known));
        let partitions = join_all(partitions).await;
        for (Partition { found, unreadable, failed }, known) in partitions.into_iter().zip(known) {
            read.table.items.extend(found.values().cloned());
            read.table.unreadable.extend(unreadable);
            match failed {
                None => *known = found,
                Some(failed) => {
                    known.extend(found);
                    read.failed.get_or_insert(failed);
                }
            }
        }
        self.metrics.read(read.failed.is_none(), read.table.unreadable.len());
        read
    }

    async fn read_partition(&self, number: usize, known: &item::Known) -> Partition {
        let pk = AttributeValue::S(item::partition(number));
        let request = self.client.sdk().query().table_name(self.client.table());
        let request = request.key_condition_expression("pk = :pk").expression_attribute_values(":pk", pk);
        let (mut found, mut unreadable) = (item::Known::new(), Vec::new());
        let read = self.client.query_pages(Class::Urgent, request, |page| {
            for item in &page {
                match item::read(item, known) {
                    Ok(item) => drop(found.insert(item.registration.key().to_string(), item)),
                    Err(bad) => unreadable.push(bad),
                }
            }
        });
        let failed = read.await.err();
        Partition { found, unreadable, failed }
    }
}
