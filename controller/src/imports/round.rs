//! What one round of work on an import has met.

use crate::writes::WriteFailed;
use mcs_core::plan::{Step, WantedSlice};
use std::collections::BTreeMap;

/// What must outlast the plans of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The updates that the API server refused, and its first refusal.
    refused: Vec<Update>,
    refusal: Option<WriteFailed>,
    /// The slices that were written, by name, as they were wanted.
    written: BTreeMap<String, WantedSlice>,
}

/// What to do with the endpoints of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// They are new in this round: write them.
    Write,
    /// They were written in this round and have changed again: write them in another one.
    Later,
    /// They were written in this round, and did not stay.
    Unsettled,
}

/// An update after which the other steps of its plan make sense whether it was done or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    Import,
    Service,
}

impl Update {
    /// Which one the step is, if it is one.
    pub(super) const fn of(step: &Step) -> Option<Self> {
        match step {
            Step::UpdateImport { .. } => Some(Self::Import),
            Step::UpdateService { .. } => Some(Self::Service),
            Step::CreateImport(_)
            | Step::UpdateImportStatus { .. }
            | Step::CreateService(_)
            | Step::DeleteService(_)
            | Step::CreateSlice(_)
            | Step::UpdateSlice { .. }
            | Step::DeleteSlice(_)
            | Step::RemoveForeignSlices(_)
            | Step::DeleteImport(_)
            | Step::Report(_) => None,
        }
    }
}

impl Round {
    /// Whether the step is an update that was refused in this round, which is left to the next one.
    pub(super) fn was_refused(&self, step: &Step) -> bool {
        Update::of(step).is_some_and(|update| self.refused.contains(&update))
    }

    /// Takes what became of a step, which is `update` if it is one.
    ///
    /// # Errors
    /// It failed, and ends the round. Of several refusals the first is the one to tell.
    pub(super) fn take(
        &mut self,
        update: Option<Update>,
        became: Result<(), WriteFailed>,
    ) -> Result<(), WriteFailed> {
        match (became, update) {
            (Err(refusal @ WriteFailed::Refused { .. }), Some(update)) => {
                self.refused.push(update);
                self.refusal.get_or_insert(refusal);
                Ok(())
            }
            (Err(refusal @ WriteFailed::Refused { .. }), None) => Err(self.refusal().unwrap_or(refusal)),
            (became, _) => became,
        }
    }

    /// What to do with a slice that a plan of this round wants written; takes note of it if that is to write it.
    pub(super) fn slice(&mut self, wanted: &WantedSlice) -> Slice {
        match self.written.get(&wanted.name) {
            Some(written) if written == wanted => Slice::Unsettled,
            Some(_) => Slice::Later,
            None => {
                self.written.insert(wanted.name.clone(), wanted.clone());
                Slice::Write
            }
        }
    }

    /// The first refusal of this round.
    pub(super) fn refusal(&mut self) -> Option<WriteFailed> {
        self.refusal.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_core::model::IpFamily;
    use mcs_core::plan::{Entries, Identity, ImportSpec, ServiceSpec, WantedImport, WantedService};

    #[test]
    fn a_round_goes_on_after_refused_updates_without_them_and_ends_with_the_first_refusal() {
        let (import, service, slice) =
            (mk_update_import(), mk_update_service(), Step::DeleteSlice(mk_identity()));
        let mut round = Round::default();
        let left_out = |round: &Round| [&import, &service, &slice].map(|step| round.was_refused(step));
        let mut seen = vec![left_out(&round)];
        round.take(Update::of(&import), mk_refusal(422)).expect("the round goes on");
        seen.push(left_out(&round));
        round.take(Update::of(&service), mk_refusal(403)).expect("the round goes on");
        round.take(Update::of(&slice), Ok(())).expect("the round goes on");
        seen.push(left_out(&round));
        assert_eq!(seen, [[false, false, false], [true, false, false], [true, true, false]]);
        assert_eq!(told(round.refusal()), told(mk_refusal(422).err()));
    }

    #[test]
    fn what_else_fails_ends_a_round_and_of_several_refusals_the_first_is_told() {
        let (service, slice) = (mk_update_service(), Step::DeleteSlice(mk_identity()));
        let mut ends = Vec::new();
        for refused_before in [false, true] {
            let mut round = Round::default();
            if refused_before {
                round.take(Update::of(&service), mk_refusal(403)).expect("the round goes on");
            }
            let mut end = |step, became| told(round.take(Update::of(step), became).err());
            ends.push([
                end(&service, Err(WriteFailed::TimedOut)),
                end(&slice, Err(WriteFailed::Gone)),
                end(&slice, mk_refusal(422)),
            ]);
        }
        let ending = |refusal| [Some(WriteFailed::TimedOut), Some(WriteFailed::Gone), refusal].map(told);
        assert_eq!(ends, [ending(mk_refusal(422).err()), ending(mk_refusal(403).err())]);
    }

    #[test]
    fn a_slice_that_is_wanted_twice_in_a_round_has_changed_or_does_not_keep_what_is_written() {
        let (one, two) = (mk_slice("cart-1", "10.0.0.1"), mk_slice("cart-1", "10.0.0.2"));
        let other = mk_slice("cart-2", "10.0.0.1");
        let mut round = Round::default();
        let seen = [&one, &other, &two, &one, &other].map(|wanted| round.slice(wanted));
        assert_eq!(seen, [Slice::Write, Slice::Write, Slice::Later, Slice::Unsettled, Slice::Unsettled]);
    }

    fn told(failed: Option<WriteFailed>) -> Option<String> {
        failed.map(|failed| failed.to_string())
    }

    fn mk_refusal(code: u16) -> Result<(), WriteFailed> {
        Err(WriteFailed::Refused { code, message: "no".to_owned() })
    }

    fn mk_identity() -> Identity {
        Identity { name: "cart".to_owned(), uid: "1".to_owned(), resource_version: "2".to_owned() }
    }

    fn mk_slice(name: &str, address: &str) -> WantedSlice {
        WantedSlice {
            name: name.to_owned(),
            labels: Entries::default(),
            annotations: [("version".to_owned(), address.to_owned())].into(),
            owner: "1".to_owned(),
            family: IpFamily::V4,
            ports: Vec::new(),
            endpoints: BTreeMap::new(),
        }
    }

    fn mk_update_import() -> Step {
        let wanted = WantedImport {
            labels: Entries::default(),
            annotations: Entries::default(),
            spec: ImportSpec::default(),
        };
        Step::UpdateImport { base: mk_identity(), wanted, full: false }
    }

    fn mk_update_service() -> Step {
        let wanted = WantedService {
            name: "derived-cart".to_owned(),
            labels: Entries::default(),
            annotations: Entries::default(),
            owner: "1".to_owned(),
            spec: ServiceSpec::default(),
        };
        Step::UpdateService { base: mk_identity(), wanted, full: false }
    }
}
