//! What is read of what other replicas changed, and what the store lost.

use prometheus::{Error, IntCounter};

use super::New;

/// What becomes of what other replicas say. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replicated {
    full_reads: IntCounter,
    torn: IntCounter,
    rewritten: IntCounter,
}

impl Replicated {
    pub(super) fn register(new: &New<'_>) -> Result<Self, Error> {
        Ok(Self {
            full_reads: new.counter(
                "full_reads_total",
                "Reads of the records of all clusters of a clusterset, besides those of what was named",
            )?,
            torn: new.counter(
                "exports_torn_total",
                "Reads of exports of which parts were not there yet, so that the state before stands",
            )?,
            rewritten: new.counter(
                "clusters_rewritten_total",
                "Clusters of which records were written again that the store had lost or held older",
            )?,
        })
    }

    /// What was to be read was read: of all clusters or those named, with so many torn exports, and so many clusters of
    /// which something is to be written again.
    pub(crate) fn read(&self, all: bool, torn: usize, rewritten: usize) {
        self.full_reads.inc_by(u64::from(all));
        self.torn.inc_by(torn as u64);
        self.rewritten.inc_by(rewritten as u64);
    }
}
