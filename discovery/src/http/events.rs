//! The stream of one watcher, as server-sent events.
//!
//! It ends when the process drains, so that its reader goes to another replica. While nothing changes it says so every
//! [`KEEP_ALIVE`], by which both sides learn of one that is gone.

use crate::metrics::WatchCount;
use crate::sheet::Entry;
use crate::shown::Watcher;
use axum::body::{Body, Bytes};
use futures::stream;
use mcs_runtime::shutdown::Drain;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::sleep;

/// A silent stream says so after this: below the 60 s after which proxies and load balancers cut idle connections.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A comment, which readers pass over.
const COMMENT: &[u8] = b": still here\n\n";

struct Told<E: Entry> {
    watcher: Watcher<E>,
    counted: WatchCount,
    drain: Drain,
}

/// The body of a watch.
pub(super) fn stream<E>(watcher: Watcher<E>, counted: WatchCount, drain: Drain) -> Body
where
    E: Entry<Key: Send + Sync> + Send + Sync + 'static,
{
    Body::from_stream(stream::unfold(Told { watcher, counted, drain }, async |mut told| {
        let text = told.next().await?;
        Some((Ok::<_, Infallible>(text), told))
    }))
}

impl<E: Entry> Told<E> {
    /// The next part; none when the process drains.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.drain.is_draining() {
                return None;
            }
            if let Some(piece) = self.watcher.next_piece() {
                if let Some(cause) = piece.begins {
                    self.counted.resynced(cause);
                }
                return Some(piece.text);
            }
            tokio::select! {
                () = self.drain.draining() => return None,
                () = self.watcher.changed() => {}
                () = sleep(KEEP_ALIVE) => return Some(Bytes::from_static(COMMENT)),
            }
        }
    }
}
