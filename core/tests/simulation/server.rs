//! A registry process: the machine, its state log and its watchers, with a witness that checks it at every call.

use crate::book::{Book, Said};
use crate::facts::{BUILDS, KEPT_REMOVALS, TIMING, cluster_id, cluster_uid};
use crate::network::{Body, Reply, Request};
use crate::witness::{Act, After, Call, Kind, Witness};
use mcs_core::ids::{Build, ClusterId, Epoch, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{Change, Frame, HeldExport, Object, SessionAffinity, Since};
use mcs_core::outbox::{Answer, Failure, OpAnswer, Process};
use mcs_core::registry::{Op, OpOutcome, Policy, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::validate::check_export;
use mcs_core::version::Version;
use mcs_core::watch;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) struct Server {
    /// Its number; connections end with it.
    pub(crate) incarnation: u64,
    /// Whether it is of the earlier release, which does not know session affinity.
    pub(crate) is_old: bool,
    pub(crate) registry: Registry,
    pub(crate) log: StateLog<Object>,
    pub(crate) watchers: BTreeMap<u64, Watcher>,
    pub(crate) tick_at: Option<Timestamp>,
    pub(crate) witness: Witness,
    /// What became of the operations of the syncs that are open, by call.
    results: BTreeMap<u64, Taken>,
}

/// What became of the operations of a sync so far, and what stands of what was refused.
type Taken = (Vec<OpAnswer>, BTreeMap<ServiceKey, HeldExport>);

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
    /// It takes none until then.
    pub(crate) stalled: Timestamp,
    /// Whether a snapshot was begun in this stream.
    pub(crate) begun: bool,
}

impl Watcher {
    /// Whether it was told all that its registry has.
    pub(crate) fn is_told(&self, registry: &Registry) -> bool {
        self.place.revision() == registry.revision()
    }
}

impl Server {
    pub(crate) fn new(incarnation: u64, is_old: bool, policy: Policy, now: Timestamp) -> Self {
        Self {
            incarnation,
            is_old,
            registry: Registry::new(policy, Epoch(u128::from(incarnation)), now),
            log: StateLog::keeping(KEPT_REMOVALS),
            watchers: BTreeMap::new(),
            tick_at: None,
            witness: Witness::new(now),
            results: BTreeMap::new(),
        }
    }

    fn build(&self) -> Build {
        Build::new(BUILDS[usize::from(!self.is_old)]).expect("a build")
    }

    fn process(&self) -> Process {
        Process { epoch: Some(self.registry.epoch()), build: self.build() }
    }

    /// Judges what is due.
    pub(crate) fn tick(&mut self, book: &mut Book, now: Timestamp) {
        let never = self.watched(book, now, None, |registry, _| {
            registry.handle_timeout(now);
            Ok(())
        });
        assert_eq!(never, Ok(()));
    }

    /// Handles a call. A watch is taken by [`Server::watch`].
    pub(crate) fn handle(&mut self, request: &Request, book: &mut Book, now: Timestamp) -> Reply {
        let speaker = (request.cluster, request.pid);
        let cluster = cluster_id(request.cluster);
        let uid = cluster_uid(request.cluster);
        let lease = TIMING.lease();
        let act = Act { cluster: request.cluster, version: request.body.version() };
        match request.body.clone() {
            Body::Register(registration) => {
                let result = self.watched(book, now, Some((act, Kind::Register)), |registry, _| {
                    registry.register(&cluster, registration, now)
                });
                let by = self.process();
                done(result.map(|answer| Answer::Registered { differs: answer.differs, lease, by }), true)
            }
            Body::Renew { version, sum } => {
                let result = self.watched(book, now, Some((act, Kind::Renew)), |registry, _| {
                    registry.renew(&cluster, &uid, version, sum, now)
                });
                let by = self.process();
                let renewed = |differs| Answer::Renewed { differs, degraded: false, lease, by };
                done(result.map(|answer| renewed(answer.differs)), false)
            }
            Body::Write { version, ops } => {
                let answers = self.write((act, Kind::Write), speaker, version, ops, book, now);
                done(answers.map(Answer::Written), true)
            }
            Body::SyncBegin { version, names } => {
                let result = self.watched(book, now, Some((act, Kind::Begin)), |registry, _| {
                    registry.begin_sync(&cluster, &uid, version, now)?;
                    registry.wanted(&cluster, &uid, version, &names)
                });
                self.results.insert(request.call, Taken::default());
                result.map_or_else(|refused| failed(refused, true), Reply::Wants)
            }
            Body::SyncOps { version, ops } => {
                match self.write((act, Kind::WithinSync), speaker, version, ops, book, now) {
                    Ok(answers) => {
                        let (results, held) = self.results.entry(request.call).or_default();
                        let refused = answers.iter().filter(|(_, outcome)| outcome.is_err());
                        let member = self.registry.member(&cluster);
                        held.extend(refused.filter_map(|(key, _)| Some((key.clone(), member?.held(key)?))));
                        results.extend(answers);
                        Reply::Nothing
                    }
                    Err(refused) => failed(refused, true),
                }
            }
            Body::SyncEnd { version, named } => {
                let result = self.watched(book, now, Some((act, Kind::WithinSync)), |registry, _| {
                    registry.end_sync(&cluster, &uid, version, &named, now)
                });
                let (results, held) = self.results.remove(&request.call).unwrap_or_default();
                done(result.map(|_| Answer::Synced { results, held }), true)
            }
            Body::Remove | Body::Leave => {
                let leaver = matches!(request.body, Body::Leave).then_some(&uid);
                let gone = self.watched(book, now, Some((act, Kind::Remove)), |registry, _| {
                    registry.remove(&cluster, leaver, leaver.is_none(), now)
                });
                if gone.is_ok() { Reply::Removed } else { Reply::Nothing }
            }
            Body::Watch { .. } => Reply::Nothing,
        }
    }

    /// Takes the operations of a write, or of one message of a sync.
    fn write(
        &mut self,
        call: Call,
        speaker: (usize, u64),
        version: Version,
        mut ops: Vec<Op>,
        book: &mut Book,
        now: Timestamp,
    ) -> Result<Vec<OpAnswer>, Refused> {
        if self.is_old {
            ops.iter_mut().for_each(drop_unknown);
        }
        let (cluster, uid) = (cluster_id(speaker.0), cluster_uid(speaker.0));
        let keys: Vec<ServiceKey> = ops.iter().map(|op| op.key().clone()).collect();
        let outcomes = self.watched(book, now, Some(call), |registry, book| {
            if call.1 == Kind::Write {
                registry.count_write(&cluster, &uid, now)?;
            }
            let outcomes = checked(ops, |ops| registry.write(&cluster, &uid, version, ops, now))?;
            // Before anybody compares what is held with what was said.
            for (key, _) in keys.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_err()) {
                let held = registry.member(&cluster).is_some_and(|member| member.exports().contains_key(key));
                book.say(speaker, key, version, Said::Refused { stands: held });
            }
            Ok(outcomes)
        })?;
        let member = self.registry.member(&cluster);
        let refused = keys.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_err());
        for stands in refused.map(|(key, _)| member.is_some_and(|member| member.held(key).is_some())) {
            self.witness.count(if stands { "changes refused" } else { "exports refused" });
        }
        Ok(keys.into_iter().zip(outcomes).collect())
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
            stalled: Timestamp::ZERO,
            begun: false,
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
            frames.push(told.frame(registry, &self.build()));
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
        book: &mut Book,
        now: Timestamp,
        act: Option<Call>,
        call: impl FnOnce(&mut Registry, &mut Book) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        let before = self.witness.before(now);
        let result = call(&mut self.registry, book);
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

/// Drops what an earlier release does not know: the hash stays as its owner made it.
fn drop_unknown(op: &mut Op) {
    if let Op::Put { spec, .. } = op {
        Arc::make_mut(spec).session_affinity = SessionAffinity::None;
    }
}

/// Has those operations written that pass the checks at the edge.
fn checked(
    ops: Vec<Op>,
    write: impl FnOnce(Vec<Op>) -> Result<Vec<OpOutcome>, Refused>,
) -> Result<Vec<OpOutcome>, Refused> {
    let check = |op: &Op| match op {
        Op::Put { key, spec, .. } => check_export(key, spec),
        Op::PutEndpoints { .. } | Op::Delete { .. } => Ok(()),
    };
    let checks: Vec<OpOutcome> = ops.iter().map(check).collect();
    let passed = ops.into_iter().zip(&checks).filter(|(_, check)| check.is_ok()).map(|(op, _)| op);
    let mut written = write(passed.collect())?.into_iter();
    let outcome = |check: OpOutcome| check.and_then(|()| written.next().unwrap_or(Ok(())));
    Ok(checks.into_iter().map(outcome).collect())
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
