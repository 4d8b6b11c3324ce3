//! A registry process: the machine, its state log and its watchers, with a witness that checks it at every call.

use crate::book::Book;
use crate::facts::{BUILDS, KEPT_REMOVALS, POLICY, TIMING, cluster_id, cluster_uid};
use crate::network::{Body, Reply, Request};
use crate::witness::{Act, After, Call, Kind, Witness};
use mcs_core::ids::{Build, ClusterId, Epoch};
use mcs_core::log::StateLog;
use mcs_core::model::{Change, Frame, Object, Since};
use mcs_core::outbox::{Answer, Failure, OpAnswer};
use mcs_core::registry::{Op, OpOutcome, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::watch::{self, Told};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

pub(crate) struct Server {
    /// Its number; connections end with it.
    pub(crate) incarnation: u64,
    build: &'static str,
    pub(crate) registry: Registry,
    pub(crate) log: StateLog<Object>,
    pub(crate) watchers: BTreeMap<u64, Watcher>,
    pub(crate) tick_at: Option<Timestamp>,
    pub(crate) witness: Witness,
    /// What became of the operations of the syncs that are open, by call.
    results: BTreeMap<u64, Vec<OpAnswer>>,
}

/// A watch that the server answers.
pub(crate) struct Watcher {
    pub(crate) pid: u64,
    pub(crate) cluster: usize,
    /// What it has still to be told.
    place: watch::Watcher,
    /// When the last frame sent will arrive: frames do not overtake each other.
    pub(crate) arrives: Timestamp,
    pub(crate) progress_at: Timestamp,
    /// The stream breaks after this many frames more.
    pub(crate) frames_left: u32,
    /// It takes at most this many frames at a time.
    pub(crate) pace: usize,
}

impl Server {
    pub(crate) fn new(incarnation: u64, now: Timestamp) -> Self {
        Self {
            incarnation,
            build: BUILDS[usize::from(incarnation.is_multiple_of(4))],
            registry: Registry::new(POLICY, Epoch(u128::from(incarnation)), now),
            log: StateLog::keeping(KEPT_REMOVALS),
            watchers: BTreeMap::new(),
            tick_at: None,
            witness: Witness::new(now),
            results: BTreeMap::new(),
        }
    }

    fn build(&self) -> Build {
        Build::new(self.build).expect("a build")
    }

    /// Judges what is due.
    pub(crate) fn tick(&mut self, book: &Book, now: Timestamp) {
        let never = self.watched(book, now, None, |registry| {
            registry.handle_timeout(now);
            Ok(())
        });
        assert_eq!(never, Ok(()));
    }

    /// Handles a call. A watch is taken by [`Server::watch`].
    pub(crate) fn handle(&mut self, request: &Request, book: &Book, now: Timestamp) -> Reply {
        let cluster = cluster_id(request.cluster);
        let uid = cluster_uid(request.cluster);
        let lease = TIMING.lease();
        let act = Act { cluster: request.cluster, version: request.body.version() };
        match request.body.clone() {
            Body::Register(registration) => {
                let result = self.watched(book, now, Some((act, Kind::Register)), |registry| {
                    registry.register(&cluster, registration, now)
                });
                done(result.map(|answer| Answer::Registered { differs: answer.differs, lease }), true)
            }
            Body::Renew { version, sum } => {
                let result = self.watched(book, now, Some((act, Kind::Renew)), |registry| {
                    registry.renew(&cluster, &uid, version, sum, now)
                });
                done(result.map(|answer| Answer::Renewed { differs: answer.differs, lease }), false)
            }
            Body::Write { version, ops } => {
                let keys = ops.clone();
                let result = self.watched(book, now, Some((act, Kind::Write)), |registry| {
                    registry.write(&cluster, &uid, version, ops, now)
                });
                done(result.map(|outcomes| Answer::Written(answers(&keys, outcomes))), true)
            }
            Body::SyncBegin { version, names } => {
                let result = self.watched(book, now, Some((act, Kind::Begin)), |registry| {
                    registry.begin_sync(&cluster, &uid, version, now)?;
                    registry.wanted(&cluster, &uid, version, &names)
                });
                self.results.insert(request.call, Vec::new());
                result.map_or_else(|refused| failed(refused, true), Reply::Wants)
            }
            Body::SyncOps { version, ops } => {
                let keys = ops.clone();
                let result = self.watched(book, now, Some((act, Kind::WithinSync)), |registry| {
                    registry.write(&cluster, &uid, version, ops, now)
                });
                match result {
                    Ok(outcomes) => {
                        let all = self.results.entry(request.call).or_default();
                        all.extend(answers(&keys, outcomes));
                        Reply::Nothing
                    }
                    Err(refused) => failed(refused, true),
                }
            }
            Body::SyncEnd { version, named } => {
                let result = self.watched(book, now, Some((act, Kind::WithinSync)), |registry| {
                    registry.end_sync(&cluster, &uid, version, &named, now)
                });
                let results = self.results.remove(&request.call).unwrap_or_default();
                done(result.map(|_| Answer::Synced(results)), true)
            }
            Body::Remove => {
                let gone = self.watched(book, now, Some((act, Kind::Remove)), |registry| {
                    registry.remove(&cluster, None, true, now)
                });
                if gone.is_ok() { Reply::Removed } else { Reply::Nothing }
            }
            Body::Watch { .. } => Reply::Nothing,
        }
    }

    /// Takes a watch: it goes on where it broke, if this process told it before, else it begins anew.
    pub(crate) fn watch(
        &mut self,
        request: &Request,
        stream: u64,
        (resume, since): (Option<(Epoch, u64)>, Since),
        (frames, pace): (u32, usize),
        now: Timestamp,
    ) {
        let resume =
            resume.filter(|(epoch, _)| *epoch == self.registry.epoch()).map(|(_, revision)| revision);
        let watcher = Watcher {
            pid: request.pid,
            cluster: request.cluster,
            place: watch::Watcher::new(cluster_id(request.cluster), resume, since, &self.build()),
            arrives: now,
            progress_at: now,
            frames_left: frames,
            pace,
        };
        self.watchers.insert(stream, watcher);
    }

    /// At most `most` frames that a watcher has still to be told.
    pub(crate) fn frames(&self, watcher: &mut Watcher, most: usize, now: Timestamp) -> Vec<Frame> {
        let registry = &self.registry;
        let due = watcher.progress_at.has_passed(now);
        if due {
            watcher.place.remind();
        }
        let mut frames = Vec::new();
        let proven = |cluster: &ClusterId| registry.proven(cluster);
        let more = watcher.place.tell(&self.log, registry.is_complete(now), proven, |told| {
            frames.push(match told {
                Told::Begin => Frame::Begin {
                    epoch: registry.epoch(),
                    absent_grace: registry.absent_grace(),
                    build: self.build(),
                },
                Told::Kept(cluster, set, version) => Frame::Kept { cluster: cluster.clone(), set, version },
                Told::State(revision, key, object) => {
                    Frame::Change(Change { revision, key: key.clone(), object: object.cloned() })
                }
                Told::End(revision, complete) => Frame::End { revision, complete },
                Told::Progress(revision, complete) => Frame::Progress { revision, complete },
            });
            if frames.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if due && !more {
            watcher.progress_at = now + TIMING.progress();
        }
        frames
    }

    /// Calls the registry under the eyes of the witness, and takes the changes into the log.
    fn watched<R>(
        &mut self,
        book: &Book,
        now: Timestamp,
        act: Option<Call>,
        call: impl FnOnce(&mut Registry) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        let before = self.witness.before(now);
        let result = call(&mut self.registry);
        let mut told = Vec::new();
        while let Some(Change { revision, key, object }) = self.registry.next_change() {
            told.push(key.clone());
            self.log.append(key, revision, object);
        }
        let refused = result.as_ref().err();
        let after = After { registry: &self.registry, log: &self.log, told: &told, refused, now };
        self.witness.after(&before, act.as_ref(), &after, book);
        result
    }
}

fn answers(ops: &[Op], outcomes: Vec<OpOutcome>) -> Vec<OpAnswer> {
    ops.iter().map(|op| op.key().clone()).zip(outcomes).collect()
}

fn done(result: Result<Answer, Refused>, act: bool) -> Reply {
    result.map_or_else(|refused| failed(refused, act), Reply::Answer)
}

fn failed(refused: Refused, act: bool) -> Reply {
    let failure = match refused {
        Refused::OldTerm { floor, .. } => Failure::OldTerm { floor },
        Refused::Unknown { .. } => Failure::UnknownMember,
        Refused::TooManyWrites { .. } => Failure::Busy { reason: refused.to_string() },
        Refused::NoSync { .. } => Failure::Unavailable { reason: refused.to_string() },
        Refused::Claimed { .. } | Refused::Active { .. } | Refused::TooManyClusters { .. } => {
            Failure::Refused { reason: refused.to_string() }
        }
    };
    Reply::Answer(if act { Answer::ActFailed(failure) } else { Answer::RenewFailed(failure) })
}
