//! What an outbox believes that the registry was told and took.

use super::{Act, ActKind, Link, OpAnswer, Outbox, Progress, State};
use crate::ids::ServiceKey;
use crate::limits::MAX_REFUSED_NAMED;
use crate::model::{ExportSpec, HeldExport, RefusedExports};
use crate::registry::Op;
use crate::time::Timestamp;
use crate::timing::COALESCE;
use crate::validate::Refusal;
use crate::version::Leaf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why an export is not taken as it is.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// Its definition then; while it stays so, the refusal stands.
    spec: Arc<ExportSpec>,
    /// The state that was refused last: it is not put again.
    leaf: Leaf,
    refusal: Refusal,
}

/// What the registry should hold of one export.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The hash that it is named with.
    pub(super) leaf: Leaf,
    /// What is put when it is wanted. It has another hash where that was refused and something else is known to stand:
    /// a registry which has not even that is to say so.
    pub(super) state: State,
}

impl Claim {
    /// What a registry holds that takes the claim as it is named.
    pub(super) fn named(&self) -> HeldExport {
        HeldExport { leaf: self.leaf, spec: Arc::clone(&self.state.spec) }
    }
}

impl State {
    /// What a registry holds that takes it.
    pub(super) fn held(&self) -> HeldExport {
        HeldExport { leaf: self.leaf, spec: Arc::clone(&self.spec) }
    }
}

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

    /// The exports that registries refuse as they are.
    pub fn refused(&self) -> RefusedExports {
        let named = self.refused.iter().take(MAX_REFUSED_NAMED);
        RefusedExports {
            total: u32::try_from(self.refused.len()).unwrap_or(u32::MAX),
            first: named.map(|(key, refused)| (key.clone(), refused.refusal.clone())).collect(),
        }
    }

    /// Whether the cluster exports `key`, as far as registries take it: not while it is refused and nothing of it stands.
    /// It changes with the [`Progress`] only.
    pub fn is_exported(&self, key: &ServiceKey) -> bool {
        self.wanted(key).is_some()
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
    pub(super) fn claims(&self) -> BTreeMap<ServiceKey, Claim> {
        self.exports.keys().filter_map(|key| Some((key.clone(), self.claim(key)?))).collect()
    }

    /// What the registry should hold, and the exports of which it has nothing, since they were refused: one of another
    /// version may take them.
    pub(super) fn all_claims(&self) -> BTreeMap<ServiceKey, Claim> {
        let last = |state: &State| Claim { leaf: state.leaf, state: state.clone() };
        self.exports
            .iter()
            .map(|(key, state)| (key.clone(), self.claim(key).unwrap_or_else(|| last(state))))
            .collect()
    }

    /// What the registry should hold of one export: what is wanted, or what is held while just that is refused.
    fn claim(&self, key: &ServiceKey) -> Option<Claim> {
        let state = self.wanted(key)?;
        let refused = self.refused.get(key).is_some_and(|refused| refused.leaf == state.leaf);
        let stands = self.told.get(key).filter(|_| refused);
        Some(Claim { leaf: stands.map_or(state.leaf, |held| held.leaf), state })
    }

    /// The last state of one export. Where its definition is refused, the endpoints under the definition that is held.
    pub(super) fn wanted(&self, key: &ServiceKey) -> Option<State> {
        let state = self.exports.get(key)?;
        if !self.refused.contains_key(key) {
            return Some(state.clone());
        }
        let (spec, endpoints) = (Arc::clone(&self.told.get(key)?.spec), Arc::clone(&state.endpoints));
        let changed_at = state.changed_at;
        Some(State { leaf: Leaf::of(key, &spec, &endpoints), spec, endpoints, changed_at })
    }

    /// Whether the refusal of an export holds for `spec` too, while the registry has it under another definition.
    pub(super) fn refusal_stands(&self, key: &ServiceKey, spec: &ExportSpec) -> bool {
        self.refused.get(key).is_some_and(|refused| *refused.spec == *spec)
            && self.told.get(key).is_some_and(|told| *told.spec != *spec)
    }

    /// Takes note of what is refused as it still is; `sent` names what was put.
    pub(super) fn note_refusals(&mut self, results: &[OpAnswer], sent: impl Fn(&ServiceKey) -> Option<Leaf>) {
        for (key, result) in results {
            self.dirty.insert(key.clone());
            let (Err(refusal), Some(leaf)) = (result, sent(key)) else { continue };
            if let Some(state) = self.exports.get(key)
                && self.wanted(key).is_some_and(|wanted| wanted.leaf == leaf)
            {
                let refused = Refused { spec: Arc::clone(&state.spec), leaf, refusal: refusal.clone() };
                self.refused.insert(key.clone(), refused);
            }
        }
    }

    /// A refusal is over where the definition was taken after all.
    pub(super) fn end_refusals(&mut self, claims: &BTreeMap<ServiceKey, Claim>, results: &[OpAnswer]) {
        for (key, _) in results.iter().filter(|(_, result)| result.is_ok()) {
            let taken =
                |refused: &Refused| claims.get(key).is_some_and(|claim| claim.state.spec == refused.spec);
            if self.refused.get(key).is_some_and(taken) {
                self.refused.remove(key);
            }
        }
    }

    /// Another version of the registry may take what is refused; what stands of it was told first.
    pub(super) fn try_refused_again(&mut self, claims: &BTreeMap<ServiceKey, Claim>) {
        // Not what has just been refused.
        let untried = |key: &ServiceKey, refused: &Refused| {
            claims.get(key).is_some_and(|claim| claim.state.spec != refused.spec)
        };
        let refused = self.refused.iter().filter(|(key, refused)| untried(key, refused));
        let keys: Vec<_> = refused.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.refused.remove(&key);
            self.compare(key);
        }
    }

    pub(super) fn told_all(&mut self, told: BTreeMap<ServiceKey, HeldExport>) {
        let keys: BTreeSet<_> =
            self.told.keys().chain(told.keys()).chain(self.exports.keys()).cloned().collect();
        self.sum = told.values().map(|held| held.leaf).collect();
        self.told = told;
        for key in keys {
            self.compare(key);
        }
    }

    pub(super) fn tell(&mut self, key: ServiceKey, held: Option<HeldExport>) {
        let before = match held {
            Some(held) => {
                self.sum.add(held.leaf);
                self.told.insert(key, held)
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
        let claimed = self.claim(&key).map(|claim| claim.leaf);
        let held = self.told.get(&key).map(|held| held.leaf);
        if let Some(state) = self.exports.get_mut(&key).filter(|state| held == Some(state.leaf)) {
            // A registry has taken it: told again, to this one or another, it is no change any more.
            state.changed_at = None;
        }
        if claimed == held {
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

/// What a registry holds after a sync that it was told `claims` in.
pub(super) fn after_sync(
    claims: &BTreeMap<ServiceKey, Claim>,
    results: &[OpAnswer],
    held: &BTreeMap<ServiceKey, HeldExport>,
) -> BTreeMap<ServiceKey, HeldExport> {
    let mut told: BTreeMap<_, _> = claims.iter().map(|(key, claim)| (key.clone(), claim.named())).collect();
    for (key, result) in results {
        let Some(claim) = claims.get(key) else { continue };
        told.remove(key);
        let stands = if result.is_ok() { Some(claim.state.held()) } else { held.get(key).cloned() };
        told.extend(stands.map(|stands| (key.clone(), stands)));
    }
    told
}

pub(super) fn put(key: &ServiceKey, state: &State) -> Op {
    Op::Put {
        key: key.clone(),
        leaf: state.leaf,
        spec: Arc::clone(&state.spec),
        endpoints: Arc::clone(&state.endpoints),
        changed_at: state.changed_at,
    }
}

pub(super) fn estimated_bytes(state: &State) -> usize {
    1_024 + 128 * state.endpoints.len()
}
