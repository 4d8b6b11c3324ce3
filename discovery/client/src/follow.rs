//! Follows a list, by its watch or by asking again and again: one task a list.
//!
//! A watch stays with one replica until it ends, breaks, says what cannot be read, or is silent for too long; then the
//! next one is asked, and what is known stays until that one's list is there. While it is not at the best replica, the
//! watch of that one is opened when it has rested, and gone over to once its list has come: a replica that says that it
//! is well, and takes no watch, costs nothing but being asked.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use http::HeaderValue;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::api::Item;
use crate::client::{Client, Failed, Fetched, LIST, Use, with_sources};
use crate::feed::{Event, Feed};
use crate::known::Known;

/// How a list is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By its watch: a change is known at once.
    Watch,
    /// By asking again and again, with what is known already, so that an answer without news has no body.
    Poll(Duration),
}

/// How long is waited before it is looked again whether a replica has rested: the caller's clock is not tokio's.
const LOOK: Duration = Duration::from_millis(100);
/// So much of an interval a poll may come early, so that many clients do not stay in step.
const SPREAD: f64 = 0.2;

/// A list that is followed until this is dropped.
#[derive(Debug)]
pub struct Followed<T: Item> {
    known: watch::Receiver<Known<T>>,
    _task: AbortOnDropHandle<()>,
}

impl<T: Item> Followed<T> {
    /// What is known now. It is not to be held for long: changes wait for it.
    pub fn read(&self) -> watch::Ref<'_, Known<T>> {
        self.known.borrow()
    }

    /// Waits until what is known is other than when last waited for.
    pub async fn changed(&mut self) {
        // The task ends with this.
        let _ = self.known.changed().await;
    }

    /// Waits until what is known is as `condition` says.
    pub async fn until(&mut self, condition: impl FnMut(&Known<T>) -> bool) -> watch::Ref<'_, Known<T>> {
        match self.known.wait_for(condition).await {
            Ok(known) => known,
            Err(_) => std::future::pending().await,
        }
    }
}

/// A watch that is open.
struct Stream {
    replica: usize,
    body: Incoming,
    feed: Feed,
}

/// Replicas of which it was told that they do not answer: once an outage, however often they are tried in it.
#[derive(Debug, Default)]
struct Told(BTreeSet<usize>);

impl Told {
    fn failed(&mut self, replica: usize, why: &Failed) {
        if self.0.insert(replica) {
            warn!(%why, "the list cannot be followed there: it is tried again");
        } else {
            debug!(%why, "the list cannot be followed there yet");
        }
    }

    fn worked(&mut self, replica: usize, url: impl FnOnce() -> String) {
        if self.0.remove(&replica) {
            info!(url = url(), "the list is followed there again");
        }
    }
}

impl Client {
    /// Follows a list. It must be called within a tokio runtime.
    pub fn follow<T: Item>(&self, how: How) -> Followed<T> {
        let (tell, known) = watch::channel(Known::default());
        let client = self.clone();
        let following = async move {
            match how {
                How::Watch => client.follow_watch(&tell).await,
                How::Poll(interval) => client.follow_polls(&tell, interval).await,
            }
        };
        let task = tokio::spawn(following.instrument(info_span!("follow", list = T::LIST)));
        Followed { known, _task: AbortOnDropHandle::new(task) }
    }

    async fn follow_watch<T: Item>(&self, tell: &watch::Sender<Known<T>>) {
        let mut told = Told::default();
        loop {
            while self.replicas(Use::Watch).rested_at(self.now()).is_some() {
                sleep(LOOK).await;
            }
            let Some(replica) = self.order(Use::Watch).first().copied() else { return };
            let (replica, ended) = match self.open::<T>(replica).await {
                Ok((stream, events)) => self.follow_streams(stream, events, tell, &mut told).await,
                Err(failed) => (replica, failed),
            };
            told.failed(replica, &ended);
            self.failed(Use::Watch, replica);
        }
    }

    /// Follows the watch of one replica, and of better ones as these take it: the one that failed, and why.
    async fn follow_streams<T: Item>(
        &self,
        mut stream: Stream,
        mut events: Vec<Event<T>>,
        tell: &watch::Sender<Known<T>>,
        told: &mut Told,
    ) -> (usize, Failed) {
        loop {
            let mut better = pin!(self.better_than::<T>(stream.replica));
            let replica = stream.replica;
            debug!(url = self.url(replica, ""), "watching");
            let next = loop {
                self.replicas(Use::Watch).worked(replica);
                told.worked(replica, || self.url(replica, ""));
                tell.send_if_modified(|known| {
                    let mut is_changed = false;
                    for event in events.drain(..) {
                        is_changed |= known.handle_event(event);
                    }
                    is_changed
                });
                tokio::select! {
                    came = self.events::<T>(&mut stream) => match came {
                        Ok(came) => events = came,
                        Err(failed) => return (replica, failed),
                    },
                    next = &mut better => break next,
                }
            };
            (stream, events) = next;
            info!(url = self.url(stream.replica, ""), "gone back to a better replica");
        }
    }

    /// Opens the watch of one replica, and reads its list and what comes with it.
    async fn open<T: Item>(&self, replica: usize) -> Result<(Stream, Vec<Event<T>>), Failed> {
        let mut stream = Stream { replica, body: self.watch::<T>(replica).await?, feed: Feed::default() };
        let events =
            timeout(LIST, self.events::<T>(&mut stream)).await.map_err(|_| Failed::Unreachable {
                url: self.url(replica, T::LIST),
                problem: format!("the watch has not begun with its list within {} s", LIST.as_secs()),
            })??;
        Ok((stream, events))
    }

    /// The next events of a stream. Nothing is lost where this is not waited for to its end.
    async fn events<T: Item>(&self, stream: &mut Stream) -> Result<Vec<Event<T>>, Failed> {
        let Stream { replica, body, feed } = stream;
        let url = || self.url(*replica, T::LIST);
        let unreachable = |problem: String| Failed::Unreachable { url: url(), problem };
        loop {
            let frame = timeout(self.silence(), body.frame()).await;
            let frame = frame
                .map_err(|_| unreachable(format!("the watch is silent for {} s", self.silence().as_secs())))?
                .ok_or_else(|| unreachable("the watch was ended".to_owned()))?
                .map_err(|error| unreachable(with_sources(&error)))?;
            let Some(bytes) = frame.data_ref() else { continue };
            let events = feed.feed::<T>(bytes);
            let events = events.map_err(|problem| Failed::BadStream { url: url(), problem })?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Waits until a better replica than this one has rested and takes the watch.
    async fn better_than<T: Item>(&self, replica: usize) -> (Stream, Vec<Event<T>>) {
        loop {
            let better = self.replicas(Use::Watch).better(replica);
            let Some((at, better)) = better else { return std::future::pending().await };
            if !at.has_passed(self.now()) {
                sleep(LOOK).await;
                continue;
            }
            match self.open(better).await {
                Ok(opened) => return opened,
                Err(failed) => {
                    debug!(why = %failed, "a better replica cannot be used yet");
                    self.failed(Use::Watch, better);
                }
            }
        }
    }

    async fn follow_polls<T: Item>(&self, tell: &watch::Sender<Known<T>>, interval: Duration) {
        let mut told = Told::default();
        // What an entity tag means is the business of the replica that gave it.
        let mut last: Option<(usize, HeaderValue)> = None;
        loop {
            for replica in self.order(Use::Call) {
                let etag = last.as_ref().filter(|(of, _)| *of == replica).map(|(_, etag)| etag);
                match self.judged(replica, self.fetch::<T>(replica, etag).await) {
                    Ok(fetched) => {
                        told.worked(replica, || self.url(replica, ""));
                        if let Fetched::List(list, etag) = fetched {
                            last = etag.map(|etag| (replica, etag));
                            tell.send_if_modified(|known| known.handle_list(list));
                        }
                        break;
                    }
                    Err(failed) => told.failed(replica, &failed),
                }
            }
            sleep(interval.mul_f64(1.0 - SPREAD * rand::random::<f64>())).await;
        }
    }
}
