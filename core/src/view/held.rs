//! The parts that the view has when a watch begins anew, so that they need not be told again.
//!
//! Of each cluster the view offers what its parts add up to. A registry whose own parts of the cluster add up to the
//! same says so in their place, and the view goes on as if it had been told them, as of the version that the registry
//! names. So no rule of the view knows of it, and nothing is shown, kept or deleted otherwise than after a full snapshot.
//!
//! What is offered is summed up from the parts themselves, never copied from a section: a view that was cut off between
//! two changes has neither the set before nor the set after them.

use super::View;
use crate::ids::{Build, ClusterId, ServiceKey};
use crate::model::{Part, PartSet, Since};
use crate::version::{Sum, Version};
use std::collections::BTreeMap;

/// All parts of one cluster, as of some snapshot and what followed it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    set: PartSet,
    parts: BTreeMap<ServiceKey, Part>,
}

/// A registry takes parts for known here that are not. The snapshot is void, and the watch is to be begun again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the registry takes parts of cluster {cluster} with the sum {sum} for known here, which they are not"
)]
pub struct NotHeld {
    /// The cluster.
    pub cluster: ClusterId,
    /// The sum that the registry named.
    pub sum: Sum,
}

impl View {
    /// What a new watch need not tell again.
    pub fn since(&self) -> Since {
        if self.watch.build.as_str().is_empty() {
            // A registry that does not name its version does not ask for this either.
            return Since::default();
        }
        let sets = self.holding().into_iter().map(|(cluster, held)| (cluster, held.set)).collect();
        Since { build: self.watch.build.clone(), sets }
    }

    /// A new snapshot begins, by a registry of the version `build`: what is known now stays at hand.
    pub(super) fn hold(&mut self, build: &Build) {
        self.held = if *build == self.watch.build { self.holding() } else { BTreeMap::new() };
    }

    /// Takes all parts of `cluster` for told, if they are `set`.
    pub(super) fn kept(
        &mut self,
        cluster: ClusterId,
        set: &PartSet,
        version: Version,
    ) -> Result<(), NotHeld> {
        let Some(held) = self.held.remove(&cluster).filter(|held| held.set == *set) else {
            self.held.clear();
            self.watch.ended = false;
            return Err(NotHeld { cluster, sum: set.sum });
        };
        for (key, part) in held.parts {
            self.part(key, &cluster, Some(Part { version, ..part }));
        }
        Ok(())
    }

    /// What was told to the end, and of clusters of which nothing was told since, what was told before.
    fn holding(&self) -> BTreeMap<ClusterId, Held> {
        let mut held = self.held.clone();
        if !self.watch.ended {
            return held;
        }
        let mut told: BTreeMap<&ClusterId, Vec<(&ServiceKey, &Part)>> = BTreeMap::new();
        for (key, service) in &self.services {
            for (cluster, known) in &service.sources {
                if let Some(part) = known.told.as_ref().filter(|part| part.snapshot == self.watch.snapshot) {
                    told.entry(cluster).or_default().push((key, &part.object));
                }
            }
        }
        for (cluster, parts) in told {
            let Some(uid) = parts.first().map(|(_, part)| part.uid.clone()) else { continue };
            // While one cluster follows another under an id, there is no set of either.
            if parts.iter().all(|(_, part)| part.uid == uid) {
                let sum = parts.iter().map(|(_, part)| part.leaf).collect();
                let parts = parts.into_iter().map(|(key, part)| (key.clone(), part.clone())).collect();
                held.insert(cluster.clone(), Held { set: PartSet { uid, sum }, parts });
            }
        }
        held
    }
}
