//! The end of a program, in two steps: the first SIGTERM or SIGINT drains, the second aborts.
//!
//! Draining is a state, not an event: whoever asks after the signal learns of it too, so that nothing is lost to a
//! race between a signal and a new connection.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The one who says when the program ends: the signals, or a test.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    watch: Watch,
}

/// Learns of the end of the program. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    draining: CancellationToken,
    aborted: CancellationToken,
}

impl Shutdown {
    /// A shutdown that comes only by [`Shutdown::drain`] and [`Shutdown::abort`].
    pub fn manual() -> Self {
        Self::default()
    }

    /// A shutdown by SIGTERM and SIGINT. It is to be called within a tokio runtime.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::manual();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::spawn(follow(shutdown.clone(), terminate, interrupt));
        Ok(shutdown)
    }

    /// A handle that learns of it.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Begins to drain: take no new work, finish what is under way.
    pub fn drain(&self) {
        self.watch.draining.cancel();
    }

    /// Ends at once. What drains learns of it as well.
    pub fn abort(&self) {
        self.drain();
        self.watch.aborted.cancel();
    }
}

impl Watch {
    /// Waits until draining began; at once when it already has.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Like [`Watch::draining`], for a future that must own what it waits on.
    pub fn draining_owned(&self) -> impl Future<Output = ()> + Send + use<> {
        self.draining.clone().cancelled_owned()
    }

    /// Whether draining began.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until the program is to end at once.
    pub async fn aborted(&self) {
        self.aborted.cancelled().await;
    }
}

async fn follow(shutdown: Shutdown, mut terminate: Signal, mut interrupt: Signal) {
    let signal = either(&mut terminate, &mut interrupt).await;
    info!(signal, "draining; a second signal ends at once");
    shutdown.drain();
    let signal = either(&mut terminate, &mut interrupt).await;
    warn!(signal, "ending at once");
    shutdown.abort();
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watcher_that_comes_late_still_learns_of_the_drain() {
        let shutdown = Shutdown::manual();
        shutdown.drain();
        let late = shutdown.watch();
        late.draining().await;
        assert_eq!((late.is_draining(), late.aborted.is_cancelled()), (true, false));
    }

    #[tokio::test]
    async fn an_abort_drains_as_well() {
        let shutdown = Shutdown::manual();
        let watch = shutdown.watch();
        assert!(!watch.is_draining());
        shutdown.abort();
        watch.draining_owned().await;
        watch.aborted().await;
    }
}
