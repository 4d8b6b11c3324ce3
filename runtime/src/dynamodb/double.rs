//! DynamoDB for tests: an emulator behind HTTP, in this process, that fails as AWS does when it is told to.
//!
//! A [`Double`] listens on a port of its own and is reached like AWS: by [`Double::client`], or by a program that is
//! started with [`Double::environment`] and [`Double::endpoint`]. Behind it is an emulator in memory; in front of that stands
//! what the emulator has not:
//!
//! - [`Faults`]: throttled calls, errors, silence, lost answers, refused connections, missing permissions, latency
//! - [`Double::units`]: what was called, and what it costs by DynamoDB's rules
//! - [`Staleness`]: reads that see the state before the last writes
//! - [`Global`]: regions of one Global Table, with lag, reordering and cuts
//! - `imitated`: replicas and point-in-time recovery of a table, and refusals of the time to live
//!
//! It runs on a thread of its own, so that a test may block its own, or hold still what is tested, while it goes on.
//! What is random comes of a seed, and times are read from a clock that a test may set. Tables have the string keys `pk`
//! and `sk`.

mod asked;
mod copies;
mod emulator;
mod faults;
mod global;
mod imitated;
mod serve;
mod server;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::config::Credentials;
use mcs_core::time::{Clock, WallTime};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio_util::sync::CancellationToken;

use self::copies::{Copies, Follower};
use self::emulator::Emulator;
use self::imitated::Imitated;
use self::units::Counts;
use super::{Action, Client, Flags, Limits, Settings};
use crate::clock::SystemClock;

pub use self::copies::Staleness;
pub use self::faults::{Door, Fault, Faults, Rule};
pub use self::global::Global;
pub use self::units::Used;

/// The table that is there from the start.
pub const TABLE: &str = "global-discovery-test";

/// The region of a double that was not told another.
pub const REGION: &str = "eu-test-1";

/// What the flags are called in messages of [`Double::client`].
const FLAGS: Flags = Flags { table: "--dynamodb-table", region: "--region", endpoint: "--dynamodb-endpoint" };

/// Longer than any call takes on a busy machine; a test of limits sets its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a double is started.
#[derive(Clone)]
pub struct Options {
    /// Its region.
    pub region: String,
    /// What is random comes of this.
    pub seed: u64,
    /// By which it is late, where it is told to be.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self { region: REGION.to_owned(), seed: 0, clock: Arc::new(SystemClock) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, seed, clock: _ } = self;
        f.debug_struct("Options").field("region", region).field("seed", seed).finish_non_exhaustive()
    }
}

/// The stand-in. Dropped, it is gone with its connections.
pub struct Double {
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What the server and the test's hand share.
struct Shared {
    region: String,
    address: SocketAddr,
    clock: Arc<dyn Clock>,
    /// That of its own thread.
    runtime: Handle,
    stop: CancellationToken,
    emulator: Emulator,
    faults: Faults,
    counts: Counts,
    imitated: Imitated,
    /// Taken by each write, and by what comes from elsewhere: an item is looked at before and after.
    copies: Mutex<Copies>,
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Double {
    /// Starts it, with [`TABLE`].
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts it so, with [`TABLE`].
    pub async fn start_with(options: Options) -> Self {
        let double = Self::empty(options).await;
        double.create_table(TABLE);
        double
    }

    /// Starts it, without a table.
    ///
    /// # Panics
    /// There is no port for it.
    pub async fn empty(options: Options) -> Self {
        let (tell, told) = oneshot::channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("no runtime").block_on(async {
                let Options { region, seed, clock } = options;
                let listener = server::listen().await;
                let shared = Arc::new(Shared {
                    region,
                    address: listener.local_addr().expect("no address"),
                    clock,
                    runtime: Handle::current(),
                    stop: stopped.clone(),
                    emulator: Emulator::start(stopped.clone()).await,
                    faults: Faults::new(seed),
                    counts: Counts::default(),
                    imitated: Imitated::default(),
                    copies: Mutex::default(),
                });
                // Who started this waits for it.
                let _ = tell.send(Arc::clone(&shared));
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = server::run(listener, shared) => {}
                }
            });
        });
        let shared = told.await.expect("the double did not start");
        Self { shared, stop, thread: Some(thread) }
    }

    /// Where it is reached, as a URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Its region.
    pub fn region(&self) -> &str {
        &self.shared.region
    }

    /// What a program needs in its environment to call it, beside the endpoint: any credentials do.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", self.region().to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// The settings of a client of [`TABLE`], with limits that a busy machine keeps.
    pub fn settings(&self) -> Settings {
        Settings {
            table: TABLE.to_owned(),
            region: Some(self.region().to_owned()),
            endpoint: Some(self.endpoint()),
            limits: Limits::within(PATIENCE),
            flags: FLAGS,
        }
    }

    /// A client of [`TABLE`].
    pub async fn client(&self) -> Client {
        self.client_of(self.settings()).await
    }

    /// A client by settings of one's own.
    ///
    /// # Panics
    /// They have no region.
    pub async fn client_of(&self, settings: Settings) -> Client {
        let loader = aws_config::defaults(BehaviorVersion::latest());
        let loader = loader.credentials_provider(Credentials::new("test", "test", None, None, "test"));
        settings.connect_with(loader).await.expect("settings without a region")
    }

    /// Makes a table with the string keys `pk` and `sk`, past the server.
    ///
    /// # Panics
    /// It exists.
    pub fn create_table(&self, name: &str) {
        self.shared.emulator.create_table(name);
    }

    /// All items of a table as they are now, past the server and all faults, in the JSON of DynamoDB, by their keys.
    pub async fn items(&self, table: &str) -> Vec<Value> {
        self.shared.arrive().await;
        self.shared.emulator.items(table)
    }

    /// From now on, tables and replicas are being made for so many looks at them (`DescribeTable`), as they take
    /// seconds and minutes on AWS.
    pub fn set_making(&self, looks: u32) {
        self.shared.imitated.set_looks(looks);
    }

    /// What goes wrong.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// From now on, reads that are not consistent see what was before.
    pub async fn read_stale(&self, staleness: Staleness) {
        let mut copies = self.shared.copies.lock().await;
        copies.follower = match (staleness, copies.follower.take()) {
            (Staleness::None, _) => None,
            (_, Some(follower)) => Some(follower.with(staleness)),
            (_, None) => {
                let shared = Arc::clone(&self.shared);
                let starting = async move { Follower::of(&shared, staleness).await };
                Some(self.shared.runtime.spawn(starting).await.expect("the double is gone"))
            }
        };
    }

    /// Stale reads see all that was written until now.
    pub async fn catch_up(&self) {
        if let Some(follower) = &mut self.shared.copies.lock().await.follower {
            follower.catch_up();
        }
    }

    /// Deletes what has expired, as AWS does some time after; says how many items that were.
    ///
    /// # Panics
    /// The emulator cannot.
    pub fn sweep_expired(&self) -> usize {
        self.shared.emulator.sweep_expired()
    }

    /// The same by another clock: deletes what has expired at `now` of a table, past the server.
    pub fn sweep_expired_at(&self, table: &str, now: WallTime) -> usize {
        self.shared.emulator.sweep_expired_at(table, now)
    }

    /// What all calls since the start, or the last [`Double::reset_units`], used.
    pub fn units(&self) -> Used {
        self.shared.counts.total()
    }

    /// The same by action, of those that were called.
    pub fn units_by_action(&self) -> BTreeMap<String, Used> {
        self.shared.counts.by_action()
    }

    /// How many requests came from clients, whatever became of them.
    pub fn requests(&self) -> u64 {
        let counts = self.shared.counts.by_action();
        counts.iter().filter(|(action, _)| *action != units::REPLICATED).map(|(_, used)| used.calls).sum()
    }

    /// How often this was called, whatever became of it.
    pub fn calls(&self, action: Action) -> u64 {
        self.shared.counts.by_action().get(action.as_str()).map_or(0, |used| used.calls)
    }

    /// Begins to count anew.
    pub fn reset_units(&self) {
        self.shared.counts.reset();
    }

    /// Waits until this was called so often.
    ///
    /// # Panics
    /// It was not within a minute.
    pub async fn until_called(&self, action: Action, calls: u64) {
        let is_so = |counts: &BTreeMap<String, Used>| {
            counts.get(action.as_str()).is_some_and(|used| used.calls >= calls)
        };
        let called = self.shared.counts.until(is_so);
        tokio::time::timeout(PATIENCE, called).await.expect("it is not called");
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It may have panicked, which is then on the test's standard error.
            let _ = thread.join();
        }
    }
}

/// The keys of an item, or none where they are missing.
fn key_of(item: &Value) -> Option<Value> {
    let part = |name: &str| item.get(name).filter(|part| part.is_object()).cloned();
    Some(json!({"pk": part("pk")?, "sk": part("sk")?}))
}

#[cfg(test)]
mod tests;
