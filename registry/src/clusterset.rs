//! One clusterset: what [`Registry`] decides, and the log that watchers follow.
//!
//! Every access goes through one lock and is preceded by a look at the clock, so that no answer shows a lease that has
//! run out. What changed is encoded once, when it changes, and told to all watchers by a revision; they take it from
//! the log at their own pace.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcs_core::ids::Epoch;
use mcs_core::log::StateLog;
use mcs_core::registry::{Policy, Registry};
use mcs_core::time::{Clock, Timestamp};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::frames::change_steps;
use tokio::sync::watch;

/// The messages that tell one object.
pub(crate) type Steps = Arc<[EncodedStep]>;

/// One clusterset.
pub(crate) struct Clusterset {
    state: Mutex<State>,
    reached: watch::Sender<Reached>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    epoch: Epoch,
}

/// What watchers are woken for when it changes: the revision, and whether the view is complete.
pub(crate) type Reached = (u64, bool);

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) registry: Registry,
    pub(crate) log: StateLog<Steps>,
}

impl State {
    /// Takes what the registry changed into the log.
    fn drain(&mut self) {
        while let Some(change) = self.registry.next_change() {
            let steps = change
                .object
                .is_some()
                .then(|| change_steps(&change).iter().map(EncodedStep::from).collect());
            self.log.append(change.key, change.revision, steps);
        }
    }
}

impl Clusterset {
    /// A clusterset without clusters.
    pub(crate) fn new(policy: Policy, epoch: Epoch, clock: Arc<dyn Clock>) -> Self {
        let registry = Registry::new(policy, epoch, clock.elapsed());
        Self {
            state: Mutex::new(State { registry, log: StateLog::default() }),
            reached: watch::Sender::new((0, false)),
            clock,
            lease: policy.timing.lease(),
            epoch,
        }
    }

    /// Does something with the registry at this moment, then tells watchers what changed.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        // What a panic left behind is a registry between two changes; its clusters' sums show what is missing.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.elapsed();
        state.registry.handle_timeout(now);
        let answer = act(&mut state, now);
        state.drain();
        let reached = (state.log.revision(), state.registry.is_complete(now));
        drop(state);
        // A later moment may have been told already; its revision stands.
        self.reached.send_if_modified(|told| {
            let newer = reached.0 > told.0 || (reached.0 == told.0 && reached.1 != told.1);
            if newer {
                *told = reached;
            }
            newer
        });
        answer
    }

    /// Lets the registry judge, and wakes watchers that may have to be told of its completeness. Says when it is to be
    /// called again.
    pub(crate) fn judge(&self) -> Option<Timestamp> {
        let complete =
            |state: &mut State, now| (state.registry.is_complete(now), state.registry.poll_timeout());
        let (_, next) = self.with(complete);
        next
    }

    /// Learns of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Reached> {
        self.reached.subscribe()
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.reached.receiver_count()
    }

    /// The lease of its clusters.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// Names the log.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }
}
