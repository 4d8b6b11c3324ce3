//! What a store knew of members, and whether it answers.

use super::acts::Act;
use super::judge::reschedule;
use super::member::Standing;
use super::{Member, Registry};
use crate::ids::{ClusterId, ClusterUid, Region, ServiceKey};
use crate::lease::Lease;
use crate::model::{Export, MemberState};
use crate::time::Timestamp;
use crate::version::{Sum, Version};
use std::collections::BTreeMap;

/// A member as a store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The UID of its `kube-system` Namespace.
    pub uid: ClusterUid,
    /// Its region, where it has one.
    pub region: Option<Region>,
    /// The version of the whole set that was held.
    pub version: Version,
    /// The sum of the leaves of that set.
    pub sum: Sum,
    /// What was thought of it.
    pub state: MemberState,
    /// What it exports.
    pub exports: BTreeMap<ServiceKey, Export>,
}

impl Registry {
    /// Takes a member that a store holds. One that is known already stays as it is: its controller has spoken here. Its
    /// lease counts from now, since nobody knows when it was renewed last, unless it had run out. Exports that are not
    /// those that the sum stands for are held, but prove nothing: the member is to sync.
    pub fn restore(&mut self, cluster: &ClusterId, restored: Restored, now: Timestamp) {
        self.tick(now);
        if self.members.contains_key(cluster) {
            return;
        }
        let Restored { uid, region, version, sum, state, exports } = restored;
        // The term is refused below that of the version, as by the registry that wrote it.
        if self.check_term(cluster, &uid, version).is_err() {
            return;
        }
        let judged = self.clock.now();
        let (lease, timing) = (Lease::renewed_at(judged), self.policy.timing);
        let (standing, due) = match state {
            MemberState::Expired => {
                (Standing::Expired { at: judged, renews: false }, lease.collected_at(timing))
            }
            MemberState::Syncing | MemberState::Active | MemberState::Held => {
                (Standing::Running, lease.deadline(timing))
            }
        };
        let (mut held, mut endpoints) = (Sum::EMPTY, 0);
        for (key, export) in &exports {
            held.add(export.leaf);
            endpoints += export.endpoints.len();
            self.services.put(key, cluster, &uid, export.version, export.spec.clone());
        }
        let mut member = Member {
            region,
            as_of: version,
            mark: version,
            sum: held,
            exports,
            endpoints,
            standing,
            ..Member::new(uid, judged, now)
        };
        if held == sum && state != MemberState::Syncing {
            member.prove();
        }
        let mut act = Act::default();
        act.enter(&mut member);
        reschedule(&mut self.due, cluster, &mut member, due);
        self.members.insert(cluster.clone(), member);
        self.finish(cluster, act);
    }

    /// Takes notice of whether the store answers. While it does not, leases are not judged: what another replica was
    /// told cannot be seen.
    pub fn store_answers(&mut self, answers: bool, now: Timestamp) {
        self.tick(now);
        let pause = self.policy.timing.pause();
        if answers && self.is_shared() && self.unread_since.is_some_and(|since| now.since(since) > pause) {
            // Who renewed elsewhere meanwhile could not be heard.
            self.count_anew();
        }
        self.unread_since = if answers { None } else { self.unread_since.or(Some(now)) };
    }
}
