//! A cluster: what it exports, and an API server in memory that holds what is imported. It survives its controllers.

use crate::facts::{cluster_id, plan_config};
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::{EndpointSet, ExportSpec, GroupKey};
use mcs_core::names;
use mcs_core::plan::{
    DerivedService, Entries, Existing, Identity, ImportObject, ImportStatus, ImportedSlice, Meta, Ownership,
    PlanConfig, SliceKeeper, Step, WantedSlice,
};
use mcs_core::view::Applied;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// What a cluster exports of one Service.
pub(crate) type Exported = (Arc<ExportSpec>, Arc<EndpointSet>);

/// A write that came too late: the object is not as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict;

pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    /// As its Lease says; 0 when there is none.
    pub(crate) term: u64,
    /// The terms that its leaders have had.
    pub(crate) terms: Vec<u64>,
    /// How many seconds the clock of its machines is ahead.
    pub(crate) clock_error: i64,
    pub(crate) exports: BTreeMap<ServiceKey, Exported>,
    pub(crate) imports: BTreeMap<ServiceKey, Rc<Existing>>,
    pub(crate) config: PlanConfig,
    /// How many writes the API server took.
    pub(crate) writes: u64,
    made: u64,
}

impl Cluster {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            id: cluster_id(index),
            term: 0,
            terms: Vec::new(),
            clock_error: 0,
            exports: BTreeMap::new(),
            imports: BTreeMap::new(),
            config: plan_config(index),
            writes: 0,
            made: 0,
        }
    }

    pub(crate) fn existing(&self, key: &ServiceKey) -> Rc<Existing> {
        self.imports.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn applied(&self, key: &ServiceKey) -> Applied {
        self.imports.get(key).map(|existing| Applied::of(existing)).unwrap_or_default()
    }

    /// Carries out a step as an API server does.
    pub(crate) fn run(&mut self, key: &ServiceKey, step: &Step) -> Result<(), Conflict> {
        let mut existing = self.imports.remove(key).unwrap_or_default();
        let result = self.write(Rc::make_mut(&mut existing), key, step);
        if *existing != Existing::default() {
            self.imports.insert(key.clone(), existing);
        }
        self.writes += u64::from(result.is_ok() && step.is_write());
        result
    }

    fn write(&mut self, existing: &mut Existing, key: &ServiceKey, step: &Step) -> Result<(), Conflict> {
        match step {
            Step::CreateImport(wanted) => {
                free(existing.import.is_none())?;
                let meta = self.meta(key.name.as_str(), &wanted.labels, &wanted.annotations, None);
                let status = ImportStatus::default();
                existing.import = Some(ImportObject { meta, spec: wanted.spec.clone(), status });
            }
            Step::UpdateImport { base, wanted, .. } => {
                let import = existing.import.as_mut().ok_or(Conflict)?;
                self.touch(&mut import.meta, base, &wanted.labels, &wanted.annotations)?;
                import.spec = wanted.spec.clone();
            }
            Step::UpdateImportStatus { base, status } => {
                let import = existing.import.as_mut().ok_or(Conflict)?;
                let (labels, annotations) = (import.meta.labels.clone(), import.meta.annotations.clone());
                self.touch(&mut import.meta, base, &labels, &annotations)?;
                import.status = status.clone();
            }
            Step::CreateService(wanted) => {
                free(existing.service.is_none())?;
                let meta = self.meta(&wanted.name, &wanted.labels, &wanted.annotations, Some(&wanted.owner));
                let ip = IpAddr::from([10, 96, (self.made >> 8) as u8, self.made as u8]);
                let cluster_ips = if wanted.spec.headless { Vec::new() } else { vec![ip] };
                let stray = BTreeSet::new();
                let spec = wanted.spec.clone();
                existing.service = Some(DerivedService { meta, spec, cluster_ips, stray });
            }
            Step::UpdateService { base, wanted, .. } => {
                let service = existing.service.as_mut().ok_or(Conflict)?;
                self.touch(&mut service.meta, base, &wanted.labels, &wanted.annotations)?;
                service.meta.owner = Some(wanted.owner.clone());
                service.spec = wanted.spec.clone();
            }
            Step::DeleteService(base) => {
                existing.service.take_if(|service| service.meta.identity == *base).ok_or(Conflict)?;
            }
            Step::CreateSlice(wanted) => {
                free(existing.slices.iter().all(|slice| slice.meta.identity.name != wanted.name))?;
                let meta = self.meta(&wanted.name, &wanted.labels, &wanted.annotations, Some(&wanted.owner));
                existing.slices.push(slice(meta, wanted));
            }
            Step::UpdateSlice { base, wanted } => {
                let found = existing.slices.iter_mut().find(|slice| slice.meta.identity.name == base.name);
                let found = found.ok_or(Conflict)?;
                self.touch(&mut found.meta, base, &wanted.labels, &wanted.annotations)?;
                found.meta.owner = Some(wanted.owner.clone());
                *found = slice(found.meta.clone(), wanted);
            }
            Step::DeleteSlice(base) => remove_slice(existing, base)?,
            Step::RemoveForeignSlices(bases) => {
                bases.iter().try_for_each(|base| remove_slice(existing, base))?;
            }
            Step::DeleteImport(base) => {
                let import =
                    existing.import.take_if(|import| import.meta.identity == *base).ok_or(Conflict)?;
                collect_garbage(existing, &import.meta.identity.uid);
            }
            Step::Report(_) => {}
        }
        Ok(())
    }

    fn meta(&mut self, name: &str, labels: &Entries, annotations: &Entries, owner: Option<&String>) -> Meta {
        self.made += 1;
        let (uid, resource_version) = (format!("object-{}", self.made), self.made.to_string());
        Meta {
            identity: Identity { name: name.to_owned(), uid, resource_version },
            ownership: Ownership::of(labels, annotations, &self.config.clusterset),
            deleting: false,
            labels: labels.clone(),
            annotations: annotations.clone(),
            owner: owner.cloned(),
        }
    }

    fn touch(
        &mut self,
        meta: &mut Meta,
        base: &Identity,
        labels: &Entries,
        annotations: &Entries,
    ) -> Result<(), Conflict> {
        if meta.identity != *base {
            return Err(Conflict);
        }
        self.made += 1;
        meta.identity.resource_version = self.made.to_string();
        meta.labels.clone_from(labels);
        meta.annotations.clone_from(annotations);
        Ok(())
    }
}

/// What Kubernetes does to what an object owned that is gone.
pub(crate) fn collect_garbage(existing: &mut Existing, owner: &str) {
    existing.service.take_if(|service| service.meta.owner.as_deref() == Some(owner));
    existing.slices.retain(|slice| slice.meta.owner.as_deref() != Some(owner));
}

fn free(is_free: bool) -> Result<(), Conflict> {
    is_free.then_some(()).ok_or(Conflict)
}

fn remove_slice(existing: &mut Existing, base: &Identity) -> Result<(), Conflict> {
    let at = existing.slices.iter().position(|slice| slice.meta.identity == *base).ok_or(Conflict)?;
    existing.slices.remove(at);
    Ok(())
}

fn slice(meta: Meta, wanted: &WantedSlice) -> ImportedSlice {
    let source = wanted.labels.get(names::LABEL_SOURCE_CLUSTER);
    ImportedSlice {
        meta,
        keeper: SliceKeeper::Other,
        source: source.map(|id| ClusterId::new(id.as_str()).expect("a cluster id")),
        group: GroupKey::new(wanted.family, wanted.ports.iter().cloned()),
        endpoints: wanted.endpoints.clone(),
        stray: false,
    }
}
