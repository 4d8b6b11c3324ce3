//! The network between controllers and registry: it delays, reorders, duplicates and loses calls and answers, and
//! breaks streams. Within one stream nothing is reordered; what a stream still carried when it broke is lost.

use crate::facts::{LEASE, TIMING};
use crate::invariants;
use crate::server::Server;
use crate::world::{Event, World};
use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::model::{Frame, Since};
use mcs_core::outbox::{Answer, Failure};
use mcs_core::registry::{Op, Registration};
use mcs_core::time::Timestamp;
use mcs_core::version::{Leaf, Sum, Version};
use rand::Rng;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a controller, or an administrator, asks of the registry.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Register(Registration),
    Renew {
        version: Version,
        sum: Sum,
    },
    Write {
        version: Version,
        ops: Vec<Op>,
    },
    SyncBegin {
        version: Version,
        names: Vec<(ServiceKey, Leaf)>,
    },
    SyncOps {
        version: Version,
        ops: Vec<Op>,
    },
    SyncEnd {
        version: Version,
        named: BTreeSet<ServiceKey>,
    },
    /// An administrator removes the cluster.
    Remove,
    /// The cluster removes itself.
    Leave,
    Watch {
        stream: u64,
        resume: Option<(Epoch, u64)>,
        since: Since,
    },
}

impl Body {
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Self::Register(registration) => Some(registration.version),
            Self::Renew { version, .. }
            | Self::Write { version, .. }
            | Self::SyncBegin { version, .. }
            | Self::SyncOps { version, .. }
            | Self::SyncEnd { version, .. } => Some(*version),
            Self::Remove | Self::Leave | Self::Watch { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) pid: u64,
    pub(crate) cluster: usize,
    pub(crate) call: u64,
    /// The registry process at the other end of its stream; none of a unary call, which may reach any.
    pub(crate) server: Option<u64>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer(Answer),
    Wants(Vec<ServiceKey>),
    Removed,
    Nothing,
}

impl World {
    fn delay(&mut self) -> Duration {
        let slow = self.faults && self.rng.random_bool(0.05);
        let most = match (slow, self.slow) {
            (true, _) => 2 * TIMING.call_limit(),
            // A call and its answer together are within the limit.
            (false, true) => TIMING.call_limit() * 9 / 20,
            (false, false) => Duration::from_millis(40),
        };
        self.rng.random_range(Duration::from_millis(1)..most)
    }

    fn strikes(&mut self, probability: f64, what: &'static str) -> bool {
        let strikes = self.faults && self.rng.random_bool(probability);
        if strikes {
            self.count(what);
        }
        strikes
    }

    pub(crate) fn is_cut(&self, cluster: usize) -> bool {
        !self.cut[cluster].has_passed(self.now)
    }

    /// Sends a unary call.
    pub(crate) fn send(&mut self, request: Request) {
        if self.is_cut(request.cluster) {
            if self.strikes(0.1, "calls that arrived after a cut") {
                let at = self.cut[request.cluster] + self.delay();
                self.at(at, Event::Request(Box::new(request)));
            } else {
                self.count("calls lost in a cut");
            }
            return;
        }
        if self.strikes(0.03, "calls lost") {
            return;
        }
        if self.strikes(0.04, "calls duplicated") {
            let most = if self.rng.random_bool(0.5) { LEASE / 10 } else { 4 * LEASE };
            let at = self.now + self.rng.random_range(Duration::ZERO..most);
            self.at(at, Event::Request(Box::new(request.clone())));
        }
        let late = self.strikes(0.02, "calls late");
        let delay = if late { self.rng.random_range(Duration::ZERO..3 * LEASE) } else { self.delay() };
        self.at(self.now + delay, Event::Request(Box::new(request)));
    }

    /// Sends the messages of one stream one after the other, until it breaks.
    pub(crate) fn send_in_order(&mut self, requests: Vec<Request>) {
        let mut at = self.now;
        for request in requests {
            if self.is_cut(request.cluster) || self.strikes(0.05, "streams broken") {
                return;
            }
            at = at + self.delay();
            self.at(at, Event::Request(Box::new(request)));
        }
    }

    pub(crate) fn reply(&mut self, request: &Request, reply: Reply) {
        let (pid, call) = (request.pid, request.call);
        if self.is_cut(request.cluster) || self.strikes(0.03, "answers lost") {
            return;
        }
        let at = self.now + self.delay();
        self.at(at, Event::Answer { pid, call, reply });
    }

    /// A call arrives at one of the registries behind the name.
    pub(crate) fn arrive(&mut self, request: Request) {
        let to_twin = match (&self.twin, request.server) {
            (None, _) => false,
            (Some(twin), Some(incarnation)) => twin.incarnation == incarnation,
            (Some(_), None) => self.is_led_to_twin(&request),
        };
        if to_twin {
            self.count("calls to a twin");
            self.with_twin(|world| world.take(request));
        } else {
            self.take(request);
        }
    }

    /// Whether a connection of the caller leads to the twin. Calls and watches have one each, which are made anew at times.
    fn is_led_to_twin(&mut self, request: &Request) -> bool {
        let watch = matches!(request.body, Body::Watch { .. });
        let anew = self.rng.random_bool(if watch { 0.5 } else { 0.05 });
        let led = self.led_to_twin.entry((request.cluster, watch)).or_default();
        *led ^= anew;
        *led
    }

    /// The registry process that the calls of `cluster` reach.
    pub(crate) fn registry_of(&self, cluster: usize) -> u64 {
        let led = self.led_to_twin.get(&(cluster, false)).copied().unwrap_or_default();
        let twin = self.twin.as_ref().filter(|_| led);
        twin.or(self.server.as_ref()).map_or(0, |server| server.incarnation)
    }

    fn take(&mut self, request: Request) {
        let Some(mut server) = self.server.take() else {
            let failure = || Failure::Unavailable { reason: "connection refused".to_owned() };
            let answer = match request.body {
                Body::Renew { .. } => Answer::RenewFailed(failure()),
                Body::Register(_) | Body::Write { .. } | Body::SyncBegin { .. } => {
                    Answer::ActFailed(failure())
                }
                Body::SyncOps { .. } | Body::SyncEnd { .. } | Body::Remove | Body::Leave => return,
                Body::Watch { stream, .. } => {
                    let at = self.now + self.delay();
                    return self.at(at, Event::Broken { pid: request.pid, stream });
                }
            };
            return self.reply(&request, Reply::Answer(answer));
        };
        if request.server.is_none_or(|incarnation| incarnation == server.incarnation) {
            self.log(|| {
                format!("registry {} takes {} of {:?}", server.incarnation, request.call, request.body)
            });
            if let Body::Watch { stream, resume, since } = request.body.clone() {
                let frames = if self.faults && self.rng.random_bool(0.7) {
                    self.rng.random_range(0..60)
                } else {
                    u32::MAX
                };
                let slow = self.faults && self.rng.random_bool(0.3);
                let pace = if slow { self.rng.random_range(1..4) } else { usize::MAX };
                server.watch(&request, stream, (resume, since), (frames, pace), self.now);
            } else {
                match server.handle(&request, &mut self.book, self.now) {
                    Reply::Nothing => {}
                    Reply::Removed => self.note_removed(request.cluster),
                    reply => self.reply(&request, reply),
                }
                if server.witness.taken_over.take().is_some() {
                    self.note_removed(request.cluster);
                }
            }
        }
        self.server = Some(server);
        self.after_server();
    }

    /// Sends watchers what they were not told yet, and schedules the registry's next look at its clock.
    pub(crate) fn after_server(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let streams: Vec<u64> = server.watchers.keys().copied().collect();
        for stream in streams {
            self.pump(&mut server, stream);
        }
        invariants::invariant_12_a_slow_watcher_holds_up_no_other(&server, self.now);
        if let Some(at) = server.registry.poll_timeout().map(|at| at.max(self.now))
            && server.tick_at.is_none_or(|known| at < known)
        {
            server.tick_at = Some(at);
            self.at(at, Event::ServerTick(server.incarnation));
        }
        self.server = Some(server);
    }

    fn pump(&mut self, server: &mut Server, stream: u64) {
        let Some(mut watcher) = server.watchers.remove(&stream) else { return };
        if !watcher.stalled.has_passed(self.now) {
            server.watchers.insert(stream, watcher);
            return;
        }
        // A slow watcher takes few frames at a time, and is told the rest when something happens next.
        let most = if self.faults { watcher.pace } else { usize::MAX };
        for frame in server.frames(&mut watcher, most, self.now) {
            match frame {
                Frame::Begin { .. } => {
                    let again = std::mem::replace(&mut watcher.begun, true);
                    self.count(if again { "snapshots within a stream" } else { "snapshots" });
                }
                Frame::Kept { .. } => self.count("sets of parts kept"),
                Frame::Change(_) | Frame::End { .. } | Frame::Progress { .. } => {}
            }
            if self.is_cut(watcher.cluster) || watcher.frames_left == 0 {
                self.count("watches broken");
                // The other end may notice at once, or not before it misses progress.
                if self.rng.random_bool(0.5) {
                    let at = watcher.arrives.max(self.now) + self.delay();
                    self.at(at, Event::Broken { pid: watcher.pid, stream });
                }
                return;
            }
            watcher.frames_left = watcher.frames_left.saturating_sub(1);
            watcher.arrives = watcher.arrives.max(self.now + self.delay());
            let pid = watcher.pid;
            self.at(watcher.arrives, Event::Frame { pid, stream, frame: Box::new(frame) });
        }
        server.watchers.insert(stream, watcher);
    }

    /// The registry's clock is due.
    pub(crate) fn server_tick(&mut self, incarnation: u64) {
        if self.twin.as_ref().is_some_and(|twin| twin.incarnation == incarnation) {
            return self.with_twin(|world| world.tick(incarnation));
        }
        self.tick(incarnation);
    }

    fn tick(&mut self, incarnation: u64) {
        let Some(mut server) = self.server.take() else { return };
        if server.incarnation == incarnation && server.tick_at.is_some_and(|at| at.has_passed(self.now)) {
            server.tick_at = None;
            server.tick(&mut self.book, self.now);
        }
        self.server = Some(server);
        self.after_server();
    }

    /// The time until which a registry or controller stands still, for its events.
    pub(crate) fn resumes(until: Timestamp, now: Timestamp) -> Option<Timestamp> {
        (!until.has_passed(now)).then_some(until)
    }
}
