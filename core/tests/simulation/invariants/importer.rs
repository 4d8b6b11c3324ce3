//! What holds of what importers are told, show and delete.

use crate::book::{Book, Said};
use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::facts::{LEASE, TIMING, place_of, rightful_place_of};
use crate::mirror::Mirror;
use crate::server::{Server, Watcher};
use crate::witness::Witness;
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Section};
use mcs_core::names;
use mcs_core::plan::{Existing, ImportedSlice};
use mcs_core::registry::Registry;
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
use mcs_core::view::{Applied, Shown};
use std::collections::BTreeMap;

/// What a controller cannot know for certain.
pub(crate) struct Truth<'a> {
    pub(crate) book: &'a Book,
    /// When each cluster was removed last.
    pub(crate) removed: &'a BTreeMap<ClusterId, Timestamp>,
    /// Of the registry that runs.
    pub(crate) witness: Option<&'a Witness>,
    pub(crate) now: Timestamp,
}

/// 1. Of one source and import, a controller never shows a version below one that it has shown.
pub(crate) fn invariant_01_versions_shown_never_fall(
    floors: &mut BTreeMap<(ServiceKey, ClusterUid), Version>,
    key: &ServiceKey,
    shown: &Shown,
) {
    let (Some(uid), Some(version)) = (&shown.uid, shown.version) else { return };
    let floor = floors.entry((key.clone(), uid.clone())).or_default();
    assert!(version >= *floor, "invariant 1: {key} of {uid} shown as of {version} after {floor}");
    *floor = version;
}

/// 1. A slice is never made from an older version than before, whichever controller writes it.
pub(crate) fn invariant_01_slices_never_go_back(before: &Existing, after: &Existing) {
    let origin = |slice: &ImportedSlice| {
        let annotation = |name| slice.meta.annotations.get(name).cloned();
        let version = annotation(names::ANNOTATION_SOURCE_VERSION)?.parse::<Version>().ok()?;
        Some((slice.meta.identity.name.clone(), (annotation(names::ANNOTATION_SOURCE_UID), version)))
    };
    let old: BTreeMap<_, _> = before.slices.iter().filter_map(origin).collect();
    for (name, (uid, version)) in after.slices.iter().filter_map(origin) {
        let Some((old_uid, old_version)) = old.get(&name) else { continue };
        assert!(
            uid != *old_uid || version >= *old_version,
            "invariant 1: slice {name} of version {version} after {old_version}"
        );
    }
}

/// 2. A source cluster leaves an import for one of four causes: it is known to export it no more, its lease ran out, it
///    was removed, or complete views have not listed it for the grace.
pub(crate) fn invariant_02_each_delete_has_its_cause(
    controller: &Controller,
    home: &Cluster,
    key: &ServiceKey,
    before: &Existing,
    truth: &Truth<'_>,
) {
    let now = truth.now;
    let after = home.applied(key).clusters;
    let mirror = &controller.mirror;
    for (cluster, source) in Applied::of(before).clusters {
        if after.contains_key(&cluster) {
            continue;
        }
        if cluster == home.id {
            let exported = home.exports.contains_key(key) && controller.outbox.is_exported(key);
            assert!(!exported, "invariant 2: own {key} went while it is exported");
            continue;
        }
        assert!(mirror.ended, "invariant 2: {cluster} left {key} within a snapshot");
        // Where two registries share a name, each knows some of the clusters.
        let split = controller.outbox.registry().zip(mirror.epoch).filter(|(told_to, of)| told_to != of);
        assert_eq!(split, None, "invariant 2: {cluster} left {key} of {} while its view is split", home.id);
        let listed =
            |cluster: &ClusterId| mirror.section(cluster).filter(|section| section.state.is_listed());
        let told =
            |section: &Section| match mirror.objects.get(&ObjectKey::Part(key.clone(), cluster.clone())) {
                Some(Object::Part(part)) => part.uid == section.uid,
                _ => false,
            };
        let unexported = listed(&home.id).is_some()
            && listed(&cluster).is_some_and(|section| {
                !told(section)
                    && section.whole
                    && source.version.is_none_or(|version| section.version >= version)
            });
        // Another cluster has the id now, which it got after the lease of this one.
        let replaced = listed(&cluster).is_some_and(|section| {
            source.uid.as_ref().is_some_and(|uid| *uid != section.uid) && section.whole
        });
        let expired = mirror.section(&cluster).is_some_and(|section| section.state == MemberState::Expired);
        let left = mirror.left.contains(&cluster);
        let absent = mirror.is_long_absent(&cluster, now);
        assert!(
            unexported || replaced || expired || left || absent,
            "invariant 2: {cluster} (applied: {source:?}) left {key} of {} without a cause; its section: {:?}",
            home.id,
            mirror.section(&cluster),
        );
        if let (Some(witness), true, false) = (truth.witness, absent, expired || left || unexported) {
            invariant_03_no_listed_member_is_taken_for_absent(witness, &cluster, now);
        }
        // Against the truth: what is known to be exported no more was not, at some time since what is applied.
        // The removal of a cluster is told part by part, the section last.
        let removed = truth.removed.get(&cluster).is_some_and(|at| now.since(*at) < 10 * LEASE);
        if let (Some(version), false) = (source.version, replaced || expired || left || absent || removed) {
            let place = source.uid.as_ref().map_or_else(|| rightful_place_of(&cluster), place_of);
            let gone = truth.book.gone_since(place, key, version);
            assert!(gone, "invariant 2: {cluster} left {key}, and exported it all the time since {version}");
        }
    }
}

/// 3, at importers: no cluster goes for being absent that its registry has listed for longer than a watch may be silent.
pub(crate) fn invariant_03_no_listed_member_is_taken_for_absent(
    witness: &Witness,
    cluster: &ClusterId,
    now: Timestamp,
) {
    let listed = witness.listed.get(cluster).map(|since| now.since(*since));
    let stale = TIMING.dead_stream() + 3 * TIMING.call_limit();
    assert!(
        listed.is_none_or(|listed| listed < stale),
        "invariant 3: {cluster} was taken for absent, {listed:?} after it was listed"
    );
}

/// 5. A shown part is whole: it has exactly what its owner said, as of the version that it is shown with.
pub(crate) fn invariant_05_a_shown_part_is_whole(
    book: &Book,
    key: &ServiceKey,
    cluster: &ClusterId,
    shown: &Shown,
) {
    let (Some(version), Some(uid)) = (shown.version, &shown.uid) else { return };
    let said = book.as_of(place_of(uid), key, version);
    let is_true = |said: &&Said| match said {
        Said::Has(_, endpoints) => *endpoints == shown.endpoints,
        Said::Refused { .. } => true,
        Said::Gone => false,
    };
    assert!(
        said.iter().any(is_true),
        "invariant 5: {key} of {cluster} as of {version} is shown with {:?}, and was said to be {said:?}",
        shown.endpoints
    );
}

/// 6, at the other end: a watcher that was told everything has what the log has, whether it was told all of it or kept
/// some; but for the parts of its own cluster.
pub(crate) fn invariant_06_a_watcher_has_what_the_log_has(
    own: &ClusterId,
    mirror: &Mirror,
    registry: &Registry,
    log: &StateLog<Object>,
) {
    if mirror.ended && mirror.epoch == Some(registry.epoch()) && mirror.revision == registry.revision() {
        let held = |(_, key, object): (u64, &ObjectKey, &Object)| match (key, object) {
            (ObjectKey::Part(_, cluster), _) if cluster == own => None,
            (ObjectKey::Part(service, cluster), Object::Part(part)) => {
                let part = mirror.as_kept(service, cluster, part.clone());
                Some((key.clone(), Object::Part(part)))
            }
            _ => Some((key.clone(), object.clone())),
        };
        let held: BTreeMap<_, _> = log.snapshot().filter_map(held).collect();
        assert_eq!(mirror.objects, held, "invariant 6: a watcher and the log");
    }
}

/// 12. A watcher that takes little or nothing holds up no other: every one that takes what it gets was told all.
pub(crate) fn invariant_12_a_slow_watcher_holds_up_no_other(server: &Server, now: Timestamp) {
    let takes_all = |watcher: &&Watcher| watcher.pace == usize::MAX && watcher.stalled.has_passed(now);
    for watcher in server.watchers.values().filter(takes_all) {
        assert!(watcher.is_told(&server.registry), "invariant 12: a watcher of {} waits", watcher.cluster);
    }
}

/// 12. The revisions of a watch rise.
pub(crate) fn invariant_12_revisions_rise(mirror: &Mirror, frame: &Frame) {
    match frame {
        Frame::Change(change) if mirror.ended => assert!(
            change.revision > mirror.revision,
            "invariant 12: revision {} after {}",
            change.revision,
            mirror.revision
        ),
        // The watcher's own parts are not told, so progress may go further.
        Frame::Progress { revision, .. } => assert!(
            *revision >= mirror.revision,
            "invariant 12: progress to {revision} after {}",
            mirror.revision
        ),
        Frame::Change(_) | Frame::Begin { .. } | Frame::Kept { .. } | Frame::End { .. } => {}
    }
}
