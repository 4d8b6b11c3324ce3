//! What a controller must learn of its cluster before it can start: that the MCS API is served, who the cluster is,
//! and which address families it gives Services.
//!
//! It asks until it knows. An API server that does not answer, or misses the CRDs, keeps the controller unready; it
//! says so once, and again when the reason changes.

use crate::crds::RELEASE;
use crate::identity::{self, Given, Identity, NotKnown};
use crate::served::{self, Served};
use k8s_openapi::api::core::v1::{Namespace, Service, ServicePort, ServiceSpec};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use mcs_core::ids::ClusterUid;
use mcs_core::model::IpFamily;
use mcs_core::names::{MCS_API_VERSION, NAMESPACE_OF_UID};
use std::time::Duration;
use tracing::{debug, info, warn};

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to wait before asking again.
const RETRY: Duration = Duration::from_secs(2);

/// What was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// Who the cluster is.
    pub(crate) identity: Identity,
    /// The UID of the `kube-system` Namespace.
    pub(crate) uid: ClusterUid,
    /// What the API server keeps of what is written.
    pub(crate) served: Served,
    /// The address families that this cluster gives Services, the primary one first.
    pub(crate) served_families: Vec<IpFamily>,
}

/// Why something is not known yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("the API server does not answer within {LIMIT:?}")]
    TimedOut,
    #[error("the API server answers: {0}")]
    Refused(kube::Error),
    #[error(
        "the cluster serves no {0} of {MCS_API_VERSION}: apply the CRDs with `mcs-controller apply-crds`, or install \
         the chart with crds.install=true"
    )]
    NotServed(&'static str),
    #[error(
        "the CRDs of {MCS_API_VERSION} that the cluster serves are too old, and would drop these fields: {0}; apply those of \
         {RELEASE} with `mcs-controller apply-crds`, or install the chart with crds.install=true"
    )]
    TooOld(String),
    #[error(transparent)]
    Identity(#[from] NotKnown),
    #[error("the UID of namespace {NAMESPACE_OF_UID} cannot be used: {0}")]
    Uid(mcs_core::ids::InvalidId),
}

/// Asks until all is known, of what flags have not `given`. `namespaces` are those in which this controller may make Services.
pub(crate) async fn discover(client: &Client, given: &Given, namespaces: &[String]) -> Discovered {
    let mut told = String::new();
    loop {
        let asked = tokio::time::timeout(LIMIT, ask(client, given, namespaces)).await;
        match asked.unwrap_or(Err(Unknown::TimedOut)) {
            Ok(discovered) => {
                let Identity { clusterset, cluster, region, .. } = &discovered.identity;
                let region = region.as_ref().map(|region| region.as_str());
                info!(%clusterset, %cluster, region, uid = %discovered.uid, families = ?discovered.served_families, "cluster known");
                return discovered;
            }
            Err(unknown) => {
                let reason = unknown.to_string();
                if reason != told {
                    warn!(reason, "cannot start yet, asking again");
                    told = reason;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn ask(client: &Client, given: &Given, namespaces: &[String]) -> Result<Discovered, Unknown> {
    let served = served::ask(client).await?;
    let identity = identity::ask(client, given).await?;
    let served_families = families(client, namespaces).await?;
    Ok(Discovered { identity, uid: uid(client).await?, served, served_families })
}

/// The UID of the cluster: that of its `kube-system` Namespace.
pub(crate) async fn uid(client: &Client) -> Result<ClusterUid, Unknown> {
    let system =
        Api::<Namespace>::all(client.clone()).get(NAMESPACE_OF_UID).await.map_err(Unknown::Refused)?;
    ClusterUid::new(system.uid().unwrap_or_default()).map_err(Unknown::Uid)
}

/// The families that a Service would get which takes all it can: the API server knows, and a dry run makes it say. A
/// namespace may be missing, on its way out or full; what one refuses, another answers.
async fn families(client: &Client, namespaces: &[String]) -> Result<Vec<IpFamily>, Unknown> {
    for namespace in namespaces {
        match probe(client, namespace).await {
            Ok(families) => return Ok(families),
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                debug!(namespace, answer = status.message, "cannot be asked for the cluster's IP families");
            }
            Err(error) => return Err(Unknown::Refused(error)),
        }
    }
    warn!("no namespace tells the cluster's IP families, both are taken to be served");
    Ok(vec![IpFamily::V4, IpFamily::V6])
}

async fn probe(client: &Client, namespace: &str) -> kube::Result<Vec<IpFamily>> {
    let probe = Service {
        metadata: ObjectMeta { generate_name: Some("mcs-probe-".to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(vec![ServicePort { port: 1, ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = Api::<Service>::namespaced(client.clone(), namespace).create(&params, &probe).await?;
    let families = made.spec.and_then(|spec| spec.ip_families).unwrap_or_default();
    Ok(families.iter().filter_map(|family| IpFamily::parse(family)).collect())
}
