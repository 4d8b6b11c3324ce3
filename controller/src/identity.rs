//! Who this cluster is, where flags leave it open: its ids by ClusterProperties (KEP-2149), its region by its nodes.
//!
//! Ids are what the whole clusterset knows a cluster by, so they are learned once, at the start. A property that is
//! changed or deleted afterwards is an error of whoever did it: it is reported ([`watch`]) and not followed, since the
//! cluster would leave its exports behind under the old id. A controller that is started afterwards goes by it.
//!
//! Permissions are needed for what is asked only: `get`, `list` and `watch` of clusterproperties while an id is left
//! open, `list` of nodes while the region is.

use crate::api::{AboutVersion, ClusterProperty};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::pages;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, ObjectMeta};
use kube::{Client, Resource};
use mcs_core::ids::{ClusterId, ClustersetId, InvalidId, Region};
use mcs_core::names::{
    ABOUT_GROUP, EVENT_IDENTITY_CHANGED, LABEL_REGION, PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET_ID,
    RESOURCE_CLUSTER_PROPERTIES,
};
use mcs_core::time::Clock;
use mcs_core::timing::EVENT_REPEAT;
use mcs_runtime::kube::follow::follow_one;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

/// What flags say of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) clusterset: Option<ClustersetId>,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) region: Option<Region>,
}

/// Who the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) clusterset: ClustersetId,
    pub(crate) cluster: ClusterId,
    pub(crate) region: Option<Region>,
    /// The properties that were read, by name, and the version they were read in.
    pub(crate) read: Option<Read>,
}

/// The properties that ids were learned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    version: AboutVersion,
    values: BTreeMap<&'static str, String>,
}

/// Why it is not known who the cluster is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKnown {
    /// There are no ClusterProperties.
    #[error(
        "{flag} is not set, and the cluster serves no {RESOURCE_CLUSTER_PROPERTIES} of {ABOUT_GROUP}: set the flag, or \
         apply the CRDs with `mcs-controller apply-crds` and create the ClusterProperty"
    )]
    NotServed { flag: &'static str },
    /// This one is missing.
    #[error("{flag} is not set, and there is no ClusterProperty {property}: set the flag, or create it")]
    NoProperty { flag: &'static str, property: &'static str },
    /// Its value is no id.
    #[error("the value of ClusterProperty {property} cannot be used: {problem}")]
    Invalid { property: &'static str, problem: InvalidId },
    /// The API server does not say.
    #[error("cannot read {what}, which is needed while {flag} is not set: {source}")]
    Refused { what: &'static str, flag: &'static str, source: kube::Error },
}

/// Asks for what is not given.
pub(crate) async fn ask(client: &Client, given: &Given) -> Result<Identity, NotKnown> {
    let mut read = None;
    let cluster = match &given.cluster {
        Some(cluster) => cluster.clone(),
        None => property(client, &mut read, "--cluster-id", PROPERTY_CLUSTER_ID, ClusterId::new).await?,
    };
    let clusterset = match &given.clusterset {
        Some(clusterset) => clusterset.clone(),
        None => {
            property(client, &mut read, "--clusterset-id", PROPERTY_CLUSTERSET_ID, ClustersetId::new).await?
        }
    };
    let region = match &given.region {
        Some(region) => Some(region.clone()),
        None => most_common_region(client).await?,
    };
    Ok(Identity { clusterset, cluster, region, read })
}

/// The id that a property has.
async fn property<I>(
    client: &Client,
    read: &mut Option<Read>,
    flag: &'static str,
    property: &'static str,
    id: impl FnOnce(String) -> Result<I, InvalidId>,
) -> Result<I, NotKnown> {
    let refused = |source| NotKnown::Refused { what: "ClusterProperties", flag, source };
    let version = match read {
        Some(read) => read.version,
        None => served(client).await.map_err(refused)?.ok_or(NotKnown::NotServed { flag })?,
    };
    let found = Api::<ClusterProperty>::all_with(client.clone(), &version).get_opt(property).await;
    let found = found.map_err(refused)?.ok_or(NotKnown::NoProperty { flag, property })?;
    let value = value_of(&found);
    let parsed = id(value.clone()).map_err(|problem| NotKnown::Invalid { property, problem })?;
    read.get_or_insert_with(|| Read { version, values: BTreeMap::new() }).values.insert(property, value);
    Ok(parsed)
}

fn value_of(property: &ClusterProperty) -> String {
    property.spec.clone().unwrap_or_default().value
}

/// The best version of ClusterProperties that the cluster serves.
async fn served(client: &Client) -> kube::Result<Option<AboutVersion>> {
    for version in [AboutVersion::V1beta1, AboutVersion::V1alpha1] {
        let group = format!("{ABOUT_GROUP}/{}", version.as_str());
        match client.list_api_group_resources(&group).await {
            Ok(found) if found.resources.iter().any(|it| it.name == RESOURCE_CLUSTER_PROPERTIES) => {
                return Ok(Some(version));
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The region that most nodes are in; of several with as many nodes the first in the alphabet, so that all replicas
/// agree. None where no node says, or this controller may not ask: a region is a label, and nothing depends on it.
async fn most_common_region(client: &Client) -> Result<Option<Region>, NotKnown> {
    let nodes = Api::<Node>::all(client.clone());
    let mut counts = BTreeMap::<String, usize>::new();
    let count = |node: ObjectMeta| {
        if let Some(region) = node.labels.and_then(|mut labels| labels.remove(LABEL_REGION)) {
            *counts.entry(region).or_default() += 1;
        }
    };
    match pages::each(&nodes, ListParams::default(), count).await {
        Ok(()) => Ok(most_common(&counts)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            warn!(answer = status.message, "nodes cannot be listed, so no region is known: --region sets it");
            Ok(None)
        }
        Err(source) => Err(NotKnown::Refused { what: "nodes", flag: "--region", source }),
    }
}

fn most_common(counts: &BTreeMap<String, usize>) -> Option<Region> {
    // Of equal counts the last is taken, so the order is turned round.
    let (region, _) = counts.iter().rev().max_by_key(|(_, count)| **count)?;
    Region::new(region.clone()).ok()
}

/// Reports a change of the properties that ids were learned from; it has no end of its own.
pub(crate) async fn watch(
    client: Client,
    read: Read,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    events: Events,
) {
    let Read { version, values } = read;
    let watches = values.into_iter().map(|(name, value)| {
        let (metrics, events) = (metrics.clone(), events.clone());
        let api = Api::<ClusterProperty>::all_with(client.clone(), &version);
        let (tell, mut found) = mpsc::unbounded_channel();
        // The channel is there as long as the watch is.
        let following = follow_one(api, name, Arc::clone(&clock), move |seen| drop(tell.send(seen)));
        let looking = async move {
            let (mut told, mut last) = (None, None);
            loop {
                match tokio::time::timeout(EVENT_REPEAT, found.recv()).await {
                    Ok(Some(seen)) => {
                        let now = seen.as_ref().map(value_of);
                        if told.as_ref() == Some(&now) {
                            continue;
                        }
                        let changed = now.as_ref() != Some(&value);
                        metrics.identity_changed(name, changed);
                        report(&events, &version, name, &value, seen.as_ref(), told.is_some());
                        (told, last) = (Some(now), seen);
                    }
                    Ok(None) => return,
                    // What lasts is told again.
                    Err(_) => {
                        if last.as_ref().is_some_and(|last| value_of(last) != value) {
                            report(&events, &version, name, &value, last.as_ref(), true);
                        }
                    }
                }
            }
        };
        async move { tokio::join!(following, looking) }
    });
    futures::future::join_all(watches).await;
}

fn report(
    events: &Events,
    version: &AboutVersion,
    name: &'static str,
    value: &str,
    seen: Option<&ClusterProperty>,
    again: bool,
) {
    match seen {
        Some(property) if value_of(property) == value => {
            events.over(&property.object_ref(version), EVENT_IDENTITY_CHANGED);
            if again {
                info!(
                    property = name,
                    value, "the ClusterProperty has again the value that this controller goes by"
                );
            }
        }
        Some(property) => {
            let found = value_of(property);
            error!(
                property = name,
                value,
                found,
                "a ClusterProperty that this cluster is known by has changed, which is not followed"
            );
            let note = format!(
                "the id of a cluster that is a member of its clusterset must not change: the controller goes on as {value}, \
                 and goes by {found} when it is started anew; `mcs-controller leave` takes the cluster out before"
            );
            events.warn(&property.object_ref(version), EVENT_IDENTITY_CHANGED, note);
        }
        None => {
            error!(
                property = name,
                value, "a ClusterProperty that this cluster is known by is gone, which is not followed"
            );
        }
    }
}

#[cfg(test)]
mod tests;
