//! A watcher: a cursor into the log of a clusterset.
//!
//! It is pulled by its stream, so a slow one holds its cursor and at most one batch of shared messages; what it has not
//! been told yet stays in the log, where only the last state of each object is kept. A snapshot is told in the order of
//! keys (sections first), in batches; what changes meanwhile follows, and the `End` comes when the watcher has been
//! told everything. A cursor that the log has gone past begins anew.
//!
//! What becomes of a watch is told by its [`Record`].
//!
//! Rejected: a channel for each watcher (memory for each slow one), a snapshot taken at once (the same).

mod record;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use mcs_core::ids::{ClusterId, Epoch};
use mcs_core::log::TooOld;
use mcs_core::model::{Frame, ObjectKey};
use mcs_core::time::Timestamp;
use mcs_core::timing::Timing;
use mcs_proto::encoded::EncodedStep;
use mcs_proto::frames::steps;
use mcs_runtime::shutdown::Watch;
use tokio::sync::watch;
use tonic::Status;

use self::record::Record;
use crate::clusterset::{Clusterset, Reached, State, Steps};
use crate::error::Error;
use crate::metrics::Watches;

/// At most this many bytes are taken from the log at once, one object excepted.
const BATCH_BYTES: usize = 64 * 1024;

/// Who watches, and from where.
pub(crate) struct Request {
    /// The cluster that watches.
    pub(crate) importer: ClusterId,
    /// The registry process and the revision that it wants to go on from.
    pub(crate) from: Option<(Epoch, u64)>,
}

struct Watcher {
    clusterset: Arc<Clusterset>,
    phase: Phase,
    batch: VecDeque<EncodedStep>,
    /// Whether the view is complete, as it was told last; none before the end of the snapshot.
    complete: Option<bool>,
    changes: watch::Receiver<Reached>,
    progress: Duration,
    record: Record,
    shutdown: Watch,
}

enum Phase {
    /// Nothing was told.
    Begin,
    /// A snapshot is told: the objects up to this key, as of the revision `since` or later.
    Snapshot { up_to: Option<ObjectKey>, since: u64 },
    /// Changes are told up to the revision `cursor`; the `End` of the snapshot is `told` once there was no more.
    Follow { cursor: u64, told: bool },
    /// The registry ends, and the watcher knows.
    Over,
}

/// Watches a clusterset. The stream ends with the drain.
pub(crate) fn stream(
    clusterset: Arc<Clusterset>,
    request: Request,
    watches: Watches,
    shutdown: Watch,
) -> impl Stream<Item = Result<EncodedStep, Status>> + Send + 'static {
    let Request { importer, from } = request;
    let (epoch, clock) = (clusterset.epoch(), Arc::clone(clusterset.clock()));
    let record = Record::opened(clusterset.id().clone(), importer, from, epoch, clock, watches);
    let phase = match from {
        Some((epoch, cursor)) if epoch == clusterset.epoch() => Phase::Follow { cursor, told: true },
        _ => Phase::Begin,
    };
    let watcher = Watcher {
        phase,
        batch: VecDeque::new(),
        complete: None,
        changes: clusterset.changes(),
        progress: Timing::of_lease(clusterset.lease()).progress(),
        record,
        shutdown,
        clusterset,
    };
    futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) })
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<EncodedStep, Status>> {
        loop {
            if matches!(self.phase, Phase::Over) {
                return None;
            }
            if self.shutdown.is_draining() {
                self.phase = Phase::Over;
                self.record.drains();
                return Some(Err(Error::Draining.into()));
            }
            if let Some(step) = self.batch.pop_front() {
                return Some(Ok(step));
            }
            self.changes.mark_unchanged();
            let clusterset = Arc::clone(&self.clusterset);
            clusterset.with(|state, now| self.fill(state, now));
            if !self.batch.is_empty() {
                let bytes = self.batch.iter().map(EncodedStep::len).sum();
                self.record.tells(self.batch.len(), bytes, self.reached());
                continue;
            }
            self.record.is_up_to_date();
            tokio::select! {
                () = self.shutdown.draining() => {}
                // It ends only with the clusterset, which this watcher holds.
                _ = self.changes.changed() => {}
                // That the stream lives is told by saying again whether the view is complete.
                () = tokio::time::sleep(self.progress) => self.complete = None,
            }
        }
    }

    /// The revision up to which everything was taken from the log.
    const fn reached(&self) -> u64 {
        match self.phase {
            Phase::Follow { cursor, .. } => cursor,
            Phase::Begin | Phase::Snapshot { .. } | Phase::Over => 0,
        }
    }

    /// Takes the next batch from the log; none when the watcher has been told everything.
    fn fill(&mut self, state: &State, now: Timestamp) {
        while self.batch.is_empty() {
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return,
                Phase::Begin => {
                    let (epoch, absent_grace) = (state.registry.epoch(), state.registry.absent_grace());
                    self.record.begins();
                    self.tell(&Frame::Begin { epoch, absent_grace });
                    Phase::Snapshot { up_to: None, since: state.log.revision() }
                }
                Phase::Snapshot { up_to, since } => match self.take_objects(state, up_to.as_ref()) {
                    Some(last) => Phase::Snapshot { up_to: Some(last), since },
                    None => Phase::Follow { cursor: since, told: false },
                },
                Phase::Follow { cursor, told } => match self.take_changes(state, cursor) {
                    Err(TooOld { .. }) => Phase::Begin,
                    Ok(Some(cursor)) => Phase::Follow { cursor, told },
                    Ok(None) => {
                        let complete = state.registry.is_complete(now);
                        if !told {
                            self.tell(&Frame::End { revision: cursor, complete });
                        } else if self.complete != Some(complete) {
                            self.tell(&Frame::Progress { revision: cursor, complete });
                        }
                        self.complete = Some(complete);
                        self.phase = Phase::Follow { cursor, told: true };
                        return;
                    }
                },
            };
        }
    }

    /// Takes objects after a key, and says which was the last.
    fn take_objects(&mut self, state: &State, after: Option<&ObjectKey>) -> Option<ObjectKey> {
        let (mut last, mut bytes) = (None, 0);
        for (_, key, steps) in state.log.snapshot_after(after) {
            bytes += self.take(steps);
            last = Some(key);
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        last.cloned()
    }

    /// Takes changes after a revision, and says which was the last.
    fn take_changes(&mut self, state: &State, after: u64) -> Result<Option<u64>, TooOld> {
        let (mut last, mut bytes) = (None, 0);
        for (revision, _, steps) in state.log.since(after)? {
            // The clusterset's log has the messages of removals too.
            bytes += steps.map_or(0, |steps| self.take(steps));
            last = Some(revision);
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(last)
    }

    fn take(&mut self, steps: &Steps) -> usize {
        self.batch.extend(steps.iter().cloned());
        steps.iter().map(EncodedStep::len).sum()
    }

    fn tell(&mut self, frame: &Frame) {
        self.batch.extend(steps(frame, self.clusterset.lease()).iter().map(EncodedStep::from));
    }
}

#[cfg(test)]
mod tests;
