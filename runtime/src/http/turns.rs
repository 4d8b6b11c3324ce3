//! Which connection of a port that makes room goes when it is full: the one that has brought no whole request for
//! longest. One that comes to ask something is the last to go, however many others hold the port and say nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The connections of a port. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<Order>>);

#[derive(Debug, Default)]
struct Order {
    next: u64,
    /// Connections by when they came or asked last, earliest first.
    open: BTreeMap<u64, CancellationToken>,
}

impl Order {
    fn push(&mut self, displaced: CancellationToken) -> u64 {
        let at = self.next;
        self.next += 1;
        self.open.insert(at, displaced);
        at
    }
}

impl Turns {
    /// A connection came.
    pub(super) fn join(&self) -> Turn {
        let displaced = CancellationToken::new();
        let at = self.with(|order| order.push(displaced.clone()));
        Turn { turns: self.clone(), at: AtomicU64::new(at), displaced }
    }

    /// Tells the connection to go whose turn it is.
    pub(super) fn displace(&self) {
        if let Some((_, displaced)) = self.with(|order| order.open.pop_first()) {
            displaced.cancel();
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Order) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The turn of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    at: AtomicU64,
    displaced: CancellationToken,
}

impl Turn {
    /// The connection brought a whole request.
    pub(super) fn asked(&self) {
        self.turns.with(|order| {
            // One that was told to go has no turn any more.
            if let Some(displaced) = order.open.remove(&self.at.load(Ordering::Relaxed)) {
                self.at.store(order.push(displaced), Ordering::Relaxed);
            }
        });
    }

    /// Waits until the connection is to go.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.with(|order| order.open.remove(&self.at.load(Ordering::Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_goes_that_asked_nothing_for_longest() {
        let turns = Turns::default();
        let [first, second, third] = [(); 3].map(|()| turns.join());
        first.asked();
        drop(third);
        let gone = || [&first, &second].map(|turn| turn.displaced.is_cancelled());
        turns.displace();
        assert_eq!(gone(), [false, true]);
        second.asked();
        turns.displace();
        assert_eq!(gone(), [true, true]);
        turns.displace();
    }
}
