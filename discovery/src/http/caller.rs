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

use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_core::pools::PoolKey;
use mcs_runtime::http::Caller;
use mcs_runtime::tls::Holder;

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
    #[error("key.cluster_id: is {asked}, and {holder} names no cluster, so it may only read")]
    NoCluster {
        /// The cluster of the pool.
        asked: String,
        /// Who holds it.
        holder: Holder,
    },
    /// There is none.
    #[error(
        "no client certificate was shown, and this needs one signed by a CA of --tls-client-ca-cert-path: without it \
         only GET of /healthz, /readyz and /livez is answered"
    )]
    NoCertificate,
}

/// `caller` asks for something that tells of the process alone (`is_probe`), or of pools and routers.
///
/// # Errors
/// There is no certificate.
pub(super) const fn may_ask(caller: &Caller, is_probe: bool) -> Result<(), Denied> {
    match caller {
        Caller::Nobody if !is_probe => Err(Denied::NoCertificate),
        Caller::Nobody | Caller::Anyone | Caller::Holder(_) => Ok(()),
    }
}

/// `caller` asks to register a pool.
///
/// # Errors
/// The certificate is not that of the pool's cluster.
pub(super) fn may_register(caller: &Caller, key: &PoolKey) -> Result<(), Denied> {
    let asked = key.cluster_id();
    match caller {
        Caller::Anyone => Ok(()),
        Caller::Holder(Holder::Cluster { cluster, .. }) if cluster.as_str() == asked => Ok(()),
        Caller::Holder(Holder::Cluster { cluster, clusterset }) => Err(Denied::OtherCluster {
            asked: asked.to_owned(),
            own: cluster.clone(),
            clusterset: clusterset.clone(),
        }),
        Caller::Holder(holder) => Err(Denied::NoCluster { asked: asked.to_owned(), holder: holder.clone() }),
        Caller::Nobody => Err(Denied::NoCertificate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(caller: &Caller) -> [String; 2] {
        ["east", "west"].map(|cluster| {
            let key = PoolKey::new(cluster, "ml", "chat").unwrap();
            may_register(caller, &key).map_or_else(|denied| denied.to_string(), |()| "allowed".to_owned())
        })
    }

    #[test]
    fn a_certificate_registers_pools_of_its_own_cluster_only() {
        let clusterset = || ClustersetId::new("prod").unwrap();
        let east = Holder::Cluster { clusterset: clusterset(), cluster: ClusterId::new("east").unwrap() };
        let other = "key.cluster_id: is west, and the certificate of cluster east of clusterset prod registers pools \
                     of east only";
        assert_eq!(told(&Caller::Holder(east)), ["allowed", other]);
        assert_eq!(told(&Caller::Anyone), ["allowed", "allowed"]);
        let admin = Caller::Holder(Holder::Admin { clusterset: clusterset() });
        let shown =
            "is west, and the certificate of an administrator of clusterset prod names no cluster, so it may";
        assert!(told(&admin)[1].contains(shown), "{:?}", told(&admin));
        let web = Caller::Holder(Holder::Other { shown: "with the names DNS \"web\"".to_owned() });
        let shown = "key.cluster_id: is east, and a certificate with the names DNS \"web\" names no cluster, so it may \
                     only read";
        assert_eq!(told(&web)[0], shown);
    }

    #[test]
    fn who_shows_no_certificate_may_ask_as_probes_do() {
        let reader = Caller::Holder(Holder::Other { shown: "without names".to_owned() });
        for (caller, asks) in
            [(Caller::Anyone, Ok(())), (reader, Ok(())), (Caller::Nobody, Err(Denied::NoCertificate))]
        {
            assert_eq!((may_ask(&caller, true), may_ask(&caller, false)), (Ok(()), asks), "{caller:?}");
        }
        let refusal = "no client certificate was shown, and this needs one signed by a CA of --tls-client-ca-cert-path: \
                    without it only GET of /healthz, /readyz and /livez is answered";
        assert_eq!(told(&Caller::Nobody), [refusal, refusal]);
    }
}
