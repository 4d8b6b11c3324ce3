//! Named tasks whose end is noticed.
//!
//! A program is a handful of tasks that are all to run until it drains. One that returns, fails or panics before
//! ends the program with its name and the reason: half a program must not look alive.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tracing::{Instrument, info_span, warn};

use crate::shutdown::Drain;

/// The tasks of a program. Dropping it aborts them.
#[derive(Debug, Default)]
pub struct Tasks {
    main: Named,
    background: Named,
}

#[derive(Debug, Default)]
struct Named {
    running: JoinSet<End>,
    names: BTreeMap<Id, &'static str>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned.
    Returned,
    /// It returned an error, which is given with its causes.
    Failed(String),
    /// It panicked, with this message.
    Panicked(String),
    /// It was aborted.
    Aborted,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("returned"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Aborted => f.write_str("was aborted"),
        }
    }
}

/// A task that ended, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {name} {end}")]
pub struct Ended {
    /// The name it was started under.
    pub name: &'static str,
    /// How it ended.
    pub end: End,
}

/// What a task may return.
pub trait Outcome: Send + 'static {
    /// How the task ended.
    fn into_end(self) -> End;
}

impl Outcome for () {
    fn into_end(self) -> End {
        End::Returned
    }
}

impl<E: std::error::Error + Send + 'static> Outcome for Result<(), E> {
    fn into_end(self) -> End {
        match self {
            Ok(()) => End::Returned,
            Err(error) => End::Failed(with_causes(&error)),
        }
    }
}

/// The error and what it came from, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task in a span of its name. It is to return soon after the program began to drain.
    pub fn spawn<O: Outcome>(&mut self, name: &'static str, task: impl Future<Output = O> + Send + 'static) {
        self.main.spawn(name, task);
    }

    /// Starts a task that has no end of its own, such as the admin port, which answers while the others drain. It is
    /// aborted after them.
    pub fn spawn_background<O: Outcome>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = O> + Send + 'static,
    ) {
        self.background.spawn(name, task);
    }

    /// Waits until a task ends; for ever when there is none.
    pub async fn ended(&mut self) -> Ended {
        tokio::select! {
            Some(ended) = self.main.ended() => ended,
            Some(ended) = self.background.ended() => ended,
            else => std::future::pending().await,
        }
    }

    /// Runs until the program drains, then waits for the tasks to return, at most for `grace`; what is left is
    /// aborted and named in the log.
    ///
    /// # Errors
    /// The first task that ended before the drain, or that failed or panicked during it.
    pub async fn run(mut self, shutdown: &Drain, grace: Duration) -> Result<(), Ended> {
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            // A drain may have begun, and ended it, since this was asked last.
            ended = self.ended() => if !shutdown.is_draining() || ended.end != End::Returned {
                return Err(ended);
            },
        }
        let mut failed = Ok(());
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = self.main.ended().await {
                if ended.end != End::Returned && failed.is_ok() {
                    failed = Err(ended);
                }
            }
        });
        if drained.await.is_err() {
            let tasks: Vec<&str> = self.main.names.into_values().collect();
            warn!(?tasks, ?grace, "tasks aborted: they did not end in time");
        }
        failed
    }
}

impl Named {
    fn spawn<O: Outcome>(&mut self, name: &'static str, task: impl Future<Output = O> + Send + 'static) {
        let task = async move { task.await.into_end() }.instrument(info_span!("task", name));
        let id = self.running.spawn(task).id();
        self.names.insert(id, name);
    }

    /// The next end; `None` when no task is left.
    async fn ended(&mut self) -> Option<Ended> {
        let (id, end) = match self.running.join_next_with_id().await? {
            Ok(returned) => returned,
            Err(error) => (error.id(), end_of(error)),
        };
        Some(Ended { name: self.names.remove(&id).unwrap_or("unnamed"), end })
    }
}

fn end_of(error: JoinError) -> End {
    let Ok(payload) = error.try_into_panic() else {
        return End::Aborted;
    };
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    End::Panicked(message.unwrap_or_else(|| "(no message)".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;

    use super::*;
    use crate::shutdown::Shutdown;

    const GRACE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_end_of_a_task_is_noticed_with_its_name_and_the_reason() {
        let mut tasks = Tasks::new();
        tasks.spawn("forever", pending::<()>());
        tasks.spawn("returns", async {});
        let mut ends = vec![tasks.ended().await];
        tasks.spawn_background("fails", async { Err(io::Error::other("no disk")) });
        ends.push(tasks.ended().await);
        tasks.spawn("panics", std::future::poll_fn::<(), _>(|_| panic!("at {}", 3)));
        ends.push(tasks.ended().await);
        assert_eq!(
            ends.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["task returns returned", "task fails failed: no disk", "task panics panicked: at 3"]
        );
    }

    #[tokio::test]
    async fn a_task_that_ends_before_the_drain_ends_the_program() {
        let mut tasks = Tasks::new();
        tasks.spawn("forever", pending::<()>());
        tasks.spawn("leader", async {});
        let ended = tasks.run(&Drain::default(), GRACE).await;
        assert_eq!(ended, Err(Ended { name: "leader", end: End::Returned }));
    }

    #[tokio::test]
    async fn a_drain_waits_for_the_tasks_and_not_for_the_background() {
        let shutdown = Shutdown::manual();
        let (watch, mut tasks) = (shutdown.watch(), Tasks::new());
        tasks.spawn("server", watch.draining_owned());
        tasks.spawn_background("admin", pending::<()>());
        shutdown.drain();
        assert_eq!(tasks.run(&watch, GRACE).await, Ok(()));
    }

    #[tokio::test]
    async fn a_task_that_does_not_drain_is_aborted_after_the_grace() {
        let shutdown = Shutdown::manual();
        let mut tasks = Tasks::new();
        tasks.spawn("stuck", pending::<()>());
        shutdown.drain();
        assert_eq!(tasks.run(&shutdown.watch(), Duration::from_millis(10)).await, Ok(()));
    }
}
