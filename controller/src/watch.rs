//! The watches that feed the index: lists and events of each kind, in each namespace that is watched.
//!
//! Each is [`mcs_runtime::kube::follow`]; this takes what it tells. A list takes objects as they come, since each is so,
//! and counts when it is done: then what it lacks is gone. Nothing is concluded before every kind was listed
//! ([`Ready`]), and what is known stays while the API server is away.

use crate::api::{ServiceExport, ServiceImport};
use crate::config::Config;
use crate::index::{Index, Kind, Name, name_of};
use crate::metrics::Metrics;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use mcs_core::backoff::Backoff;
use mcs_core::ids::Namespace as NamespaceName;
use mcs_core::time::Clock;
use mcs_runtime::kube::follow::{FIRST_PAUSE, LONGEST_PAUSE, News, Problem, Query, follow};
use mcs_runtime::ready::{Handle, Ready};
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tasks::{Tasks, with_causes};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// How often the state of watched namespaces is asked for where watching them is not permitted.
const NAMESPACE_POLL: Duration = Duration::from_secs(2);

/// What the watches share.
pub(crate) struct Watches {
    /// The API server.
    pub(crate) client: Client,
    /// What they feed.
    pub(crate) index: Arc<Index>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Who is told when all is listed.
    pub(crate) ready: Ready,
    /// When they end.
    pub(crate) stop: Drain,
}

impl Watches {
    /// Starts those that a controller of `config` needs.
    pub(crate) fn spawn_all(&self, tasks: &mut Tasks, config: &Config) {
        let scopes: Vec<Option<NamespaceName>> = match config.watch_namespaces.as_slice() {
            [] => vec![None],
            watched => watched.iter().cloned().map(Some).collect(),
        };
        for scope in scopes {
            let there = watch::Sender::new(scope.is_none().then_some(true));
            tasks.spawn("watch of Services", self.watch::<Service>(scope.clone(), &there));
            tasks.spawn("watch of ServiceExports", self.watch::<ServiceExport>(scope.clone(), &there));
            tasks.spawn("watch of ServiceImports", self.watch::<ServiceImport>(scope.clone(), &there));
            tasks.spawn("watch of EndpointSlices", self.watch::<EndpointSlice>(scope.clone(), &there));
            match scope {
                None => tasks.spawn("watch of Namespaces", self.watch_namespaces(there)),
                Some(namespace) => tasks.spawn("poll of a Namespace", self.poll_namespace(namespace, there)),
            }
        }
    }

    fn watch<K>(
        &self,
        scope: Option<NamespaceName>,
        there: &watch::Sender<Option<bool>>,
    ) -> impl Future<Output = ()> + Send + use<K>
    where
        K: Kind + DeserializeOwned + Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let api: Api<DeserializeGuard<K>> = match &scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace.as_str()),
            None => Api::all(self.client.clone()),
        };
        self.follow(api, scope, there.subscribe())
    }

    fn watch_namespaces(
        &self,
        there: watch::Sender<Option<bool>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let following = self.follow::<Namespace>(Api::all(self.client.clone()), None, there.subscribe());
        async move {
            following.await;
            drop(there);
        }
    }

    /// Follows the objects of `scope` while `there` says that it exists. Of a namespace that does not exist all is
    /// known: it has nothing. To watch in it may not even be permitted, since a Role goes with its namespace.
    fn follow<K: Kind + DeserializeOwned>(
        &self,
        api: Api<DeserializeGuard<K>>,
        scope: Option<NamespaceName>,
        mut there: watch::Receiver<Option<bool>>,
    ) -> impl Future<Output = ()> + Send + use<K> {
        let mut feed = Feed {
            listed: self.listed(&K::plural(&()), scope.as_ref()),
            index: Arc::clone(&self.index),
            metrics: self.metrics.clone(),
            scope,
            relisted: BTreeSet::new(),
        };
        let (clock, stop) = (Arc::clone(&self.clock), self.stop.clone());
        let following = async move {
            loop {
                let state = *there.borrow_and_update();
                if state == Some(true) {
                    let (api, clock) = (api.clone(), Arc::clone(&clock));
                    tokio::select! {
                        never = follow(api, Query::default(), clock, |news| feed.take(news)) => match never {},
                        gone = there.wait_for(|state| *state != Some(true)) => if gone.is_err() { return },
                    }
                    continue;
                }
                if state == Some(false) {
                    feed.relisted.clear();
                    feed.finish::<K>(None);
                }
                if there.changed().await.is_err() {
                    return;
                }
            }
        };
        async move {
            tokio::select! {
                () = following => {}
                () = stop.draining() => {}
            }
        }
    }

    /// Where only some namespaces are watched, no permission is asked to watch Namespaces. `there` is told whether the
    /// namespace exists.
    fn poll_namespace(
        &self,
        namespace: NamespaceName,
        there: watch::Sender<Option<bool>>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let listed = self.listed("namespaces", Some(&namespace));
        let (index, metrics, stop) = (Arc::clone(&self.index), self.metrics.clone(), self.stop.clone());
        let api = Api::<Namespace>::all(self.client.clone());
        let poll = async move {
            let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            let mut said = None;
            loop {
                let problem = match api.get_opt(namespace.as_str()).await {
                    Ok(found) => {
                        let is = Some(found.is_some());
                        match found {
                            Some(found) => index.apply(found),
                            // Also one that was made for an import and has ended before it was seen here.
                            None => index.namespace_is_gone(&namespace),
                        }
                        there.send_if_modified(|state| std::mem::replace(state, is) != is);
                        listed.ready();
                        backoff.reset();
                        if said.take().is_some() {
                            info!(%namespace, "the namespace can be read again");
                        }
                        tokio::time::sleep(NAMESPACE_POLL).await;
                        continue;
                    }
                    Err(error) => Problem::Call(error),
                };
                let pause = backoff.next_pause(problem.retry_after(), rand::random());
                let error = with_causes(&problem);
                if said.as_ref() == Some(&error) {
                    debug!(%namespace, error, retry_in = ?pause, "cannot read the namespace, it is tried again");
                } else {
                    warn!(%namespace, error, retry_in = ?pause, "cannot read the namespace, it is tried again");
                    said = Some(error);
                }
                metrics.watch_failed(&Namespace::kind(&()), problem.label());
                tokio::time::sleep(pause).await;
            }
        };
        async move {
            tokio::select! {
                () = poll => {}
                () = stop.draining() => {}
            }
        }
    }

    fn listed(&self, kind: &str, scope: Option<&NamespaceName>) -> Handle {
        match scope {
            Some(namespace) => self.ready.wait_for(format!("the first list of {kind} in {namespace}")),
            None => self.ready.wait_for(format!("the first list of {kind}")),
        }
    }
}

/// Takes what following one kind tells.
struct Feed {
    index: Arc<Index>,
    metrics: Metrics,
    /// The namespace; all when none.
    scope: Option<NamespaceName>,
    /// Told of the first complete list.
    listed: Handle,
    /// What the list has that is under way.
    relisted: BTreeSet<Name>,
}

impl Feed {
    fn take<K: Kind>(&mut self, news: News<DeserializeGuard<K>>) {
        match news {
            News::Init => self.relisted.clear(),
            News::InitApply(object) => {
                self.relisted.insert(name_of(object.meta()));
                self.apply(object);
            }
            News::InitDone(version) => {
                self.metrics.listed(&K::kind(&()));
                self.finish::<K>(Some(&version));
            }
            News::Apply(object) => self.apply(object),
            News::Delete(object) => self.index.delete_meta::<K>(object.meta()),
            News::Alive => {}
            News::Failed(failed) => {
                self.metrics.watch_failed(&K::kind(&()), failed.problem.label());
                let ends = |scope: &NamespaceName| self.index.is_terminating(scope.as_str());
                // A Role goes with its namespace. Of one that ends nothing more is to be told, and all others wait for it.
                if failed.problem.is_forbidden() && self.scope.as_ref().is_some_and(ends) {
                    self.listed.ready();
                }
            }
        }
    }

    /// What was listed is all there was at `version`; all there is where none is said.
    fn finish<K: Kind>(&mut self, version: Option<&str>) {
        let scope = self.scope.as_ref().map(NamespaceName::as_str);
        self.index.finish_relist::<K>(scope, &std::mem::take(&mut self.relisted), version);
        self.listed.ready();
    }

    /// Takes an object's state. What was known of one that cannot be read stays.
    fn apply<K: Kind>(&self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => self.index.apply(object),
            Err(invalid) => {
                let name = invalid.metadata.name.as_deref();
                warn!(kind = %K::kind(&()), namespace = invalid.metadata.namespace, name, error = %invalid.error, "object skipped, it cannot be read");
            }
        }
    }
}

#[cfg(test)]
mod tests;
