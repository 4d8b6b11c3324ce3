//! A watcher as its registry sees it: what it still has to be told.
//!
//! A [`Watcher`] is a place in the state log. A snapshot is told in the order of keys, in batches; what changes
//! meanwhile follows, and the `End` comes when everything was told. From then on it is told what changes. One that is
//! so slow that the log has forgotten removals behind its place is told a new snapshot, within the same stream.
//!
//! A watcher that comes back names the parts that it has, cluster by cluster, by what they add up to ([`Since`]). The
//! first time that a part of such a cluster would be told, the sum is compared with that of the cluster's parts here;
//! when they are equal, [`Told::Kept`] is told in their place. So a registry that has just started, and learns the
//! clusters one after the other, tells none of their endpoints again. Guarantees:
//!
//! - a watcher that takes what is told over what it has comes to what the log has (versions of parts that it kept
//!   apart: they are that of the set), wherever it is interrupted and however slowly it takes it;
//! - the newest state of an object is told, older ones may be skipped; revisions rise after the `End`;
//! - nothing is concluded from an old offer: that of a cluster is over with the first part of it that is told, and all
//!   are when the view is complete.
//!
//! Rejected: comparing versions, which differ for equal parts after each restart of a registry; naming each part, which
//! costs as much as the parts do; deciding once, at the `Begin`: a registry without a store knows no cluster then.

use crate::ids::{Build, ClusterId};
use crate::log::{StateLog, TooOld};
#[cfg(feature = "test-util")]
use crate::model::{Change, Frame, Object};
use crate::model::{ObjectKey, PartSet, Since};
#[cfg(feature = "test-util")]
use crate::registry::Registry;
use crate::version::Version;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// At most this many objects are looked at in one call, so that a watcher that is told few of many holds up no writer.
const LOOKED_AT: usize = 1_000;

/// Something to tell a watcher; `V` is what the log has of each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<'a, V> {
    /// A snapshot begins.
    Begin,
    /// The watcher has all parts of this cluster; they are its set as of the version.
    Kept(&'a ClusterId, PartSet, Version),
    /// The state of an object, of its revision; none is a removal.
    State(u64, &'a ObjectKey, Option<&'a V>),
    /// The snapshot is told, up to this revision; whether the view is complete.
    End(u64, bool),
    /// Nothing changed up to this revision; whether the view is complete.
    Progress(u64, bool),
}

#[cfg(feature = "test-util")]
impl Told<'_, Object> {
    /// The frame that tells a watcher of `registry` so; its version is `build`.
    pub fn frame(self, registry: &Registry, build: &Build) -> Frame {
        match self {
            Self::Begin => Frame::Begin {
                epoch: registry.epoch(),
                absent_grace: registry.absent_grace(),
                build: build.clone(),
            },
            Self::Kept(cluster, set, version) => Frame::Kept { cluster: cluster.clone(), set, version },
            Self::State(revision, key, object) => {
                Frame::Change(Change { revision, key: key.clone(), object: object.cloned() })
            }
            Self::End(revision, complete) => Frame::End { revision, complete },
            Self::Progress(revision, complete) => Frame::Progress { revision, complete },
        }
    }
}

/// A watcher.
#[derive(Clone, Debug)]
pub struct Watcher {
    importer: ClusterId,
    phase: Phase,
    /// What it has, of clusters of which nothing was told yet.
    offers: BTreeMap<ClusterId, PartSet>,
    /// The clusters whose parts it keeps, and the revision up to which.
    kept: BTreeMap<ClusterId, u64>,
    spared: usize,
    /// Whether the view is complete, as it was told last.
    complete: Option<bool>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// It wants to go on from a revision.
    Resume { cursor: u64 },
    /// Nothing of the snapshot was told.
    Begin,
    /// The objects of the snapshot were told up to a key, in their state as of the revision `since` or a later one.
    Snapshot { up_to: Option<ObjectKey>, since: u64 },
    /// Changes were told up to `cursor`; the snapshot's `End` too, if it has `ended`.
    Follow { cursor: u64, ended: bool },
}

impl Watcher {
    /// A watcher in the cluster `importer`, which goes on from a revision of this log, or begins anew with what it has;
    /// that counts if a registry of this version, `build`, told it. It is not told the parts of its own cluster, which it
    /// knows better.
    pub fn new(importer: ClusterId, resume: Option<u64>, since: Since, build: &Build) -> Self {
        Self {
            importer,
            phase: resume.map_or(Phase::Begin, |cursor| Phase::Resume { cursor }),
            offers: if since.build == *build { since.sets } else { BTreeMap::new() },
            kept: BTreeMap::new(),
            spared: 0,
            complete: None,
        }
    }

    /// Has [`Told::Progress`] told next, if nothing else is to be told.
    pub const fn remind(&mut self) {
        self.complete = None;
    }

    /// The revision up to which it was told everything; 0 within a snapshot.
    pub const fn revision(&self) -> u64 {
        match self.phase {
            Phase::Resume { .. } | Phase::Begin | Phase::Snapshot { .. } => 0,
            Phase::Follow { cursor, .. } => cursor,
        }
    }

    /// How many parts were not told since it has them.
    pub const fn spared(&self) -> usize {
        self.spared
    }

    /// Tells what it has not been told, until `tell` has taken enough, and says whether there may be more. `complete`
    /// is whether the view is complete; `proven` names the set that a cluster's parts in this log are, with a version as
    /// of which it is all of them.
    pub fn tell<V>(
        &mut self,
        log: &StateLog<V>,
        complete: bool,
        proven: impl Fn(&ClusterId) -> Option<(PartSet, Version)>,
        mut tell: impl FnMut(Told<'_, V>) -> ControlFlow<()>,
    ) -> bool {
        loop {
            match &mut self.phase {
                Phase::Resume { cursor } => {
                    let cursor = *cursor;
                    self.phase = match log.since(cursor) {
                        Err(TooOld { .. }) => Phase::Begin,
                        Ok(_) => {
                            // What it has is where it goes on from.
                            self.offers.clear();
                            Phase::Follow { cursor, ended: true }
                        }
                    };
                }
                Phase::Begin => {
                    self.kept.clear();
                    self.phase = Phase::Snapshot { up_to: None, since: log.revision() };
                    if tell(Told::Begin).is_break() {
                        return true;
                    }
                }
                Phase::Snapshot { up_to, since } => {
                    let (up_to, since) = (up_to.take(), *since);
                    let objects = log.snapshot_after(up_to.as_ref());
                    let objects = objects.map(|(revision, key, state)| (revision, key, Some(state)));
                    let walk = self.walk(objects, log.revision(), &proven, &mut tell);
                    self.phase = match walk.last.filter(|_| walk.stopped) {
                        Some((_, key)) => Phase::Snapshot { up_to: Some(key.clone()), since },
                        None => Phase::Follow { cursor: since, ended: false },
                    };
                    if walk.stopped {
                        return true;
                    }
                }
                Phase::Follow { cursor, ended } => {
                    let (cursor, ended) = (*cursor, *ended);
                    let Ok(changes) = log.since(cursor) else {
                        self.phase = Phase::Begin;
                        continue;
                    };
                    let walk = self.walk(changes, log.revision(), &proven, &mut tell);
                    let cursor = walk.last.map_or(cursor, |(revision, _)| revision);
                    self.phase = Phase::Follow { cursor, ended };
                    if !walk.stopped {
                        self.reached(cursor, ended, complete, tell);
                    }
                    return walk.stopped;
                }
            }
        }
    }

    /// It was told everything up to `cursor`, the newest revision.
    fn reached<V>(
        &mut self,
        cursor: u64,
        ended: bool,
        complete: bool,
        mut tell: impl FnMut(Told<'_, V>) -> ControlFlow<()>,
    ) {
        self.phase = Phase::Follow { cursor, ended: true };
        self.kept.clear();
        if ended && self.complete == Some(complete) {
            return;
        }
        self.complete = Some(complete);
        if complete {
            // A cluster that comes later than a lease is told in full, so that neither side remembers for ever.
            self.offers.clear();
        }
        // What stops here has nothing more to be told.
        let _ = tell(if ended { Told::Progress(cursor, complete) } else { Told::End(cursor, complete) });
    }

    fn walk<'a, V: 'a>(
        &mut self,
        objects: impl Iterator<Item = (u64, &'a ObjectKey, Option<&'a V>)>,
        newest: u64,
        proven: &impl Fn(&ClusterId) -> Option<(PartSet, Version)>,
        tell: &mut impl FnMut(Told<'_, V>) -> ControlFlow<()>,
    ) -> Walk<'a> {
        let mut last = None;
        for (looked_at, (revision, key, state)) in objects.enumerate() {
            if looked_at == LOOKED_AT {
                return Walk { last, stopped: true };
            }
            last = Some((revision, key));
            let mut flow = ControlFlow::Continue(());
            let spared = match key {
                ObjectKey::Section(_) | ObjectKey::Header(_) => false,
                ObjectKey::Part(_, cluster) if *cluster == self.importer => true,
                ObjectKey::Part(_, cluster) => {
                    if let Some((set, version)) = self.take_offer(cluster, proven) {
                        self.kept.insert(cluster.clone(), newest);
                        flow = tell(Told::Kept(cluster, set, version));
                    }
                    let kept = self.kept.get(cluster).is_some_and(|up_to| revision <= *up_to);
                    self.spared += usize::from(kept && state.is_some());
                    kept
                }
            };
            if !spared {
                flow = tell(Told::State(revision, key, state));
            }
            if flow.is_break() {
                return Walk { last, stopped: true };
            }
        }
        Walk { last, stopped: false }
    }

    /// The first part of `cluster` is about to be told: what the watcher has of it, if that is all that there is.
    fn take_offer(
        &mut self,
        cluster: &ClusterId,
        proven: &impl Fn(&ClusterId) -> Option<(PartSet, Version)>,
    ) -> Option<(PartSet, Version)> {
        let offered = self.offers.remove(cluster)?;
        proven(cluster).filter(|(set, _)| *set == offered)
    }
}

/// How far a walk through the log came.
struct Walk<'a> {
    last: Option<(u64, &'a ObjectKey)>,
    /// Whether there may be more.
    stopped: bool,
}
