//! Who calls, and what that allows: the one place that decides it.
//!
//! | caller | reads | writes for | removes |
//! |---|---|---|---|
//! | anyone, where no client certificates are asked for | all | any cluster | any cluster |
//! | a cluster | all | itself | itself |
//! | an administrator of a clusterset | all | none | the clusters of that clusterset |
//! | any other certificate, or none seen | all | none | none |
//!
//! The use cases that change something take a [`Writer`] or a [`Remover`], which are made for a [`Caller`] alone: no
//! transport can forget to ask.

use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_proto::convert::Member;
pub(crate) use mcs_runtime::http::Caller;
use mcs_runtime::tls::Holder;

use crate::error::Error;

/// May write for this member. Only [`Writer::called_by`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer(Member);

impl Writer {
    /// `caller` asks to write for `member`.
    ///
    /// # Errors
    /// The caller is not that cluster.
    pub(crate) fn called_by(caller: &Caller, member: Member) -> Result<Self, Error> {
        if *caller == Caller::Anyone || is_cluster(caller, &member.clusterset, &member.cluster) {
            return Ok(Self(member));
        }
        let Member { clusterset, cluster, .. } = member;
        Err(Denied { caller: caller.clone(), asked: "write for", clusterset, cluster }.into())
    }

    /// The member.
    pub(crate) const fn member(&self) -> &Member {
        &self.0
    }
}

/// May remove this cluster. Only [`Remover::called_by`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remover {
    clusterset: ClustersetId,
    cluster: ClusterId,
    is_itself: bool,
}

impl Remover {
    /// `caller` asks to remove a cluster.
    ///
    /// # Errors
    /// The caller is neither that cluster nor an administrator of the clusterset.
    pub(crate) fn called_by(
        caller: &Caller,
        clusterset: ClustersetId,
        cluster: ClusterId,
    ) -> Result<Self, Error> {
        let is_itself = is_cluster(caller, &clusterset, &cluster);
        if *caller == Caller::Anyone || is_itself || is_admin(caller, &clusterset) {
            return Ok(Self { clusterset, cluster, is_itself });
        }
        Err(Denied { caller: caller.clone(), asked: "remove", clusterset, cluster }.into())
    }

    /// The clusterset of the cluster.
    pub(crate) const fn clusterset(&self) -> &ClustersetId {
        &self.clusterset
    }

    /// The cluster.
    pub(crate) const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Whether its certificate says that it is that cluster.
    pub(crate) const fn is_itself(&self) -> bool {
        self.is_itself
    }
}

/// A caller asked for something that its certificate does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, but not {asked} cluster {cluster} of clusterset {clusterset}", described(.caller))]
pub(crate) struct Denied {
    caller: Caller,
    asked: &'static str,
    pub(crate) clusterset: ClustersetId,
    pub(crate) cluster: ClusterId,
}

/// Who a caller is and what that allows, for people.
pub(crate) fn described(caller: &Caller) -> String {
    match caller {
        Caller::Anyone => format!("{caller} may do everything"),
        Caller::Holder(Holder::Cluster { .. }) => {
            format!("{caller} may read, and write for and remove that cluster")
        }
        Caller::Holder(Holder::Admin { .. }) => {
            format!("{caller} may read, and remove clusters of that clusterset")
        }
        Caller::Holder(Holder::Other { .. }) => format!("{caller}, which is no cluster's, may read"),
        Caller::Nobody => format!("{caller} may read"),
    }
}

fn is_cluster(caller: &Caller, of: &ClustersetId, id: &ClusterId) -> bool {
    matches!(caller, Caller::Holder(Holder::Cluster { clusterset, cluster }) if clusterset == of && cluster == id)
}

fn is_admin(caller: &Caller, of: &ClustersetId) -> bool {
    matches!(caller, Caller::Holder(Holder::Admin { clusterset }) if clusterset == of)
}

#[cfg(test)]
mod tests {
    use mcs_core::ids::ClusterUid;

    use super::*;

    #[test]
    fn each_caller_may_do_what_its_certificate_says() {
        let may = |caller: &Caller| {
            let targets = [("prod", "east"), ("prod", "west"), ("test", "east")];
            targets.map(|(clusterset, cluster)| {
                let write = Writer::called_by(caller, member(clusterset, cluster));
                let remove = Remover::called_by(caller, set(clusterset), ClusterId::new(cluster).unwrap());
                (write.is_ok(), remove.is_ok())
            })
        };
        let (all, none) = ((true, true), (false, false));
        assert_eq!(may(&Caller::Anyone), [all, all, all]);
        assert_eq!(may(&east()), [all, none, none]);
        assert_eq!(may(&admin()), [(false, true), (false, true), none]);
        assert_eq!(may(&Caller::Nobody), [none, none, none]);
    }

    #[test]
    fn a_refusal_names_the_certificate_and_what_it_may_do() {
        let told = |result: Result<Writer, Error>| result.unwrap_err().to_string();
        let reader = Caller::Holder(Holder::Other { shown: "with the names DNS \"web\"".to_owned() });
        assert_eq!(
            told(Writer::called_by(&east(), member("prod", "west"))),
            "the certificate of cluster east of clusterset prod may read, and write for and remove that cluster, \
             but not write for cluster west of clusterset prod"
        );
        assert_eq!(
            told(Writer::called_by(&reader, member("prod", "west"))),
            "a certificate with the names DNS \"web\", which is no cluster's, may read, but not write for cluster west of clusterset prod"
        );
        let refused = Remover::called_by(&admin(), set("test"), ClusterId::new("east").unwrap());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "the certificate of an administrator of clusterset prod may read, and remove clusters of that clusterset, \
             but not remove cluster east of clusterset test"
        );
    }

    #[test]
    fn a_writer_is_for_the_member_that_was_asked_for() {
        assert_eq!(
            Writer::called_by(&east(), member("prod", "east")).unwrap().member(),
            &member("prod", "east")
        );
    }

    fn set(clusterset: &str) -> ClustersetId {
        ClustersetId::new(clusterset).unwrap()
    }

    fn east() -> Caller {
        Caller::Holder(Holder::Cluster { clusterset: set("prod"), cluster: ClusterId::new("east").unwrap() })
    }

    fn admin() -> Caller {
        Caller::Holder(Holder::Admin { clusterset: set("prod") })
    }

    fn member(clusterset: &str, cluster: &str) -> Member {
        Member {
            clusterset: set(clusterset),
            cluster: ClusterId::new(cluster).unwrap(),
            uid: ClusterUid::new("u-1").unwrap(),
        }
    }
}
