//! Follows a list, by its watch or by asking again and again: one task a list.
//!
//! A watch stays with one replica until it ends, breaks, says what cannot be read, or is silent for too long; then the
//! next one is asked, and what is known stays until that one's list is there. While it is not at the best replica, that
//! one is probed when it has rested, and gone to when it is well.

use std::pin::pin;
use std::time::Duration;

use http::HeaderValue;
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use crate::api::Item;
use crate::client::{Client, Failed, Fetched, with_sources};
use crate::feed::Feed;
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

impl Client {
    /// Follows a list. It must be called within a tokio runtime.
    pub fn follow<T: Item>(&self, how: How) -> Followed<T> {
        let (tell, known) = watch::channel(Known::default());
        let client = self.clone();
        let task = match how {
            How::Watch => tokio::spawn(async move { client.follow_watch(&tell).await }),
            How::Poll(interval) => tokio::spawn(async move { client.follow_polls(&tell, interval).await }),
        };
        Followed { known, _task: AbortOnDropHandle::new(task) }
    }

    async fn follow_watch<T: Item>(&self, tell: &watch::Sender<Known<T>>) {
        loop {
            while self.replicas().rested_at(self.now()).is_some() {
                sleep(LOOK).await;
            }
            let Some(replica) = self.order().first().copied() else { return };
            match self.follow_stream(replica, tell).await {
                Ok(better) => {
                    info!(list = T::LIST, url = self.url(better, ""), "going back to a better replica");
                }
                Err(ended) => {
                    warn!(list = T::LIST, why = %ended, "the watch has ended");
                    self.failed(replica);
                }
            }
        }
    }

    /// Follows the watch of one replica until it ends, or another is better.
    async fn follow_stream<T: Item>(
        &self,
        replica: usize,
        tell: &watch::Sender<Known<T>>,
    ) -> Result<usize, Failed> {
        let url = || self.url(replica, T::LIST);
        let mut body = self.watch::<T>(replica).await?;
        debug!(list = T::LIST, url = url(), "watching");
        let mut feed = Feed::default();
        let mut better = pin!(self.better_than(replica));
        loop {
            let frame = tokio::select! {
                frame = timeout(self.silence(), body.frame()) => frame,
                better = &mut better => return Ok(better),
            };
            let unreachable = |problem: String| Failed::Unreachable { url: url(), problem };
            let frame = frame
                .map_err(|_| unreachable(format!("the watch is silent for {} s", self.silence().as_secs())))?
                .ok_or_else(|| unreachable("the watch was ended".to_owned()))?
                .map_err(|error| unreachable(with_sources(&error)))?;
            let Some(bytes) = frame.data_ref() else { continue };
            let events = feed.feed::<T>(bytes);
            let events = events.map_err(|problem| Failed::BadStream { url: url(), problem })?;
            if events.is_empty() {
                continue;
            }
            self.replicas().worked(replica);
            tell.send_if_modified(|known| {
                let mut is_changed = false;
                for event in events {
                    is_changed |= known.handle_event(event);
                }
                is_changed
            });
        }
    }

    /// Waits until a better replica than this one has rested and says that it can be used.
    async fn better_than(&self, replica: usize) -> usize {
        loop {
            let better = self.replicas().better(replica);
            let Some((at, better)) = better else { return std::future::pending().await };
            if !at.has_passed(self.now()) {
                sleep(LOOK).await;
                continue;
            }
            match self.probe(better).await {
                // Its rests begin anew only when it has worked.
                Ok(()) => return better,
                Err(failed) => {
                    debug!(why = %failed, "a better replica cannot be used yet");
                    self.failed(better);
                }
            }
        }
    }

    async fn follow_polls<T: Item>(&self, tell: &watch::Sender<Known<T>>, interval: Duration) {
        // What an entity tag means is the business of the replica that gave it.
        let mut last: Option<(usize, HeaderValue)> = None;
        loop {
            for replica in self.order() {
                let etag = last.as_ref().filter(|(of, _)| *of == replica).map(|(_, etag)| etag);
                match self.judged(replica, self.fetch::<T>(replica, etag).await) {
                    Ok(Fetched::Unchanged) => break,
                    Ok(Fetched::List(list, etag)) => {
                        last = etag.map(|etag| (replica, etag));
                        tell.send_if_modified(|known| known.handle_list(list));
                        break;
                    }
                    Err(failed) => warn!(list = T::LIST, why = %failed, "the list could not be read"),
                }
            }
            sleep(interval.mul_f64(1.0 - SPREAD * rand::random::<f64>())).await;
        }
    }
}
