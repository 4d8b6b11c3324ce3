//! Regions of one Global Table: whole items travel between them, late and out of order, and of two writes of one item the
//! later one stands everywhere.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcs_core::time::{Clock, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::copies::Change;
use super::{Double, Options};
use crate::clock::SystemClock;

/// Some regions, each with [`super::TABLE`]. Nothing arrives by itself: what is due is taken by whoever asks a region next.
#[derive(Debug)]
pub struct Global {
    regions: BTreeMap<String, Double>,
    links: Vec<Arc<Link>>,
    lags: Arc<Mutex<Lags>>,
    clock: Arc<Hidden>,
}

/// A clock, of which nothing is shown.
struct Hidden(Arc<dyn Clock>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a clock")
    }
}

/// How long items travel, of which the last that is meant counts.
#[derive(Debug)]
struct Lags(Vec<(String, Range<Duration>)>);

/// The way from one region to another.
#[derive(Debug)]
pub(super) struct Link {
    from: String,
    to: String,
    lags: Arc<Mutex<Lags>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_cut: bool,
    /// What was sent and has not arrived, with when it is due.
    under_way: Vec<(Timestamp, Change)>,
    random: StdRng,
}

impl Global {
    /// Regions of these names, with no lag yet.
    pub async fn of(regions: &[&str]) -> Self {
        Self::with(regions, 0, Arc::new(SystemClock)).await
    }

    /// Regions of these names, where what is random comes of `seed` and items travel by `clock`.
    pub async fn with(regions: &[&str], seed: u64, clock: Arc<dyn Clock>) -> Self {
        let mut started = BTreeMap::new();
        for (number, region) in (0..).zip(regions) {
            let options =
                Options { region: (*region).to_owned(), seed: seed ^ number, clock: Arc::clone(&clock) };
            started.insert((*region).to_owned(), Double::start_with(options).await);
        }
        let lags = Arc::new(Mutex::new(Lags(vec![(String::new(), Duration::ZERO..Duration::ZERO)])));
        let mut links = Vec::new();
        for (number, (from, to)) in (1_u64..).zip(pairs(&started)) {
            let random = StdRng::seed_from_u64(seed.wrapping_add(number << 32));
            let state = Mutex::new(State { is_cut: false, under_way: Vec::new(), random });
            let link = Link { from: from.clone(), to: to.clone(), lags: Arc::clone(&lags), state };
            let link = Arc::new(link);
            started[&from].shared.copies.lock().await.outward.push(Arc::clone(&link));
            started[&to].shared.copies.lock().await.inward.push(Arc::clone(&link));
            links.push(link);
        }
        Self { regions: started, links, lags, clock: Arc::new(Hidden(clock)) }
    }

    /// One of the regions.
    ///
    /// # Panics
    /// It is none of them.
    pub fn region(&self, name: &str) -> &Double {
        &self.regions[name]
    }

    /// From now on, each item that is written travels for a time within this, so that one may overtake another.
    pub fn set_lag(&self, lag: Range<Duration>) {
        lock(&self.lags).0 = vec![(String::new(), lag)];
    }

    /// The same for items alone whose sort key begins so.
    pub fn set_lag_of(&self, sort_key: &str, lag: Range<Duration>) {
        lock(&self.lags).0.push((sort_key.to_owned(), lag));
    }

    /// Nothing travels between any two regions any more, not even what is under way.
    pub fn cut(&self) {
        self.links.iter().for_each(|link| link.state().is_cut = true);
    }

    /// Nothing travels from one region to the other any more; the other way is as it was.
    pub fn cut_from(&self, from: &str, to: &str) {
        let cut = self.links.iter().filter(|link| link.from == from && link.to == to);
        cut.for_each(|link| link.state().is_cut = true);
    }

    /// All travels again; what waited does so from now on.
    pub fn heal(&self) {
        let now = self.clock.0.elapsed();
        self.links.iter().for_each(|link| link.heal(now));
    }

    /// The clock of a region by which its writes are dated is so much ahead, or behind where that is negative: a write that is dated
    /// earlier than it was loses against one that was before it.
    pub async fn set_ahead(&self, region: &str, millis: i64) {
        self.regions[region].shared.copies.lock().await.ahead = i128::from(millis) * 1_000_000;
    }

    /// All that is under way arrives now, where nothing is cut.
    pub async fn deliver(&self) {
        for region in self.regions.values() {
            region.shared.arrive_by(Timestamp::MAX).await;
        }
    }

    /// How many items are under way, cut or not.
    pub fn under_way(&self) -> usize {
        self.links.iter().map(|link| link.state().under_way.len()).sum()
    }
}

fn pairs<T>(regions: &BTreeMap<String, T>) -> Vec<(String, String)> {
    let others = |from: &String| {
        let from = from.clone();
        regions.keys().filter(move |to| **to != from.clone()).cloned().collect::<Vec<_>>()
    };
    regions.keys().flat_map(|from| others(from).into_iter().map(|to| (from.clone(), to))).collect()
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An item begins to travel.
    pub(super) fn send(&self, change: &Change, now: Timestamp) {
        let mut state = self.state();
        let due = now + self.lag(change, &mut state.random);
        state.under_way.push((due, change.clone()));
    }

    /// What arrives until then, in the order in which it does.
    pub(super) fn arrived(&self, then: Timestamp) -> Vec<Change> {
        let mut state = self.state();
        if state.is_cut {
            return Vec::new();
        }
        let (mut arrived, left): (Vec<_>, Vec<_>) =
            state.under_way.drain(..).partition(|(due, _)| due.has_passed(then));
        state.under_way = left;
        arrived.sort_by_key(|(due, _)| *due);
        arrived.into_iter().map(|(_, change)| change).collect()
    }

    fn heal(&self, now: Timestamp) {
        let mut state = self.state();
        let State { is_cut, under_way, random } = &mut *state;
        if !std::mem::take(is_cut) {
            return;
        }
        for (due, change) in under_way {
            *due = now + self.lag(change, random);
        }
    }

    fn lag(&self, change: &Change, random: &mut StdRng) -> Duration {
        let sort_key = change.key["sk"]["S"].as_str().unwrap_or_default();
        let lags = lock(&self.lags);
        let meant = lags.0.iter().rev().find(|(of, _)| sort_key.starts_with(of.as_str()));
        match meant {
            Some((_, lag)) if lag.start < lag.end => random.random_range(lag.clone()),
            Some((_, lag)) => lag.start,
            None => Duration::ZERO,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
