//! Bodies of requests: what says that it is too long is refused before it is read, and what comes is bounded in bytes,
//! in time, in the speed at which it must come, and by what all bodies hold together.

use super::answer::Error;
use axum::body::{Body, Bytes, HttpBody};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mcs_runtime::http::{Budget, Crowded, Pace, TooSlow};
use std::time::Duration;

/// The bounds of bodies. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// The most bytes of one.
    pub(super) most: usize,
    /// The longest that one may take.
    pub(super) time: Duration,
    /// What all of them may hold.
    pub(super) together: Budget,
}

impl Bounds {
    /// Reads a body to its end.
    ///
    /// # Errors
    /// Which of the bounds it does not keep.
    pub(super) async fn read(&self, body: Body) -> Result<Bytes, Error> {
        let Self { most, time, ref together } = *self;
        if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
            return Err(Error::TooLarge { most });
        }
        let (_held, body) = together.hold(Pace::default().limit(body));
        match tokio::time::timeout(time, Limited::new(body, most).collect()).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::TooLarge { most }),
            Ok(Err(error)) => Err(broken(&*error)),
            Err(_) => Err(Error::TooLate { time }),
        }
    }
}

/// Why a body could not be read on.
fn broken(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let known = causes.find_map(|cause| {
        let slow = cause.downcast_ref::<TooSlow>().map(|slow| Error::TooSlow(*slow));
        slow.or_else(|| cause.downcast_ref::<Crowded>().map(|crowded| Error::Crowded(*crowded)))
    });
    known.unwrap_or_else(|| Error::Broken { problem: error.to_string() })
}
