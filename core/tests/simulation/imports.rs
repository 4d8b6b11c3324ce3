//! The importing half of a controller's driver: decisions and plans, until nothing is left to write.

use crate::controller::Controller;
use crate::facts::TIMING;
use crate::invariants::{self, Truth};
use crate::world::{Event, World};
use mcs_core::ids::ServiceKey;
use mcs_core::plan::{Step, plan};
use mcs_core::view::{Decision, Source};
use rand::Rng;
use std::rc::Rc;
use std::time::Duration;

/// A plan that is not done after so many rounds does not end.
const MANY_ROUNDS: usize = 8;

impl World {
    /// Decides about one import and carries the plan out. Says whether the process still lives.
    pub(crate) fn reconcile(&mut self, controller: &mut Controller, key: &ServiceKey) -> bool {
        let index = controller.cluster;
        let before = self.clusters[index].existing(key);
        for _ in 0..MANY_ROUNDS {
            let home = &self.clusters[index];
            controller.tell_applied(key, home);
            let decision = controller.view.decide(key);
            if let Decision::Apply(wanted) = &decision {
                for (cluster, source) in &wanted.sources {
                    let Source::Show(shown) = source else { continue };
                    invariants::invariant_01_versions_shown_never_fall(&mut controller.shown, key, shown);
                    invariants::invariant_05_a_shown_part_is_whole(&self.book, key, cluster, shown);
                }
            }
            let existing = home.existing(key);
            let settled = controller.settled.get(key);
            let as_before =
                settled.is_some_and(|(then, found)| *then == decision && Rc::ptr_eq(found, &existing));
            if as_before {
                return true;
            }
            let steps = plan(key, &decision, &existing, &home.config);
            if !steps.iter().any(Step::is_write) {
                let after = existing;
                let truth = Truth {
                    book: &self.book,
                    removed: &self.removed,
                    witness: self.watched_by(&controller.mirror).map(|server| &server.witness),
                    now: self.now,
                };
                invariants::invariant_02_each_delete_has_its_cause(controller, home, key, &before, &truth);
                invariants::invariant_01_slices_never_go_back(&before, &after);
                controller.settled.insert(key.clone(), (decision, after));
                return true;
            }
            for (at, step) in steps.iter().enumerate() {
                self.log(|| {
                    format!("controller {} of cluster {index} writes {key}: {step:?}", controller.pid)
                });
                let home = &mut self.clusters[index];
                assert_eq!(home.run(key, step), Ok(()), "a leader's step fits what it has just read");
                if let Some(left) = &mut controller.dies_after {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        controller.dies_after = None;
                        self.count("deaths within a plan");
                        // The rest of the plan may be under way.
                        for step in &steps[at + 1..] {
                            let at = self.now + self.rng.random_range(Duration::ZERO..TIMING.lease());
                            self.at(
                                at,
                                Event::LateStep {
                                    cluster: index,
                                    key: key.clone(),
                                    step: Box::new(step.clone()),
                                },
                            );
                        }
                        return false;
                    }
                }
            }
        }
        panic!("invariant 14: the plan for {key} does not end");
    }

    pub(crate) fn die(&mut self, controller: &Controller) {
        self.log(|| format!("controller {} dies within a plan", controller.pid));
        let at = self.now + self.rng.random_range(Duration::ZERO..2 * TIMING.lease());
        self.at(at, Event::StartController(controller.cluster));
    }

    /// A write of a leader that is no more. The fence before each write lets no new one begin, so only what is bound to
    /// what was read may still be under way.
    pub(crate) fn late_step(&mut self, cluster: usize, key: &ServiceKey, step: &Step) {
        if matches!(step, Step::CreateImport(_) | Step::CreateService(_) | Step::CreateSlice(_)) {
            return;
        }
        let result = self.clusters[cluster].run(key, step);
        self.log(|| format!("a late step in cluster {cluster} on {key}: {result:?} {step:?}"));
        self.count(if result.is_ok() { "late writes taken" } else { "late writes refused" });
        if result.is_ok() {
            self.touched(cluster, key);
        }
    }

    /// Objects of an import were changed by somebody: its controller sees it.
    pub(crate) fn touched(&mut self, cluster: usize, key: &ServiceKey) {
        let Some(pid) = self.leader(cluster) else { return };
        if let Some(controller) = self.controllers.get_mut(&pid) {
            controller.touched.insert(key.clone());
        }
        self.drive(pid);
    }
}
