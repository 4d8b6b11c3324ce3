//! What the bodies of all requests may hold together: many small parts of large messages, each within its own limit,
//! would fill the memory of a process that waits for the rest of each.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in so many at once; what is less than that is free.
const UNIT: usize = 1024;

/// The most bytes that bodies hold, over all requests that share it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    free: Arc<Semaphore>,
}

impl Budget {
    /// So many bytes, in units of 1 KiB.
    pub fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most / UNIT)) }
    }

    /// A body whose reading fails with [`Crowded`] when bodies hold too much, and what it holds, until that is dropped
    /// with the body.
    pub fn hold(&self, body: Body) -> (Held, Body) {
        let held = Held { budget: self.clone(), state: Arc::default() };
        let counted = Counted { body, held: held.clone() };
        (held, Body::new(counted))
    }
}

/// What the body of one request holds; among its extensions.
#[derive(Clone, Debug)]
pub struct Held {
    budget: Budget,
    state: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    permit: Option<OwnedSemaphorePermit>,
    /// Bytes that make no unit yet.
    rest: usize,
}

/// The bodies of all requests hold as much as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bodies of requests under way hold {most} bytes, the most that they may together: try again soon"
)]
pub struct Crowded {
    /// The most.
    pub most: usize,
}

impl Held {
    /// What the request of these extensions holds; none where nothing is counted.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().cloned()
    }

    /// Gives back what came up to now: it was used, or is held by what has a limit of its own.
    pub fn free(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Taken::default();
    }

    fn take(&self, bytes: usize) -> Result<(), Crowded> {
        let mut taken = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        taken.rest += bytes;
        let units = u32::try_from(taken.rest / UNIT).unwrap_or(u32::MAX);
        if units == 0 {
            return Ok(());
        }
        let crowded = |_| Crowded { most: self.budget.most };
        let permit = Arc::clone(&self.budget.free).try_acquire_many_owned(units).map_err(crowded)?;
        taken.rest %= UNIT;
        match &mut taken.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

/// Middleware by which reading the body fails with [`Crowded`] when bodies hold too much. What a request holds is given
/// back when its answer begins, or with [`Held::free`].
pub async fn hold(State(budget): State<Budget>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let (held, body) = budget.hold(body);
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(held.clone());
    let response = next.run(request).await;
    held.free();
    response
}

struct Counted {
    body: Body,
    held: Held,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Err(crowded) = self.held.take(frame.data_ref().map_or(0, Bytes::len))
        {
            return Poll::Ready(Some(Err(crowded.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(budget: &Budget) -> Held {
        Held { budget: budget.clone(), state: Arc::default() }
    }

    #[test]
    fn requests_hold_no_more_than_they_may_together() {
        let budget = Budget::new(10 * UNIT);
        let (one, other) = (held(&budget), held(&budget));
        let full = Err(Crowded { most: 10 * UNIT });
        assert_eq!((one.take(6 * UNIT), other.take(4 * UNIT)), (Ok(()), Ok(())));
        assert_eq!((one.take(UNIT), other.take(UNIT - 1)), (full, Ok(())));
        one.free();
        assert_eq!((other.take(UNIT), other.take(5 * UNIT)), (Ok(()), Ok(())));
        assert_eq!(one.take(UNIT), full);
        drop(other);
        assert_eq!(one.take(9 * UNIT), Ok(()));
    }

    #[test]
    fn small_pieces_add_up() {
        let budget = Budget::new(2 * UNIT);
        let one = held(&budget);
        for _ in 0..2 * UNIT {
            assert_eq!(one.take(1), Ok(()));
        }
        assert_eq!(budget.free.available_permits(), 0);
        assert_eq!(one.take(UNIT - 1), Ok(()));
        assert_eq!(one.take(1), Err(Crowded { most: 2 * UNIT }));
    }
}
