//! What watchers were told, and how their streams ended.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge};

use super::New;

/// What becomes of watches. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watches {
    snapshots: IntCounterVec,
    resumed: IntCounter,
    messages: IntCounter,
    bytes: IntCounter,
    spared: IntCounter,
    ended: IntCounterVec,
    behind: IntGauge,
}

/// Why a watcher is told a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// It named no revision.
    New,
    /// It named a revision of another registry process.
    OtherEpoch,
    /// The log had gone past the revision that it named.
    TooOld,
    /// It was so slow that the log went past it.
    Lagged,
}

impl Snapshot {
    const ALL: [Self; 4] = [Self::New, Self::OtherEpoch, Self::TooOld, Self::Lagged];

    const fn label(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::OtherEpoch => "other_epoch",
            Self::TooOld => "too_old",
            Self::Lagged => "lagged",
        }
    }
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The caller let go of it, or its connection ended.
    Caller,
    /// The registry ends.
    Drain,
}

impl Ended {
    const ALL: [Self; 2] = [Self::Caller, Self::Drain];

    /// As labels and logs say it.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Drain => "drain",
        }
    }
}

impl Watches {
    pub(super) fn register(new: &New<'_>) -> Result<Self, Error> {
        Ok(Self {
            snapshots: new.counters(
                "watch_snapshots_total",
                "Snapshots that watchers were told, by the reason",
                "cause",
                &Snapshot::ALL.map(Snapshot::label),
            )?,
            resumed: new.counter("watch_resumes_total", "Watches that went on from their revision")?,
            messages: new.counter("watch_messages_total", "Messages for watchers")?,
            bytes: new.counter("watch_bytes_total", "Bytes of the messages for watchers")?,
            spared: new.counter(
                "watch_parts_spared_total",
                "Endpoints of one cluster and Service that a watcher was not told since it has them",
            )?,
            ended: new.counters(
                "watches_ended_total",
                "Watches that ended, by the reason",
                "reason",
                &Ended::ALL.map(Ended::label),
            )?,
            behind: new.gauge("watchers_behind", "Watches that have not been told everything yet")?,
        })
    }

    /// A watcher is told a snapshot.
    pub(crate) fn begins(&self, cause: Snapshot) {
        self.snapshots.with_label_values(&[cause.label()]).inc();
    }

    /// A watcher goes on from its revision.
    pub(crate) fn resumes(&self) {
        self.resumed.inc();
    }

    /// A watcher is given messages.
    pub(crate) fn tells(&self, messages: usize, bytes: usize) {
        self.messages.inc_by(messages as u64);
        self.bytes.inc_by(bytes as u64);
    }

    /// A watcher is not told so many parts, since it has them.
    pub(crate) fn spares(&self, parts: usize) {
        self.spared.inc_by(parts as u64);
    }

    /// A watch ended.
    pub(crate) fn ends(&self, reason: Ended) {
        self.ended.with_label_values(&[reason.label()]).inc();
    }

    /// A watcher has something to be told, until this is dropped.
    pub(crate) fn behind(&self) -> Behind {
        self.behind.inc();
        Behind(self.behind.clone())
    }
}

/// A watcher that has something to be told.
pub(crate) struct Behind(IntGauge);

impl Drop for Behind {
    fn drop(&mut self) {
        self.0.dec();
    }
}
