//! What one round of work on an import has met.

use crate::writes::WriteFailed;
use mcs_core::plan::Step;

/// What must outlast the plans of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The updates that the API server refused, and its first refusal.
    refused: Vec<Update>,
    refusal: Option<WriteFailed>,
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

    /// The first refusal of this round.
    pub(super) fn refusal(&mut self) -> Option<WriteFailed> {
        self.refusal.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn told(failed: Option<WriteFailed>) -> Option<String> {
        failed.map(|failed| failed.to_string())
    }

    fn mk_refusal(code: u16) -> Result<(), WriteFailed> {
        Err(WriteFailed::Refused { code, message: "no".to_owned() })
    }

    fn mk_identity() -> Identity {
        Identity { name: "cart".to_owned(), uid: "1".to_owned(), resource_version: "2".to_owned() }
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
