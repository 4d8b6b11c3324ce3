//! What a controller sends to its API server: seen and numbered, held back, or the last that it does.
//!
//! A [`Tap`] is a service around the client that a controller is given. A *write* is a request that may change an
//! object; those of Leases and Events and dry runs are none, and those that a test says are its own probes are not
//! numbered.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    thread,
};

use futures::future::{BoxFuture, FutureExt, pending};
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use tokio::{
    runtime::Runtime,
    sync::{oneshot, watch},
};
use tower::{BoxError, Service};

/// Where a controller dies at one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Before it is sent.
    Before,
    /// When the API server has carried it out, and before the controller has heard so.
    After,
}

/// What is held back until it is let go, as by a network that is slow: who waits for an answer may give up, the request
/// arrives all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Lists and watches of Leases.
    pub lease_watches: bool,
    /// All requests about Leases.
    pub leases: bool,
    /// Writes.
    pub writes: bool,
}

/// A write and what the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Method and object, as `PATCH serviceimports/cart/status`.
    pub request: String,
    /// The answer, once it is there.
    pub answer: Option<StatusCode>,
}

/// What goes through a client; see the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tap {
    state: Arc<Mutex<State>>,
    held: watch::Sender<Held>,
    dead: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Paths that contain one of these are not numbered.
    probes: Vec<String>,
    /// The write in whose course the controller dies.
    last: Option<(usize, Moment)>,
    writes: Vec<Write>,
    /// What ends with the controller.
    runtime: Option<Runtime>,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    LeaseWatch,
    Lease,
    /// A write, by its place.
    Write(usize),
    Other,
}

impl Tap {
    /// A tap that does not number writes whose path contains one of `probes`.
    pub fn without(probes: &[String]) -> Self {
        let tap = Self::default();
        tap.lock().probes = probes.to_vec();
        tap
    }

    /// The writes so far, in the order in which they were begun.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// The controller dies at the write number `nth` from now, 1 being the next.
    pub fn die_at(&self, nth: usize, moment: Moment) {
        let mut state = self.lock();
        state.last = Some((state.writes.len() + nth, moment));
    }

    /// Holds back what is sent from now on, and lets go what is held no more.
    pub fn hold(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// Waits until the controller is dead.
    pub async fn died(&self) {
        // It does not fail: this handle can send, too.
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Ends the controller where it stands, as SIGKILL does: nothing that it holds is released.
    pub fn kill(&self) {
        self.dead.send_replace(true);
        if let Some(runtime) = self.lock().runtime.take() {
            // It may be one of the runtime's own threads that says so.
            thread::spawn(move || runtime.shutdown_background());
        }
    }

    /// What is ended with the controller.
    pub(crate) fn keep(&self, runtime: Runtime) {
        self.lock().runtime = Some(runtime);
    }

    /// `client` with this tap.
    pub(crate) fn around(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Tapped { inner: client, tap: self.clone() }, namespace)
    }

    /// Numbers a request; none when the controller is dead, or dies of it.
    fn admit(&self, request: &Request<Body>) -> Option<(Kind, bool)> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let mut state = self.lock();
        if *self.dead.borrow() {
            return None;
        }
        let probe = state.probes.iter().any(|probe| path.contains(probe));
        let kind = match path.split_once("/leases") {
            Some((_, "")) if request.method() == Method::GET => Kind::LeaseWatch,
            Some(_) => Kind::Lease,
            None if request.method() == Method::GET || probe => Kind::Other,
            None if path.contains("/events") || query.contains("dryRun") => Kind::Other,
            None => Kind::Write(state.writes.len()),
        };
        let Kind::Write(place) = kind else { return Some((kind, false)) };
        let request = format!("{} {}", request.method(), object(path));
        state.writes.push(Write { request, answer: None });
        let dies = state.last.filter(|(last, _)| *last == place + 1).map(|(_, moment)| moment);
        drop(state);
        if dies == Some(Moment::Before) {
            self.kill();
            return None;
        }
        Some((kind, dies == Some(Moment::After)))
    }

    /// Waits until a request may be sent.
    async fn let_go(&self, kind: Kind) {
        let held = |held: &Held| match kind {
            Kind::LeaseWatch => held.leases || held.lease_watches,
            Kind::Lease => held.leases,
            Kind::Write(_) => held.writes,
            Kind::Other => false,
        };
        let _ = self.held.subscribe().wait_for(|now| !held(now)).await;
    }

    fn answered(&self, kind: Kind, status: StatusCode) {
        if let Kind::Write(place) = kind {
            self.lock().writes[place].answer = Some(status);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a path that names an object: behind its namespace, else all of it.
fn object(path: &str) -> &str {
    let namespaced = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
    namespaced.map_or(path, |(_, object)| object)
}

/// A client with a [`Tap`].
struct Tapped {
    inner: Client,
    tap: Tap,
}

impl Service<Request<Body>> for Tapped {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, tap) = (self.inner.clone(), self.tap.clone());
        let Some((kind, dies)) = tap.admit(&request) else { return pending().boxed() };
        let send = async move {
            tap.let_go(kind).await;
            let answer = client.send(request).await;
            if dies {
                tap.kill();
                return pending().await;
            }
            if let Ok(answer) = &answer {
                tap.answered(kind, answer.status());
            }
            answer.map_err(BoxError::from)
        };
        // On its own, for whoever waits for it may give up.
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            // Nobody may listen any more.
            let _ = tell.send(send.await);
        });
        async move { told.await? }.boxed()
    }
}
