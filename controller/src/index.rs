//! The cluster's objects as the API server last told of them, and who is to look at what when one changes.
//!
//! Watches feed it ([`crate::watch`]), and so do the answers to own writes ([`Index::apply`]), so that a reconciler
//! that reads after its own write sees it. A change puts the keys it touches into the queue of exports, of imports, or
//! both. Reads hand out shared objects and hold no lock.
//!
//! Rejected: a store for each kind with a stream of its own, as kube's reflectors are; what an import consists of lies
//! in three kinds, and own writes would be seen only when the watch has brought them back.

mod objects;
#[cfg(test)]
mod tests;

use crate::api::{ServiceExport, ServiceImport};
use crate::queue::Queue;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use mcs_core::ids::{Namespace as NamespaceName, ServiceKey};
use mcs_core::limits::MAX_HELD_NAMED;
use mcs_core::model::HeldImports;
use mcs_core::names::{
    ANNOTATION_DERIVED_SERVICE, LABEL_EXPORT, LABEL_MANAGED_BY, LABEL_SERVICE_NAME, LABEL_SLICE_SERVICE,
    MANAGED_BY, derived_service_of_slice, is_derived_service_name,
};
use objects::Objects;
pub(crate) use objects::{Name, name_of};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::debug;

/// The cluster's objects; see the module.
#[derive(Debug)]
pub(crate) struct Index {
    inner: Mutex<Inner>,
    /// Services whose export is to be looked at.
    pub(crate) exports: Queue<ServiceKey>,
    /// ServiceExports to be looked at whose name no Service can have.
    pub(crate) nameless: Queue<Name>,
    /// Services whose import is to be looked at.
    pub(crate) imports: Queue<ServiceKey>,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Inner {
    services: Objects<Service>,
    service_exports: Objects<ServiceExport>,
    service_imports: Objects<ServiceImport>,
    slices: Objects<EndpointSlice>,
    namespaces: Objects<Namespace>,
    /// Imports that wait for their namespace.
    held: BTreeSet<ServiceKey>,
}

/// What an export is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportObjects {
    /// The ServiceExport.
    pub(crate) export: Option<Arc<ServiceExport>>,
    /// The Service of its name.
    pub(crate) service: Option<Arc<Service>>,
    /// The slices of that Service.
    pub(crate) slices: Vec<Arc<EndpointSlice>>,
}

/// What an import consists of.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImportObjects {
    /// The ServiceImport.
    pub(crate) import: Option<Arc<ServiceImport>>,
    /// The Service of the derived name.
    pub(crate) service: Option<Arc<Service>>,
    /// The slices that name the import or the derived Service by a label, or are called as if they were its own.
    pub(crate) slices: Vec<Arc<EndpointSlice>>,
}

/// Whether objects can be made in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceState {
    /// It exists.
    Active,
    /// It is being deleted, with all in it.
    Terminating,
    /// It does not exist.
    Missing,
}

/// A kind that the index holds.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static
{
    /// Whether it is looked up who manages which field of objects without our label too.
    const KEEPS_RECORDS: bool = false;
    /// Where the index holds it.
    fn objects(inner: &mut Inner) -> &mut Objects<Self>;
    /// Queues what is to be looked at when this object has changed.
    fn touched(&self, inner: &Inner, index: &Index);
}

impl Default for Index {
    fn default() -> Self {
        let inner = Inner {
            services: Objects::new(&[]),
            service_exports: Objects::new(&[]),
            service_imports: Objects::new(&[]),
            slices: Objects::new(&[LABEL_SLICE_SERVICE, LABEL_SERVICE_NAME]),
            namespaces: Objects::new(&[]),
            held: BTreeSet::new(),
        };
        Self {
            inner: Mutex::new(inner),
            exports: Queue::default(),
            nameless: Queue::default(),
            imports: Queue::default(),
        }
    }
}

impl Index {
    /// Takes an object's state, from a watch or from the answer to an own write.
    pub(crate) fn apply<K: Kind>(&self, mut object: K) {
        // Who manages which field matters for few objects; keeping all records would double the memory.
        if !K::KEEPS_RECORDS && label(&object, LABEL_MANAGED_BY) != Some(MANAGED_BY) {
            object.meta_mut().managed_fields = None;
        }
        let mut inner = self.lock();
        let object = Arc::new(object);
        let (new, before) = K::objects(&mut inner).apply(Arc::clone(&object));
        if new {
            for state in before.iter().chain([&object]) {
                state.touched(&inner, self);
            }
        }
    }

    /// Takes the end of an object, from the answer to an own deletion.
    pub(crate) fn delete<K: Kind>(&self, object: &K) {
        self.delete_meta::<K>(object.meta());
    }

    /// Takes the end of a list of `scope` (a namespace; all when none): what is not `listed` is gone, but for what was
    /// written after `version`, of which the list cannot know: own writes are known here before their watch tells.
    pub(crate) fn finish_relist<K: Kind>(
        &self,
        scope: Option<&str>,
        listed: &BTreeSet<Name>,
        version: Option<&str>,
    ) {
        let missing = K::objects(&mut self.lock()).missing(scope, listed, version);
        debug!(kind = %K::kind(&()), namespace = scope, objects = listed.len(), gone = missing.len(), "listed");
        for meta in missing {
            let mut inner = self.lock();
            if let Some(before) = K::objects(&mut inner).unlist(&meta) {
                before.touched(&inner, self);
            }
        }
    }

    /// Takes that there is no such namespace. It may have been made since that was read: then the next look tells.
    pub(crate) fn namespace_is_gone(&self, namespace: &NamespaceName) {
        let mut inner = self.lock();
        let known = inner.namespaces.get("", namespace.as_str()).cloned();
        if let Some(before) = known.and_then(|known| inner.namespaces.unlist(&known.metadata)) {
            before.touched(&inner, self);
        }
    }

    /// Takes the end of the object that `meta` names.
    pub(crate) fn delete_meta<K: Kind>(&self, meta: &ObjectMeta) {
        let mut inner = self.lock();
        if let Some(before) = K::objects(&mut inner).delete(meta) {
            before.touched(&inner, self);
        }
    }

    /// What the export of `key` is made of.
    pub(crate) fn export_objects(&self, key: &ServiceKey) -> ExportObjects {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        let inner = self.lock();
        ExportObjects {
            export: inner.service_exports.get(namespace, name).cloned(),
            service: inner.services.get(namespace, name).cloned(),
            slices: inner.slices.labelled(namespace, LABEL_SLICE_SERVICE, name).cloned().collect(),
        }
    }

    /// What the import of `key` consists of, where its derived Service is called `derived`.
    pub(crate) fn import_objects(&self, key: &ServiceKey, derived: &str) -> ImportObjects {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        let inner = self.lock();
        let mut slices: Vec<_> =
            inner.slices.labelled(namespace, LABEL_SLICE_SERVICE, derived).cloned().collect();
        let relabelled =
            |slice: &&Arc<EndpointSlice>| label(slice.as_ref(), LABEL_SLICE_SERVICE) != Some(derived);
        slices.extend(inner.slices.labelled(namespace, LABEL_SERVICE_NAME, name).filter(relabelled).cloned());
        let prefix = format!("{derived}-");
        let unlabelled =
            |slice: &&Arc<EndpointSlice>| label(slice.as_ref(), LABEL_SERVICE_NAME) != Some(name);
        let called = inner.slices.named_like(namespace, &prefix).filter(relabelled).filter(unlabelled);
        slices.extend(called.cloned());
        ImportObjects {
            import: inner.service_imports.get(namespace, name).cloned(),
            service: inner.services.get(namespace, derived).cloned(),
            slices,
        }
    }

    /// All ServiceImports and all slices that name an import: what may have been applied before this program started.
    pub(crate) fn all_imports(&self) -> (Vec<Arc<ServiceImport>>, Vec<Arc<EndpointSlice>>) {
        let inner = self.lock();
        let imported = |slice: &&Arc<EndpointSlice>| label(slice.as_ref(), LABEL_SERVICE_NAME).is_some();
        (
            inner.service_imports.iter().cloned().collect(),
            inner.slices.iter().filter(imported).cloned().collect(),
        )
    }

    /// The keys of all Services and ServiceExports.
    pub(crate) fn all_exports(&self) -> BTreeSet<ServiceKey> {
        let inner = self.lock();
        let services = inner.services.iter().filter_map(|service| key_of(&**service));
        services.chain(inner.service_exports.iter().filter_map(|export| key_of(&**export))).collect()
    }

    /// The ServiceExport of that name.
    pub(crate) fn service_export(&self, (namespace, name): &Name) -> Option<Arc<ServiceExport>> {
        self.lock().service_exports.get(namespace, name).cloned()
    }

    /// The ServiceExports whose name no Service can have.
    pub(crate) fn nameless_exports(&self) -> Vec<Name> {
        let inner = self.lock();
        let nameless = inner.service_exports.iter().filter(|export| key_of(&***export).is_none());
        nameless.map(|export| name_of(&export.metadata)).collect()
    }

    /// Whether objects can be made in the namespace of `key`. If not, its import waits for that, and is queued when the
    /// namespace changes; also answers whether it begins to wait now. One look, so that no change falls in between.
    pub(crate) fn hold(&self, key: &ServiceKey) -> (NamespaceState, bool) {
        let mut inner = self.lock();
        let state = inner.namespace_state(key);
        let begins = state != NamespaceState::Active && inner.held.insert(key.clone());
        (state, begins)
    }

    /// Whether objects can be made in the namespace of `key`.
    pub(crate) fn namespace_state(&self, key: &ServiceKey) -> NamespaceState {
        self.lock().namespace_state(key)
    }

    /// Whether `namespace` is being deleted.
    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.lock().state_of(namespace) == NamespaceState::Terminating
    }

    /// The import of `key` does not wait (any more).
    pub(crate) fn release(&self, key: &ServiceKey) {
        self.lock().held.remove(key);
    }

    /// Nothing is known of imports any more: a lead is over, and the next one finds out anew which wait.
    pub(crate) fn forget_held(&self) {
        self.lock().held.clear();
    }

    /// The imports that wait for their namespace.
    pub(crate) fn held(&self) -> HeldImports {
        let held = &self.lock().held;
        HeldImports {
            total: u32::try_from(held.len()).unwrap_or(u32::MAX),
            first: held.iter().take(MAX_HELD_NAMED).cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_export(&self, namespace: &str, name: &str) {
        if let Ok(key) = ServiceKey::new(namespace, name) {
            self.exports.add(key);
        }
    }

    fn queue_import(&self, namespace: &str, name: &str) {
        if let Ok(key) = ServiceKey::new(namespace, name) {
            self.imports.add(key);
        }
    }
}

impl Inner {
    /// Queues the import whose derived Service is called `derived`, for an object that does not say so itself: one of
    /// somebody else, which is in the way or was.
    fn queue_import_of(&self, index: &Index, namespace: &str, derived: &str) {
        if !is_derived_service_name(derived) {
            return;
        }
        for import in self.service_imports.named_like(namespace, "") {
            if import.annotations().get(ANNOTATION_DERIVED_SERVICE).is_some_and(|known| known == derived) {
                index.queue_import(namespace, &import.name_any());
            }
        }
    }

    fn namespace_state(&self, key: &ServiceKey) -> NamespaceState {
        self.state_of(key.namespace.as_str())
    }

    fn state_of(&self, namespace: &str) -> NamespaceState {
        match self.namespaces.get("", namespace) {
            Some(known) if known.metadata.deletion_timestamp.is_some() => NamespaceState::Terminating,
            Some(_) => NamespaceState::Active,
            None => NamespaceState::Missing,
        }
    }
}

impl Kind for Service {
    fn objects(inner: &mut Inner) -> &mut Objects<Self> {
        &mut inner.services
    }

    fn touched(&self, inner: &Inner, index: &Index) {
        let (namespace, name) = name_of(&self.metadata);
        index.queue_export(&namespace, &name);
        match label(self, LABEL_SERVICE_NAME) {
            Some(imported) => index.queue_import(&namespace, imported),
            None => inner.queue_import_of(index, &namespace, &name),
        }
    }
}

impl Kind for ServiceExport {
    /// A label's export is told from one made by hand by who wrote its marks, also when one of them is gone.
    const KEEPS_RECORDS: bool = true;

    fn objects(inner: &mut Inner) -> &mut Objects<Self> {
        &mut inner.service_exports
    }

    fn touched(&self, _: &Inner, index: &Index) {
        match key_of(self) {
            Some(key) => index.exports.add(key),
            None => index.nameless.add(name_of(&self.metadata)),
        }
    }
}

impl Kind for ServiceImport {
    fn objects(inner: &mut Inner) -> &mut Objects<Self> {
        &mut inner.service_imports
    }

    fn touched(&self, _: &Inner, index: &Index) {
        let (namespace, name) = name_of(&self.metadata);
        index.queue_import(&namespace, &name);
    }
}

impl Kind for EndpointSlice {
    fn objects(inner: &mut Inner) -> &mut Objects<Self> {
        &mut inner.slices
    }

    fn touched(&self, inner: &Inner, index: &Index) {
        let (namespace, name) = name_of(&self.metadata);
        let (imported, service) = (label(self, LABEL_SERVICE_NAME), label(self, LABEL_SLICE_SERVICE));
        if let Some(imported) = imported {
            index.queue_import(&namespace, imported);
        }
        if let Some(service) = service {
            // What is imported is no part of an export.
            if imported.is_none() {
                index.queue_export(&namespace, service);
            }
            // Slices that Kubernetes makes for a derived Service, when somebody gave it a selector, name no import.
            let derived = inner.services.get(&namespace, service);
            if let Some(imported) = derived.and_then(|derived| label(&**derived, LABEL_SERVICE_NAME)) {
                index.queue_import(&namespace, imported);
            }
        }
        if let (None, Some(derived)) = (imported, derived_service_of_slice(&name)) {
            inner.queue_import_of(index, &namespace, derived);
        }
    }
}

impl Kind for Namespace {
    fn objects(inner: &mut Inner) -> &mut Objects<Self> {
        &mut inner.namespaces
    }

    fn touched(&self, inner: &Inner, index: &Index) {
        let name = self.name_any();
        for key in inner.held.iter().filter(|key| key.namespace.as_str() == name) {
            index.imports.add(key.clone());
        }
        // A namespace that ended takes the ServiceExports of labels again when it is another one.
        let labelled = |service: &&Arc<Service>| label(&***service, LABEL_EXPORT).is_some();
        for service in inner.services.named_like(&name, "").filter(labelled) {
            index.queue_export(&name, &service.name_any());
        }
    }
}

fn label<'a, K: Resource>(object: &'a K, label: &str) -> Option<&'a str> {
    object.meta().labels.as_ref()?.get(label).map(String::as_str)
}

fn key_of<K: Resource>(object: &K) -> Option<ServiceKey> {
    let (namespace, name) = name_of(object.meta());
    ServiceKey::new(&namespace, &name).ok()
}
