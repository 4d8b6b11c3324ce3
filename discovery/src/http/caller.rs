//! Who calls, what that may read, and which pools it may register.
//!
//! | caller | reads | registers |
//! |---|---|---|
//! | anyone, where no client certificates are asked for | all | any pool |
//! | a certificate that names a cluster | all | the pools of that cluster |
//! | any other certificate | all | none |
//! | nobody: one was asked for, and none was shown | what probes ask | none |
//!
//! A kubelet has no certificate, and its probes must see whether this replica has its view (docs/decisions/0039).

use axum::http::Extensions;
use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_core::pools::PoolKey;
use mcs_runtime::http::Peer;
use mcs_runtime::tls::Holder;
use tracing::debug;

/// Who calls, as far as the connection tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No client certificates are asked for: the network decides who may call.
    Anyone,
    /// The relays of a cluster.
    Cluster {
        /// The clusterset that the certificate names, for people.
        clusterset: ClustersetId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// A certificate that names no cluster.
    Reader {
        /// What it is, for people: "a certificate with the names …".
        shown: String,
    },
    /// Client certificates are asked for, and none was shown.
    Nobody,
}

/// A caller asked for what its certificate, or that it has none, does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// It is that of another cluster.
    #[error(
        "key.cluster_id: is {asked}, and the certificate of cluster {own} of clusterset {clusterset} registers pools of \
         {own} only"
    )]
    OtherCluster {
        /// The cluster of the pool.
        asked: String,
        /// The cluster of the certificate.
        own: ClusterId,
        /// Its clusterset.
        clusterset: ClustersetId,
    },
    /// It names no cluster.
    #[error("key.cluster_id: is {asked}, and {shown} names no cluster, so it may only read")]
    NoCluster {
        /// The cluster of the pool.
        asked: String,
        /// What the certificate is.
        shown: String,
    },
    /// There is none.
    #[error(
        "no client certificate was shown, and this needs one signed by a CA of --tls-client-ca-cert-path: without it \
         only GET of /healthz, /readyz and /livez is answered"
    )]
    NoCertificate,
}

impl Caller {
    /// Who is at the other end of a connection.
    pub(super) fn identify(peer: &Peer, certificates_are_asked_for: bool) -> Self {
        let Some(certificate) = &peer.certificate else {
            return if certificates_are_asked_for { Self::Nobody } else { Self::Anyone };
        };
        let caller = Self::from(Holder::of(certificate));
        debug!(peer = %peer.address, serial = certificate.serial, ?caller, "client identified");
        caller
    }

    /// Who sent a request, from what the connection put into its extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or(Self::Nobody)
    }

    /// Asks for something that tells of the process alone (`is_probe`), or of pools and routers.
    ///
    /// # Errors
    /// There is no certificate.
    pub(super) const fn may_ask(&self, is_probe: bool) -> Result<(), Denied> {
        match self {
            Self::Nobody if !is_probe => Err(Denied::NoCertificate),
            Self::Nobody | Self::Anyone | Self::Cluster { .. } | Self::Reader { .. } => Ok(()),
        }
    }

    /// Asks to register a pool.
    ///
    /// # Errors
    /// The certificate is not that of the pool's cluster.
    pub(super) fn may_register(&self, key: &PoolKey) -> Result<(), Denied> {
        let asked = key.cluster_id();
        match self {
            Self::Anyone => Ok(()),
            Self::Cluster { cluster, .. } if cluster.as_str() == asked => Ok(()),
            Self::Cluster { cluster, clusterset } => Err(Denied::OtherCluster {
                asked: asked.to_owned(),
                own: cluster.clone(),
                clusterset: clusterset.clone(),
            }),
            Self::Reader { shown } => {
                Err(Denied::NoCluster { asked: asked.to_owned(), shown: shown.clone() })
            }
            Self::Nobody => Err(Denied::NoCertificate),
        }
    }
}

impl From<Holder> for Caller {
    fn from(holder: Holder) -> Self {
        match holder {
            Holder::Cluster { clusterset, cluster } => Self::Cluster { clusterset, cluster },
            Holder::Admin { clusterset } => Self::Reader {
                shown: format!("the certificate of an administrator of clusterset {clusterset}"),
            },
            Holder::Other { shown } => Self::Reader { shown: format!("a certificate {shown}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(caller: &Caller) -> [String; 2] {
        ["east", "west"].map(|cluster| {
            let key = PoolKey::new(cluster, "ml", "chat").unwrap();
            caller.may_register(&key).map_or_else(|denied| denied.to_string(), |()| "allowed".to_owned())
        })
    }

    #[test]
    fn a_certificate_registers_pools_of_its_own_cluster_only() {
        let clusterset = || ClustersetId::new("prod").unwrap();
        let east = Holder::Cluster { clusterset: clusterset(), cluster: ClusterId::new("east").unwrap() };
        let other = "key.cluster_id: is west, and the certificate of cluster east of clusterset prod registers pools \
                     of east only";
        assert_eq!(told(&east.into()), ["allowed", other]);
        assert_eq!(told(&Caller::Anyone), ["allowed", "allowed"]);
        let admin = Caller::from(Holder::Admin { clusterset: clusterset() });
        let shown =
            "is west, and the certificate of an administrator of clusterset prod names no cluster, so it may";
        assert!(told(&admin)[1].contains(shown), "{:?}", told(&admin));
        let web = Caller::from(Holder::Other { shown: "with the names DNS \"web\"".to_owned() });
        let shown = "key.cluster_id: is east, and a certificate with the names DNS \"web\" names no cluster, so it may \
                     only read";
        assert_eq!(told(&web)[0], shown);
    }

    #[test]
    fn a_request_or_a_connection_of_which_nothing_is_known_is_nobodys_who_may_ask_as_probes_do() {
        let peer = Peer { address: ([127, 0, 0, 1], 80).into(), certificate: None };
        assert_eq!(Caller::identify(&peer, false), Caller::Anyone);
        assert_eq!(Caller::identify(&peer, true), Caller::Nobody);
        assert_eq!(Caller::of(&Extensions::new()), Caller::Nobody);

        let reader = Caller::Reader { shown: "a certificate without names".to_owned() };
        for (caller, asks) in
            [(Caller::Anyone, Ok(())), (reader, Ok(())), (Caller::Nobody, Err(Denied::NoCertificate))]
        {
            assert_eq!((caller.may_ask(true), caller.may_ask(false)), (Ok(()), asks), "{caller:?}");
        }
        let told = "no client certificate was shown, and this needs one signed by a CA of --tls-client-ca-cert-path: \
                    without it only GET of /healthz, /readyz and /livez is answered";
        assert_eq!(self::told(&Caller::Nobody), [told, told]);
    }
}
