//! What becomes of one watch: its two lines of the log, and what it adds to the metrics.

use std::sync::Arc;

use mcs_core::ids::{ClusterId, ClustersetId, Epoch};
use mcs_core::time::{Clock, Timestamp};
use tracing::info;

use crate::metrics::{Behind, Ended, Snapshot, Watches};

/// A watch from its first message to its end, which is when this is dropped.
pub(super) struct Record {
    clusterset: ClustersetId,
    importer: ClusterId,
    watches: Watches,
    clock: Arc<dyn Clock>,
    opened: Timestamp,
    begin: Begin,
    behind: Option<Behind>,
    ended: Ended,
    /// The revision reached.
    revision: u64,
    snapshots: u64,
    messages: usize,
    bytes: usize,
    spared: usize,
}

/// How a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// It goes on, unless a snapshot is told first, for this reason.
    Resume(Snapshot),
    /// With a snapshot, for this reason.
    Anew(Snapshot),
    /// It has begun.
    Over,
}

impl Record {
    /// A watch is opened, with the revision of the registry process that it wants to go on from; `epoch` is this one.
    pub(super) fn opened(
        clusterset: ClustersetId,
        importer: ClusterId,
        from: Option<(Epoch, u64)>,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        watches: Watches,
    ) -> Self {
        let begin = match from {
            None => Begin::Anew(Snapshot::New),
            Some((of, _)) if of != epoch => Begin::Anew(Snapshot::OtherEpoch),
            Some(_) => Begin::Resume(Snapshot::TooOld),
        };
        let from = from.map(|(_, revision)| revision);
        info!(%clusterset, cluster = %importer, from, "watch opened");
        Self {
            clusterset,
            importer,
            watches,
            opened: clock.elapsed(),
            clock,
            begin,
            behind: None,
            ended: Ended::Caller,
            revision: 0,
            snapshots: 0,
            messages: 0,
            bytes: 0,
            spared: 0,
        }
    }

    /// A snapshot is told.
    pub(super) fn begins(&mut self) {
        let cause = match std::mem::replace(&mut self.begin, Begin::Over) {
            Begin::Resume(cause) | Begin::Anew(cause) => cause,
            Begin::Over => Snapshot::Lagged,
        };
        self.snapshots += 1;
        self.watches.begins(cause);
        if cause == Snapshot::Lagged {
            info!(
                clusterset = %self.clusterset, cluster = %self.importer, revision = self.revision,
                "watch begins anew: the log has forgotten what it was to be told"
            );
        }
    }

    /// It is told these messages, and will have been told everything up to `revision`.
    pub(super) fn tells(&mut self, messages: usize, bytes: usize, revision: u64) {
        if matches!(self.begin, Begin::Resume(_)) {
            self.begin = Begin::Over;
            self.watches.resumes();
        }
        self.revision = self.revision.max(revision);
        self.messages += messages;
        self.bytes += bytes;
        self.watches.tells(messages, bytes);
        self.behind.get_or_insert_with(|| self.watches.behind());
    }

    /// So many parts were not told in all, since it has them.
    pub(super) fn spared(&mut self, parts: usize) {
        self.watches.spares(parts - self.spared);
        self.spared = parts;
    }

    /// It was told everything.
    pub(super) fn is_up_to_date(&mut self) {
        self.behind = None;
    }

    /// The registry ends it.
    pub(super) const fn drains(&mut self) {
        self.ended = Ended::Drain;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.watches.ends(self.ended);
        let lasted = self.clock.elapsed().since(self.opened);
        info!(
            clusterset = %self.clusterset, cluster = %self.importer, by = self.ended.label(), ?lasted,
            revision = self.revision, snapshots = self.snapshots, messages = self.messages, bytes = self.bytes,
            spared = self.spared,
            "watch closed"
        );
    }
}
