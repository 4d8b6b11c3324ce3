//! One term of leadership: what the tasks share that act while this controller leads, and their end.
//!
//! A lead begins when all watches have listed: it tells the outbox and the view everything that the cluster exports
//! and everything that is applied before the first call is made, so that nothing is concluded from half the facts.
//! It ends by being dropped, in the middle of whatever it does: every write is bound to the object that was read, and
//! the next leader goes on from what exists.

use crate::api::ServiceExport;
use crate::config::Config;
use crate::events::Events;
use crate::failures::Failures;
use crate::families::Families;
use crate::index::Index;
use crate::leader::Claim;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::queue::Outcome;
use crate::subscription::Prepared;
use crate::writes::Writer;
use crate::{exports, facts, imports, session, subscription};
use mcs_core::ids::ServiceKey;
use mcs_core::model::IpFamily;
use mcs_core::outbox::Outbox;
use mcs_core::plan::PlanConfig;
use mcs_core::time::{Clock, Timestamp};
use mcs_core::timing::{FINALIZER_LIMIT, Timing, finalizer_wait};
use mcs_core::view::View;
use mcs_proto::client::RegistryClient;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore, watch};

/// Exports that are worked on at the same time.
const EXPORT_WORKERS: usize = 8;
/// Imports that are worked on at the same time.
const IMPORT_WORKERS: usize = 16;
/// Writes of imports that are under way at the same time, be they of one import or of many: enough to keep an API server
/// busy, and no more, since what is urgent waits behind them.
pub(crate) const IMPORT_WRITES: usize = 16;

/// What outlives a term of leadership.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Who this is and how it was told to work.
    pub(crate) config: Arc<Config>,
    /// The API server.
    pub(crate) client: kube::Client,
    /// The cluster's objects.
    pub(crate) index: Arc<Index>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The registries, in failover order.
    pub(crate) registries: Arc<[RegistryClient]>,
    /// Where people are told.
    pub(crate) events: Events,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// The address families that this cluster gives Services.
    pub(crate) families: Arc<Families>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What the tasks of a leader share.
#[derive(Debug)]
pub(crate) struct Lead {
    shared: Shared,
    /// The right to write.
    pub(crate) claim: Claim,
    outbox: Mutex<Outbox>,
    view: Mutex<View>,
    /// The outbox has something new to do.
    pub(crate) outbox_changed: Notify,
    /// The registry to talk to, by its place in the order.
    pub(crate) url: watch::Sender<usize>,
    /// A better registry than that, to which the lead may go over.
    pub(crate) candidate: watch::Sender<Option<usize>>,
    /// The watch of the candidate, when it has told all.
    pub(crate) prepared: Mutex<Option<Prepared>>,
    /// What the API server keeps of what is written.
    pub(crate) server: Server,
    /// When the slices of each import were written last.
    pub(crate) pace: Pace,
    /// A place for each write of an import that may be under way.
    pub(crate) import_writes: Semaphore,
    /// What was said of exports and imports that fail.
    pub(crate) failures: Failures,
    /// Deletions of exports that wait for a registry.
    finishing: Mutex<BTreeMap<ServiceKey, (Option<String>, Deletion)>>,
}

/// A ServiceExport that is being deleted, and whose finalizer waits for a registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deletion {
    /// From when on people are told what it waits for: what goes as usual is over before.
    pub(crate) told_at: Timestamp,
    /// Until when the finalizer waits.
    pub(crate) until: Timestamp,
}

/// Fields that an API server, or the CRD it serves, may drop: they are written until an answer lacks them.
#[derive(Debug)]
pub(crate) struct Server {
    /// `status.endpointSliceObjects` of ServiceImports.
    pub(crate) slices_present: AtomicBool,
    /// `hints.forNodes` of EndpointSlices.
    pub(crate) node_hints: AtomicBool,
}

impl std::ops::Deref for Lead {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Lead {
    /// A lead under `claim`. All watches must have listed.
    pub(crate) fn begin(shared: Shared, claim: Claim) -> Self {
        let now = shared.clock.elapsed();
        let outbox = Outbox::new(Timing::default(), shared.registries.len(), claim.term(), now);
        let view = View::new(shared.config.member.cluster.clone());
        let slices_present = shared.config.served.slices_present;
        let lead = Self {
            shared,
            claim,
            outbox: Mutex::new(outbox),
            view: Mutex::new(view),
            outbox_changed: Notify::new(),
            url: watch::Sender::new(0),
            candidate: watch::Sender::new(None),
            prepared: Mutex::default(),
            server: Server {
                slices_present: AtomicBool::new(slices_present),
                node_hints: AtomicBool::new(true),
            },
            finishing: Mutex::default(),
            pace: Pace::default(),
            import_writes: Semaphore::new(IMPORT_WRITES),
            failures: Failures::default(),
        };
        imports::seed(&lead);
        for key in lead.index.all_exports() {
            // Since when it is so nobody knows.
            exports::feed(&lead, &key, None);
            lead.index.exports.add(key);
        }
        for name in lead.index.nameless_exports() {
            lead.index.nameless.add(name);
        }
        lead.view().own_listed();
        subscription::queue_dirty(&lead);
        lead
    }

    /// Acts as the leader, until dropped.
    pub(crate) async fn act(&self) {
        let clock = self.clock.as_ref();
        tokio::join!(
            session::run(self),
            subscription::run(self),
            subscription::prepare(self),
            self.index.exports.work(clock, EXPORT_WORKERS, |key| self.export(key)),
            self.index.nameless.work(clock, 1, |name| exports::reconcile_nameless(self, name)),
            self.index.imports.work(clock, IMPORT_WORKERS, |key| self.import(key)),
        );
    }

    async fn export(&self, key: ServiceKey) -> Outcome {
        let begun = self.clock.elapsed();
        let outcome = exports::reconcile(self, key).await;
        self.metrics.reconciled("export", begun);
        outcome
    }

    async fn import(&self, key: ServiceKey) -> Outcome {
        let begun = self.clock.elapsed();
        if let Some(at) = self.pace.too_soon(&key, begun) {
            return Outcome::NotYet(at);
        }
        let outcome = imports::reconcile(self, key).await;
        self.metrics.reconciled("import", begun);
        outcome
    }

    /// What the registry still has to be told.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may be believed of the clusterset.
    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who watch registries which to watch now.
    pub(crate) fn follow_registries(&self) {
        let (url, candidate) = {
            let outbox = self.outbox();
            (outbox.url(), outbox.candidate())
        };
        // In this order: what was prepared for a candidate is taken when that has become the registry in use.
        self.url.send_if_modified(|known| std::mem::replace(known, url) != url);
        self.candidate.send_if_modified(|known| std::mem::replace(known, candidate) != candidate);
        self.outbox_changed.notify_one();
    }

    /// The right and the means to write.
    pub(crate) fn writer(&self) -> Writer {
        Writer {
            client: self.client.clone(),
            index: Arc::clone(&self.index),
            claim: self.claim.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// What plans depend on besides the import, in a cluster that gives Services `served_families`.
    pub(crate) fn plan_config(&self, served_families: Vec<IpFamily>) -> PlanConfig {
        PlanConfig {
            clusterset: self.config.member.clusterset.clone(),
            cluster: self.config.member.cluster.clone(),
            adopt_unmanaged: self.config.adopt_unmanaged,
            served_families,
            slices_present_kept: self.server.slices_present.load(Ordering::Relaxed),
            node_hints_kept: self.server.node_hints.load(Ordering::Relaxed),
            import_refused: false,
        }
    }

    /// How long the deletion of `export` waits for a registry. The first look decides, so that a wall clock that is set
    /// afterwards prolongs nothing.
    pub(crate) fn deletion(&self, key: &ServiceKey, export: &ServiceExport) -> Deletion {
        let (now, told_after) = (self.clock.elapsed(), self.outbox().timing().call_limit());
        let wait = facts::deleted_at(&export.metadata)
            .map_or(FINALIZER_LIMIT, |deleted| finalizer_wait(deleted, self.clock.wall()));
        let uid = export.metadata.uid.clone();
        let mut finishing = self.finishing.lock().unwrap_or_else(PoisonError::into_inner);
        match finishing.get(key) {
            Some((known, deletion)) if *known == uid => *deletion,
            _ => {
                let deletion = Deletion { told_at: now + told_after, until: now + wait };
                finishing.insert(key.clone(), (uid, deletion));
                deletion
            }
        }
    }

    /// No deletion of `key` is under way.
    pub(crate) fn finalized(&self, key: &ServiceKey) {
        self.finishing.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
