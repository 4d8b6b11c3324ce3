//! Who calls, and what that allows: the one place that decides it.
//!
//! | caller | reads | writes for | removes |
//! |---|---|---|---|
//! | anyone, where no client certificates are asked for | all | any cluster | any cluster |
//! | a cluster | all | itself | itself |
//! | an administrator of a clusterset | all | none | the clusters of that clusterset |
//! | a certificate that names no cluster | all | none | none |
//!
//! The use cases that change something take a [`Writer`] or a [`Remover`], which only a [`Caller`] gives: no transport
//! can forget to ask.

use std::fmt;

use axum::http::Extensions;
use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_proto::convert::Member;
use mcs_runtime::http::Peer;
use mcs_runtime::tls::Holder;
use tracing::debug;

use crate::error::Error;

/// Who calls, as far as the transport knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// No client certificates are asked for: the network decides who may call.
    Anyone,
    /// The controller of a cluster.
    Cluster {
        /// The clusterset it is in.
        clusterset: ClustersetId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// Who may remove the clusters of a clusterset.
    Admin {
        /// The clusterset.
        clusterset: ClustersetId,
    },
    /// A certificate that names no cluster.
    Reader {
        /// What it is like, for people: "with the names …".
        shown: String,
    },
}

/// May write for this member. Only [`Caller::writer`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer(Member);

impl Writer {
    /// The member.
    pub(crate) const fn member(&self) -> &Member {
        &self.0
    }
}

/// May remove this cluster. Only [`Caller::remover`] makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remover {
    clusterset: ClustersetId,
    cluster: ClusterId,
    is_itself: bool,
}

impl Remover {
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
#[error("{caller} may {}, but not {asked} cluster {cluster} of clusterset {clusterset}", .caller.allowed())]
pub(crate) struct Denied {
    caller: Caller,
    asked: &'static str,
    pub(crate) clusterset: ClustersetId,
    pub(crate) cluster: ClusterId,
}

impl Caller {
    /// Who is at the other end of a connection; a port that asks for certificates gives none without.
    pub(crate) fn identify(peer: &Peer, certificates_are_asked_for: bool) -> Self {
        match &peer.certificate {
            Some(certificate) => {
                let caller = Self::from(Holder::of(certificate));
                debug!(peer = %peer.address, serial = certificate.serial, %caller, "client identified");
                caller
            }
            None if certificates_are_asked_for => Self::unknown(),
            None => Self::Anyone,
        }
    }

    /// Who sent a request, from what the transport put into its extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(Self::unknown)
    }

    fn unknown() -> Self {
        Self::Reader { shown: "that was not seen".to_owned() }
    }

    /// Asks to write for `member`.
    ///
    /// # Errors
    /// The caller is not that cluster.
    pub(crate) fn writer(&self, member: Member) -> Result<Writer, Error> {
        if self.is_anyone() || self.is_cluster(&member.clusterset, &member.cluster) {
            return Ok(Writer(member));
        }
        let Member { clusterset, cluster, .. } = member;
        Err(Denied { caller: self.clone(), asked: "write for", clusterset, cluster }.into())
    }

    /// Asks to remove a cluster.
    ///
    /// # Errors
    /// The caller is neither that cluster nor an administrator of the clusterset.
    pub(crate) fn remover(&self, clusterset: ClustersetId, cluster: ClusterId) -> Result<Remover, Error> {
        if self.is_anyone() || self.is_cluster(&clusterset, &cluster) || self.is_admin(&clusterset) {
            let is_itself = self.is_cluster(&clusterset, &cluster);
            return Ok(Remover { clusterset, cluster, is_itself });
        }
        Err(Denied { caller: self.clone(), asked: "remove", clusterset, cluster }.into())
    }

    /// Who it is and what that allows, for people.
    pub(crate) fn described(&self) -> String {
        format!("{self} may {}", self.allowed())
    }

    fn is_anyone(&self) -> bool {
        *self == Self::Anyone
    }

    fn is_cluster(&self, of: &ClustersetId, id: &ClusterId) -> bool {
        matches!(self, Self::Cluster { clusterset, cluster } if clusterset == of && cluster == id)
    }

    fn is_admin(&self, of: &ClustersetId) -> bool {
        matches!(self, Self::Admin { clusterset } if clusterset == of)
    }

    fn allowed(&self) -> &'static str {
        match self {
            Self::Anyone => "do everything",
            Self::Cluster { .. } => "read, and write for and remove that cluster",
            Self::Admin { .. } => "read, and remove clusters of that clusterset",
            Self::Reader { .. } => "read",
        }
    }
}

impl From<Holder> for Caller {
    fn from(holder: Holder) -> Self {
        match holder {
            Holder::Cluster { clusterset, cluster } => Self::Cluster { clusterset, cluster },
            Holder::Admin { clusterset } => Self::Admin { clusterset },
            Holder::Other { shown } => Self::Reader { shown },
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Cluster { clusterset, cluster } => {
                write!(f, "the certificate of cluster {cluster} of clusterset {clusterset}")
            }
            Self::Admin { clusterset } => {
                write!(f, "the certificate of an administrator of clusterset {clusterset}")
            }
            Self::Reader { shown } => write!(f, "a certificate {shown}, which is no cluster's,"),
        }
    }
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
                let write = caller.writer(member(clusterset, cluster));
                let remove = caller.remover(set(clusterset), ClusterId::new(cluster).unwrap());
                (write.is_ok(), remove.is_ok())
            })
        };
        let (all, none) = ((true, true), (false, false));
        assert_eq!(may(&Caller::Anyone), [all, all, all]);
        assert_eq!(may(&east()), [all, none, none]);
        assert_eq!(may(&Caller::Admin { clusterset: set("prod") }), [(false, true), (false, true), none]);
        assert_eq!(may(&Caller::unknown()), [none, none, none]);
    }

    #[test]
    fn a_refusal_names_the_certificate_and_what_it_may_do() {
        let told = |result: Result<Writer, Error>| result.unwrap_err().to_string();
        let reader = Caller::Reader { shown: "with the names DNS \"web\"".to_owned() };
        assert_eq!(
            told(east().writer(member("prod", "west"))),
            "the certificate of cluster east of clusterset prod may read, and write for and remove that cluster, \
             but not write for cluster west of clusterset prod"
        );
        assert_eq!(
            told(reader.writer(member("prod", "west"))),
            "a certificate with the names DNS \"web\", which is no cluster's, may read, but not write for cluster west of clusterset prod"
        );
        let admin = Caller::Admin { clusterset: set("prod") };
        assert_eq!(
            admin.remover(set("test"), ClusterId::new("east").unwrap()).unwrap_err().to_string(),
            "the certificate of an administrator of clusterset prod may read, and remove clusters of that clusterset, \
             but not remove cluster east of clusterset test"
        );
    }

    #[test]
    fn a_request_or_a_connection_of_which_nothing_is_known_may_read_only() {
        let peer = Peer { address: ([127, 0, 0, 1], 80).into(), certificate: None };
        assert_eq!(Caller::identify(&peer, false), Caller::Anyone);
        assert_eq!(Caller::identify(&peer, true), Caller::unknown());
        assert_eq!(Caller::of(&Extensions::new()), Caller::unknown());
    }

    #[test]
    fn a_writer_is_for_the_member_that_was_asked_for() {
        assert_eq!(east().writer(member("prod", "east")).unwrap().member(), &member("prod", "east"));
    }

    fn set(clusterset: &str) -> ClustersetId {
        ClustersetId::new(clusterset).unwrap()
    }

    fn east() -> Caller {
        Caller::Cluster { clusterset: set("prod"), cluster: ClusterId::new("east").unwrap() }
    }

    fn member(clusterset: &str, cluster: &str) -> Member {
        Member {
            clusterset: set(clusterset),
            cluster: ClusterId::new(cluster).unwrap(),
            uid: ClusterUid::new("u-1").unwrap(),
        }
    }
}
