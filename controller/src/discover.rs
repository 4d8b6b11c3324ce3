//! What a controller must learn of its cluster before it can start: that the MCS API is served, who the cluster is,
//! and which address families it gives Services.
//!
//! It asks until it knows. An API server that does not answer, or misses the CRDs, keeps the controller unready; it
//! says so once, and again when the reason changes. One that fails is asked later and later; one that answers, and
//! misses what somebody is about to bring, is asked again soon.

use crate::crds::RELEASE;
use crate::families::Families;
use crate::identity::{self, Given, Identity, NotKnown};
use crate::served::{self, Served};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt};
use mcs_core::backoff::Backoff;
use mcs_core::ids::ClusterUid;
use mcs_core::names::{MCS_API_VERSION, NAMESPACE_OF_UID};
use mcs_runtime::kube::follow::{FIRST_PAUSE, LONGEST_PAUSE};
use mcs_runtime::kube::retry_after;
use std::time::Duration;
use tracing::{debug, info, warn};

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to wait for what the cluster misses.
const RETRY: Duration = Duration::from_secs(2);

/// What was learned.
#[derive(Debug)]
pub(crate) struct Discovered {
    /// Who the cluster is.
    pub(crate) identity: Identity,
    /// The UID of the `kube-system` Namespace.
    pub(crate) uid: ClusterUid,
    /// What the API server keeps of what is written.
    pub(crate) served: Served,
    /// The address families that this cluster gives Services.
    pub(crate) families: Families,
}

/// Why something is not known yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("the API server does not answer within {LIMIT:?}")]
    TimedOut,
    #[error("the API server cannot be asked: {0}")]
    Refused(kube::Error),
    #[error(
        "the cluster serves no {0} of {MCS_API_VERSION}: apply the CRDs with `mcs-controller apply-crds`"
    )]
    NotServed(&'static str),
    #[error(
        "the CRDs of {MCS_API_VERSION} that the cluster serves are too old, and would drop these fields: {0}; apply those of \
         {RELEASE} with `mcs-controller apply-crds`"
    )]
    TooOld(String),
    #[error(transparent)]
    Identity(#[from] NotKnown),
    #[error("the UID of namespace {NAMESPACE_OF_UID} cannot be used: {0}")]
    Uid(mcs_core::ids::InvalidId),
}

/// What kept an answer from being known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The cluster misses something.
    Missing,
    /// The API server fails, and asks to be left alone for so long.
    Of(Duration),
}

impl Unknown {
    fn failure(&self) -> Failure {
        match self {
            Self::TimedOut => Failure::Of(Duration::ZERO),
            Self::Refused(error) | Self::Identity(NotKnown::Refused { source: error, .. }) => {
                Failure::Of(retry_after(error))
            }
            Self::NotServed(_) | Self::TooOld(_) | Self::Identity(_) | Self::Uid(_) => Failure::Missing,
        }
    }
}

/// Asks until all is known, of what flags have not `given`. `namespaces` are those in which this controller may make Services.
pub(crate) async fn discover(client: &Client, given: &Given, namespaces: &[String]) -> Discovered {
    let mut told = String::new();
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let asked = tokio::time::timeout(LIMIT, ask(client, given, namespaces)).await;
        match asked.unwrap_or(Err(Unknown::TimedOut)) {
            Ok(discovered) => {
                let Identity { clusterset, cluster, region, .. } = &discovered.identity;
                let region = region.as_ref().map(|region| region.as_str());
                info!(%clusterset, %cluster, region, uid = %discovered.uid, families = ?discovered.families.known(), "cluster known");
                return discovered;
            }
            Err(unknown) => {
                let pause = match unknown.failure() {
                    Failure::Missing => {
                        backoff.reset();
                        RETRY
                    }
                    Failure::Of(asked) => backoff.next_pause(asked, rand::random()),
                };
                let reason = unknown.to_string();
                if reason == told {
                    debug!(reason, retry_in = ?pause, "cannot start yet, asking again");
                } else {
                    warn!(reason, retry_in = ?pause, "cannot start yet, asking again");
                    told = reason;
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

async fn ask(client: &Client, given: &Given, namespaces: &[String]) -> Result<Discovered, Unknown> {
    let served = served::ask(client).await?;
    let identity = identity::ask(client, given).await?;
    let (uid, families) = (uid(client).await?, Families::default());
    families.learn(client, namespaces).await.map_err(Unknown::Refused)?;
    Ok(Discovered { identity, uid, served, families })
}

/// The UID of the cluster: that of its `kube-system` Namespace.
pub(crate) async fn uid(client: &Client) -> Result<ClusterUid, Unknown> {
    let system =
        Api::<Namespace>::all(client.clone()).get(NAMESPACE_OF_UID).await.map_err(Unknown::Refused)?;
    ClusterUid::new(system.uid().unwrap_or_default()).map_err(Unknown::Uid)
}

#[cfg(test)]
mod tests;
