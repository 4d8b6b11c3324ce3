//! The stream of one watcher.
//!
//! It is pulled by its connection, so a slow watcher holds its place in the log and at most one batch of shared
//! messages; what it has not been told yet stays in the log, where only the last state of each object is kept. What it
//! is told next is [`mcs_core::watch`]'s decision, what becomes of the watch is told by its [`Record`].
//!
//! Rejected: a channel for each watcher (memory for each slow one), a snapshot taken at once (the same).

mod record;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use mcs_core::ids::{Build, ClusterId, Epoch};
use mcs_core::model::{Frame, Since};
use mcs_core::timing::Timing;
use mcs_core::watch::{Told, Watcher};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::frames::steps;
use mcs_runtime::shutdown::Drain;
use tokio::sync::watch;
use tokio::time::{Interval, interval};
use tonic::Status;

use self::record::Record;
use crate::clusterset::{Clusterset, Reached};
use crate::error::Error;
use crate::metrics::Watches;
use crate::shown::{Kept, Shown};

/// At most this many bytes are taken from the log at once, one object excepted.
const BATCH_BYTES: usize = 64 * 1024;

/// What is asked for.
pub(crate) struct Request {
    /// The cluster that watches.
    pub(crate) importer: ClusterId,
    /// The registry process and the revision that it wants to go on from.
    pub(crate) from: Option<(Epoch, u64)>,
    /// What it has, if it is to begin anew.
    pub(crate) since: Since,
}

struct Streamed {
    clusterset: Arc<Clusterset>,
    watcher: Watcher,
    build: Build,
    batch: VecDeque<EncodedStep>,
    /// Whether the log may have more for it than is in the batch.
    behind: bool,
    changes: watch::Receiver<Reached>,
    /// Ticks when nothing was told for so long that the stream looks dead.
    progress: Interval,
    record: Record,
    shutdown: Drain,
    /// Waits for the drain, in one place for the whole of the watch: all watchers wait at the same one.
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

/// Watches a clusterset. The stream ends with the drain.
pub(crate) fn stream(
    clusterset: Arc<Clusterset>,
    request: Request,
    watches: Watches,
    shutdown: Drain,
) -> impl Stream<Item = Result<EncodedStep, Status>> + Send + 'static {
    let Request { importer, from, since } = request;
    let (epoch, clock) = (clusterset.epoch(), Arc::clone(clusterset.clock()));
    let record = Record::opened(clusterset.id().clone(), importer.clone(), from, epoch, clock, watches);
    let resume = from.filter(|(of, _)| *of == epoch).map(|(_, revision)| revision);
    // A version that could not be named would be one that nobody has parts of.
    let build = Build::new(mcs_runtime::version()).unwrap_or_default();
    let streamed = Streamed {
        watcher: Watcher::new(importer, resume, since, &build),
        build,
        batch: VecDeque::new(),
        behind: true,
        changes: clusterset.changes(),
        progress: interval(Timing::of_lease(clusterset.lease()).progress()),
        record,
        draining: Box::pin(shutdown.draining_owned()),
        shutdown,
        ended: false,
        clusterset,
    };
    futures::stream::unfold(streamed, |mut streamed| async move { Some((streamed.next().await?, streamed)) })
}

impl Streamed {
    async fn next(&mut self) -> Option<Result<EncodedStep, Status>> {
        loop {
            if self.ended {
                return None;
            }
            if self.shutdown.is_draining() {
                self.ended = true;
                self.record.drains();
                return Some(Err(Error::Draining.into()));
            }
            if let Some(step) = self.batch.pop_front() {
                return Some(Ok(step));
            }
            if self.behind {
                self.changes.mark_unchanged();
                let clusterset = Arc::clone(&self.clusterset);
                self.behind = clusterset.shown(|shown| self.fill(shown));
                if !self.batch.is_empty() {
                    self.progress.reset();
                    let bytes = self.batch.iter().map(EncodedStep::len).sum();
                    self.record.tells(self.batch.len(), bytes, self.watcher.revision());
                }
                self.record.spared(self.watcher.spared());
                continue;
            }
            self.record.is_up_to_date();
            self.behind = true;
            tokio::select! {
                () = &mut self.draining => {}
                // It ends only with the clusterset, which this watcher holds.
                _ = self.changes.changed() => {}
                // That the stream lives is told by saying again whether the view is complete.
                _ = self.progress.tick() => self.watcher.remind(),
            }
        }
    }

    /// Takes the next batch from the log; says whether there may be more.
    fn fill(&mut self, shown: &Shown) -> bool {
        let Self { watcher, batch, record, build, clusterset, .. } = self;
        let encoded = |frame: Frame| steps(&frame).iter().map(EncodedStep::from).collect::<Vec<_>>();
        let mut bytes = 0;
        let take = |told: Told<'_, Kept>| {
            let before = batch.len();
            match told {
                Told::Begin => {
                    record.begins();
                    let (epoch, absent_grace) = (clusterset.epoch(), clusterset.absent_grace());
                    batch.extend(encoded(Frame::Begin { epoch, absent_grace, build: build.clone() }));
                }
                Told::Kept(cluster, set, version) => {
                    batch.extend(encoded(Frame::Kept { cluster: cluster.clone(), set, version }));
                }
                Told::State(revision, key, kept) => {
                    shown.tell(revision, key, kept, batch);
                }
                Told::End(revision, complete) => batch.extend(encoded(Frame::End { revision, complete })),
                Told::Progress(revision, complete) => {
                    batch.extend(encoded(Frame::Progress { revision, complete }));
                }
            }
            bytes += batch.range(before..).map(EncodedStep::len).sum::<usize>();
            if bytes < BATCH_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        watcher.tell(&shown.log, shown.complete, |cluster| shown.proven(cluster), take)
    }
}

#[cfg(test)]
mod tests;
