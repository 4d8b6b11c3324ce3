//! Answers that may be large: lists, and single entries with their endpoints.
//!
//! They are made and written away from the threads that serve controllers, few at once. One that is large is held until
//! its reader has taken it, and there may be few of these: who asks for lists and reads slowly must not fill the memory.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tonic::Status;

use super::answer;
use crate::error::{Error, Limit};

/// So many are made at once; further ones wait, as none takes long.
const MAKING: usize = 2;

/// An answer above this is large.
const LARGE: usize = 1024 * 1024;

/// So many large ones are being read at once; further ones are refused, since their readers decide how long that takes.
const HELD: usize = 4;

/// A large answer is given to its connection in pieces of this size.
const PIECE: usize = 64 * 1024;

/// Where such answers are made. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pages {
    making: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { making: Arc::new(Semaphore::new(MAKING)), held: Arc::new(Semaphore::new(HELD)) }
    }
}

impl Pages {
    /// An answer of what `make` gives.
    ///
    /// # Errors
    /// That of `make`, or too many large answers are being read.
    pub(super) async fn answer<M: Serialize>(
        &self,
        make: impl FnOnce() -> Result<M, Error> + Send + 'static,
    ) -> Result<Response, Error> {
        let text = {
            let _making = self.making.acquire().await;
            let failed =
                |_| Error::Stream(Status::internal("the answer cannot be made; see the registry's log"));
            spawn_blocking(move || answer::text(&make()?)).await.map_err(failed)??
        };
        if text.len() <= LARGE {
            return Ok(([(CONTENT_TYPE, answer::JSON)], text).into_response());
        }
        let full = |_| Error::Limit { limit: Limit::LargeAnswers, most: HELD };
        let place = Arc::clone(&self.held).try_acquire_owned().map_err(full)?;
        let length = text.len().to_string();
        let headers = [(CONTENT_TYPE, answer::JSON), (CONTENT_LENGTH, &*length)];
        Ok((headers, in_pieces(text.into(), place)).into_response())
    }
}

fn in_pieces(text: Bytes, place: OwnedSemaphorePermit) -> Body {
    Body::from_stream(stream::unfold((text, place), |(mut text, place)| async move {
        let piece = text.split_to(text.len().min(PIECE));
        (!piece.is_empty()).then(|| (Ok::<_, Infallible>(piece), (text, place)))
    }))
}
