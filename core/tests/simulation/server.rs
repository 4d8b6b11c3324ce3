//! A registry process: the machine, its state log and its watchers, with a witness that checks it at every call.

use crate::book::Book;
use crate::facts::{KEPT_REMOVALS, POLICY, TIMING, cluster_id, cluster_uid};
use crate::network::{Body, Reply, Request};
use crate::witness::{Act, After, Call, Kind, Witness};
use mcs_core::ids::Epoch;
use mcs_core::log::StateLog;
use mcs_core::model::{Change, Frame, Object};
use mcs_core::outbox::{Answer, Failure, OpAnswer};
use mcs_core::registry::{Op, OpOutcome, Refused, Registry};
use mcs_core::time::Timestamp;
use std::collections::BTreeMap;

pub(crate) struct Server {
    /// Its number; connections end with it.
    pub(crate) incarnation: u64,
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
    /// How far it was told; none before its snapshot.
    pub(crate) cursor: Option<u64>,
    /// When the last frame sent will arrive: frames do not overtake each other.
    pub(crate) arrives: Timestamp,
    pub(crate) progress_at: Timestamp,
    /// The stream breaks after this many frames more.
    pub(crate) frames_left: u32,
}

impl Server {
    pub(crate) fn new(incarnation: u64, now: Timestamp) -> Self {
        Self {
            incarnation,
            registry: Registry::new(POLICY, Epoch(u128::from(incarnation)), now),
            log: StateLog::keeping(KEPT_REMOVALS),
            watchers: BTreeMap::new(),
            tick_at: None,
            witness: Witness::new(now),
            results: BTreeMap::new(),
        }
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
        resume: Option<(Epoch, u64)>,
        frames: u32,
        now: Timestamp,
    ) {
        let cursor =
            resume.filter(|(epoch, _)| *epoch == self.registry.epoch()).map(|(_, revision)| revision);
        let watcher = Watcher {
            pid: request.pid,
            cluster: request.cluster,
            cursor,
            arrives: now,
            progress_at: now,
            frames_left: frames,
        };
        self.watchers.insert(stream, watcher);
    }

    /// At most `most` frames that a watcher has still to be told, and how far it is told then; a snapshot comes as a
    /// whole. Also says whether it was a snapshot.
    pub(crate) fn frames(&self, cursor: Option<u64>, most: usize, now: Timestamp) -> (Vec<Frame>, u64, bool) {
        if let Some(cursor) = cursor
            && let Ok(changes) = self.log.since(cursor)
        {
            let frames: Vec<Frame> =
                changes.take(most).map(|(revision, key, object)| frame(revision, key, object)).collect();
            let reached = frames.last().map_or(cursor, |frame| match frame {
                Frame::Change(change) => change.revision,
                Frame::Begin { .. } | Frame::End { .. } | Frame::Progress { .. } => cursor,
            });
            return (frames, reached, false);
        }
        let (epoch, absent_grace) = (self.registry.epoch(), self.registry.absent_grace());
        let mut frames = vec![Frame::Begin { epoch, absent_grace }];
        frames.extend(self.log.snapshot().map(|(revision, key, object)| frame(revision, key, Some(object))));
        let revision = self.log.revision();
        frames.push(Frame::End { revision, complete: self.registry.is_complete(now) });
        (frames, revision, true)
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

fn frame(revision: u64, key: &mcs_core::model::ObjectKey, object: Option<&Object>) -> Frame {
    Frame::Change(Change { revision, key: key.clone(), object: object.cloned() })
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
