//! A queue of keys to reconcile: each key once, never twice at the same time, in the order in which they became due, failures
//! later and later. In this order, so that keys that change all the time keep no other from its turn.
//!
//! What arrives for a key that is being worked on is worked on again afterwards, so that no change is missed. A change of
//! a key that fails may be what mends it, so that it is tried at once; but not before the time that the API server asked
//! for, nor at once where the round itself made the change. Due times are on the clock that no one sets.

use futures::stream::{FuturesUnordered, StreamExt};
use mcs_core::backoff::Backoff;
use mcs_core::time::{Clock, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest wait after the first failure of a key; doubled with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// The longest wait between two tries of a key.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// The shortest wait between two rounds of a key that does not settle: each of them writes, and neither changes of others
/// nor those of a writer that it fights may make it write more often.
const UNSETTLED_RETRY: Duration = Duration::from_secs(1);

/// What became of one round of work on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Look again at this moment.
    At(Timestamp),
    /// Nothing was done, since it is too soon: begin at this moment. Failures before still count.
    NotYet(Timestamp),
    /// It failed: try again after a while, and not before what the API server asked for.
    Failed {
        /// What was asked for; zero when nothing was.
        asked: Duration,
    },
    /// What was written does not stay: try again after a while. What arrived while it was worked on were its own writes.
    Unsettled,
}

/// The keys that wait for work; see the module.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    due: Due<K>,
    running: BTreeSet<K>,
    failing: BTreeMap<K, Failing>,
    /// The latest time that was told: what is to be done now is due since then, after what became due before.
    now: Timestamp,
}

/// When each key is due, and the keys by that; those of one moment in the order in which they came.
#[derive(Debug)]
struct Due<K> {
    places: BTreeMap<K, Place>,
    order: BTreeMap<Place, K>,
    came: u64,
}

/// When a key is due, and the how-manieth it is that came.
type Place = (Timestamp, u64);

/// A key whose last round failed.
#[derive(Debug)]
struct Failing {
    backoff: Backoff,
    /// It is not tried before, whatever changes.
    not_before: Timestamp,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Notify::new() }
    }
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            due: Due { places: BTreeMap::new(), order: BTreeMap::new(), came: 0 },
            running: BTreeSet::new(),
            failing: BTreeMap::new(),
            now: Timestamp::ZERO,
        }
    }
}

impl<K: Ord + Clone> Due<K> {
    /// `key` is due at `at`, whenever it was before.
    fn set(&mut self, key: K, at: Timestamp) {
        self.remove(&key);
        self.came += 1;
        self.places.insert(key.clone(), (at, self.came));
        self.order.insert((at, self.came), key);
    }

    /// When `key` is due, if it is.
    fn get(&self, key: &K) -> Option<Timestamp> {
        self.places.get(key).map(|(at, _)| *at)
    }

    /// `key` is due no more; answers when it was.
    fn remove(&mut self, key: &K) -> Option<Timestamp> {
        let place = self.places.remove(key)?;
        self.order.remove(&place);
        Some(place.0)
    }

    /// The keys in their order.
    fn iter(&self) -> impl Iterator<Item = (Timestamp, &K)> {
        self.order.iter().map(|((at, _), key)| (*at, key))
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// `key` is to be worked on now, or as soon as it may be if it fails.
    pub(crate) fn add(&self, key: K) {
        self.add_at(key, Timestamp::ZERO);
    }

    /// `key` is to be worked on at `at`, or earlier when that was asked for before.
    pub(crate) fn add_at(&self, key: K, at: Timestamp) {
        self.lock().add_at(key, at);
        self.changed.notify_one();
    }

    /// How many keys could be worked on at `now`: those that are worked on, and those whose time is later, not counted.
    pub(crate) fn len(&self, now: Timestamp) -> usize {
        self.lock().due.iter().take_while(|(at, _)| at.has_passed(now)).count()
    }

    /// The keys that wait, which wait no longer.
    #[cfg(test)]
    pub(crate) fn take_all(&self) -> Vec<K> {
        let mut state = self.lock();
        let keys: Vec<_> = state.due.places.keys().cloned().collect();
        for key in &keys {
            state.due.remove(key);
        }
        keys
    }

    /// Works on keys as they become due, at most `concurrency` at a time, until dropped.
    pub(crate) async fn work<F: Future<Output = Outcome>>(
        &self,
        clock: &dyn Clock,
        concurrency: usize,
        work: impl Fn(K) -> F,
    ) {
        // What an earlier worker had begun when it was dropped is begun anew.
        self.lock().restart();
        let mut running = FuturesUnordered::new();
        loop {
            let next = loop {
                let now = clock.elapsed();
                if running.len() >= concurrency {
                    break None;
                }
                let mut state = self.lock();
                let Some(key) = state.take(now) else { break state.next_due().map(|due| due.since(now)) };
                drop(state);
                let round = work(key.clone());
                running.push(async move { (key, round.await) });
            };
            tokio::select! {
                Some((key, outcome)) = running.next(), if !running.is_empty() => {
                    self.lock().finish(key, outcome, clock.elapsed(), rand::random());
                }
                () = self.changed.notified() => {}
                () = tokio::time::sleep(next.unwrap_or_default()), if next.is_some() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> State<K> {
    fn add_at(&mut self, key: K, at: Timestamp) {
        let at = self.failing.get(&key).map_or(at, |failing| at.max(failing.not_before)).max(self.now);
        if self.due.get(&key).is_none_or(|due| at < due) {
            self.due.set(key, at);
        }
    }

    fn restart(&mut self) {
        for key in std::mem::take(&mut self.running) {
            self.add_at(key, Timestamp::ZERO);
        }
    }

    fn take(&mut self, now: Timestamp) -> Option<K> {
        self.now = now;
        let ready = self.due.iter().take_while(|(at, _)| at.has_passed(now));
        let key = ready.map(|(_, key)| key).find(|key| !self.running.contains(*key))?.clone();
        self.due.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.due.iter().find(|(_, key)| !self.running.contains(*key)).map(|(at, _)| at)
    }

    fn finish(&mut self, key: K, outcome: Outcome, now: Timestamp, jitter: f64) {
        self.running.remove(&key);
        match outcome {
            Outcome::Done => {
                self.failing.remove(&key);
            }
            Outcome::At(at) => {
                self.failing.remove(&key);
                self.add_at(key, at);
            }
            Outcome::NotYet(at) => self.add_at(key, at),
            Outcome::Failed { asked } => {
                let pause = self.fail(&key, asked, now, jitter);
                // What came meanwhile waits for as long as was asked, too.
                let came = self.due.remove(&key);
                self.add_at(key.clone(), now + pause);
                came.into_iter().for_each(|came| self.add_at(key.clone(), came));
            }
            Outcome::Unsettled => {
                let pause = self.fail(&key, UNSETTLED_RETRY, now, jitter);
                self.due.set(key, now + pause);
            }
        }
    }

    /// Notes one more failure of `key`, which is not tried again for as long as was `asked`; answers how long it waits
    /// if nothing changes.
    fn fail(&mut self, key: &K, asked: Duration, now: Timestamp, jitter: f64) -> Duration {
        let first = || Failing { backoff: Backoff::new(FIRST_RETRY, MAX_RETRY), not_before: now };
        let failing = self.failing.entry(key.clone()).or_insert_with(first);
        let pause = failing.backoff.next_pause(asked, jitter);
        failing.not_before = now + asked.min(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const TICK: Duration = Duration::from_nanos(1);
    const FAILED: Outcome = Outcome::Failed { asked: Duration::ZERO };

    #[test]
    fn keys_have_their_turn_in_the_order_in_which_they_became_due() {
        let mut state = State::default();
        state.add_at("pay", Timestamp::ZERO);
        state.add_at("web", NOW + TICK * 2);
        state.add_at("cart", Timestamp::ZERO);
        let mut took = Vec::new();
        // One changes all the time, and another was to be looked at meanwhile.
        for after in 0..5 {
            let key = state.take(NOW + TICK * after).expect("a key");
            state.add_at("cart", Timestamp::ZERO);
            state.finish(key, Outcome::Done, NOW, 1.0);
            took.push(key);
            if after == 1 {
                state.add_at("apt", Timestamp::ZERO);
            }
        }
        assert_eq!(took, ["pay", "cart", "cart", "apt", "web"]);
    }

    #[test]
    fn a_key_that_is_asked_for_again_keeps_its_turn_and_a_later_one_comes_forward() {
        let mut state = State::default();
        for key in ["pay", "cart", "pay"] {
            state.add_at(key, Timestamp::ZERO);
        }
        state.add_at("web", NOW + TICK);
        state.add_at("web", Timestamp::ZERO);
        let took: Vec<_> = std::iter::from_fn(|| state.take(NOW)).collect();
        assert_eq!(took, ["pay", "cart", "web"]);
    }

    #[test]
    fn a_key_that_changes_while_it_is_worked_on_is_worked_on_again() {
        let mut state = State::default();
        state.add_at("cart", Timestamp::ZERO);
        assert_eq!(state.take(NOW), Some("cart"));
        state.add_at("cart", Timestamp::ZERO);
        assert_eq!(state.take(NOW), None);
        state.finish("cart", Outcome::Done, NOW, 1.0);
        assert_eq!(state.take(NOW), Some("cart"));
    }

    #[test]
    fn failures_of_a_key_come_later_and_later_until_one_round_succeeds() {
        let mut state = State::default();
        let mut waits = Vec::new();
        for _ in 0..10 {
            state.finish("cart", FAILED, NOW, 1.0);
            waits.push(state.next_due().expect("another try").since(NOW).as_millis());
            state.due.remove(&"cart");
        }
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        state.finish("cart", Outcome::Done, NOW, 1.0);
        state.finish("cart", FAILED, NOW, 1.0);
        assert_eq!(state.next_due(), Some(NOW + FIRST_RETRY));
    }

    #[test]
    fn a_key_is_not_tried_before_what_the_api_server_asked_for() {
        let mut state = State::default();
        state.finish("cart", Outcome::Failed { asked: Duration::from_secs(7) }, NOW, 0.0);
        assert_eq!(state.take(NOW + (Duration::from_secs(7) - TICK)), None);
        assert_eq!(state.take(NOW + Duration::from_secs(7)), Some("cart"));
    }

    #[test]
    fn a_key_that_came_too_soon_is_begun_at_its_time_and_its_failures_still_count() {
        let mut state = State::default();
        state.finish("cart", FAILED, NOW, 1.0);
        state.add_at("cart", Timestamp::ZERO);
        assert_eq!(state.take(NOW), Some("cart"));
        state.finish("cart", Outcome::NotYet(NOW + FIRST_RETRY), NOW, 1.0);
        assert_eq!((state.take(NOW), state.next_due()), (None, Some(NOW + FIRST_RETRY)));
        assert_eq!(state.take(NOW + FIRST_RETRY), Some("cart"));
        state.finish("cart", FAILED, NOW, 1.0);
        assert_eq!(state.next_due(), Some(NOW + FIRST_RETRY * 2));
    }

    #[test]
    fn a_key_that_fails_and_changes_is_tried_at_once() {
        let mut state = State::default();
        state.finish("cart", FAILED, NOW, 1.0);
        state.add_at("cart", Timestamp::ZERO);
        assert_eq!(state.take(NOW), Some("cart"));
    }

    #[test]
    fn a_key_that_changes_is_not_tried_before_what_the_api_server_asked_for_until_it_works() {
        let asked = Duration::from_secs(7);
        let mut state = State::default();
        state.add_at("cart", Timestamp::ZERO);
        let mut took = vec![state.take(NOW)];
        // One change comes while it is worked on, one afterwards.
        state.add_at("cart", Timestamp::ZERO);
        state.finish("cart", Outcome::Failed { asked }, NOW, 1.0);
        took.push(state.take(NOW + (asked - TICK)));
        state.add_at("cart", Timestamp::ZERO);
        took.push(state.take(NOW + (asked - TICK)));
        took.push(state.take(NOW + asked));
        state.finish("cart", Outcome::Done, NOW + asked, 1.0);
        state.add_at("cart", Timestamp::ZERO);
        took.push(state.take(NOW + asked));
        assert_eq!(took, [Some("cart"), None, None, Some("cart"), Some("cart")]);
    }

    #[test]
    fn a_key_that_does_not_settle_waits_longer_and_longer_whatever_it_has_queued_itself() {
        let mut state = State::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            state.add_at("cart", Timestamp::ZERO);
            state.finish("cart", Outcome::Unsettled, NOW, 0.0);
            waits.push(state.next_due().expect("another try").since(NOW).as_millis());
            state.due.remove(&"cart");
            // What has not been tried since is as if it had been.
            state.failing.values_mut().for_each(|failing| failing.not_before = NOW);
        }
        assert_eq!(waits, [1_000, 1_000, 1_000, 1_000, 1_600, 3_200, 6_400, 12_800, 15_000]);
    }

    #[test]
    fn a_change_of_a_key_that_does_not_settle_is_looked_at_a_second_later() {
        let mut state = State::default();
        for _ in 0..8 {
            state.finish("cart", Outcome::Unsettled, NOW, 1.0);
        }
        state.add_at("cart", Timestamp::ZERO);
        let looks = [UNSETTLED_RETRY - TICK, UNSETTLED_RETRY].map(|after| state.take(NOW + after));
        assert_eq!(looks, [None, Some("cart")]);
    }

    #[test]
    fn a_key_counts_as_waiting_from_its_time_on() {
        let queue = Queue::default();
        queue.add("cart");
        queue.add_at("pay", NOW + TICK);
        let lengths = [NOW, NOW + TICK, NOW + TICK * 2].map(|at| queue.len(at));
        assert_eq!(lengths, [1, 2, 2]);
    }

    #[test]
    fn what_a_dropped_worker_had_begun_is_begun_anew() {
        let mut state = State::default();
        state.add_at("cart", Timestamp::ZERO);
        assert_eq!(state.take(NOW), Some("cart"));
        state.restart();
        assert_eq!(state.take(NOW), Some("cart"));
    }
}
