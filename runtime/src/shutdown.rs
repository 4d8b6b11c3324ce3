//! The end of a program, in two steps: the first SIGTERM or SIGINT drains, the second aborts.
//!
//! Draining is a state, not an event: whoever asks after the signal learns of it too, so that nothing is lost to a
//! race between a signal and a new connection.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

/// The one who says when the program ends: the signals, or a test.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    watch: Drain,
}

/// Learns of the end of the program. Cheap to clone, and to ask: streams ask with each message.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    phase: watch::Sender<Phase>,
}

/// How far the end has come; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Running,
    Draining,
    Aborted,
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
    pub fn watch(&self) -> Drain {
        self.watch.clone()
    }

    /// Begins to drain: take no new work, finish what is under way.
    pub fn drain(&self) {
        self.watch.enter(Phase::Draining);
    }

    /// Ends at once. What drains learns of it as well.
    pub fn abort(&self) {
        self.watch.enter(Phase::Aborted);
    }
}

impl Drain {
    /// Waits until draining began; at once when it already has.
    pub async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// Like [`Drain::draining`], for a future that must own what it waits on.
    pub fn draining_owned(&self) -> impl Future<Output = ()> + Send + use<> {
        let watch = self.clone();
        async move { watch.draining().await }
    }

    /// Whether draining began.
    pub fn is_draining(&self) -> bool {
        self.is_at(Phase::Draining)
    }

    /// Waits until the program is to end at once.
    pub async fn aborted(&self) {
        self.reached(Phase::Aborted).await;
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|reached| {
            let before = *reached;
            *reached = before.max(phase);
            before < phase
        });
    }

    fn is_at(&self, phase: Phase) -> bool {
        *self.phase.borrow() >= phase
    }

    async fn reached(&self, phase: Phase) {
        let mut receiver = self.phase.subscribe();
        // It does not fail: this handle can send, too.
        let mut told = pin!(receiver.wait_for(|reached| *reached >= phase));
        // Waiters are told one after the other. Who is told first may act, and so wake one who is told last: that one
        // must find the phase reached as well.
        poll_fn(|cx| if self.is_at(phase) { Poll::Ready(()) } else { told.as_mut().poll(cx).map(drop) })
            .await;
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
    use std::sync::{Arc, Mutex, PoisonError};
    use std::task::{Context, Wake, Waker};

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    /// Waiters that are all asked, within the call that tells the first of them.
    #[derive(Default)]
    struct AskAll {
        waiters: Mutex<Vec<BoxFuture<'static, ()>>>,
        learned: Mutex<Vec<bool>>,
    }

    impl Wake for AskAll {
        fn wake(self: Arc<Self>) {
            let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
            let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
            learned.extend(waiters.into_iter().map(|waiter| waiter.now_or_never().is_some()));
        }
    }

    #[test]
    fn a_watcher_that_is_asked_before_it_was_told_learns_of_the_drain() {
        let (shutdown, all) = (Shutdown::manual(), Arc::new(AskAll::default()));
        let waker = Waker::from(Arc::clone(&all));
        for _ in 0..64 {
            let mut waiter = shutdown.watch().draining_owned().boxed();
            assert!(waiter.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
            all.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
        }
        shutdown.drain();
        assert_eq!(*all.learned.lock().unwrap_or_else(PoisonError::into_inner), [true; 64]);
    }

    #[tokio::test]
    async fn a_watcher_that_comes_late_still_learns_of_the_drain() {
        let shutdown = Shutdown::manual();
        shutdown.drain();
        let late = shutdown.watch();
        late.draining().await;
        assert_eq!((late.is_draining(), *late.phase.borrow()), (true, Phase::Draining));
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
