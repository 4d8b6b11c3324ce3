//! What a controller sends to its API server: seen and numbered, held back, or the last that it does.
//!
//! A [`Tap`] is a layer around the client that a controller is given. A *write* is a request that may change an object;
//! those of Leases and Events and dry runs are none, and those that a test says are its own probes are not numbered.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    thread,
};

use futures::future::{BoxFuture, FutureExt, pending};
use http::{Method, Request, Response};
use kube::client::{Body, DynBody};
use tokio::{runtime::Runtime, sync::watch};
use tower::{BoxError, Layer, Service};

/// Where a controller dies at one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Before it is sent.
    Before,
    /// When the API server has carried it out, and before the controller has heard so.
    After,
}

/// What goes through a client; see the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tap {
    state: Arc<Mutex<State>>,
    dead: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Paths that contain one of these are not numbered.
    probes: Vec<String>,
    /// The write in whose course the controller dies.
    last: Option<(usize, Moment)>,
    writes: Vec<String>,
    refused: usize,
    holds_leases: bool,
    /// What ends with the controller.
    runtime: Option<Runtime>,
}

/// What becomes of a request.
enum Verdict {
    Send,
    SendAndDie,
    Hold,
}

impl Default for Tap {
    fn default() -> Self {
        Self { state: Arc::default(), dead: watch::Sender::new(false) }
    }
}

impl Tap {
    /// A tap that does not number writes whose path contains one of `probes`.
    pub fn without(probes: &[String]) -> Self {
        let tap = Self::default();
        tap.lock().probes = probes.to_vec();
        tap
    }

    /// The writes so far, in the order in which they were begun, as `PATCH serviceimports/cart/status`.
    pub fn writes(&self) -> Vec<String> {
        self.lock().writes.clone()
    }

    /// How many writes the API server refused since they were decided on what is no longer so (409).
    pub fn refused(&self) -> usize {
        self.lock().refused
    }

    /// The controller dies at the write number `nth` from now, 1 being the next.
    pub fn die_at(&self, nth: usize, moment: Moment) {
        let mut state = self.lock();
        state.last = Some((state.writes.len() + nth, moment));
    }

    /// From now on requests about Leases get no answer, or do again.
    pub fn hold_leases(&self, hold: bool) {
        self.lock().holds_leases = hold;
    }

    /// Waits until the controller is dead.
    pub async fn died(&self) {
        // It does not fail: this handle can send, too.
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Whether the controller is dead.
    pub fn is_dead(&self) -> bool {
        *self.dead.borrow()
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

    fn admit(&self, request: &Request<Body>) -> Verdict {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let mut state = self.lock();
        if self.is_dead() || (state.holds_leases && path.contains("/leases")) {
            return Verdict::Hold;
        }
        let apart = path.contains("/leases") || path.contains("/events") || query.contains("dryRun");
        let probe = state.probes.iter().any(|probe| path.contains(probe));
        if request.method() == Method::GET || apart || probe {
            return Verdict::Send;
        }
        let number = state.writes.len() + 1;
        let verdict = match state.last {
            Some((last, Moment::Before)) if last == number => Verdict::Hold,
            Some((last, Moment::After)) if last == number => Verdict::SendAndDie,
            _ => Verdict::Send,
        };
        state.writes.push(format!("{} {}", request.method(), object(path)));
        drop(state);
        if matches!(verdict, Verdict::Hold) {
            self.kill();
        }
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a path that names an object: behind its namespace, else behind the version of its API.
fn object(path: &str) -> &str {
    let namespaced = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
    namespaced.map_or(path, |(_, object)| object)
}

impl<S> Layer<S> for Tap {
    type Service = Tapped<S>;

    fn layer(&self, inner: S) -> Tapped<S> {
        Tapped { inner, tap: self.clone() }
    }
}

/// A client with a [`Tap`].
#[derive(Debug)]
pub struct Tapped<S> {
    inner: S,
    tap: Tap,
}

impl<S> Service<Request<Body>> for Tapped<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_write = request.method() != Method::GET;
        let verdict = self.tap.admit(&request);
        if matches!(verdict, Verdict::Hold) {
            return pending().boxed();
        }
        let (answer, tap) = (self.inner.call(request), self.tap.clone());
        async move {
            let answer = answer.await;
            if matches!(verdict, Verdict::SendAndDie) {
                tap.kill();
                return pending().await;
            }
            if is_write && answer.as_ref().is_ok_and(|answer| answer.status() == http::StatusCode::CONFLICT) {
                tap.lock().refused += 1;
            }
            answer
        }
        .boxed()
    }
}
