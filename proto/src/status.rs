//! Refusals ↔ gRPC codes with reasons, both ways. `docs/registry.md` (Codes) lists them, with what goes with each and what
//! a caller does.
//!
//! Reasons travel as `google.rpc.ErrorInfo`; people read the message, programs the code and the reason.

use mcs_core::ids::{ClusterId, ClusterUid};
use mcs_core::outbox::Failure;
use mcs_core::registry::{MAX_CLUSTERS, MAX_WRITES, Refused};
use mcs_core::text::shown;
use mcs_core::validate::Refusal;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of all reasons.
pub const DOMAIN: &str = "mcs-registry.dynamo.nvidia.com";

const INVALID_FIELD: &str = "INVALID_FIELD";
const OLD_TERM: &str = "OLD_TERM";
const CLAIMED: &str = "CLAIMED";
const UNKNOWN_CLUSTER: &str = "UNKNOWN_CLUSTER";
const LEASE_ACTIVE: &str = "LEASE_ACTIVE";
const LIMIT: &str = "LIMIT";
const DENIED: &str = "DENIED";
const NO_SYNC: &str = "NO_SYNC";
const UNAVAILABLE: &str = "UNAVAILABLE";

/// Too much at once: the same may pass a moment later.
pub const BUSY: &str = "BUSY";
/// No room in this registry process: another one may have some.
pub const FULL: &str = "FULL";
/// An export or import is not there.
pub const ABSENT: &str = "ABSENT";
/// A path is not served.
pub const NO_ROUTE: &str = "NO_ROUTE";
/// A method is not served at a path.
pub const NO_METHOD: &str = "NO_METHOD";
/// A body is not JSON.
pub const MEDIA_TYPE: &str = "MEDIA_TYPE";
/// A request comes too slowly.
pub const TOO_SLOW: &str = "TOO_SLOW";
/// The caller's time for a call has passed.
pub const LATE: &str = "LATE";

fn with_reason<const N: usize>(
    code: Code,
    message: String,
    reason: &str,
    metadata: [(&str, String); N],
) -> Status {
    let metadata: HashMap<_, _> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, metadata))
}

/// A request with a field that is wrong.
pub fn invalid(error: &Refusal) -> Status {
    let metadata = [("field", error.field.clone()), ("problem", error.problem.clone())];
    with_reason(Code::InvalidArgument, error.to_string(), INVALID_FIELD, metadata)
}

/// An act that the registry refuses as a whole.
pub fn refused(refused: &Refused) -> Status {
    let message = refused.to_string();
    match refused {
        Refused::OldTerm { floor, .. } => {
            with_reason(Code::FailedPrecondition, message, OLD_TERM, [("floor", floor.to_string())])
        }
        Refused::Claimed { cluster, holder, caller } => claimed(message, cluster, holder, caller),
        Refused::Unknown { cluster } => {
            with_reason(Code::NotFound, message, UNKNOWN_CLUSTER, [("cluster", cluster.to_string())])
        }
        Refused::Active { cluster } => {
            with_reason(Code::FailedPrecondition, message, LEASE_ACTIVE, [("cluster", cluster.to_string())])
        }
        Refused::TooManyClusters { limit } => self::limit(message, MAX_CLUSTERS, *limit),
        Refused::TooManyWrites { per_second, .. } => {
            let most = usize::try_from(*per_second).unwrap_or(usize::MAX);
            busy(message, MAX_WRITES, most)
        }
        Refused::NoSync { cluster, .. } => {
            with_reason(Code::Aborted, message, NO_SYNC, [("cluster", cluster.to_string())])
        }
    }
}

/// An id that another cluster has: `holder`, where `caller` named itself or was named.
pub fn claimed(message: String, cluster: &ClusterId, holder: &ClusterUid, caller: &ClusterUid) -> Status {
    let metadata =
        [("cluster", cluster.to_string()), ("holder", holder.to_string()), ("caller", caller.to_string())];
    with_reason(Code::AlreadyExists, message, CLAIMED, metadata)
}

/// A limit of the registry, by its name.
pub fn limit(message: String, limit: &str, most: usize) -> Status {
    let metadata = [("limit", limit.to_owned()), ("most", most.to_string())];
    with_reason(Code::ResourceExhausted, message, LIMIT, metadata)
}

/// What this registry process has room for; another one may have more.
pub fn full(message: String, limit: &str, most: usize) -> Status {
    let metadata = [("limit", limit.to_owned()), ("most", most.to_string())];
    with_reason(Code::ResourceExhausted, message, FULL, metadata)
}

/// What this registry process has no room for now; it soon will.
pub fn busy(message: String, limit: &str, most: usize) -> Status {
    let metadata = [("limit", limit.to_owned()), ("most", most.to_string())];
    with_reason(Code::ResourceExhausted, message, BUSY, metadata)
}

/// Something that the caller's certificate does not allow.
pub fn denied(message: impl Into<String>) -> Status {
    with_reason(Code::PermissionDenied, message.into(), DENIED, [])
}

/// A request that does not reach a call, by one of the reasons above.
pub fn unserved(code: Code, reason: &str, message: String) -> Status {
    with_reason(code, message, reason, [])
}

/// The registry cannot answer now; another one may.
pub fn unavailable(message: impl Into<String>) -> Status {
    with_reason(Code::Unavailable, message.into(), UNAVAILABLE, [])
}

/// Why a call to a registry gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// A field of the request is wrong.
    #[error("the registry refuses {field}: {problem}")]
    Invalid {
        /// The field.
        field: String,
        /// The rule it breaks.
        problem: String,
    },
    /// A leader with a higher term has written.
    #[error("the registry has seen term {floor}: another leader of this cluster has written")]
    OldTerm {
        /// The highest term seen.
        floor: u64,
    },
    /// Another cluster has this id.
    #[error("{message}")]
    Claimed {
        /// The registry's words, with both UIDs.
        message: String,
    },
    /// The registry does not know the cluster.
    #[error("the registry does not know this cluster")]
    UnknownCluster,
    /// The cluster's lease is active, so that it is not removed.
    #[error("{message}")]
    LeaseActive {
        /// The registry's words.
        message: String,
    },
    /// A limit of the registry.
    #[error("{message}")]
    Limit {
        /// The registry's words, with the limit's name.
        message: String,
    },
    /// The registry takes no more of this cluster now.
    #[error("{message}")]
    Busy {
        /// The registry's words, with the limit's name.
        message: String,
    },
    /// The caller may not do this.
    #[error("the registry denies it: {message}")]
    Denied {
        /// The registry's words.
        message: String,
    },
    /// No registry, or none that can do its work now.
    #[error("the registry did not answer as it should ({code:?}): {message}")]
    Unavailable {
        /// The gRPC code.
        code: Code,
        /// What happened.
        message: String,
    },
    /// No connection to the registry.
    #[cfg(feature = "client")]
    #[error(transparent)]
    NotConnected(#[from] crate::connect::NotConnected),
    /// No answer in time.
    #[error("the registry did not answer within {limit:?}")]
    TimedOut {
        /// The limit of the call.
        limit: Duration,
    },
    /// An answer that cannot be read.
    #[error("the registry's answer cannot be read: {0}")]
    Unreadable(#[from] Refusal),
}

/// The kinds of failures that are none of a connection.
#[cfg(feature = "client")]
const LABELS: [&str; 11] = [
    "invalid",
    "old_term",
    "claimed",
    "unknown_cluster",
    "lease_active",
    "limit",
    "busy",
    "denied",
    "unavailable",
    "timeout",
    "unreadable",
];

impl CallFailed {
    /// All kinds of failures that there are, see [`CallFailed::label`].
    #[cfg(feature = "client")]
    pub fn labels() -> impl Iterator<Item = &'static str> {
        LABELS.into_iter().chain(crate::connect::Fault::ALL.map(crate::connect::Fault::label))
    }

    /// The kind of failure, for metrics: a closed set.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::OldTerm { .. } => "old_term",
            Self::Claimed { .. } => "claimed",
            Self::UnknownCluster => "unknown_cluster",
            Self::LeaseActive { .. } => "lease_active",
            Self::Limit { .. } => "limit",
            Self::Busy { .. } => "busy",
            Self::Denied { .. } => "denied",
            Self::Unavailable { .. } => "unavailable",
            #[cfg(feature = "client")]
            Self::NotConnected(not) => not.fault.label(),
            Self::TimedOut { .. } => "timeout",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// Whether the connection may be to blame, so that the next call is to have a new one: a peer that only seems to live,
    /// or a certificate that was shown and has been replaced since.
    pub const fn blames_connection(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } | Self::Denied { .. } => true,
            #[cfg(feature = "client")]
            Self::NotConnected(_) => true,
            _ => false,
        }
    }
}

/// The most bytes of a peer's words: they end in logs, events and conditions.
const MAX_WORDS: usize = 1_000;

impl From<Status> for CallFailed {
    fn from(status: Status) -> Self {
        let message = shown(status.message(), MAX_WORDS);
        let (reason, metadata) =
            status.get_details_error_info().map(|info| (info.reason, info.metadata)).unwrap_or_default();
        let value = |name: &str| metadata.get(name).map_or_else(String::new, |value| shown(value, MAX_WORDS));
        match (status.code(), reason.as_str()) {
            (Code::InvalidArgument, INVALID_FIELD) => {
                Self::Invalid { field: value("field"), problem: value("problem") }
            }
            (Code::InvalidArgument | Code::OutOfRange, _) => {
                Self::Invalid { field: "the request".to_owned(), problem: message }
            }
            (Code::FailedPrecondition, OLD_TERM) => match value("floor").parse() {
                Ok(floor) => Self::OldTerm { floor },
                Err(_) => Self::Unavailable { code: status.code(), message },
            },
            (Code::FailedPrecondition, LEASE_ACTIVE) => Self::LeaseActive { message },
            (Code::AlreadyExists, _) => Self::Claimed { message },
            (Code::NotFound, UNKNOWN_CLUSTER) => Self::UnknownCluster,
            (Code::ResourceExhausted, LIMIT) => Self::Limit { message },
            (Code::ResourceExhausted, BUSY) => Self::Busy { message },
            (Code::Unauthenticated | Code::PermissionDenied, _) => Self::Denied { message },
            (code, _) => Self::Unavailable { code, message: with_sources(&status, message) },
        }
    }
}

/// A transport's status says little by itself ("transport error"); its sources say what happened.
fn with_sources(status: &Status, mut message: String) -> String {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let text = shown(&error.to_string(), MAX_WORDS);
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = error.source();
    }
    message
}

impl From<CallFailed> for Failure {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::UnknownCluster => Self::UnknownMember,
            CallFailed::OldTerm { floor } => Self::OldTerm { floor },
            CallFailed::Invalid { .. }
            | CallFailed::Claimed { .. }
            | CallFailed::LeaseActive { .. }
            | CallFailed::Limit { .. } => Self::Refused { reason: failed.to_string() },
            CallFailed::Busy { message } => Self::Busy { reason: message },
            CallFailed::Denied { .. } => Self::Denied { reason: failed.to_string() },
            CallFailed::Unavailable { .. } | CallFailed::TimedOut { .. } | CallFailed::Unreadable(_) => {
                Self::Unavailable { reason: failed.to_string() }
            }
            #[cfg(feature = "client")]
            CallFailed::NotConnected(_) => Self::Unavailable { reason: failed.to_string() },
        }
    }
}
