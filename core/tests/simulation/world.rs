//! A whole: the registry, the clusters and their controllers, the network, and the events that are to come.
//!
//! One event happens at a time, in the order of the virtual clock; everything random comes from the seed. So a seed
//! is a history.

use crate::book::Book;
use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::facts::{MOST_CLUSTERS, PLACES, POLICY, cluster_id};
use crate::mirror::Mirror;
use crate::network::{Reply, Request};
use crate::server::Server;
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::Frame;
use mcs_core::outbox::{Answer, Failure};
use mcs_core::plan::Step;
use mcs_core::registry::Policy;
use mcs_core::time::{Timestamp, WallTime};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What happened, for people; kept by whoever wants to read it.
pub(crate) type EventLog = Rc<RefCell<Vec<String>>>;

/// How often what happened.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Request(Box<Request>),
    Answer { pid: u64, call: u64, reply: Reply },
    CallLimit { pid: u64, call: u64 },
    Frame { pid: u64, stream: u64, frame: Box<Frame> },
    Broken { pid: u64, stream: u64 },
    Wake { pid: u64 },
    ServerTick(u64),
    StartServer,
    StopTwin,
    StartController(usize),
    Retire(u64),
    LateStep { cluster: usize, key: ServiceKey, step: Box<Step> },
}

pub(crate) struct World {
    pub(crate) rng: StdRng,
    /// How many clusters there are.
    pub(crate) size: usize,
    pub(crate) now: Timestamp,
    pub(crate) faults: bool,
    /// Whether all calls take long.
    pub(crate) slow: bool,
    pub(crate) server: Option<Box<Server>>,
    /// A second registry behind the same name, which shares nothing with the first.
    pub(crate) twin: Option<Box<Server>>,
    /// Whose calls, and whose watches, lead to the twin.
    pub(crate) led_to_twin: BTreeMap<(usize, bool), bool>,
    pub(crate) server_paused: Timestamp,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) policy: Policy,
    pub(crate) controllers: BTreeMap<u64, Box<Controller>>,
    /// Until when each cluster is cut off from the registry.
    pub(crate) cut: [Timestamp; PLACES],
    /// When the records of each id were removed last, by an administrator, by the cluster itself, or since another cluster
    /// took the id over.
    pub(crate) removed: BTreeMap<ClusterId, Timestamp>,
    pub(crate) book: Book,
    pub(crate) counts: Counts,
    /// How many registrations, writes and syncs were called for.
    pub(crate) acts: u64,
    /// A cluster whose controller never starts again.
    pub(crate) dead: Option<usize>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    ids: u64,
    event_log: Option<EventLog>,
}

impl World {
    pub(crate) fn new(seed: u64, event_log: Option<EventLog>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let size = random_size(&mut rng);
        let mut clusters: Vec<Cluster> = (0..PLACES).map(Cluster::new).collect();
        for cluster in &mut clusters {
            cluster.clock_error = rng.random_range(-30..=30);
        }
        let policy = random_policy(&mut rng);
        Self {
            rng,
            size,
            now: Timestamp::from_millis(1_000),
            faults: true,
            slow: false,
            server: None,
            twin: None,
            led_to_twin: BTreeMap::new(),
            server_paused: Timestamp::ZERO,
            clusters,
            policy,
            controllers: BTreeMap::new(),
            cut: [Timestamp::ZERO; PLACES],
            removed: BTreeMap::new(),
            book: Book::default(),
            counts: Counts::new(),
            acts: 0,
            dead: None,
            queue: BTreeMap::new(),
            ids: 0,
            event_log,
        }
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.event_log {
            log.borrow_mut().push(format!("{:9.3} {}", self.now.as_nanos() as f64 / 1e9, line()));
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn at(&mut self, at: Timestamp, event: Event) {
        let id = self.fresh_id();
        self.queue.insert((at, id), event);
    }

    /// Lets `time` pass, with all that happens in it.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0.has_passed(end)) {
            let ((at, id), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(id, event);
        }
        self.now = end;
    }

    fn happen(&mut self, id: u64, event: Event) {
        let paused_until = match &event {
            Event::Request(_) | Event::ServerTick(_) => Self::resumes(self.server_paused, self.now),
            Event::Answer { pid, .. }
            | Event::CallLimit { pid, .. }
            | Event::Frame { pid, .. }
            | Event::Broken { pid, .. }
            | Event::Wake { pid } => {
                let controller = self.controllers.get(pid);
                controller.and_then(|controller| Self::resumes(controller.paused, self.now))
            }
            Event::StartServer
            | Event::StopTwin
            | Event::StartController(_)
            | Event::Retire(_)
            | Event::LateStep { .. } => None,
        };
        if let Some(until) = paused_until {
            // What waits for a process comes before its own deadlines, as a driver does it that handles messages first.
            let waits = Duration::from_nanos(u64::from(matches!(event, Event::ServerTick(_))));
            // Under its old number, so that nothing overtakes it.
            self.queue.insert((until + waits, id), event);
            return;
        }
        match event {
            Event::Request(request) => self.arrive(*request),
            Event::ServerTick(incarnation) => self.server_tick(incarnation),
            Event::StartServer => self.start_server(),
            Event::StopTwin => self.stop_twin(),
            Event::StartController(cluster) => self.start_controller(cluster),
            Event::Retire(pid) => {
                self.controllers.remove(&pid);
            }
            Event::LateStep { cluster, key, step } => self.late_step(cluster, &key, &step),
            Event::Answer { pid, call, reply } => self.answered(pid, call, reply),
            Event::CallLimit { pid, call } => {
                let failure = Failure::Unavailable { reason: "no answer in time".to_owned() };
                self.answered(pid, call, Reply::Answer(Answer::ActFailed(failure)));
            }
            Event::Frame { pid, stream, frame } => self.frame(pid, stream, *frame),
            Event::Broken { pid, stream } => self.broken(pid, stream),
            Event::Wake { pid } => self.drive(pid),
        }
    }

    pub(crate) fn start_server(&mut self) {
        if self.server.is_some() {
            return;
        }
        let incarnation = self.fresh_id();
        self.log(|| format!("registry {incarnation} starts"));
        let is_old = self.faults && self.rng.random_bool(0.3);
        self.server = Some(Box::new(Server::new(incarnation, is_old, self.policy, self.now)));
        self.after_server();
    }

    /// Has what follows happen to the twin.
    pub(crate) fn with_twin(&mut self, act: impl FnOnce(&mut Self)) {
        std::mem::swap(&mut self.server, &mut self.twin);
        act(self);
        std::mem::swap(&mut self.server, &mut self.twin);
    }

    /// Starts a second registry behind the name of the first.
    pub(crate) fn start_twin(&mut self) {
        let led = |world: &mut Self| world.rng.random_bool(0.5);
        let all = (0..PLACES).flat_map(|place| [(place, false), (place, true)]);
        self.led_to_twin = all.map(|connection| (connection, led(self))).collect();
        self.with_twin(Self::start_server);
    }

    pub(crate) fn stop_twin(&mut self) {
        self.with_twin(Self::stop_server);
    }

    /// The registry that a controller watches, if it runs.
    pub(crate) fn watched_by(&self, mirror: &Mirror) -> Option<&Server> {
        let both = self.server.iter().chain(&self.twin);
        both.map(|server| &**server).find(|server| mirror.epoch == Some(server.registry.epoch()))
    }

    /// Ends the registry process with all that it knew.
    pub(crate) fn stop_server(&mut self) {
        let Some(server) = self.server.take() else { return };
        self.log(|| format!("registry {} is killed", server.incarnation));
        self.keep_counts(&server);
        for (stream, watcher) in server.watchers {
            self.at(
                watcher.arrives.max(self.now) + Duration::from_millis(5),
                Event::Broken { pid: watcher.pid, stream },
            );
        }
    }

    pub(crate) fn keep_counts(&mut self, server: &Server) {
        for (what, times) in &server.witness.counts {
            *self.counts.entry(what).or_default() += times;
        }
        *self.counts.entry("stale acts").or_default() += server.registry.counts().stale_acts;
        *self.counts.entry("pauses counted anew").or_default() += server.registry.counts().pauses;
    }

    pub(crate) fn note_removed(&mut self, cluster: usize) {
        self.removed.insert(cluster_id(cluster), self.now);
    }

    /// The time on the clocks of `cluster`, right or wrong. Nothing but the age of exports and the first term of a
    /// leader comes from it.
    pub(crate) fn wall(&self, cluster: usize) -> WallTime {
        let passed = i64::try_from(self.now.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
        WallTime::from_unix_secs(1_800_000_000 + passed + self.clusters[cluster].clock_error)
    }
}

/// A policy with limits that are met now and then.
fn random_policy(rng: &mut StdRng) -> Policy {
    Policy {
        max_exports: if rng.random_bool(0.2) { 2 } else { POLICY.max_exports },
        max_writes_per_second: if rng.random_bool(0.2) { 1 } else { POLICY.max_writes_per_second },
        ..POLICY
    }
}

/// How many clusters a history has: mostly few, since what befalls one is then more likely to meet another fault.
fn random_size(rng: &mut StdRng) -> usize {
    match rng.random_range(0..20) {
        0..14 => rng.random_range(3..=5),
        14..19 => rng.random_range(6..=7),
        _ => rng.random_range(8..=MOST_CLUSTERS),
    }
}
