//! Who this controller is and how it was told to work, once everything is known that flags leave open.

use crate::served::Served;
use mcs_core::ids::{Build, Instance, Namespace, Region};
use mcs_proto::convert::Member;

/// What a controller works by.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Clusterset, cluster and the UID of `kube-system`.
    pub(crate) member: Member,
    /// The cluster's region, where it has one.
    pub(crate) region: Option<Region>,
    /// This process, for people to read.
    pub(crate) instance: Instance,
    /// Its version, for people to read.
    pub(crate) build: Build,
    /// The namespaces that are exported from and imported into; all when empty.
    pub(crate) watch_namespaces: Vec<Namespace>,
    /// Whether missing namespaces of imports are created.
    pub(crate) create_namespaces: bool,
    /// Whether ServiceImports that somebody else made are taken over.
    pub(crate) adopt_unmanaged: bool,
    /// What the API server keeps of what is written.
    pub(crate) served: Served,
}

impl Config {
    /// Whether `namespace` is exported from and imported into.
    pub(crate) fn watches(&self, namespace: &Namespace) -> bool {
        self.watch_namespaces.is_empty() || self.watch_namespaces.contains(namespace)
    }
}
