//! Why a call was not done: the one place where errors of the SDK are read.

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::{Action, Place};

/// A call was not done, or nobody knows whether it was ([`Why::TimedOut`], [`Why::Away`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} on {place}: {why}")]
pub struct Failed {
    /// What was to be done.
    pub action: Action,
    /// Where.
    pub place: Arc<Place>,
    /// Why it was not.
    pub why: Why,
}

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No answer in time.
    #[error("no answer within {limit:?}")]
    TimedOut {
        /// The limit that was over.
        limit: Duration,
    },
    /// It cannot be reached, or cannot do its work.
    #[error("DynamoDB cannot be used now: {reason}")]
    Away {
        /// What happened.
        reason: String,
    },
    /// It is asked for more than it can do.
    #[error("DynamoDB is asked for too much: {reason}")]
    Throttled {
        /// AWS's words.
        reason: String,
    },
    /// The table does not exist.
    #[error("there is no such table: create it, or name another one with {table_flag}")]
    NoTable {
        /// The flag of the table.
        table_flag: &'static str,
    },
    /// There are no credentials, or none that AWS takes.
    #[error("no AWS credentials that are taken: {reason}")]
    NoCredentials {
        /// What is wrong with them.
        reason: String,
    },
    /// A policy does not allow it.
    #[error("not allowed: let a policy grant dynamodb:{action} on the table ({reason})")]
    AccessDenied {
        /// What it does not allow.
        action: Action,
        /// AWS's words.
        reason: String,
    },
    /// AWS refuses it for another reason, and will do so until somebody changes something.
    #[error("refused ({code}): {reason}")]
    Refused {
        /// AWS's code.
        code: String,
        /// AWS's words.
        reason: String,
    },
}

impl Why {
    /// Whether the same call may succeed soon, without anybody's doing.
    pub const fn retry_helps(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Away { .. } | Self::Throttled { .. })
    }

    /// Reads an error of one try, which had `limit`.
    pub(super) fn read<E>(error: &SdkError<E>, action: Action, place: &Place, limit: Duration) -> Self
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        match error {
            SdkError::TimeoutError(_) => Self::TimedOut { limit },
            SdkError::DispatchFailure(failure) if failure.is_timeout() => Self::TimedOut { limit },
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                let code = answer.err().code().map_or_else(|| format!("HTTP {status}"), str::to_owned);
                let reason = one_line(answer.err().message().unwrap_or("no reason given"));
                Self::answered(status, code, reason, action, place)
            }
            other if credentials(other).is_some() => {
                Self::NoCredentials { reason: causes(credentials(other)) }
            }
            other => Self::Away { reason: causes(Some(other)) },
        }
    }

    fn answered(status: u16, code: String, reason: String, action: Action, place: &Place) -> Self {
        match code.as_str() {
            "ThrottlingException"
            | "Throttling"
            | "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "LimitExceededException"
            | "TransactionConflictException"
            | "ReplicatedWriteConflictException" => Self::Throttled { reason: format!("{code}: {reason}") },
            "TransactionCanceledException" if cancelled_for_load(&reason) => {
                Self::Throttled { reason: format!("{code}: {reason}") }
            }
            "ResourceNotFoundException" | "TableNotFoundException" => {
                Self::NoTable { table_flag: place.flags.table }
            }
            "AccessDeniedException" => Self::AccessDenied { action, reason },
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException" => Self::NoCredentials { reason: format!("{code}: {reason}") },
            _ if status >= 500 => Self::Away { reason: format!("{code}: {reason}") },
            _ => Self::Refused { code, reason },
        }
    }
}

/// Whether a transaction was cancelled for the load alone. The reason lists a code for each of its items.
fn cancelled_for_load(reason: &str) -> bool {
    let has = |code: &str| reason.contains(code);
    (has("ThrottlingError") || has("ProvisionedThroughputExceeded") || has("TransactionConflict"))
        && !has("ConditionalCheckFailed")
        && !has("ValidationError")
}

/// The failure to find credentials, if that is what an error comes of.
fn credentials<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<CredentialsError>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// An error and its causes in one line; of a cause that its parent has told already, nothing. Not the SDK's own way to
/// show causes: that adds requests and answers as a program has them, which may be long and hold anything.
fn causes(error: Option<&(dyn Error + 'static)>) -> String {
    let mut line = String::new();
    let mut cause = error;
    while let Some(error) = cause {
        let text = one_line(&error.to_string());
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        cause = error.source();
    }
    line
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
