//! What holds in a registry.

use crate::book::{Book, Said};
use crate::facts::{LEASE, POLICY, cluster_id, cluster_uid, place_of};
use crate::witness::{Act, Before, Facts, Kind, Members, Witness};
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{MemberState, Object, ObjectKey, Part, Section};
use mcs_core::registry::{Member, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::timing::MAX_TICK;
use mcs_core::version::{Sum, Version};
use std::collections::{BTreeMap, BTreeSet};

/// 2, in the registry: a sync takes away only what its leader has not, or has as no registry took it. So no change of
/// leader takes anything away.
pub(crate) fn invariant_02_a_sync_ends_what_its_leader_has_not(
    act: &Act,
    before: &Before,
    after: &Members,
    book: &Book,
) {
    let cluster = cluster_id(act.cluster);
    let (Some(old), Some(new)) = (before.members.get(&cluster), after.get(&cluster)) else { return };
    for (key, (held, _)) in old.exports.iter().filter(|(key, _)| !new.exports.contains_key(*key)) {
        let said = book.as_of(act.cluster, key, act.version.unwrap_or_default());
        // What was deleted and made anew was refused where the delete had come; here it had not.
        assert!(
            said.iter().any(|said| said.is_gone()) || book.gone_since(act.cluster, key, *held),
            "invariant 2: the end of a sync of {cluster} took {key}, which was said to be {said:?}"
        );
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
    let (place, as_of) = (place_of(member.uid()), member.version());
    for key in crate::facts::keys() {
        let held = member.exports().get(key);
        // What newer acts put or deleted is not as of the section's version yet.
        if held.map_or(mark > as_of, |export| export.version > as_of) {
            continue;
        }
        let said = book.as_of(place, key, as_of);
        let is_true = |said: &&Said| match said {
            Said::Has(leaf, _) => held.is_some_and(|export| export.leaf == *leaf),
            Said::Gone => held.is_none(),
            Said::Refused { .. } => true,
        };
        assert!(
            said.iter().any(is_true) || (said.is_empty() && held.is_none()),
            "invariant 5: {key} of {cluster} as of {as_of} is held with {held:?}, and was said to be {said:?}"
        );
    }
}

/// 5, in the registry: a member that was hidden is shown again with all that it has, never with what it had.
pub(crate) fn invariant_05_who_is_back_is_whole(registry: &Registry, cluster: &ClusterId) {
    assert!(
        registry.proven(cluster).is_some(),
        "invariant 5: {cluster} is shown again, and what is held is not known to be what it has"
    );
}

/// 6. An object as lists show it is the one that the log replays to.
pub(crate) fn invariant_06_list_and_log_agree(registry: &Registry, log: &StateLog<Object>, key: &ObjectKey) {
    let listed = match key {
        ObjectKey::Section(cluster) => {
            registry.member(cluster).map(|member| Object::Section(section(member)))
        }
        ObjectKey::Header(service) => registry.header(service).map(Object::Header),
        ObjectKey::Part(service, cluster) => {
            registry.member(cluster).and_then(|member| part(member, service))
        }
    };
    assert_eq!(listed.as_ref(), log.get(key), "invariant 6: the list and the replay of the log, {key:?}");
}

/// 6. A merged Service is what a fresh merge of all exports gives.
pub(crate) fn invariant_06_a_merge_is_fresh(registry: &Registry, service: &ServiceKey) {
    let whole = registry.members().filter(|(_, member)| member.is_whole());
    let exports: BTreeMap<ClusterId, Exported<'_>> = whole
        .filter_map(|(cluster, member)| {
            let export = member.exports().get(service)?;
            let exported = Exported { uid: member.uid(), version: export.version, spec: &export.spec };
            Some((cluster.clone(), exported))
        })
        .collect();
    let held = registry.header(service);
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
    assert_eq!(held, fresh, "invariant 6: the merge of {service}");
}

/// 6. What lists show, what the log replays to, and a fresh merge of all exports are one.
pub(crate) fn invariant_06_list_log_and_merge_agree(registry: &Registry, log: &StateLog<Object>) {
    let mut listed: BTreeSet<ObjectKey> =
        registry.imports(None).map(|service| ObjectKey::Header(service.clone())).collect();
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
    let floor = witness.floors.get(&act.cluster).copied().unwrap_or_default();
    if version.term < floor {
        assert!(
            refused.is_some(),
            "invariant 9: {kind:?} of {version} taken of {cluster} after term {floor}"
        );
        witness.count("old terms refused");
    }
    let mark = witness.marks.get(&act.cluster).copied().unwrap_or_default();
    let uid = cluster_uid(act.cluster);
    if version < mark && before.members.get(&cluster).is_some_and(|known| known.uid == uid) {
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

/// 15. An id changes hands only after the lease of the cluster that had it.
pub(crate) fn invariant_15_an_id_changes_hands_after_its_lease(cluster: &ClusterId, before: &Facts) {
    assert_eq!(before.state, MemberState::Expired, "invariant 15: {cluster} was taken from {}", before.uid);
}

fn part(member: &Member, service: &ServiceKey) -> Option<Object> {
    let export = member.exports().get(service).filter(|_| member.is_in_log())?;
    Some(Object::Part(Part {
        uid: member.uid().clone(),
        version: export.version,
        leaf: export.leaf,
        endpoints: export.endpoints.clone(),
        changed_at: export.changed_at,
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
