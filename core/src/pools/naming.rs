//! Which imported EndpointSlice belongs to which Service of which cluster, and which Service plays which part.
//!
//! Two MCS implementations name their slices differently; both give a Service name and a source cluster. The Service
//! name then says whether it is a pool's relay, a pool's frontend or the router.

use super::{Notice, PoolKey};
use crate::ids::ClusterId;
use crate::names;
use std::collections::BTreeMap;

/// How the MCS implementation names imported EndpointSlices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Labels of KEP-1645, as mcs-controller writes them.
    Mcs,
    /// Karmada's: slices `imported-<cluster>-<service>-…` of Service `derived-<service>`.
    Karmada,
}

/// The longest Service name that Karmada can carry: `derived-` and the name make one label.
pub const KARMADA_MAX_SERVICE: usize = 55;

const KARMADA_SERVICE: &str = "derived-";
const KARMADA_SLICE: &str = "imported-";

/// Why a selected EndpointSlice cannot be told to a Service and cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A label is missing or empty.
    #[error("label {0} is missing")]
    NoLabel(&'static str),
    /// The source cluster is not an id.
    #[error("source {0}")]
    Cluster(#[from] crate::ids::InvalidId),
    /// The name is not `imported-<cluster>-<service>-…`.
    #[error(
        "the cluster cannot be read from the name: expected imported-<cluster>-{service}-…; a Service name of more \
         than 57 characters is cut there"
    )]
    Name {
        /// The Service that the label names.
        service: String,
    },
}

impl Naming {
    /// The label selector of the watch.
    pub fn selector(self) -> String {
        match self {
            Self::Mcs => format!("{},{}", names::LABEL_SERVICE_NAME, names::LABEL_SOURCE_CLUSTER),
            Self::Karmada => names::LABEL_SLICE_SERVICE.to_owned(),
        }
    }

    /// The most characters that a Service name can have, where the style has a limit below that of Kubernetes.
    pub const fn max_service_name(self) -> Option<usize> {
        match self {
            Self::Mcs => None,
            Self::Karmada => Some(KARMADA_MAX_SERVICE),
        }
    }

    /// The Service and source cluster of the slice `slice_name` with `labels`; none when it is not an imported one.
    ///
    /// # Errors
    /// Why an imported slice cannot be used.
    pub fn read(
        self,
        slice_name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<(String, ClusterId)>, Unreadable> {
        let label = |name: &'static str| {
            let value = labels.get(name).filter(|value| !value.is_empty());
            value.map(String::as_str).ok_or(Unreadable::NoLabel(name))
        };
        match self {
            Self::Mcs => {
                let cluster = ClusterId::new(label(names::LABEL_SOURCE_CLUSTER)?)?;
                Ok(Some((label(names::LABEL_SERVICE_NAME)?.to_owned(), cluster)))
            }
            Self::Karmada => {
                // Derived Services of mcs-controller begin as Karmada's do, and both may be in a cluster that goes over
                // from one to the other.
                let is_of_controller = labels
                    .get(names::LABEL_SLICE_MANAGED_BY)
                    .is_some_and(|keeper| keeper == names::MANAGED_BY);
                let service = label(names::LABEL_SLICE_SERVICE)?.strip_prefix(KARMADA_SERVICE);
                let Some(service) = service.filter(|_| !is_of_controller) else {
                    return Ok(None);
                };
                let unreadable = || Unreadable::Name { service: service.to_owned() };
                let rest = slice_name.strip_prefix(KARMADA_SLICE).ok_or_else(unreadable)?;
                let end = rest.rfind(&format!("-{service}-")).ok_or_else(unreadable)?;
                let cluster = rest.get(..end).ok_or_else(unreadable)?;
                Ok(Some((service.to_owned(), ClusterId::new(cluster)?)))
            }
        }
    }
}

/// What is looked for among imported Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// A pool's relay Service is `<dgd><this>`. Neither suffix is the end of the other.
    pub pool_suffix: String,
    /// A pool's frontend Service is `<dgd><this>`.
    pub frontend_suffix: String,
    /// The frontend's TCP port.
    pub frontend_port: String,
    /// The namespace of the router Service.
    pub router_namespace: String,
    /// The router Service.
    pub router_service: String,
    /// The router's TCP port.
    pub router_port: String,
}

/// What an imported Service is to the discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The relays of a pool.
    Relay(PoolKey),
    /// The frontends of a pool.
    Frontend(PoolKey),
    /// The replicas of the router.
    Router,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Relay(key) => write!(f, "the relays of pool {key}"),
            Self::Frontend(key) => write!(f, "the frontends of pool {key}"),
            Self::Router => f.write_str("the router"),
        }
    }
}

impl Services {
    /// What Service `service` of `namespace` in `cluster` is; none when it is of no interest.
    pub fn part(&self, cluster: &ClusterId, namespace: &str, service: &str) -> Option<Part> {
        if namespace == self.router_namespace && service == self.router_service {
            return Some(Part::Router);
        }
        let pool =
            |suffix: &str| PoolKey::new(cluster.as_str(), namespace, service.strip_suffix(suffix)?).ok();
        let relay = pool(&self.pool_suffix).map(Part::Relay);
        relay.or_else(|| pool(&self.frontend_suffix).map(Part::Frontend))
    }

    /// The name of the Service that plays `part`.
    pub fn name(&self, part: &Part) -> String {
        match part {
            Part::Relay(key) => self.relay(key),
            Part::Frontend(key) => self.frontend(key),
            Part::Router => self.router_service.clone(),
        }
    }

    /// A notice of each of `parts` whose Service has a name that `naming` cannot carry.
    pub fn too_long(&self, naming: Naming, parts: impl IntoIterator<Item = Part>) -> Vec<Notice> {
        let Some(limit) = naming.max_service_name() else { return Vec::new() };
        let notice = |part| {
            let service = self.name(&part);
            (service.len() > limit).then_some(Notice::ServiceNameTooLong { part, service, limit })
        };
        parts.into_iter().filter_map(notice).collect()
    }

    /// The relay Service of a pool.
    pub fn relay(&self, key: &PoolKey) -> String {
        format!("{}{}", key.dgd_name(), self.pool_suffix)
    }

    /// The frontend Service of a pool.
    pub fn frontend(&self, key: &PoolKey) -> String {
        format!("{}{}", key.dgd_name(), self.frontend_suffix)
    }
}
