//! The whole body of a request, within its limit.

use std::error::Error;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{Crowded, TooSlow};

/// Why reading a body was ended here, and not by who sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// It came too slowly.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    /// Bodies hold as much as they may.
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

impl Cut {
    /// Looks for it among the causes of an error; none where the body broke.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| (**error).source()).find_map(|cause| {
            let slow = cause.downcast_ref::<TooSlow>().map(|slow| Self::TooSlow(*slow));
            slow.or_else(|| cause.downcast_ref::<Crowded>().map(|crowded| Self::Crowded(*crowded)))
        })
    }
}

/// Why there is no whole body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWhole {
    /// It is larger than the limit, or says that it is.
    #[error("the body has more than {most} bytes")]
    TooLarge {
        /// The limit, in bytes.
        most: usize,
    },
    /// It was ended here.
    #[error(transparent)]
    Cut(#[from] Cut),
    /// It ended before its end.
    #[error("the body cannot be read: {problem}")]
    Broken {
        /// What happened.
        problem: String,
    },
}

/// Reads a body to its end. What says that it is larger than `most` bytes is refused before it is read.
///
/// # Errors
/// Why there is none.
pub async fn whole(body: Body, most: usize) -> Result<Bytes, NotWhole> {
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(NotWhole::TooLarge { most });
    }
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(NotWhole::TooLarge { most }),
        Err(error) => Err(match Cut::of(&*error) {
            Some(cut) => cut.into(),
            None => NotWhole::Broken { problem: error.to_string() },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::http::Budget;

    /// A body that does not say how long it is.
    fn parts(parts: impl IntoIterator<Item = io::Result<&'static str>>) -> Body {
        let parts: Vec<_> = parts.into_iter().collect();
        Body::from_stream(futures::stream::iter(parts))
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit_and_not_a_byte_more() {
        assert_eq!(whole(Body::from("12345"), 5).await, Ok(Bytes::from("12345")));
        assert_eq!(whole(parts([Ok("123"), Ok("45")]), 5).await, Ok(Bytes::from("12345")));
        let large = Err(NotWhole::TooLarge { most: 5 });
        assert_eq!(whole(Body::from("123456"), 5).await, large);
        assert_eq!(whole(parts([Ok("123"), Ok("456")]), 5).await, large);
    }

    #[tokio::test]
    async fn it_is_told_whether_it_broke_or_was_ended_here() {
        let broken = parts([Ok("1"), Err(io::Error::other("reset"))]);
        assert_eq!(whole(broken, 5).await, Err(NotWhole::Broken { problem: "reset".to_owned() }));
        let (_held, crowded) = Budget::new(1024).hold(Body::from("1".repeat(2048)));
        assert_eq!(whole(crowded, 4096).await, Err(Cut::from(Crowded { most: 1024 }).into()));
    }
}
