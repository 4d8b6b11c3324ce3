//! What holds after every event. Each function checks one invariant of the protocol, and panics where it is broken.

use crate::book::Book;
use crate::cluster::Cluster;
use crate::controller::Controller;
use crate::facts::{LEASE, MOST_CLUSTERS, POLICY, TIMING, cluster_id};
use crate::mirror::Mirror;
use crate::witness::{Act, Before, Kind, Members, Witness};
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::merge::merge;
use mcs_core::model::{ExportSpec, Frame, Header, MemberState, Object, ObjectKey, Part, Section};
use mcs_core::names;
use mcs_core::plan::{Existing, ImportedSlice};
use mcs_core::registry::{Member, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::timing::MAX_TICK;
use mcs_core::version::{Sum, Version};
use mcs_core::view::{Applied, Shown};
use std::collections::{BTreeMap, BTreeSet};

/// What a controller cannot know for certain.
pub(crate) struct Truth<'a> {
    pub(crate) book: &'a Book,
    /// When an administrator removed each cluster last.
    pub(crate) removed: &'a [Option<Timestamp>; MOST_CLUSTERS],
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
            assert!(!home.exports.contains_key(key), "invariant 2: own {key} went while it is exported");
            continue;
        }
        assert!(mirror.ended, "invariant 2: {cluster} left {key} within a snapshot");
        let listed =
            |cluster: &ClusterId| mirror.section(cluster).filter(|section| section.state.is_listed());
        let told = mirror.objects.contains_key(&ObjectKey::Part(key.clone(), cluster.clone()));
        let unexported = listed(&home.id).is_some()
            && !told
            && listed(&cluster).is_some_and(|section| {
                section.whole && source.version.is_none_or(|version| section.version >= version)
            });
        let expired = mirror.section(&cluster).is_some_and(|section| section.state == MemberState::Expired);
        let left = mirror.left.contains(&cluster);
        let absent = mirror.is_long_absent(&cluster, now);
        assert!(
            unexported || expired || left || absent,
            "invariant 2: {cluster} (applied: {source:?}) left {key} of {} without a cause; its section: {:?}",
            home.id,
            mirror.section(&cluster),
        );
        if let (Some(witness), true, false) = (truth.witness, absent, expired || left || unexported) {
            invariant_03_no_listed_member_is_taken_for_absent(witness, &cluster, now);
        }
        // Against the truth: what is known to be exported no more was not, at some time since what is applied.
        // The removal of a cluster is told part by part, the section last.
        let removed = truth.removed[index_of(&cluster)].is_some_and(|at| now.since(at) < 10 * LEASE);
        if let (Some(version), false) = (source.version, expired || left || absent || removed) {
            let gone = truth.book.gone_since(index_of(&cluster), key, version);
            assert!(gone, "invariant 2: {cluster} left {key}, and exported it all the time since {version}");
        }
    }
}

/// 3. No member expires that renewed within a lease.
pub(crate) fn invariant_03_no_renewed_member_expires(witness: &Witness, cluster: &ClusterId, now: Timestamp) {
    let silent = witness.renewed.get(cluster).map(|(_, at)| now.since(*at));
    assert!(
        silent.is_some_and(|silent| silent >= LEASE),
        "invariant 3: {cluster} expired, silent for {silent:?}"
    );
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

/// 4. On the judging clock, a silent member is gone within a lease, or with a hold within a lease and the hold.
pub(crate) fn invariant_04_a_silent_member_is_gone_in_time(witness: &Witness, members: &Members) {
    let bound = LEASE + POLICY.mass_expiry_hold + 2 * MAX_TICK;
    for (cluster, facts) in members.iter().filter(|(_, facts)| facts.state != MemberState::Expired) {
        let silent = witness.renewed.get(cluster).map(|(at, _)| witness.judged.since(*at));
        assert!(
            silent.is_some_and(|silent| silent <= bound),
            "invariant 4: {cluster} is {} after {silent:?} of silence",
            facts.state
        );
    }
}

/// 5. A shown part is whole: it has exactly what its owner said, as of the version that it is shown with.
pub(crate) fn invariant_05_a_shown_part_is_whole(
    book: &Book,
    key: &ServiceKey,
    cluster: &ClusterId,
    shown: &Shown,
) {
    let Some(version) = shown.version else { return };
    let said =
        book.as_of(index_of(cluster), key, version).and_then(Option::as_ref).map(|(_, endpoints)| endpoints);
    assert_eq!(said, Some(&shown.endpoints), "invariant 5: {key} of {cluster} as of {version}");
}

/// 5, in the registry: what a section names a version for is what the owner said, as of that version.
pub(crate) fn invariant_05_a_section_names_what_is_held(
    cluster: &ClusterId,
    member: &Member,
    book: &Book,
    mark: Version,
) {
    if !member.is_whole() {
        return;
    }
    let (index, as_of) = (index_of(cluster), member.version());
    for key in crate::facts::keys() {
        let said = book.as_of(index, key, as_of).and_then(Option::as_ref).map(|(leaf, _)| *leaf);
        match member.exports().get(key) {
            Some(export) if export.version <= as_of => {
                assert_eq!(Some(export.leaf), said, "invariant 5: {key} of {cluster} as of {as_of}");
            }
            Some(_) => {}
            None if mark > as_of => {}
            None => assert_eq!(None, said, "invariant 5: {key} of {cluster} is missing as of {as_of}"),
        }
    }
}

/// 6. An object as lists show it is the one that the log replays to.
pub(crate) fn invariant_06_list_and_log_agree(registry: &Registry, log: &StateLog<Object>, key: &ObjectKey) {
    let listed = match key {
        ObjectKey::Section(cluster) => {
            registry.member(cluster).map(|member| Object::Section(section(member)))
        }
        ObjectKey::Header(service) => header(registry, service).map(|header| Object::Header(header.clone())),
        ObjectKey::Part(service, cluster) => {
            registry.member(cluster).and_then(|member| part(member, service))
        }
    };
    assert_eq!(listed.as_ref(), log.get(key), "invariant 6: the list and the replay of the log, {key:?}");
}

/// 6. A merged Service is what a fresh merge of all exports gives.
pub(crate) fn invariant_06_a_merge_is_fresh(registry: &Registry, service: &ServiceKey) {
    let whole = registry.members().filter(|(_, member)| member.is_whole());
    let exports: BTreeMap<ClusterId, (Version, &ExportSpec)> = whole
        .filter_map(|(cluster, member)| {
            let export = member.exports().get(service)?;
            Some((cluster.clone(), (export.version, &*export.spec)))
        })
        .collect();
    let held = header(registry, service);
    let mut fresh = merge(&exports);
    for (participant, held) in fresh
        .iter_mut()
        .flat_map(|fresh| &mut fresh.participants)
        .zip(held.iter().flat_map(|held| &held.participants))
    {
        // A participant's version is that of its definition, which an act on endpoints alone does not raise.
        assert!(
            held.version <= participant.version,
            "invariant 6: {service} is merged from what is not held"
        );
        participant.version = held.version;
    }
    assert_eq!(held, fresh.as_ref(), "invariant 6: the merge of {service}");
}

/// 6. What lists show, what the log replays to, and a fresh merge of all exports are one.
pub(crate) fn invariant_06_list_log_and_merge_agree(registry: &Registry, log: &StateLog<Object>) {
    let mut listed: BTreeSet<ObjectKey> =
        registry.headers().map(|(service, _)| ObjectKey::Header(service.clone())).collect();
    for (cluster, member) in registry.members() {
        listed.insert(ObjectKey::Section(cluster.clone()));
        let exports = member.exports().keys().filter(|_| member.is_in_log());
        listed.extend(exports.map(|key| ObjectKey::Part(key.clone(), cluster.clone())));
    }
    let replayed: BTreeSet<ObjectKey> = log.snapshot().map(|(_, key, _)| key.clone()).collect();
    assert_eq!(listed, replayed, "invariant 6: the list and the replay of the log");
    for key in &listed {
        invariant_06_list_and_log_agree(registry, log, key);
    }
    for service in crate::facts::keys() {
        invariant_06_a_merge_is_fresh(registry, service);
    }
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

/// 7. A member's sum is the fresh sum of the leaves that are held.
pub(crate) fn invariant_07_a_sum_is_that_of_the_leaves(cluster: &ClusterId, member: &Member) {
    let fresh: Sum = member.exports().values().map(|export| export.leaf).collect();
    assert_eq!(member.sum(), fresh, "invariant 7: the sum of {cluster}");
    let endpoints: usize = member.exports().values().map(|export| export.endpoints.len()).sum();
    assert_eq!(member.endpoints(), endpoints, "invariant 7: the endpoints of {cluster}");
}

/// 9. After a Register, no older term's act is taken; after any act, no older one changes anything.
pub(crate) fn invariant_09_no_older_term_is_taken(
    witness: &mut Witness,
    act: &Act,
    kind: Kind,
    refused: Option<&Refused>,
    before: &Before,
    after: &Members,
) {
    let Some(version) = act.version else { return };
    let cluster = cluster_id(act.cluster);
    let floor = witness.floors.get(&cluster).copied().unwrap_or_default();
    if version.term < floor {
        assert!(
            refused.is_some(),
            "invariant 9: {kind:?} of {version} taken of {cluster} after term {floor}"
        );
        witness.count("old terms refused");
    }
    let mark = witness.marks.get(&cluster).copied().unwrap_or_default();
    if version < mark && before.members.contains_key(&cluster) {
        let exports = |members: &Members| members.get(&cluster).map(|facts| facts.exports.clone());
        let (old, new) = (exports(&before.members), exports(after));
        assert_eq!(old, new, "invariant 9: {kind:?} of {version} changed {cluster} after {mark}");
    }
}

/// 10. No verdict while the judging clock stands: a lease has passed on it since the last renewal.
pub(crate) fn invariant_10_no_verdict_while_the_clock_stands(witness: &Witness, cluster: &ClusterId) {
    let silent = witness.renewed.get(cluster).map(|(at, _)| witness.judged.since(*at));
    assert!(
        silent.is_some_and(|silent| silent >= LEASE),
        "invariant 10: {cluster} was judged after {silent:?} of the judging clock"
    );
}

/// 11. A hold ends by its bound.
pub(crate) fn invariant_11_a_hold_ends_by_its_bound(witness: &Witness, since: Timestamp) {
    let lasts = witness.judged.since(since);
    assert!(lasts <= POLICY.mass_expiry_hold + 2 * MAX_TICK, "invariant 11: a hold lasts {lasts:?}");
}

/// 11. There is one hold an incident: before the next one, most members were heard.
pub(crate) fn invariant_11_one_hold_an_incident(witness: &Witness) {
    assert!(witness.calm, "invariant 11: a second hold of one incident");
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

/// 15. A call changes no other member than its own; time changes states only.
pub(crate) fn invariant_15_a_call_changes_one_cluster(
    act: &Act,
    kind: Kind,
    before: &Before,
    after: &Members,
) {
    for (cluster, old) in before.members.iter().filter(|(cluster, _)| **cluster != cluster_id(act.cluster)) {
        let new = after.get(cluster).map(|new| &**new);
        let mut old = (**old).clone();
        if let Some(new) = new.filter(|_| before.paused) {
            old.state = new.state;
        }
        assert_eq!(
            new,
            Some(&old),
            "invariant 15: {kind:?} of {} changed {cluster}",
            cluster_id(act.cluster)
        );
    }
}

fn header<'a>(registry: &'a Registry, service: &ServiceKey) -> Option<&'a Header> {
    registry.headers().find(|(key, _)| *key == service).map(|(_, header)| &**header)
}

fn part(member: &Member, service: &ServiceKey) -> Option<Object> {
    let export = member.exports().get(service).filter(|_| member.is_in_log())?;
    Some(Object::Part(Part {
        uid: member.uid().clone(),
        version: export.version,
        leaf: export.leaf,
        endpoints: export.endpoints.clone(),
    }))
}

fn section(member: &Member) -> Section {
    Section {
        uid: member.uid().clone(),
        region: member.region().cloned(),
        state: member.state(),
        whole: member.is_whole(),
        version: member.version(),
        sum: if member.is_whole() { member.sum() } else { Sum::EMPTY },
    }
}

fn index_of(cluster: &ClusterId) -> usize {
    (0..MOST_CLUSTERS).find(|index| cluster_id(*index) == *cluster).expect("a cluster of this world")
}
