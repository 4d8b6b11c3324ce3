//! Objects of the API server, followed for ever: a list, then watches from it on, each told as it is.
//!
//! - **A list counts when it is done.** [`News::Init`] begins one, [`News::InitDone`] ends it; one that breaks off is
//!   begun again by another [`News::Init`]. A page that fails is asked for again, and only one whose place in the list
//!   is not known any more leads back to the first.
//! - **Watches go on where they stood**, also after an error, and lead to a new list when nothing else helps: the
//!   version is too old, or what comes next cannot be read.
//! - **Tries are spread and grow apart** ([`mcs_core::backoff`]), and are not earlier than the server asks. Only an
//!   event, a bookmark or a watch that lasted starts the pauses over: a server may answer lists and refuse each watch,
//!   or accept each watch and end it.
//! - **A watch that is silently dead is left** [`WATCH_LIMIT`] after its begin, whether it told something or not: the
//!   server was asked to end it before. So is a list, or a page of one, that does not end: after [`LIST_LIMIT`].
//! - **The log says once** what is wrong, again when something else is, and when it is over: an outage of hours must
//!   not fill it. It is over when a watch has lasted, not with its first event: a server may tell one and end it each
//!   time.
//!
//! Rejected: `kube::runtime::watcher`. It tells the begin of a list before it asks for it, which its own backoff takes
//! for a success, so that a server that refuses lists is asked every second for ever; it drops what a server says of
//! when to come again; and it hides bookmarks and accepted watches, which prove a view to be current.

use super::{CONNECT_LIMIT, READ_LIMIT, retry_after};
use crate::tasks::with_causes;
use ::kube::api::{Api, ListParams, WatchEvent, WatchParams};
use ::kube::{Error, Resource, ResourceExt};
use futures::TryStreamExt;
use mcs_core::backoff::{Backoff, MAX_ASKED};
use mcs_core::time::Clock;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// The server is asked to end each watch after this many seconds.
pub const WATCH_SECONDS: u32 = 50;
/// A watch that has not ended by now is dead: what it is asked to last, and time for its end to arrive.
pub const WATCH_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// A list, or a page of one, that is not there by now does not come: it was given as long as connecting and one silence
/// may take together.
pub const LIST_LIMIT: Duration = Duration::from_secs(CONNECT_LIMIT.as_secs() + READ_LIMIT.as_secs());
/// The longest pause after the first failure, and the shortest life of a watch that ended well.
pub const FIRST_PAUSE: Duration = Duration::from_millis(800);
/// The longest pause between two tries.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How many objects a page has, as in Kubernetes' own clients.
pub const PAGE: u32 = 500;

// What a server asks for must not be longer than what is said of pauses.
const _: () = assert!(MAX_ASKED.as_secs() <= LONGEST_PAUSE.as_secs());

/// Which objects are followed, and how they are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Those with these labels, as in `metadata.labels`' selectors; all when none.
    pub labels: Option<String>,
    /// Those with these fields, such as `metadata.name=this`; all when none.
    pub fields: Option<String>,
    /// Where lists come from.
    pub lists: Lists,
}

/// Where a list comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// What is so now, in pages.
    #[default]
    Current,
    /// The server's watch cache, in one piece: cheap, but perhaps older than what was seen before.
    Cached,
}

/// What following tells.
#[derive(Debug)]
pub enum News<K> {
    /// A list begins; what an earlier one told that was not done does not count.
    Init,
    /// The list has this object.
    InitApply(K),
    /// The list is complete, and is what was so at this version: what was made later may be missing in it.
    InitDone(String),
    /// An object was made or changed.
    Apply(K),
    /// An object is gone; this is its last state.
    Delete(K),
    /// A watch was accepted, or a bookmark came: what was told is current.
    Alive,
    /// A list or watch failed and is tried again.
    Failed(Failed),
}

/// A failure of a list or watch.
#[derive(Debug, thiserror::Error)]
#[error("{call} failed")]
pub struct Failed {
    /// What was called: `list` or `watch`.
    pub call: &'static str,
    /// What was wrong.
    #[source]
    pub problem: Problem,
}

/// What was wrong with a list or watch.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The call failed, or the server said so in a watch that it had accepted.
    #[error(transparent)]
    Call(#[from] Error),
    /// A watch went on beyond its end.
    #[error("the watch has not ended after {WATCH_LIMIT:?}: the server is dead, or the way to it")]
    Silent,
    /// A list did not end.
    #[error("the list is not complete after {LIST_LIMIT:?}: the server is dead, or the way to it")]
    Endless,
    /// A watch was accepted, and ended at once.
    #[error("the watch ended as soon as it was accepted")]
    Cut,
    /// A list cannot be watched from.
    #[error("the list has no resource version")]
    NoVersion,
}

impl Problem {
    /// What a metric calls it; one of [`CAUSES`].
    pub fn label(&self) -> &'static str {
        match self {
            Self::Silent | Self::Endless => "silent",
            Self::Cut => "cut",
            Self::NoVersion | Self::Call(Error::SerdeError(_) | Error::FromUtf8(_)) => "unreadable",
            Self::Call(Error::Api(status)) => match status.code {
                410 => "expired",
                429 => "throttled",
                500.. => "failing",
                _ => "refused",
            },
            Self::Call(_) => "unreachable",
        }
    }

    /// Whether permission is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call(Error::Api(status)) if status.code == 403)
    }

    /// Whether asking for the same again cannot help: it is too old, or it cannot be read.
    fn starts_over(&self) -> bool {
        match self {
            Self::Call(Error::Api(status)) => matches!(status.code, 400 | 410),
            Self::Call(Error::SerdeError(_) | Error::FromUtf8(_)) | Self::NoVersion => true,
            Self::Call(_) | Self::Silent | Self::Endless | Self::Cut => false,
        }
    }

    /// How long the server asks to be left alone; zero when it does not.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Call(error) => retry_after(error),
            Self::Silent | Self::Endless | Self::Cut | Self::NoVersion => Duration::ZERO,
        }
    }
}

/// All that [`Problem::label`] may be.
pub const CAUSES: [&str; 8] =
    ["expired", "throttled", "failing", "refused", "unreachable", "unreadable", "silent", "cut"];

/// Follows the objects of `api` that `query` asks for, until dropped; `tell` is told what there is and what changes.
pub async fn follow<K>(
    api: Api<K>,
    query: Query,
    clock: Arc<dyn Clock>,
    tell: impl FnMut(News<K>),
) -> Infallible
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut follower = Follower { api, query, clock, tell, backoff, said: None };
    loop {
        let version = follower.list().await;
        follower.watch_from(version).await;
    }
}

/// Follows the object of that name; `tell` is told its state whenever that may be new, and none when there is none.
pub async fn follow_one<K>(
    api: Api<K>,
    name: &str,
    clock: Arc<dyn Clock>,
    mut tell: impl FnMut(Option<K>),
) -> Infallible
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let query = Query { fields: Some(format!("metadata.name={name}")), ..Query::default() };
    let mut is_listed = false;
    let each = |news| match news {
        News::Init => is_listed = false,
        News::InitApply(object) => {
            is_listed = true;
            tell(Some(object));
        }
        News::InitDone(_) if is_listed => {}
        News::InitDone(_) | News::Delete(_) => tell(None),
        News::Apply(object) => tell(Some(object)),
        News::Alive | News::Failed(_) => {}
    };
    follow(api, query, clock, each).await
}

struct Follower<K, T> {
    api: Api<K>,
    query: Query,
    clock: Arc<dyn Clock>,
    tell: T,
    backoff: Backoff,
    /// What was said to be wrong and is not over.
    said: Option<String>,
}

impl<K, T> Follower<K, T>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    T: FnMut(News<K>),
{
    /// Lists until a list is complete; answers its version.
    async fn list(&mut self) -> String {
        let Query { labels, fields, lists } = self.query.clone();
        let mut params =
            ListParams { label_selector: labels, field_selector: fields, ..ListParams::default() };
        match lists {
            Lists::Current => params.limit = Some(PAGE),
            Lists::Cached => params.resource_version = Some("0".to_owned()),
        }
        loop {
            let listed = tokio::time::timeout(LIST_LIMIT, self.api.list(&params)).await;
            let page = match listed.map_or(Err(Problem::Endless), |listed| listed.map_err(Problem::Call)) {
                Ok(page) => page,
                Err(problem) => {
                    if problem.starts_over() {
                        params.continue_token = None;
                    }
                    self.failed("list", problem).await;
                    continue;
                }
            };
            if params.continue_token.is_none() {
                (self.tell)(News::Init);
            }
            page.items.into_iter().for_each(|object| (self.tell)(News::InitApply(object)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    let version = page.metadata.resource_version.unwrap_or_default();
                    (self.tell)(News::InitDone(version.clone()));
                    return version;
                }
            }
        }
    }

    /// Watches from `version` on until only a new list can help.
    async fn watch_from(&mut self, mut version: String) {
        loop {
            if version.is_empty() {
                return self.failed("watch", Problem::NoVersion).await;
            }
            let start = self.clock.elapsed();
            let watched = tokio::time::timeout(WATCH_LIMIT, self.watch(&mut version)).await;
            let problem = match watched.unwrap_or(Err(Problem::Silent)) {
                Ok(()) if self.clock.elapsed().since(start) >= FIRST_PAUSE => {
                    self.works();
                    self.is_well();
                    continue;
                }
                // A server that ends each watch at once must not be asked without a pause.
                Ok(()) => Problem::Cut,
                Err(problem) => problem,
            };
            let starts_over = problem.starts_over();
            self.failed("watch", problem).await;
            if starts_over {
                return;
            }
        }
    }

    /// One watch: accepted, followed, and ended by the server.
    async fn watch(&mut self, version: &mut String) -> Result<(), Problem> {
        let params = WatchParams {
            label_selector: self.query.labels.clone(),
            field_selector: self.query.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let mut events = pin!(self.api.watch(&params, version).await?);
        (self.tell)(News::Alive);
        let mut lasts = pin!(tokio::time::sleep(FIRST_PAUSE));
        let mut told = false;
        loop {
            let event = tokio::select! {
                biased;
                event = events.try_next() => event?,
                () = &mut lasts, if told && self.said.is_some() => {
                    self.is_well();
                    continue;
                }
            };
            let Some(event) = event else { return Ok(()) };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = object.resource_version().unwrap_or_default();
                    (self.tell)(News::Apply(object));
                }
                WatchEvent::Deleted(object) => {
                    *version = object.resource_version().unwrap_or_default();
                    (self.tell)(News::Delete(object));
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    (self.tell)(News::Alive);
                }
                WatchEvent::Error(status) => return Err(Error::Api(status).into()),
            }
            told = true;
            self.works();
        }
    }

    /// It goes on: what fails next is a first failure.
    fn works(&mut self) {
        self.backoff.reset();
    }

    /// What was wrong, if anything, is over.
    fn is_well(&mut self) {
        if self.said.take().is_some() {
            info!(path = self.api.resource_url(), "followed again");
        }
    }

    /// Tells a failure, and rests.
    async fn failed(&mut self, call: &'static str, problem: Problem) {
        let pause = self.backoff.next_pause(problem.retry_after(), rand::random());
        let (path, error) = (self.api.resource_url(), with_causes(&problem));
        if self.said.as_ref() == Some(&error) {
            debug!(path, call, error, retry_in = ?pause, "cannot be followed, it is tried again");
        } else {
            warn!(path, call, error, retry_in = ?pause, "cannot be followed, it is tried again");
            self.said = Some(error);
        }
        (self.tell)(News::Failed(Failed { call, problem }));
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests;
