//! Readiness: what a program still waits for, by name.
//!
//! A program is ready when every part that asked to be waited for has said so, and never while it drains. A part that
//! ends without a word stays missing: a crash must not read as ready.

use std::sync::Arc;

use tokio::sync::watch;

use crate::shutdown::Drain;

/// What [`Ready::missing`] says while the program drains.
const SHUTTING_DOWN: &str = "shutting down";

/// The parts of a program that must be there before it takes traffic. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ready {
    parts: Arc<watch::Sender<Vec<Part>>>,
    shutdown: Drain,
}

#[derive(Debug)]
struct Part {
    name: String,
    ready: bool,
}

/// The readiness of one part. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    parts: Arc<watch::Sender<Vec<Part>>>,
    index: usize,
}

impl Ready {
    /// Nothing to wait for yet.
    pub fn new(shutdown: Drain) -> Self {
        Self { parts: Arc::new(watch::Sender::default()), shutdown }
    }

    /// One more part to wait for; not ready until its handle says so. `name` is what `/readyz` tells people, such as
    /// `first view of the registry`.
    pub fn wait_for(&self, name: impl Into<String>) -> Handle {
        let mut index = 0;
        self.parts.send_modify(|parts| {
            index = parts.len();
            parts.push(Part { name: name.into(), ready: false });
        });
        Handle { parts: Arc::clone(&self.parts), index }
    }

    /// The names of what is missing, in the order in which they were asked for; empty when ready.
    pub fn missing(&self) -> Vec<String> {
        let draining = self.shutdown.is_draining().then(|| SHUTTING_DOWN.to_owned());
        let parts = self.parts.borrow();
        let missing = parts.iter().filter(|part| !part.ready).map(|part| part.name.clone());
        draining.into_iter().chain(missing).collect()
    }

    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.missing().is_empty()
    }

    /// Waits until every part is there, draining or not.
    pub async fn until_ready(&self) {
        // The sender lives as long as this waits, so the wait can only end with readiness.
        let _ = self.parts.subscribe().wait_for(|parts| parts.iter().all(|part| part.ready)).await;
    }
}

impl Handle {
    /// The part is there.
    pub fn ready(&self) {
        self.set(true);
    }

    /// Says whether the part is there; it may be lost again.
    pub fn set(&self, ready: bool) {
        self.parts.send_if_modified(|parts| {
            parts.get_mut(self.index).is_some_and(|part| std::mem::replace(&mut part.ready, ready) != ready)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::Shutdown;

    #[tokio::test]
    async fn ready_when_every_part_said_so_and_not_while_draining() {
        let shutdown = Shutdown::manual();
        let ready = Ready::new(shutdown.watch());
        let (view, lease) = (ready.wait_for("first view"), ready.wait_for("lease"));

        let mut seen = vec![ready.missing()];
        lease.ready();
        seen.push(ready.missing());
        view.ready();
        ready.until_ready().await;
        seen.push(ready.missing());
        lease.set(false);
        seen.push(ready.missing());
        shutdown.drain();
        seen.push(ready.missing());

        let expected: [&[&str]; 5] =
            [&["first view", "lease"], &["first view"], &[], &["lease"], &["shutting down", "lease"]];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_part_that_ended_without_a_word_stays_missing() {
        let ready = Ready::new(Drain::default());
        drop(ready.wait_for("watch of Services"));
        assert_eq!(ready.missing(), ["watch of Services"]);
    }
}
