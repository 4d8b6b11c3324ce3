//! What an outbox believes that the registry was told and took.

use super::{Act, ActKind, Link, OpAnswer, Outbox, Progress, RefusedSpec, State};
use crate::ids::ServiceKey;
use crate::model::ExportSpec;
use crate::registry::Op;
use crate::time::Timestamp;
use crate::timing::COALESCE;
use crate::version::Leaf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Outbox {
    /// How far an export has come; none when the cluster does not export it.
    pub fn progress(&self, key: &ServiceKey) -> Option<Progress> {
        let state = self.exports.get(key)?;
        if let Some(refused) = self.refused.get(key) {
            return Some(Progress::Refused(refused.refusal.clone()));
        }
        let accepted = self.told.get(key).is_some_and(|told| told.leaf == state.leaf);
        Some(if accepted { Progress::Accepted } else { Progress::Pending })
    }

    /// Whether the registry has confirmed that it does not hold `key`.
    pub fn is_gone(&self, key: &ServiceKey) -> bool {
        let on_its_way = match &self.act {
            Some(Act { kind: ActKind::Write { sent }, .. }) => sent.contains_key(key),
            _ => false,
        };
        self.link == Link::Steady
            && !on_its_way
            && !self.exports.contains_key(key)
            && !self.told.contains_key(key)
    }

    /// What the registry should hold.
    pub(super) fn acceptable(&self) -> BTreeMap<ServiceKey, State> {
        self.exports.keys().filter_map(|key| Some((key.clone(), self.wanted(key)?))).collect()
    }

    /// What the registry should hold of one export: its last state. Where its definition is refused, the endpoints
    /// under the definition that was taken before; where that is the refused one, what was taken.
    pub(super) fn wanted(&self, key: &ServiceKey) -> Option<State> {
        let state = self.exports.get(key)?;
        if !self.refused.contains_key(key) {
            return Some(state.clone());
        }
        let told = self.told.get(key)?;
        if told.spec == state.spec || told.endpoints == state.endpoints {
            return Some(told.clone());
        }
        let (spec, endpoints) = (Arc::clone(&told.spec), Arc::clone(&state.endpoints));
        Some(State { leaf: Leaf::of(key, &spec, &endpoints), spec, endpoints })
    }

    /// Whether the refusal of an export holds for `spec` too, while the registry has it under another definition.
    pub(super) fn refusal_stands(&self, key: &ServiceKey, spec: &ExportSpec) -> bool {
        self.refused.get(key).is_some_and(|refused| *refused.spec == *spec)
            && self.told.get(key).is_some_and(|told| *told.spec != *spec)
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
                self.refused.insert(key.clone(), RefusedSpec { spec: sent.spec, refusal: refusal.clone() });
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
        let wanted = self.wanted(&key).map(|state| state.leaf);
        if wanted == self.told.get(&key).map(|state| state.leaf) {
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
