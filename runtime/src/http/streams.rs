//! Answers that stay open: each costs a task, and they end only when somebody ends them.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The open answers of a process, over all its ports. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams {
    most: usize,
    free: Arc<Semaphore>,
}

/// A place among them.
#[derive(Debug)]
pub struct StreamPlace(OwnedSemaphorePermit);

/// There is no place for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{most} streams are open, the most that there may be")]
pub struct NoPlace {
    /// The most.
    pub most: usize,
}

impl Streams {
    /// None yet, and at most so many.
    pub fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }

    /// A place for one.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&self) -> Result<StreamPlace, NoPlace> {
        let full = |_| NoPlace { most: self.most };
        Arc::clone(&self.free).try_acquire_owned().map(StreamPlace).map_err(full)
    }
}

impl StreamPlace {
    /// Holds the place until an answer has ended.
    pub fn until_end_of(self, body: Body) -> Body {
        Body::new(body.map_frame(move |frame| {
            let _ = &self.0;
            frame
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_held_until_its_answer_ends() {
        let streams = Streams::new(1);
        let answer = streams.take().unwrap().until_end_of(Body::empty());
        assert_eq!(streams.take().unwrap_err(), NoPlace { most: 1 });
        drop(answer);
        assert!(streams.take().is_ok());
    }
}
