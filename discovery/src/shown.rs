//! A list as clients see it: its entries, its version, and the last changes of it for those who watch.
//!
//! Guarantees: two answers of one version are the same bytes; what a watcher is told, applied in order, gives the list.
//!
//! A change is encoded once, however many watch, and only the last [`KEPT_EVENTS`] are kept, and only while somebody
//! watches. A watcher is a number: the version up to which it was told. One that lags behind what is kept, or that was
//! told before completeness changed, is told the whole list anew: never a gap.
//!
//! A whole list is told piece by piece, as the watcher takes it, and none of it is held for a slow one. What changes
//! meanwhile before the place reached is told as events right after it, what changes behind that place is in it.
//! So each entry was there at some time while the list was told, and what was there all the time is in it: the list may
//! replace what a reader had where it was exact all the time.
//!
//! Rejected: a queue for each watcher (memory for each slow one), and a copy of the list at one moment (30 MB for each
//! that begins).

use crate::sheet::Sheet;
pub use crate::sheet::{Entries, Entry};
use crate::wire;
use bytes::{Bytes, BytesMut};
use mcs_core::pools::Completeness;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How many events a watcher may be behind.
pub const KEPT_EVENTS: usize = 1024;
/// Events are kept up to so many bytes: as many as those of 1,024 pools with a hundred frontends each, so that large
/// registrations cannot fill the memory.
const KEPT_BYTES: usize = 8 * 1024 * 1024;
/// Events that wait together are sent together up to about so many bytes, a frame of HTTP/2.
const JOINED: usize = 16 * 1024;

/// A list as it was at one moment.
#[derive(Debug)]
pub struct List<E> {
    /// Its entries.
    pub entries: Entries<E>,
    /// Whether what it lacks is gone.
    pub completeness: Completeness,
    /// It rises with every change of the two above.
    pub version: u64,
}

/// Why a watcher is told the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It begins.
    Begin,
    /// The list is as complete as it was not before.
    Completeness,
    /// It is more than [`KEPT_EVENTS`] behind.
    Behind,
}

/// A list of `E`s.
pub struct Shown<E> {
    name: &'static str,
    state: Mutex<State<E>>,
    newest: watch::Sender<u64>,
}

struct State<E> {
    sheet: Sheet<E>,
    completeness: Completeness,
    version: u64,
    /// The version at which completeness changed last.
    complete_since: u64,
    /// The events that led to the versions up to this one.
    events: VecDeque<Bytes>,
    bytes: usize,
}

impl<E: Entry> Shown<E> {
    /// The empty list of this name.
    pub(crate) fn new(name: &'static str, completeness: Completeness) -> Self {
        let state = State {
            sheet: Sheet::default(),
            completeness,
            version: 0,
            complete_since: 0,
            events: VecDeque::new(),
            bytes: 0,
        };
        Self { name, state: Mutex::new(state), newest: watch::Sender::new(0) }
    }

    /// Begins changes that are seen together, by readers and watchers alike.
    pub(crate) fn edit(&self) -> Edit<'_, E> {
        let state = self.lock();
        Edit { before: state.version, is_watched: self.newest.receiver_count() > 0, shown: self, state }
    }

    /// The list.
    pub fn list(&self) -> List<E> {
        let mut state = self.lock();
        List { entries: state.sheet.entries(), completeness: state.completeness, version: state.version }
    }

    /// Its version, and nothing more.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// How many entries it has, and whether these are all.
    pub(crate) fn size(&self) -> (usize, Completeness) {
        let state = self.lock();
        (state.sheet.len(), state.completeness)
    }

    /// Begins to watch.
    pub fn watch(self: &Arc<Self>) -> Watcher<E> {
        // A change counts receivers under the lock, so none falls between.
        let _state = self.lock();
        let newest = self.newest.subscribe();
        Watcher { shown: Arc::clone(self), newest, at: Place::Behind(Cause::Begin) }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that are under way; they are told when it is dropped.
pub(crate) struct Edit<'a, E> {
    shown: &'a Shown<E>,
    state: MutexGuard<'a, State<E>>,
    before: u64,
    is_watched: bool,
}

impl<E: Entry> Edit<'_, E> {
    /// Puts an entry, in place of the one that its key had.
    pub(crate) fn put(&mut self, entry: E) {
        let mut text = Vec::new();
        entry.write(&mut text);
        self.state.sheet.put(entry, text.len());
        self.note("upserted", &text);
    }

    /// Takes an entry out; `removed` says of which key, as it is told.
    pub(crate) fn remove(&mut self, key: &E::Key, removed: &[u8]) {
        self.state.sheet.remove(key);
        self.note("removed", removed);
    }

    /// Says whether these are all.
    pub(crate) fn complete(&mut self, completeness: Completeness) {
        let state = &mut *self.state;
        if std::mem::replace(&mut state.completeness, completeness) != completeness {
            state.version += 1;
            state.complete_since = state.version;
            state.forget();
        }
    }

    fn note(&mut self, name: &str, data: &[u8]) {
        let state = &mut *self.state;
        state.version += 1;
        if !self.is_watched {
            return state.forget();
        }
        let event = wire::event(name, data);
        state.bytes += event.len();
        state.events.push_back(event);
        while state.events.len() > KEPT_EVENTS || state.bytes > KEPT_BYTES {
            state.bytes -= state.events.pop_front().map_or(0, |event| event.len());
        }
    }
}

impl<E> Drop for Edit<'_, E> {
    fn drop(&mut self) {
        if self.is_watched && self.state.version != self.before {
            self.shown.newest.send_replace(self.state.version);
        }
    }
}

impl<E> State<E> {
    fn forget(&mut self) {
        (self.events, self.bytes) = (VecDeque::new(), 0);
    }
}

/// One who watches a list. It holds nothing of it but its place.
pub struct Watcher<E: Entry> {
    shown: Arc<Shown<E>>,
    newest: watch::Receiver<u64>,
    at: Place<E::Key>,
}

/// How far a watcher was told.
enum Place<K> {
    /// It is to be told the whole list.
    Behind(Cause),
    /// It is being told the whole list, which was of version `since` at its begin: up to the key, none at its begin.
    Within { since: u64, after: Option<K> },
    /// It knows this version.
    At(u64),
}

/// A part of what a watcher is told, as it goes over the wire.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text.
    pub text: Bytes,
    /// With it begins the whole list.
    pub begins: Option<Cause>,
}

impl<E: Entry> Watcher<E> {
    /// Waits until there may be something to tell.
    pub async fn changed(&mut self) {
        // It does not fail: the sender is in what this holds.
        let _ = self.newest.changed().await;
    }

    /// The next part of what is to be told; none when it was told everything.
    pub fn next_piece(&mut self) -> Option<Piece> {
        self.newest.mark_unchanged();
        let state = self.shown.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Place::At(told) = self.at {
            let behind = usize::try_from(state.version - told).unwrap_or(usize::MAX);
            if behind == 0 {
                return None;
            }
            match state.events.len().checked_sub(behind) {
                Some(first) => {
                    let (text, count) = joined(state.events.range(first..));
                    self.at = Place::At(told + count);
                    return Some(Piece { text, begins: None });
                }
                None if told < state.complete_since => self.at = Place::Behind(Cause::Completeness),
                None => self.at = Place::Behind(Cause::Behind),
            }
        }
        let begins = match &self.at {
            Place::Behind(cause) => Some(*cause),
            Place::Within { .. } | Place::At(_) => None,
        };
        let mut text = Vec::new();
        let (since, after) = match std::mem::replace(&mut self.at, Place::At(state.version)) {
            Place::Within { since, after } => (since, after),
            Place::Behind(_) | Place::At(_) => {
                text.extend_from_slice(wire::resync_begin(self.shown.name).as_bytes());
                (state.version, None)
            }
        };
        let begun = text.len();
        match state.sheet.write_after(after.as_ref(), &mut text) {
            Some(last) => {
                if after.is_none() {
                    // The first entry has a comma before it, like all.
                    text.remove(begun);
                }
                self.at = Place::Within { since, after: Some(last) };
            }
            None => {
                let is_exact = state.completeness == Completeness::Exact && state.complete_since <= since;
                text.extend_from_slice(wire::resync_end(Completeness::exact_if(is_exact)).as_bytes());
                self.at = Place::At(since);
            }
        }
        Some(Piece { text: text.into(), begins })
    }
}

/// The first of these events, sent from where it lies when it is alone, and how many it is.
fn joined<'a>(mut events: impl Iterator<Item = &'a Bytes>) -> (Bytes, u64) {
    let Some(first) = events.next() else { return (Bytes::new(), 0) };
    let (mut text, mut count) = (BytesMut::new(), 1);
    for event in events {
        if text.is_empty() {
            text.extend_from_slice(first);
        }
        if text.len() + event.len() > JOINED {
            break;
        }
        text.extend_from_slice(event);
        count += 1;
    }
    if count == 1 { (first.clone(), 1) } else { (text.freeze(), count) }
}

impl<E: Entry> fmt::Debug for Watcher<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("list", &self.shown.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
