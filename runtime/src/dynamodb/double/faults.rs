//! What goes wrong, as the test says, now.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use super::asked::Asked;
use crate::dynamodb::Action;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `ThrottlingException`, not done.
    Throttled,
    /// `ProvisionedThroughputExceededException`, not done.
    ThroughputExceeded,
    /// `InternalServerError`, status 500, not done.
    InternalError,
    /// Status 503 without a word of DynamoDB, as from a load balancer; not done.
    Unavailable,
    /// `AccessDeniedException`, not done.
    Denied,
    /// `ExpiredTokenException`, not done.
    ExpiredToken,
    /// No answer ever, not done.
    Silence,
    /// Waits until this rule is gone, and is done then.
    Held,
    /// Done, and the connection ends before the answer.
    LostAnswer,
    /// The connection ends, not done.
    Reset,
    /// Done this much later.
    Late(Duration),
    /// Of a batch, every second item is left undone and named as such; done, of anything else.
    Unprocessed,
}

/// Whom a fault befalls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    fault: Fault,
    share: f64,
    actions: Vec<Action>,
    partition: Option<String>,
    spared: u64,
    times: u64,
}

impl Rule {
    /// Every call.
    pub const fn new(fault: Fault) -> Self {
        Self { fault, share: 1.0, actions: Vec::new(), partition: None, spared: 0, times: u64::MAX }
    }

    /// About this share of them, from 0 to 1, by the seed.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Only these actions.
    #[must_use]
    pub fn of(self, actions: &[Action]) -> Self {
        Self { actions: actions.to_vec(), ..self }
    }

    /// Only what names this partition key.
    #[must_use]
    pub fn partition(self, pk: &str) -> Self {
        Self { partition: Some(pk.to_owned()), ..self }
    }

    /// None of the next so many, whatever befalls them otherwise.
    #[must_use]
    pub fn after(self, spared: u64) -> Self {
        Self { spared, ..self }
    }

    /// Only the next so many, after those that are spared.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn means(&self, asked: &Asked) -> bool {
        let is_of = |action: &Action| action.as_str() == asked.action;
        (self.actions.is_empty() || self.actions.iter().any(is_of))
            && self.partition.as_ref().is_none_or(|pk| asked.names(pk))
    }
}

/// What becomes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// They are served.
    #[default]
    Open,
    /// They are refused, as on a port where nobody listens; those that are open end.
    Refusing,
    /// They are made, and nothing is ever answered on them, nor on those that are open: not until the door changes, when they all end.
    Silent,
}

/// The faults of a double.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
    /// Counts changes of the rules.
    changes: watch::Sender<u64>,
    door: watch::Sender<Door>,
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    /// The names of all actions that are allowed; none: there is no policy.
    policy: Option<BTreeSet<String>>,
    /// How many calls something befell.
    befallen: u64,
    random: StdRng,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let state = State { rules: Vec::new(), policy: None, befallen: 0, random };
        Self { state: Mutex::new(state), changes: watch::Sender::default(), door: watch::Sender::default() }
    }

    /// One more fault; of those that befall a call, delays add up, and of the others the first counts.
    pub fn add(&self, rule: Rule) {
        self.change(|rules| rules.push(rule));
    }

    /// No call of this kind is allowed any more.
    pub fn deny(&self, action: Action) {
        self.add(Rule::new(Fault::Denied).of(&[action]));
    }

    /// Only these actions are allowed from now on, by the names that a policy has for them (`Query`); [`Faults::clear`]
    /// does not end that.
    pub fn allow_only(&self, actions: impl IntoIterator<Item = String>) {
        self.state().policy = Some(actions.into_iter().collect());
    }

    /// How many calls some fault befell so far, delays apart.
    pub fn befallen(&self) -> u64 {
        self.state().befallen
    }

    /// No faults of calls any more; the door stays as it is.
    pub fn clear(&self) {
        self.change(Vec::clear);
    }

    /// What becomes of connections from now on.
    pub fn door(&self, door: Door) {
        self.door.send_replace(door);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Rule>)) {
        change(&mut self.state().rules);
        self.changes.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch_door(&self) -> watch::Receiver<Door> {
        self.door.subscribe()
    }

    /// What befalls a call now: a delay, and a fault.
    pub(super) fn befall(&self, asked: &Asked) -> (Duration, Option<Fault>) {
        let mut state = self.state();
        let State { rules, policy, befallen, random } = &mut *state;
        let is_allowed = policy.as_ref().is_none_or(|actions| actions.contains(&asked.action));
        let (mut delay, mut fault) = (Duration::ZERO, (!is_allowed).then_some(Fault::Denied));
        for rule in rules {
            let is_late = matches!(rule.fault, Fault::Late(_));
            if !rule.means(asked) {
                continue;
            }
            if rule.spared > 0 {
                rule.spared -= 1;
                continue;
            }
            if rule.times == 0 || (fault.is_some() && !is_late) {
                continue;
            }
            if rule.share < 1.0 && !random.random_bool(rule.share.clamp(0.0, 1.0)) {
                continue;
            }
            rule.times -= 1;
            match rule.fault {
                Fault::Late(by) => delay += by,
                other => fault = Some(other),
            }
        }
        *befallen += u64::from(fault.is_some());
        (delay, fault)
    }

    /// Waits until no rule holds it.
    pub(super) async fn released(&self, asked: &Asked) {
        let mut changes = self.changes.subscribe();
        let is_held = || {
            let state = self.state();
            state.rules.iter().any(|rule| rule.fault == Fault::Held && rule.means(asked))
        };
        while is_held() && changes.changed().await.is_ok() {}
    }
}
