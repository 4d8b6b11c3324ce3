//! A cluster as importer: its watch of whichever replica, its view, and what it shows.

use super::world::{Event, World};
use crate::facts::{BUILDS, cluster_id, keys, place_of};
use crate::invariants;
use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{EndpointSet, MemberState, Since};
use mcs_core::version::Version;
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View};
use mcs_core::watch::Watcher;
use rand::Rng;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) struct Importer {
    pub(crate) place: usize,
    pub(crate) view: View,
    watch: Option<(usize, Epoch, Watcher)>,
    /// What it shows by import and source: whose, as of which version.
    pub(crate) shows: BTreeMap<ServiceKey, BTreeMap<ClusterId, Shows>>,
    floors: BTreeMap<(ServiceKey, ClusterUid), Version>,
}

#[derive(Clone, Debug)]
pub(crate) struct Shows {
    pub(crate) uid: Option<ClusterUid>,
    pub(crate) version: Option<Version>,
    pub(crate) endpoints: Arc<EndpointSet>,
}

impl Importer {
    pub(crate) fn new(place: usize) -> Self {
        let mut view = View::new(cluster_id(place));
        view.own_listed();
        Self { place, view, watch: None, shows: BTreeMap::new(), floors: BTreeMap::new() }
    }
}

impl World {
    pub(crate) fn poll(&mut self, index: usize) {
        let later = self.some(100, 400);
        self.at(self.now + later, Event::Poll(index));
        let mut importer = std::mem::replace(&mut self.importers[index], Importer::new(index));
        self.follow(&mut importer);
        self.importers[index] = importer;
    }

    fn follow(&mut self, importer: &mut Importer) {
        let now = self.now;
        let build = Build::new(BUILDS[1]).expect("a build");
        for key in keys() {
            let own =
                self.owners[importer.place].exports.get(key).map(|(_, endpoints)| Arc::clone(endpoints));
            importer.view.set_own(key.clone(), own);
        }
        let serves = |world: &Self, slot: usize, epoch: Epoch| {
            let process = world.slots[slot].as_ref();
            process.is_some_and(|process| {
                process.epoch == epoch && process.serves && process.paused.has_passed(now)
            })
        };
        let lives = importer.watch.as_ref().is_some_and(|(slot, epoch, _)| serves(self, *slot, *epoch));
        if !lives || self.strikes(0.02, "watches moved") {
            if importer.watch.take().is_some() {
                importer.view.disconnected();
            }
            let slot = self.rng.random_range(0..self.slots.len());
            let Some(epoch) = self.slots[slot].as_ref().map(|process| process.epoch) else { return };
            if !serves(self, slot, epoch) {
                return;
            }
            let resume = importer.view.resume().filter(|(of, _)| *of == epoch).map(|(_, revision)| revision);
            let since = if self.rng.random_bool(0.7) { importer.view.since() } else { Since::default() };
            importer.watch =
                Some((slot, epoch, Watcher::new(cluster_id(importer.place), resume, since, &build)));
        }
        let Some((slot, _, watcher)) = &mut importer.watch else { return };
        let slot = *slot;
        let Some(process) = &self.slots[slot] else { return };
        let registry = &process.registry;
        let mut frames = Vec::new();
        watcher.remind();
        watcher.tell(
            &process.log,
            registry.is_complete(now),
            |cluster| registry.proven(cluster),
            |told| {
                frames.push(told.frame(registry, &build));
                ControlFlow::Continue(())
            },
        );
        for frame in frames {
            importer.view.handle_frame(frame, now).expect("what it is said to have");
        }
        importer.view.handle_timeout(now);
        while let Some(key) = importer.view.next_dirty() {
            self.decide(importer, slot, &key);
        }
    }

    fn decide(&mut self, importer: &mut Importer, slot: usize, key: &ServiceKey) {
        let before = importer.shows.get(key).cloned().unwrap_or_default();
        let applied = |shows: &BTreeMap<ClusterId, Shows>| Applied {
            clusters: shows
                .iter()
                .map(|(id, shows)| {
                    (id.clone(), AppliedSource { uid: shows.uid.clone(), version: shows.version })
                })
                .collect(),
        };
        if before.is_empty() {
            importer.view.removed(key);
        } else {
            importer.view.applied(key.clone(), applied(&before));
        }
        let after = match importer.view.decide(key) {
            Decision::Keep => return,
            Decision::Remove => BTreeMap::new(),
            Decision::Apply(wanted) => {
                let mut after = BTreeMap::new();
                for (cluster, source) in wanted.sources {
                    let shows = match source {
                        Source::Keep => before.get(&cluster).cloned(),
                        Source::Show(shown) => {
                            invariants::invariant_01_versions_shown_never_fall(
                                &mut importer.floors,
                                key,
                                &shown,
                            );
                            invariants::invariant_05_a_shown_part_is_whole(&self.book, key, &cluster, &shown);
                            Some(Shows { uid: shown.uid, version: shown.version, endpoints: shown.endpoints })
                        }
                    };
                    after.extend(shows.map(|shows| (cluster, shows)));
                }
                after
            }
        };
        for (cluster, shows) in before.iter().filter(|(cluster, _)| !after.contains_key(*cluster)) {
            self.check_dropped(importer.place, slot, key, cluster, shows);
        }
        if after.is_empty() {
            importer.shows.remove(key);
            importer.view.removed(key);
        } else {
            importer.view.applied(key.clone(), applied(&after));
            importer.shows.insert(key.clone(), after);
        }
    }

    /// 2 and 3, at importers: what goes of a cluster is exported no more, or its lease ran out where it was watched, or it
    /// was removed, or it is truly silent.
    fn check_dropped(
        &mut self,
        place: usize,
        slot: usize,
        key: &ServiceKey,
        cluster: &ClusterId,
        shows: &Shows,
    ) {
        if *cluster == cluster_id(place) {
            return;
        }
        self.count("sources dropped");
        let (Some(uid), Some(version)) = (&shows.uid, shows.version) else { return };
        let source = place_of(uid);
        let unexported = self.book.gone_since(source, key, version);
        let process = self.slots[slot].as_ref();
        let member = process.and_then(|process| process.registry.member(cluster));
        let judged = member
            .is_some_and(|member| member.uid() != uid || member.state() == MemberState::Expired)
            || (member.is_none() && process.is_some_and(|process| process.went.contains(uid)));
        let removed = self.was_removed(uid);
        let silent = self.is_silent(source, self.now);
        assert!(
            unexported || judged || removed || silent,
            "invariant 3: {key} of {cluster} went in {place}, and it is exported as of {version}, and renews"
        );
    }
}
