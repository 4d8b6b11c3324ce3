//! Who watches the endpoints of an import all the time: what goes for a moment fails no request while another endpoint
//! answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    LONG,
    member::Member,
    shop::{GREETER, SHOP, imported_slices, ready_endpoints, ready_in},
};
use crate::wait_at_most;

/// Notes when an endpoint that was ready when it began is not in the imported slices of the shop, or not ready.
pub(crate) struct Witness<'a> {
    member: &'a Member,
    seen: Arc<Mutex<Seen>>,
    _watching: AbortOnDropHandle<()>,
}

impl<'a> Witness<'a> {
    /// Begins, and waits until it has seen the endpoints of now.
    pub(crate) async fn start(member: &'a Member) -> Result<Self> {
        let before = ready_endpoints(member, SHOP, GREETER).await?;
        ensure!(!before.is_empty(), "{} has no endpoints of {SHOP}/{GREETER}", member.name());
        let seen = Arc::new(Mutex::new(Seen { before, ..Seen::default() }));
        let watching = tokio::spawn(watch(member.api(SHOP), Arc::clone(&seen)));
        let witness = Self { member, seen, _watching: AbortOnDropHandle::new(watching) };
        witness.has_seen_what_is_there().await?;
        Ok(witness)
    }

    /// Waits until it has seen the endpoints of now, and says whether one of the first ever went.
    pub(crate) async fn nothing_went(&self) -> Result<()> {
        self.has_seen_what_is_there().await?;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.gone.is_empty(), "{} had no ready endpoint at {:?}", self.member.name(), seen.gone);
        Ok(())
    }

    async fn has_seen_what_is_there(&self) -> Result<()> {
        let what = format!("the watch of {SHOP}/{GREETER} in {}", self.member.name());
        wait_at_most(LONG, &what, async || {
            let ready = ready_endpoints(self.member, SHOP, GREETER).await?;
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).ready();
            ensure!(seen == ready, "it has seen {seen:?}, there are {ready:?}");
            anyhow::Ok(())
        })
        .await
    }
}

/// Until it is aborted; a watch that breaks is begun anew, and what is there then is compared too.
async fn watch(slices: Api<EndpointSlice>, seen: Arc<Mutex<Seen>>) {
    let only = watcher::Config::default().labels(&imported_slices(GREETER));
    let mut events = watcher::watcher(slices, only).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => seen.lock().unwrap_or_else(PoisonError::into_inner).take(event),
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// What was ready when it began.
    before: BTreeSet<String>,
    /// What is ready, by slice.
    slices: BTreeMap<String, BTreeSet<String>>,
    /// Of a list that has not ended.
    listed: BTreeMap<String, BTreeSet<String>>,
    /// Each state in which something of `before` was not ready: what.
    gone: Vec<Vec<String>>,
}

impl Seen {
    fn ready(&self) -> BTreeSet<String> {
        self.slices.values().flatten().cloned().collect()
    }

    fn take(&mut self, event: Event<EndpointSlice>) {
        match event {
            Event::Init => {
                self.listed.clear();
                return;
            }
            Event::InitApply(slice) => {
                self.listed.insert(slice.name_any(), ready_in(slice));
                return;
            }
            Event::InitDone => self.slices = mem::take(&mut self.listed),
            Event::Apply(slice) => drop(self.slices.insert(slice.name_any(), ready_in(slice))),
            Event::Delete(slice) => drop(self.slices.remove(&slice.name_any())),
        }
        let gone: Vec<_> = self.before.difference(&self.ready()).cloned().collect();
        if !gone.is_empty() {
            self.gone.push(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, endpoints: &[(&str, bool)]) -> EndpointSlice {
        let endpoint = |(address, ready): &(&str, bool)| json!({ "addresses": [address], "conditions": { "ready": ready } });
        let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
        let slice = json!({ "addressType": "IPv4", "metadata": { "name": name }, "endpoints": endpoints });
        serde_json::from_value(slice).expect("a slice")
    }

    #[test]
    fn each_state_without_an_endpoint_of_the_beginning_is_noted_and_lists_count_when_they_end() {
        let before = ["10.0.0.1", "10.0.0.2"].map(str::to_owned).into();
        let mut seen = Seen { before, ..Seen::default() };
        let both = slice("a", &[("10.0.0.1", true), ("10.0.0.2", true)]);
        for event in [
            Event::Init,
            Event::InitApply(both.clone()),
            Event::InitDone,
            // Moved from one slice to another.
            Event::Apply(slice("b", &[("10.0.0.2", true), ("10.0.0.3", true)])),
            Event::Apply(slice("a", &[("10.0.0.1", true)])),
            Event::Init,
            Event::InitApply(both.clone()),
            Event::InitDone,
        ] {
            seen.take(event);
        }
        assert_eq!(seen.gone, Vec::<Vec<String>>::new());
        seen.take(Event::Apply(slice("a", &[("10.0.0.1", true), ("10.0.0.2", false)])));
        seen.take(Event::Delete(both.clone()));
        seen.take(Event::Apply(both));
        assert_eq!(
            seen.gone,
            [vec!["10.0.0.2".to_owned()], vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()]]
        );
    }
}
