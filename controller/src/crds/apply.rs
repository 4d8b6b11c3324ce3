//! Brings the CRDs of this build to a cluster by server-side apply, without taking anything away from it.
//!
//! - A CRD whose labels name a newer schema than ours stays as it is.
//! - A version that ours does not have is carried over, stored or not, and the version of the highest Kubernetes
//!   priority is the one that is stored from then on: so no stored version is ever dropped.
//! - The apply names the resourceVersion that this was decided on, so two installers at once do not undo each other.

use super::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Version;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use mcs_core::names;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a CRD may take until the API server serves it.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(60);

/// How often an apply is tried anew when another writer came between.
const TRIES: u32 = 5;

/// What became of one CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It now has the schema of this build.
    Applied,
    /// It has a newer schema, named by the labels given here, and stays.
    Newer {
        /// The release it names, and the revision.
        release: String,
        /// The revision within the release.
        revision: String,
    },
}

/// Why the CRDs could not be brought to the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ApplyFailed {
    /// The CRDs of this build cannot be made.
    #[error("the CRDs of this build cannot be made: {0}")]
    Build(#[from] serde_json::Error),
    /// The API server refused a call.
    #[error("cannot {verb} CustomResourceDefinition {name}: {source}")]
    Call {
        /// What was asked for.
        verb: &'static str,
        /// The CRD.
        name: String,
        /// Its answer.
        source: kube::Error,
    },
    /// Someone else kept changing it.
    #[error(
        "CustomResourceDefinition {name} was changed by another writer in each of {TRIES} tries; try again"
    )]
    Contended {
        /// The CRD.
        name: String,
    },
    /// The API server took it, but does not serve it.
    #[error("CustomResourceDefinition {name} is not served {} s after it was applied; see its conditions", ESTABLISH_LIMIT.as_secs())]
    NotServed {
        /// The CRD.
        name: String,
    },
}

/// Applies all CRDs, and waits until the API server serves them.
///
/// # Errors
/// The first CRD that could not be brought to the cluster; those before it are.
pub async fn apply_crds(client: Client) -> Result<BTreeMap<String, Outcome>, ApplyFailed> {
    let api = Api::<CustomResourceDefinition>::all(client);
    let mut outcomes = BTreeMap::new();
    for crd in crds()? {
        let outcome = apply(&api, &crd).await?;
        outcomes.insert(crd.name_any(), outcome);
    }
    for name in outcomes.keys() {
        let served = await_condition(api.clone(), name, conditions::is_crd_established());
        if !matches!(tokio::time::timeout(ESTABLISH_LIMIT, served).await, Ok(Ok(_))) {
            return Err(ApplyFailed::NotServed { name: name.clone() });
        }
    }
    Ok(outcomes)
}

async fn apply(
    api: &Api<CustomResourceDefinition>,
    ours: &CustomResourceDefinition,
) -> Result<Outcome, ApplyFailed> {
    let name = ours.name_any();
    let failed = |verb, source| ApplyFailed::Call { verb, name: name.clone(), source };
    for _ in 0..TRIES {
        let existing = api.get_opt(&name).await.map_err(|source| failed("get", source))?;
        if let Some(newer) = existing.as_ref().and_then(|existing| newer(existing, ours)) {
            return Ok(newer);
        }
        let wanted = carrying_over(ours.clone(), existing.as_ref());
        let params = PatchParams::apply(names::FIELD_MANAGER_CRDS).force();
        match api.patch(&name, &params, &Patch::Apply(&wanted)).await {
            Ok(_) => return Ok(Outcome::Applied),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(source) => return Err(failed("apply", source)),
        }
    }
    Err(ApplyFailed::Contended { name })
}

/// Tells when `existing` names a newer schema than `ours`. A label that says nothing we can order counts as newer:
/// lowering it by mistake would lose fields of stored objects.
fn newer(existing: &CustomResourceDefinition, ours: &CustomResourceDefinition) -> Option<Outcome> {
    let labels = |crd: &CustomResourceDefinition| {
        let label = |name: &str| crd.labels().get(name).cloned();
        Some((label(names::LABEL_CRD_RELEASE)?, label(names::LABEL_CRD_REVISION).unwrap_or_default()))
    };
    let (release, revision) = labels(existing)?;
    let (our_release, our_revision) = labels(ours)?;
    let older = match (order(&release, &revision), order(&our_release, &our_revision)) {
        (Some(theirs), Some(ours)) => theirs <= ours,
        _ => false,
    };
    (!older).then_some(Outcome::Newer { release, revision })
}

/// Orders releases: the numbers of `v1.2.3`, then a pre-release before its release, then the revision.
fn order(release: &str, revision: &str) -> Option<([u64; 3], bool, String, u64)> {
    let (numbers, pre_release) = match release.strip_prefix('v')?.split_once('-') {
        Some((numbers, pre_release)) => (numbers, Some(pre_release)),
        None => (release.strip_prefix('v')?, None),
    };
    let numbers: Vec<u64> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let revision = if revision.is_empty() { 0 } else { revision.parse().ok()? };
    Some((
        numbers.try_into().ok()?,
        pre_release.is_none(),
        pre_release.unwrap_or_default().to_owned(),
        revision,
    ))
}

/// Our CRD with the versions of the existing one that ours lacks.
fn carrying_over(
    mut ours: CustomResourceDefinition,
    existing: Option<&CustomResourceDefinition>,
) -> CustomResourceDefinition {
    let Some(existing) = existing else { return ours };
    ours.metadata.resource_version = existing.resource_version();
    let versions = &mut ours.spec.versions;
    for version in &existing.spec.versions {
        if versions.iter().all(|known| known.name != version.name) {
            versions.push(version.clone());
        }
    }
    let stored = versions
        .iter()
        .map(|version| &version.name)
        .max_by_key(|name| Version::parse(name).priority())
        .cloned();
    for version in versions {
        version.storage = Some(&version.name) == stored.as_ref();
    }
    ours
}

#[cfg(test)]
mod tests;
