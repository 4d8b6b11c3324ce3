//! Taking in what a registry tells: frames, the end of a stream, and the verdicts that time brings.

use super::fate::Judged;
use super::known::{Told, unlink};
use super::{NotHeld, View};
use crate::ids::{Build, ClusterId, Epoch, ServiceKey};
use crate::model::{Change, Frame, Header, Object, ObjectKey, Part, Section};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where the watch stands.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) epoch: Option<Epoch>,
    /// The version of that registry.
    pub(super) build: Build,
    pub(super) revision: u64,
    /// Counts the snapshots that have begun.
    pub(super) snapshot: u64,
    /// Whether the last of them was told to its end.
    pub(super) ended: bool,
    /// Whether any was.
    told: bool,
    /// Whether the registry knows every cluster, by its last word on the stream that lives.
    pub(super) complete: bool,
    /// Since when it has said so without a break.
    complete_since: Option<Timestamp>,
    /// Whether that is longer than the grace.
    pub(super) long_complete: bool,
    /// How long a cluster that complete views do not list is kept.
    absent_grace: Duration,
}

impl View {
    /// Takes one frame of the watch.
    ///
    /// # Errors
    /// The frame does not fit what this view offered: the watch is to be begun again.
    pub fn handle_frame(&mut self, frame: Frame, now: Timestamp) -> Result<(), NotHeld> {
        match frame {
            Frame::Begin { epoch, absent_grace, build } => self.begin(epoch, absent_grace, build),
            Frame::Kept { cluster, set, version } => self.kept(cluster, &set, version)?,
            Frame::Change(Change { revision, key, object }) => {
                if self.watch.ended {
                    self.watch.revision = revision;
                }
                self.change(key, object, now);
            }
            Frame::End { revision, complete } => {
                self.watch.revision = revision;
                self.end();
                self.completeness(complete, now);
            }
            Frame::Progress { revision, complete } => {
                self.watch.revision = revision;
                self.completeness(complete, now);
            }
        }
        Ok(())
    }

    /// The watch ended or broke. What is known stays, but nothing goes any more for not being listed.
    pub fn disconnected(&mut self) {
        self.incomplete();
    }

    /// Takes the verdicts that were due at `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let grace = self.watch.absent_grace;
        let over = |since: Option<Timestamp>| since.is_some_and(|since| (since + grace).has_passed(now));
        for (cluster, known) in &mut self.clusters {
            if !known.grace_is_over && over(known.absent_since) {
                known.grace_is_over = true;
                self.dirty.extend(self.by_cluster.get(cluster).into_iter().flatten().cloned());
            }
        }
        if !self.watch.long_complete && over(self.watch.complete_since) {
            self.watch.long_complete = true;
            self.decide_left_over();
        }
    }

    /// Imports that no merge tells of wait until no cluster is hidden from this view.
    fn decide_left_over(&mut self) {
        let left_over = self.services.iter().filter(|(_, service)| service.header.is_none());
        self.dirty.extend(left_over.map(|(key, _)| key.clone()));
    }

    /// When [`View::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let waiting = self.clusters.values().filter(|cluster| !cluster.grace_is_over);
        let complete = self.watch.complete_since.filter(|_| !self.watch.long_complete);
        let since = waiting.filter_map(|cluster| cluster.absent_since).chain(complete).min()?;
        Some(since + self.watch.absent_grace)
    }

    fn begin(&mut self, epoch: Epoch, absent_grace: Duration, build: Build) {
        self.incomplete();
        self.raise_floors();
        self.hold(&build);
        self.watch.epoch = Some(epoch);
        self.watch.build = build;
        self.watch.revision = 0;
        self.watch.snapshot += 1;
        self.watch.ended = false;
        self.watch.absent_grace = absent_grace;
        for cluster in self.clusters.values_mut() {
            cluster.left = None;
        }
    }

    /// Within one snapshot and what follows it no statement is older than one before. The next snapshot may be: so what
    /// counted until now is noted, also where a section moved on that said so of parts that did not change.
    fn raise_floors(&mut self) {
        let index =
            self.by_cluster.iter().flat_map(|(cluster, keys)| keys.iter().map(move |key| (key, cluster)));
        let all: Vec<_> = index.map(|(key, cluster)| (key.clone(), cluster.clone())).collect();
        for (key, cluster) in all {
            self.raise_floor(&key, &cluster);
        }
    }

    /// The snapshot is told: what it did not name is not in this view.
    fn end(&mut self) {
        self.watch.ended = true;
        self.watch.told = true;
        let snapshot = self.watch.snapshot;
        let (own, by_cluster) = (&self.own, &self.by_cluster);
        self.clusters.retain(|id, cluster| {
            cluster.told_in(snapshot).is_some() || by_cluster.contains_key(id) || id == own
        });
        let keys: Vec<ServiceKey> = self.services.keys().cloned().collect();
        for key in keys {
            if let Some(service) = self.services.get_mut(&key) {
                service.header.take_if(|told| told.snapshot != snapshot);
                for known in service.sources.values_mut() {
                    known.told.take_if(|told| told.snapshot != snapshot);
                }
            }
            self.prune(&key);
            self.dirty.insert(key);
        }
    }

    /// The registry's word on whether it knows every cluster.
    fn completeness(&mut self, complete: bool, now: Timestamp) {
        if !complete || !self.says_all() {
            self.incomplete();
            return;
        }
        // The registry that was offered them has forgotten it.
        self.held.clear();
        self.watch.complete = true;
        self.watch.complete_since.get_or_insert(now);
        self.note_absent(now);
    }

    /// From here on every grace counts anew.
    pub(super) fn incomplete(&mut self) {
        self.watch.complete = false;
        self.watch.complete_since = None;
        self.watch.long_complete = false;
        for cluster in self.clusters.values_mut() {
            cluster.reset_grace();
        }
    }

    /// Starts the grace of clusters that a complete view does not list, and ends that of the others.
    fn note_absent(&mut self, now: Timestamp) {
        for id in self.by_cluster.keys() {
            let absent = self.is_absent(id);
            let cluster = self.clusters.entry(id.clone()).or_default();
            if !absent {
                cluster.reset_grace();
            } else if cluster.absent_since.is_none() {
                cluster.absent_since = Some(now);
            }
        }
    }

    fn change(&mut self, key: ObjectKey, object: Option<Object>, now: Timestamp) {
        match (key, object) {
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                self.section(&cluster, Some(section), now);
            }
            (ObjectKey::Section(cluster), None) => self.section(&cluster, None, now),
            (ObjectKey::Header(key), Some(Object::Header(header))) => self.header(key, Some(header)),
            (ObjectKey::Header(key), None) => self.header(key, None),
            (ObjectKey::Part(key, cluster), Some(Object::Part(part))) => self.part(key, &cluster, Some(part)),
            (ObjectKey::Part(key, cluster), None) => self.part(key, &cluster, None),
            // A state of another kind than its key says nothing.
            (ObjectKey::Section(_) | ObjectKey::Header(_) | ObjectKey::Part(..), Some(_)) => {}
        }
    }

    fn section(&mut self, cluster: &ClusterId, section: Option<Section>, now: Timestamp) {
        let (before, hid) = (self.standing_of(cluster), self.may_hide(cluster));
        let left =
            (self.watch.ended && section.is_none()).then(|| self.whole_section(cluster).cloned()).flatten();
        let known = self.clusters.entry(cluster.clone()).or_default();
        known.left = left;
        known.section = section.map(|object| Told { object, snapshot: self.watch.snapshot });
        if let Some(told) = known.section.as_ref().filter(|told| told.object.whole) {
            let seen = self.seen.entry(told.object.uid.clone()).or_default();
            *seen = told.object.version.max(*seen);
        }
        known.reset_grace();
        if self.watch.complete {
            self.note_absent(now);
        }
        let index = if before == self.standing_of(cluster) { &self.doubtful } else { &self.by_cluster };
        self.dirty.extend(index.get(cluster).into_iter().flatten().cloned());
        if self.watch.long_complete && hid && !self.may_hide(cluster) {
            self.decide_left_over();
        }
        if *cluster == self.own && before != self.standing_of(cluster) {
            // Nothing goes while the own cluster is not listed, and own slices carry its region and UID.
            self.dirty.extend(self.services.keys().chain(self.own_exports.keys()).cloned());
        }
    }

    fn header(&mut self, key: ServiceKey, header: Option<Header>) {
        let service = self.services.entry(key.clone()).or_default();
        service.header =
            header.map(|header| Told { object: Arc::new(header), snapshot: self.watch.snapshot });
        self.prune(&key);
        self.dirty.insert(key);
    }

    pub(super) fn part(&mut self, key: ServiceKey, cluster: &ClusterId, part: Option<Part>) {
        if *cluster == self.own {
            return;
        }
        self.held.remove(cluster);
        // The part before this one was shown if it counted, so nothing older may follow.
        self.raise_floor(&key, cluster);
        let service = self.services.entry(key.clone()).or_default();
        let known = service.sources.entry(cluster.clone()).or_default();
        let is_change = self.watch.told;
        let pending = known.told.as_ref().and_then(|told| told.object.changed_at);
        let part = part.map(|part| {
            // The same content once more, as in a new snapshot, is no change.
            let again = known.leaf.replace(part.leaf) == Some(part.leaf);
            let changed_at = if again { pending } else { part.changed_at.filter(|_| is_change) };
            Part { changed_at, ..part }
        });
        known.told = part.map(|object| Told { object, snapshot: self.watch.snapshot });
        self.by_cluster.entry(cluster.clone()).or_default().insert(key.clone());
        self.prune(&key);
        self.dirty.insert(key);
    }

    /// Notes for `key` what counts now, before the caller decides about it.
    pub(super) fn settle(&mut self, key: &ServiceKey) {
        let Some(service) = self.services.get(key) else { return };
        let Judged { doubtful, believed, .. } = self.judge(key, service);
        let believed = believed.cloned();
        let clusters: Vec<ClusterId> = service.sources.keys().cloned().collect();
        for cluster in &clusters {
            self.raise_floor(key, cluster);
            if doubtful.contains(cluster) {
                self.doubtful.entry(cluster.clone()).or_default().insert(key.clone());
            } else {
                unlink(&mut self.doubtful, cluster, key);
            }
        }
        if let Some(header) = believed {
            self.note_merge(key, header);
        }
        self.prune(key);
    }

    /// `header` counts: later ones must not be made from older exports.
    fn note_merge(&mut self, key: &ServiceKey, header: Arc<Header>) {
        let Some(service) = self.services.get_mut(key) else { return };
        let mut before: BTreeMap<_, _> = service
            .sources
            .iter_mut()
            .filter_map(|(cluster, known)| Some((cluster.clone(), known.merged.take()?)))
            .collect();
        for participant in &header.participants {
            let (cluster, uid) = (&participant.cluster, &participant.uid);
            let section = self.clusters.get(cluster).and_then(|known| known.told_in(self.watch.snapshot));
            // It is the definition as of the section, where that is whole. Of a cluster that is gone an older one than
            // before counts as well.
            let floor = before.remove(cluster).filter(|(of, _)| of == uid).map(|(_, version)| version);
            let whole = section.filter(|section| section.uid == *uid && section.whole);
            let at_least = floor.max(whole.map(|section| section.version));
            let version = at_least.map_or(participant.version, |at| at.max(participant.version));
            let known = service.sources.entry(cluster.clone()).or_default();
            known.merged = Some((uid.clone(), version));
            self.by_cluster.entry(cluster.clone()).or_default().insert(key.clone());
        }
        service.settled = Some(header);
    }
}
