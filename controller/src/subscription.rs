//! Follows a registry's watch and feeds the view.
//!
//! The watch goes to the registry that the session talks to. When it breaks it is begun again where it stood; what
//! that means for what may be believed and deleted is [`mcs_core::view`]'s decision.

use crate::lead::Lead;
use mcs_core::model::Frame;
use mcs_core::timing::Timing;
use mcs_proto::convert::ConversionError;
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::sleep_until;
use tokio::sync::watch;
use tracing::{info, warn};

/// Keeps the view told, until dropped.
pub(crate) async fn run(lead: &Lead) {
    let mut url = lead.url.subscribe();
    let mut failures = 0;
    loop {
        let ended = tokio::select! {
            failed = follow(lead, &mut failures) => Some(failed),
            // The session has turned to another registry.
            _ = url.changed() => None,
        };
        lead.view().disconnected();
        if let Some(failed) = ended {
            failures += 1;
            let timing = lead.outbox().timing();
            let wait = wait(timing, failures, rand::random());
            let registry = lead.registries[*lead.url.borrow()].url().to_string();
            lead.metrics.registry_failed(&registry, failed.label());
            warn!(%registry, error = %failed, retry_in = ?wait, "the watch of the registry ended, imports stay as they are");
            wait_while_deciding(lead, &mut url, wait).await;
        }
    }
}

/// Follows one watch to its end.
async fn follow(lead: &Lead, failures: &mut u32) -> CallFailed {
    let registry = &lead.registries[*lead.url.borrow()];
    let (resume, since) = {
        let view = lead.view();
        (view.resume(), view.since())
    };
    let config = &lead.config;
    let opened = registry.watch(&config.member.clusterset, &config.member.cluster, resume, since);
    let mut frames = match opened.await {
        Ok(frames) => frames,
        Err(failed) => return failed,
    };
    loop {
        let deadline = lead.view().poll_timeout();
        tokio::select! {
            // What the registry has said already comes before a verdict that is due.
            biased;
            frame = frames.next() => match frame {
                Ok(frame) => {
                    if let Frame::End { revision, complete } = &frame {
                        info!(registry = %registry.url(), revision, complete, "snapshot of the clusterset received");
                    }
                    // A watch that goes on where it stood has no snapshot, so any word of progress counts.
                    if matches!(&frame, Frame::End { .. } | Frame::Progress { .. }) {
                        *failures = 0;
                    }
                    if let Err(not_held) = lead.view().handle_frame(frame, lead.clock.elapsed()) {
                        return ConversionError::new("kept", not_held.to_string()).into();
                    }
                }
                Err(failed) => {
                    // A registry that has restarted knows nothing of this cluster until it registers again.
                    lead.outbox().doubt();
                    lead.outbox_changed.notify_one();
                    return failed;
                }
            },
            () = sleep_until(lead.clock.as_ref(), deadline) => lead.view().handle_timeout(lead.clock.elapsed()),
        }
        queue_dirty(lead);
    }
}

/// Imports that the view decides anew; the own export of the same Service shows it in its conditions.
pub(crate) fn queue_dirty(lead: &Lead) {
    let dirty: Vec<_> = {
        let mut view = lead.view();
        std::iter::from_fn(|| view.next_dirty()).collect()
    };
    for key in dirty {
        lead.index.exports.add(key.clone());
        lead.index.imports.add(key);
    }
}

/// Waits before the next try, and no longer than until the session turns to another registry.
async fn wait_while_deciding(lead: &Lead, url: &mut watch::Receiver<usize>, wait: std::time::Duration) {
    let until = lead.clock.elapsed() + wait;
    loop {
        let deadline = lead.view().poll_timeout();
        tokio::select! {
            () = sleep_until(lead.clock.as_ref(), Some(until)) => return,
            changed = url.changed() => if changed.is_ok() { return },
            () = sleep_until(lead.clock.as_ref(), deadline) => {
                lead.view().handle_timeout(lead.clock.elapsed());
                queue_dirty(lead);
            }
        }
    }
}

/// Full jitter over a bound that doubles, so that the watchers of a restarted registry do not come back as one.
fn wait(timing: Timing, failures: u32, jitter: f64) -> std::time::Duration {
    timing.backoff(failures).mul_f64(jitter)
}
