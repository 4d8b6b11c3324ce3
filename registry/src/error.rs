//! What can go wrong in a use case, and how each transport says it: one gRPC status, and the HTTP code that goes with
//! its code.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use mcs_core::ids::{ClusterId, ClusterUid};
use mcs_core::registry::{MAX_EXPORTS, Refused};
use mcs_core::validate::Refusal;
use mcs_proto::status;
use mcs_runtime::http::{Crowded, Cut, NoPlace, NotWhole, TooSlow};
use tonic::{Code, Status};

use crate::caller::Denied;
use crate::limits::Limit;
use crate::store::Failed;

/// What a call has too much of: limits that are not of one clusterset or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Clustersets in which clusters registered.
    Clustersets,
    /// Other clustersets that are watched.
    WatchedClustersets,
    /// Changes in one write.
    WriteChanges,
    /// Bytes of one write.
    WriteBytes,
    /// Exports that one sync names.
    SyncNames,
    /// Bytes of one answer.
    AnswerBytes,
}

impl Excess {
    /// The limit.
    const fn limit(self) -> Limit {
        match self {
            Self::Clustersets | Self::WatchedClustersets => Limit::Clustersets,
            Self::WriteChanges => Limit::WriteChanges,
            Self::WriteBytes => Limit::WriteBytes,
            Self::SyncNames => Limit::SyncNames,
            Self::AnswerBytes => Limit::AnswerBytes,
        }
    }

    /// What there is too much of, and what helps. `most` is what this registry takes.
    fn told(self, most: usize) -> String {
        const MOST: &str = "the most that this registry takes";
        match self {
            Self::Clustersets => {
                format!(
                    "clusters of {most} clustersets have registered, {MOST}: another registry may take others"
                )
            }
            Self::WatchedClustersets => format!(
                "{most} clustersets are watched in which no cluster registered, {MOST}: end other watches, or \
                 register first"
            ),
            Self::WriteChanges => format!("this write has more than {most} changes, {MOST}: send several"),
            Self::WriteBytes => format!("this write has more than {most} bytes, {MOST}: send several"),
            Self::SyncNames => format!(
                "this sync names more than {most} exports, {MOST}: twice what a cluster may export \
                 (--{MAX_EXPORTS})"
            ),
            Self::AnswerBytes => {
                format!("this answer has more than {most} bytes, {MOST}: read the list, which has pages")
            }
        }
    }
}

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A field is wrong.
    #[error(transparent)]
    Invalid(#[from] Refusal),
    /// The act is refused as a whole.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The caller's certificate does not allow it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// A limit that is not of one clusterset.
    #[error("{}", .excess.told(*.most))]
    TooMuch {
        /// Of what.
        excess: Excess,
        /// The most.
        most: usize,
    },
    /// The only change of a call is refused, since the cluster has as many exports as it may.
    #[error("{problem}")]
    TooManyExports {
        /// What the change was refused for.
        problem: String,
        /// The most.
        most: usize,
    },
    /// Too many large answers are being read.
    #[error("{most} large answers are being read, as many as may be at once: try again soon")]
    ManyAnswers {
        /// The most.
        most: usize,
    },
    /// This process has no room for it.
    #[error(
        "this registry has {most} {what} open, the most that it takes (--{flag}): go on with another, or try again later",
        flag = .limit.name()
    )]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: Limit,
        /// The most.
        most: usize,
    },
    /// The caller said nothing for too long.
    #[error("nothing came for {limit:?}: begin again")]
    Stalled {
        /// How long it was waited for.
        limit: Duration,
    },
    /// The caller's time for the call has passed.
    #[error("the time of this call is over: its caller gave it {given:?} (grpc-timeout)")]
    Late {
        /// What the caller gave it.
        given: Duration,
    },
    /// The caller's stream broke, or a message of it could not be taken: the transport says why.
    #[error("the stream broke: {}", .0.message())]
    Stream(Status),
    /// What the store holds of the clusterset could not be read.
    #[error("what is stored of the clusterset cannot be read now: try again")]
    Store(#[from] Failed),
    /// The store does not take what it is given, and no more of it can be kept meanwhile.
    #[error(
        "{waiting} records wait for a store that does not take them, the most that this registry keeps: send this \
         again later, here or to another one"
    )]
    Behind {
        /// How many.
        waiting: usize,
    },
    /// A message is larger than the registry reads.
    #[error(
        "a message has at most {most} bytes here (--max-message-bytes); larger sets of endpoints go in chunks"
    )]
    TooLarge {
        /// The most bytes.
        most: usize,
    },
    /// A body came too slowly.
    #[error(transparent)]
    TooSlow(TooSlow),
    /// Requests under way hold too much.
    #[error(transparent)]
    Crowded(Crowded),
    /// A body that is not JSON.
    #[error("{problem}")]
    Media {
        /// The header, and what it should be.
        problem: &'static str,
    },
    /// Only another cluster of this id was to be removed.
    #[error(
        "cluster id {cluster} is that of the cluster with UID {holder}, not of that with UID {wanted}: nothing was removed"
    )]
    Another {
        /// The id.
        cluster: ClusterId,
        /// The UID of the cluster that has it.
        holder: ClusterUid,
        /// The UID of the one that was to be removed.
        wanted: ClusterUid,
    },
    /// Something that could be there.
    #[error("there is no {what}")]
    Absent {
        /// What it would be, with its name.
        what: String,
    },
    /// A path that is not served.
    #[error("nothing is served at this path; GET / says what is served")]
    NoRoute,
    /// A method that is not served at a path.
    #[error("this path takes {allowed}")]
    NoMethod {
        /// Those that are.
        allowed: String,
    },
    /// The registry ends.
    #[error("this registry is shutting down: go on with another, or with this one once it is back")]
    Draining,
}

impl Error {
    /// Why the transport gives no more messages of a request; it reads none above `most` bytes.
    pub(crate) fn of_stream(broken: Status, most: usize) -> Self {
        match broken.code() {
            // It says so of such a message alone.
            Code::OutOfRange => Self::TooLarge { most },
            _ => Self::Stream(broken),
        }
    }

    /// Why the body of a request cannot be read on, where this process ended it.
    pub(crate) fn of_body(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        Cut::of(error).map(Self::from)
    }

    /// The limit that was hit.
    pub(crate) const fn limit(&self) -> Option<Limit> {
        match self {
            Self::TooMuch { excess, .. } => Some(excess.limit()),
            Self::Full { limit, .. } => Some(*limit),
            Self::TooLarge { .. } => Some(Limit::MessageBytes),
            Self::Crowded(_) => Some(Limit::RequestBytes),
            Self::ManyAnswers { .. } => Some(Limit::LargeAnswers),
            Self::Refused(Refused::TooManyClusters { .. }) => Some(Limit::Clusters),
            Self::Refused(Refused::TooManyWrites { .. }) => Some(Limit::Writes),
            // It was counted with the refusal of the change.
            Self::TooManyExports { .. }
            | Self::Invalid(_)
            | Self::Refused(_)
            | Self::Denied(_)
            | Self::Stream(_)
            | Self::Store(_)
            | Self::Behind { .. }
            | Self::Stalled { .. }
            | Self::Late { .. }
            | Self::TooSlow(_)
            | Self::Media { .. }
            | Self::Another { .. }
            | Self::Absent { .. }
            | Self::NoRoute
            | Self::NoMethod { .. }
            | Self::Draining => None,
        }
    }
}

impl From<Cut> for Error {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::TooSlow(slow) => Self::TooSlow(slow),
            Cut::Crowded(crowded) => Self::Crowded(crowded),
        }
    }
}

impl From<NotWhole> for Error {
    fn from(why: NotWhole) -> Self {
        match why {
            NotWhole::TooLarge { most } => Self::TooLarge { most },
            NotWhole::Cut(cut) => cut.into(),
            NotWhole::Broken { .. } => Self::Stream(Status::cancelled(why.to_string())),
        }
    }
}

impl From<NoPlace> for Error {
    fn from(NoPlace { most }: NoPlace) -> Self {
        Self::Full { what: "streams", limit: Limit::Streams, most }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        let limit = |limit: Limit, most| status::limit(error.to_string(), limit.name(), most);
        let busy = |limit: Limit, most| status::busy(error.to_string(), limit.name(), most);
        match error {
            Error::Invalid(invalid) => status::invalid(invalid),
            Error::Refused(refused) => status::refused(refused),
            Error::Denied(denied) => status::denied(denied.to_string()),
            Error::TooMuch { excess, most } => limit(excess.limit(), *most),
            Error::TooManyExports { most, .. } => limit(Limit::Exports, *most),
            Error::ManyAnswers { most } => busy(Limit::LargeAnswers, *most),
            Error::Full { limit, most, .. } => status::full(error.to_string(), limit.name(), *most),
            Error::Stalled { .. } | Error::TooSlow(_) => {
                status::unserved(Code::DeadlineExceeded, status::TOO_SLOW, error.to_string())
            }
            Error::Late { .. } => status::unserved(Code::DeadlineExceeded, status::LATE, error.to_string()),
            Error::Stream(broken) => {
                // The reason is not lost.
                let details = Bytes::copy_from_slice(broken.details());
                Self::with_details(broken.code(), error.to_string(), details)
            }
            Error::TooLarge { most } => limit(Limit::MessageBytes, *most),
            Error::Crowded(Crowded { most }) => busy(Limit::RequestBytes, *most),
            Error::Media { .. } => {
                status::unserved(Code::InvalidArgument, status::MEDIA_TYPE, error.to_string())
            }
            Error::Another { cluster, holder, wanted } => {
                status::claimed(error.to_string(), cluster, holder, wanted)
            }
            Error::Absent { .. } => status::unserved(Code::NotFound, status::ABSENT, error.to_string()),
            Error::NoRoute => status::unserved(Code::NotFound, status::NO_ROUTE, error.to_string()),
            Error::NoMethod { .. } => {
                status::unserved(Code::Unimplemented, status::NO_METHOD, error.to_string())
            }
            Error::Store(_) | Error::Behind { .. } | Error::Draining => {
                status::unavailable(error.to_string())
            }
        }
    }
}

impl Error {
    /// The HTTP code: where HTTP knows more than gRPC's codes do, that; else the one that goes with the gRPC code.
    pub(crate) const fn http_code(&self, code: Code) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Stalled { .. } | Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Media { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            _ => http_code(code),
        }
    }
}

/// The HTTP code that goes with a gRPC code (the mapping of google.rpc.Code).
const fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use mcs_core::ids::ClustersetId;

    use mcs_runtime::http::Pace;

    use super::*;
    use crate::caller::{Caller, Remover};

    #[test]
    fn every_error_has_its_code_on_both_transports() {
        let cluster = || ClusterId::new("east").unwrap();
        let uid = |uid: &str| ClusterUid::new(uid).unwrap();
        let prod = ClustersetId::new("prod").unwrap();
        let denied = Remover::called_by(&Caller::Nobody, prod, cluster()).unwrap_err();
        let cases = [
            (denied, Code::PermissionDenied, 403),
            (Error::Invalid(Refusal::missing("version")), Code::InvalidArgument, 400),
            (
                Refused::OldTerm { cluster: cluster(), term: 1, floor: 2 }.into(),
                Code::FailedPrecondition,
                400,
            ),
            (
                Refused::Claimed { cluster: cluster(), holder: uid("u-1"), caller: uid("u-2") }.into(),
                Code::AlreadyExists,
                409,
            ),
            (Refused::Unknown { cluster: cluster() }.into(), Code::NotFound, 404),
            (Refused::Active { cluster: cluster() }.into(), Code::FailedPrecondition, 400),
            (Refused::TooManyClusters { limit: 1 }.into(), Code::ResourceExhausted, 429),
            (
                Refused::TooManyWrites { cluster: cluster(), per_second: 1, retry_after: Duration::ZERO }
                    .into(),
                Code::ResourceExhausted,
                429,
            ),
            (Error::TooMuch { excess: Excess::Clustersets, most: 1 }, Code::ResourceExhausted, 429),
            (
                Error::TooManyExports { problem: "the cluster has 1".to_owned(), most: 1 },
                Code::ResourceExhausted,
                429,
            ),
            (Error::ManyAnswers { most: 1 }, Code::ResourceExhausted, 429),
            (Error::Full { what: "streams", limit: Limit::Streams, most: 1 }, Code::ResourceExhausted, 429),
            (Error::Stalled { limit: Duration::from_secs(15) }, Code::DeadlineExceeded, 408),
            (Error::Late { given: Duration::from_secs(1) }, Code::DeadlineExceeded, 504),
            (Error::Stream(Status::cancelled("gone")), Code::Cancelled, 500),
            (Error::of_stream(Status::aborted("gone"), 1), Code::Aborted, 409),
            (Error::of_stream(Status::out_of_range("too large"), 1), Code::ResourceExhausted, 413),
            (Error::Store(Failed::Throttled { reason: "rate".to_owned() }), Code::Unavailable, 503),
            (Error::Behind { waiting: 1 }, Code::Unavailable, 503),
            (Error::TooLarge { most: 1 }, Code::ResourceExhausted, 413),
            (Error::Crowded(Crowded { most: 1 }), Code::ResourceExhausted, 429),
            (Error::TooSlow(TooSlow { pace: Pace::default(), got: 1 }), Code::DeadlineExceeded, 408),
            (Error::Media { problem: "content-type" }, Code::InvalidArgument, 415),
            (
                Error::Another { cluster: cluster(), holder: uid("u-1"), wanted: uid("u-2") },
                Code::AlreadyExists,
                409,
            ),
            (Error::Absent { what: "import shop/cart".to_owned() }, Code::NotFound, 404),
            (Error::NoRoute, Code::NotFound, 404),
            (Error::NoMethod { allowed: "GET".to_owned() }, Code::Unimplemented, 405),
            (Error::Draining, Code::Unavailable, 503),
        ];
        for (error, code, http) in cases {
            let told = error.to_string();
            let status = Status::from(&error);
            let http_code = error.http_code(status.code()).as_u16();
            assert_eq!((status.code(), http_code, status.message()), (code, http, &*told));
        }
    }
}
