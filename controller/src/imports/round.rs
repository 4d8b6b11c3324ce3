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

/// Steps of one batch do not count on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    WrittenSlices,
    DeletedSlices,
}

/// Steps in the order of their plan, in batches whose steps may be carried out at the same time: slices that are written,
/// and slices that go. Any other step is alone.
pub(super) fn batches(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut batches: Vec<(Option<Together>, Vec<Step>)> = Vec::new();
    for step in steps {
        let together = match step {
            Step::CreateSlice(_) | Step::UpdateSlice { .. } => Some(Together::WrittenSlices),
            Step::DeleteSlice(_) => Some(Together::DeletedSlices),
            _ => None,
        };
        match batches.last_mut() {
            Some((before, batch)) if together.is_some() && *before == together => batch.push(step),
            _ => batches.push((together, vec![step])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// The slice whose endpoints a step writes.
pub(super) const fn written_slice(step: &Step) -> Option<&WantedSlice> {
    match step {
        Step::CreateSlice(wanted) | Step::UpdateSlice { wanted, .. } => Some(wanted),
        _ => None,
    }
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
        Update::of(step).is_some_and(|update| self.has_refused(update))
    }

    /// Whether the update was refused in this round.
    pub(super) fn has_refused(&self, update: Update) -> bool {
        self.refused.contains(&update)
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

    /// The steps of a batch that are to be carried out in this round, and how it goes on after them: a slice that was
    /// written before is not written again.
    pub(super) fn unwritten(&mut self, batch: Vec<Step>) -> (Vec<Step>, Slice) {
        let mut ends = Slice::Write;
        let mut begin = |step: &Step| {
            let slice = written_slice(step).map_or(Slice::Write, |wanted| self.slice(wanted));
            // What has changed again is written soon, whatever else does not stay.
            if slice != Slice::Write && ends != Slice::Later {
                ends = slice;
            }
            slice == Slice::Write
        };
        let batch = batch.into_iter().filter(|step| begin(step)).collect();
        (batch, ends)
    }

    /// What to do with a slice that a plan of this round wants written; takes note of it if that is to write it.
    fn slice(&mut self, wanted: &WantedSlice) -> Slice {
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
    fn slices_that_are_written_and_slices_that_go_are_batches_and_all_else_is_alone() {
        let write = |name| Step::CreateSlice(mk_slice(name, "10.0.0.1"));
        let update = |name| Step::UpdateSlice { base: mk_identity(), wanted: mk_slice(name, "10.0.0.2") };
        let delete = || Step::DeleteSlice(mk_identity());
        let batched = vec![
            vec![mk_update_import()],
            vec![mk_update_service()],
            vec![write("cart-1"), update("cart-2"), write("cart-3")],
            vec![delete(), delete()],
            vec![Step::RemoveForeignSlices(vec![mk_identity()])],
            vec![Step::RemoveForeignSlices(vec![mk_identity()])],
            vec![delete()],
        ];
        assert_eq!(batches(batched.concat()), batched);
    }

    #[test]
    fn of_a_batch_is_left_out_what_was_written_before_and_a_change_of_it_comes_soon() {
        let write = |name, address| Step::CreateSlice(mk_slice(name, address));
        let mut round = Round::default();
        let first = vec![write("cart-1", "10.0.0.1"), write("cart-2", "10.0.0.1")];
        assert_eq!(round.unwritten(first.clone()), (first.clone(), Slice::Write));
        let new = write("cart-3", "10.0.0.1");
        let unsettled = [first.clone(), vec![new.clone()]].concat();
        assert_eq!(round.unwritten(unsettled), (vec![new], Slice::Unsettled));
        let changed = vec![first[0].clone(), write("cart-2", "10.0.0.2"), first[1].clone()];
        assert_eq!(round.unwritten(changed), (Vec::new(), Slice::Later));
        let delete = vec![Step::DeleteSlice(mk_identity())];
        assert_eq!(round.unwritten(delete.clone()), (delete, Slice::Write));
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
