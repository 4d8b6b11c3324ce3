//! Waits on conditions.
//!
//! Tests never sleep for a guess of a time: they ask until a condition holds. The limit is generous because it
//! only matters when something is broken; then the error says what was waited for and what was last seen.

use std::{fmt, future::Future, time::Duration};

use anyhow::{Result, bail};
use tokio::time::{sleep, timeout};

/// How long [`wait_for`] waits.
pub const LIMIT: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What a condition answers: that it holds, with a value, or what is there instead.
pub trait Answer {
    /// The value of a condition that holds.
    type Value;

    /// The value, or a description of what was seen.
    ///
    /// # Errors
    /// The condition does not hold; the error is what was seen.
    fn seen(self) -> Result<Self::Value, String>;
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl Answer for bool {
    type Value = ();

    fn seen(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

/// An error is what was seen and is not the end: the condition is asked again.
impl<T, E: fmt::Display> Answer for Result<T, E> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

/// Asks `condition` until it holds, at most [`LIMIT`].
///
/// Let it answer a `Result` whose error is the state it saw, so that a failure explains itself; an `Option`
/// or a `bool` says less.
///
/// # Errors
/// It did not hold in time. The message has `what` and the last state seen.
pub async fn wait_for<F>(what: &str, condition: impl FnMut() -> F) -> Result<<F::Output as Answer>::Value>
where
    F: Future<Output: Answer>,
{
    wait_at_most(LIMIT, what, condition).await
}

/// [`wait_for`] with another limit.
///
/// # Errors
/// It did not hold in time. The message has `what` and the last state seen.
pub async fn wait_at_most<F>(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> F,
) -> Result<<F::Output as Answer>::Value>
where
    F: Future<Output: Answer>,
{
    let mut last = "no answer of the first question".to_owned();
    let asking = async {
        let mut pause = FIRST_PAUSE;
        loop {
            match condition().await.seen() {
                Ok(value) => return value,
                Err(seen) => last = seen,
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    };
    match timeout(limit, asking).await {
        Ok(value) => Ok(value),
        Err(_) => bail!("waited {} s for {what}; last seen: {last}", limit.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        let value = wait_for("three questions", || {
            asked += 1;
            std::future::ready((asked == 3).then_some(asked))
        });
        assert_eq!(value.await.expect("it holds"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_is_reported_with_what_was_last_seen() {
        let failure = wait_for("replicas", async || Err::<(), _>("2 of 3 ready")).await;
        let message = failure.expect_err("it never holds").to_string();
        assert_eq!(message, "waited 60 s for replicas; last seen: 2 of 3 ready");
    }
}
