//! The watches and syncs that are open, over both ports.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::limits::Limit;

/// The streams of the process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Streams {
    most: usize,
    free: Arc<Semaphore>,
}

/// A place among them.
pub(crate) struct Place(OwnedSemaphorePermit);

impl Streams {
    /// No stream, of at most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }

    /// A place for a stream.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&self) -> Result<Place, Error> {
        let full = |_| Error::Full { what: "streams", limit: Limit::Streams, most: self.most };
        Arc::clone(&self.free).try_acquire_owned().map(Place).map_err(full)
    }
}

impl Place {
    /// Holds the place until an answer has ended.
    pub(crate) fn until_end_of(self, body: Body) -> Body {
        Body::new(body.map_frame(move |frame| {
            let _ = &self.0;
            frame
        }))
    }
}
