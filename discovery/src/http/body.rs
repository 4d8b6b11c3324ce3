//! Bodies of requests: what says that it is too long is refused before it is read, and what comes is bounded in bytes,
//! in time, in the speed at which it must come, and by what all bodies hold together until they are answered.

use super::answer::Error;
use axum::body::{Body, Bytes};
use mcs_runtime::http::{Budget, Held, Pace, whole};
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

/// A body that was read. It counts among those that are held until this is dropped: what is made of it has its size, and
/// lives for as long as its answer is waited for.
#[derive(Debug)]
pub(super) struct Read {
    /// What it says.
    pub(super) bytes: Bytes,
    _held: Held,
}

impl Bounds {
    /// Reads a body to its end.
    ///
    /// # Errors
    /// Which of the bounds it does not keep.
    pub(super) async fn read(&self, body: Body) -> Result<Read, Error> {
        let Self { most, time, ref together } = *self;
        let (held, body) = together.hold(Pace::default().limit(body));
        let read = tokio::time::timeout(time, whole(body, most)).await;
        Ok(Read { bytes: read.map_err(|_| Error::TooLate { time })??, _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_is_held_until_it_is_answered() {
        let bounds = Bounds { most: 4096, time: Duration::from_secs(60), together: Budget::new(8 * 1024) };
        let read = || bounds.read(Body::from("x".repeat(4096)));
        let both = (read().await.unwrap(), read().await.unwrap());
        assert_eq!(read().await.unwrap_err().to_string(), Error::from(crowded()).to_string());
        drop(both.0);
        assert_eq!(read().await.unwrap().bytes.len(), 4096);
    }

    fn crowded() -> mcs_runtime::http::Crowded {
        mcs_runtime::http::Crowded { most: 8 * 1024 }
    }
}
