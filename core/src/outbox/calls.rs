//! What an outbox asks its driver to do, and what it is told of it.

use crate::ids::{Build, Epoch, ServiceKey};
use crate::model::HeldExport;
use crate::registry::Op;
use crate::validate::Refusal;
use crate::version::{Leaf, Sum, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// A call to make: a Renew to the registry of [`super::Outbox::url`], an act to that of [`super::Outbox::act_url`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Ask for membership and compare sums.
    Register {
        /// The version of this act.
        version: Version,
        /// The sum of what the cluster exports.
        sum: Sum,
    },
    /// Renew the lease and compare sums.
    Renew {
        /// The version of the set that was told.
        version: Version,
        /// Its sum.
        sum: Sum,
    },
    /// Tell changes.
    Write {
        /// The version of this act.
        version: Version,
        /// The changes; each key once.
        ops: Vec<Op>,
    },
    /// Make the registry hold the whole set; answer its wants with [`super::Outbox::sync_ops`].
    Sync {
        /// The version of this act.
        version: Version,
        /// All exports with their content hashes.
        names: Vec<(ServiceKey, Leaf)>,
    },
}

/// Why the whole set is compared with a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncCause {
    /// This leader has registered for the first time, and the registry holds something else.
    Start,
    /// This leader has registered again, here or at another registry, and that holds something else.
    Registered,
    /// A renewal said that the registry holds something else.
    Renewed,
    /// The registry did not take endpoints, since it has not the definition that it was believed to have.
    Refused,
    /// The registry's version has changed: fields that an earlier one dropped are in no sum.
    Version,
}

impl SyncCause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Start, Self::Registered, Self::Renewed, Self::Refused, Self::Version];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Registered => "registered",
            Self::Renewed => "renewal_differs",
            Self::Refused => "write_refused",
            Self::Version => "registry_version",
        }
    }
}

/// What became of one export in a Write or Sync.
pub type OpAnswer = (ServiceKey, Result<(), Refusal>);

/// A registry process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its name; none where it shares its store with others, so that any of them may answer.
    pub epoch: Option<Epoch>,
    /// Its version; empty where it does not say.
    pub build: Build,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a Register.
    Registered {
        /// Whether the registry holds something else.
        differs: bool,
        /// How long a renewal holds.
        lease: Duration,
        /// Who answered.
        by: Process,
    },
    /// To a Renew.
    Renewed {
        /// Whether the registry holds something else.
        differs: bool,
        /// Whether the registry's store is away.
        degraded: bool,
        /// How long a renewal holds.
        lease: Duration,
        /// Who answered.
        by: Process,
    },
    /// To a Write.
    Written(Vec<OpAnswer>),
    /// To a Sync.
    Synced {
        /// What became of the exports that were wanted.
        results: Vec<OpAnswer>,
        /// What stands of those that were refused.
        held: BTreeMap<ServiceKey, HeldExport>,
    },
    /// An act (Register, Write, Sync) failed.
    ActFailed(Failure),
    /// A Renew failed.
    RenewFailed(Failure),
}

/// Why a call failed, as far as what to do next depends on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The registry does not know this cluster: register.
    #[error("the registry does not know this cluster")]
    UnknownMember,
    /// A leader with a higher term has written: raise the term above it, or stop.
    #[error("a leader with term {floor} has written to the registry")]
    OldTerm {
        /// The highest term that the registry saw.
        floor: u64,
    },
    /// The registry will not have this cluster, e.g. since another one uses its id; asking elsewhere does not help.
    #[error("{reason}")]
    Refused {
        /// The registry's words.
        reason: String,
    },
    /// The registry takes no more now; it will soon.
    #[error("{reason}")]
    Busy {
        /// The registry's words.
        reason: String,
    },
    /// This cluster may not use the registry, by its certificate; another registry may know it.
    #[error("{reason}")]
    Denied {
        /// The registry's words.
        reason: String,
    },
    /// The registry did not answer, or not usefully; another one may.
    #[error("{reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
}

/// How far an export has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The registry has not taken its last state yet.
    Pending,
    /// The registry holds its last state.
    Accepted,
    /// The registry refuses its last state.
    Refused(Refusal),
}
