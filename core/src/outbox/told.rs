//! What an outbox believes that the registry was told and took.

use super::{Act, ActKind, Link, OpAnswer, Outbox, Progress, State};
use crate::ids::ServiceKey;
use crate::registry::Op;
use crate::time::Timestamp;
use crate::timing::COALESCE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Outbox {
    /// How far an export has come; none when the cluster does not export it.
    pub fn progress(&self, key: &ServiceKey) -> Option<Progress> {
        let state = self.exports.get(key)?;
        if let Some(refusal) = self.refused.get(key) {
            return Some(Progress::Refused(refusal.clone()));
        }
        let accepted = self.told.get(key).is_some_and(|told| told.leaf == state.leaf);
        Some(if accepted { Progress::Accepted } else { Progress::Pending })
    }

    /// Whether the registry has confirmed that it does not hold `key`.
    pub fn is_gone(&self, key: &ServiceKey) -> bool {
        let on_its_way = match &self.act {
            Some(Act { kind: ActKind::Write { told }, .. }) => told.contains_key(key),
            _ => false,
        };
        self.link == Link::Steady
            && !on_its_way
            && !self.exports.contains_key(key)
            && !self.told.contains_key(key)
    }

    /// Why the registry that was asked last will not have this cluster as a member; none while it has it, or has not
    /// said.
    pub fn turned_away(&self) -> Option<&str> {
        self.turned_away.as_deref()
    }

    pub(super) fn turn_away(&mut self, reason: Option<String>) {
        if self.turned_away != reason {
            self.turned_away = reason;
            self.dirty.extend(self.exports.keys().cloned());
        }
    }

    /// What the registry should hold: the last state of each export, or where that is refused the one it took before.
    pub(super) fn acceptable(&self) -> BTreeMap<ServiceKey, State> {
        let chosen =
            |(key, state)| if self.refused.contains_key(key) { self.told.get(key) } else { Some(state) };
        self.exports.iter().filter_map(|entry| Some((entry.0.clone(), chosen(entry)?.clone()))).collect()
    }

    pub(super) fn note_refusals(
        &mut self,
        results: &[OpAnswer],
        sent: impl Fn(&ServiceKey) -> Option<State>,
    ) {
        for (key, result) in results {
            self.dirty.insert(key.clone());
            let (Err(refusal), Some(sent)) = (result, sent(key)) else { continue };
            if self.exports.get(key).is_some_and(|state| state.leaf == sent.leaf) {
                self.refused.insert(key.clone(), refusal.clone());
            }
        }
    }

    pub(super) fn told_all(&mut self, told: BTreeMap<ServiceKey, State>) {
        let keys: BTreeSet<_> =
            self.told.keys().chain(told.keys()).chain(self.exports.keys()).cloned().collect();
        self.sum = told.values().map(|state| state.leaf).collect();
        self.told = told;
        for key in keys {
            self.compare(key);
        }
    }

    pub(super) fn tell(&mut self, key: ServiceKey, state: Option<State>) {
        let before = match state {
            Some(state) => {
                self.sum.add(state.leaf);
                self.told.insert(key, state)
            }
            None => {
                self.sent_at.remove(&key);
                self.told.remove(&key)
            }
        };
        if let Some(before) = before {
            self.sum.remove(before.leaf);
        }
    }

    pub(super) fn compare(&mut self, key: ServiceKey) {
        let wanted = self.exports.get(&key).map(|state| state.leaf);
        let same = wanted == self.told.get(&key).map(|state| state.leaf);
        if same || self.refused.contains_key(&key) {
            self.pending.remove(&key);
        } else {
            self.pending.insert(key.clone());
        }
        self.dirty.insert(key);
    }

    pub(super) fn due(&self, key: &ServiceKey) -> Timestamp {
        self.sent_at.get(key).map_or(Timestamp::ZERO, |sent| *sent + COALESCE)
    }
}

pub(super) fn put(key: &ServiceKey, state: &State) -> Op {
    Op::Put {
        key: key.clone(),
        leaf: state.leaf,
        spec: Arc::clone(&state.spec),
        endpoints: Arc::clone(&state.endpoints),
    }
}

pub(super) fn estimated_bytes(state: &State) -> usize {
    1_024 + 128 * state.endpoints.len()
}
