//! What was refused, left out and repaired.

use mcs_core::validate::{Dropped, Refusal};
use prometheus::{Error, IntCounterVec};

use super::{New, labels};

/// What becomes of writes and syncs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writes {
    refused: IntCounterVec,
    dropped: IntCounterVec,
    synced: IntCounterVec,
}

/// What a sync did with an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its owner has it.
    Named,
    /// The registry did not hold it as its owner has it.
    Wanted,
    /// The registry held it, and its owner does not have it.
    Deleted,
}

impl Fate {
    const ALL: [Self; 3] = [Self::Named, Self::Wanted, Self::Deleted];

    const fn label(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Wanted => "wanted",
            Self::Deleted => "deleted",
        }
    }
}

impl Writes {
    pub(super) fn register(new: &New<'_>) -> Result<Self, Error> {
        Ok(Self {
            refused: new.counters(
                "exports_refused_total",
                "Exports that were refused when they were put, by the field",
                "field",
                labels::EXPORT_FIELDS,
            )?,
            dropped: new.counters(
                "endpoints_dropped_total",
                "Endpoints that were left out when they were put, by the field",
                "field",
                labels::ENDPOINT_FIELDS,
            )?,
            synced: new.counters(
                "sync_exports_total",
                "Exports that syncs named, that the registry wanted of these, and that it deleted",
                "fate",
                &Fate::ALL.map(Fate::label),
            )?,
        })
    }

    /// An export was refused.
    pub(super) fn refused(&self, refusal: &Refusal) {
        self.refused.with_label_values(&[labels::export_field(&refusal.field)]).inc();
    }

    /// An endpoint was left out.
    pub(crate) fn dropped(&self, dropped: &Dropped) {
        self.dropped.with_label_values(&[labels::endpoint_field(&dropped.field)]).inc();
    }

    /// A sync did this with so many exports.
    pub(crate) fn synced(&self, fate: Fate, exports: usize) {
        self.synced.with_label_values(&[fate.label()]).inc_by(exports as u64);
    }
}
