//! Follows a registry's watch and feeds the view.
//!
//! The watch goes to the registry that the session talks to. When it breaks it is begun again where it stood; what
//! that means for what may be believed and deleted is [`mcs_core::view`]'s decision. A registry that the session may go
//! over to is watched beside it, to the end of the snapshot, so that the view is never without a source.

use crate::lead::Lead;
use mcs_core::model::Frame;
use mcs_core::timing::Timing;
use mcs_core::validate::Refusal;
use mcs_proto::client::{RegistryClient, WatchStream};
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::sleep_until;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// A watch of a registry that may become the one in use, and what it has told: all, to the end of a snapshot.
#[derive(Debug)]
pub(crate) struct Prepared {
    url: usize,
    told: Vec<Frame>,
    frames: WatchStream,
}

/// Keeps the view told, until dropped.
pub(crate) async fn run(lead: &Lead) {
    let mut url = lead.url.subscribe();
    let (mut failures, mut split) = (0, false);
    // What was said to be wrong with which registry: one that is away for hours must not fill the log.
    let mut said = None;
    loop {
        let current = *url.borrow_and_update();
        let prepared = take_prepared(lead, |prepared| prepared.url == current);
        let ended = tokio::select! {
            failed = follow(lead, current, prepared, &mut failures, &mut split) => Some(failed),
            // The session has turned to another registry.
            _ = url.changed() => None,
        };
        lead.view().disconnected();
        if let Some(failed) = ended {
            failures += 1;
            let timing = lead.outbox().timing();
            let wait = wait(timing, failures, rand::random());
            let registry = lead.registries[current].url().to_string();
            lead.metrics.registry_failed(&registry, failed.label());
            let reason = Some((current, failed.to_string()));
            if failures > 1 && said == reason {
                debug!(%registry, error = %failed, retry_in = ?wait, "the watch of the registry cannot be begun again");
            } else {
                warn!(%registry, error = %failed, retry_in = ?wait, "the watch of the registry ended, imports stay as they are");
            }
            said = reason;
            {
                let mut outbox = lead.outbox();
                if outbox.url() == current {
                    outbox.watch_failed(lead.clock.elapsed(), rand::random());
                }
            }
            lead.follow_registries();
            wait_while_deciding(lead, &mut url, wait).await;
        }
    }
}

/// Watches the candidate of the session beside the registry in use, until dropped.
pub(crate) async fn prepare(lead: &Lead) {
    let mut candidate = lead.candidate.subscribe();
    loop {
        let Some(url) = *candidate.borrow_and_update() else {
            // What was prepared for another registry than the one in use is of no more use.
            let current = *lead.url.borrow();
            drop(take_prepared(lead, |prepared| prepared.url != current));
            if candidate.changed().await.is_err() {
                return;
            }
            continue;
        };
        let registry = &lead.registries[url];
        info!(registry = %registry.url(), "a better registry is well, going over to it");
        let snapshot = tokio::select! {
            snapshot = snapshot(lead, registry) => snapshot,
            changed = candidate.changed() => if changed.is_err() { return } else { continue },
        };
        match snapshot {
            Ok((told, frames)) => {
                let prepared = Prepared { url, told, frames };
                *lead.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
                lead.outbox().candidate_watched(url);
            }
            Err(failed) => {
                lead.metrics.registry_failed(&registry.url().to_string(), failed.label());
                warn!(registry = %registry.url(), error = %failed, "a better registry cannot be watched, staying where we are");
                lead.outbox().candidate_failed(url);
            }
        }
        lead.follow_registries();
        if candidate.changed().await.is_err() {
            return;
        }
    }
}

/// A watch that has told a whole snapshot.
async fn snapshot(lead: &Lead, registry: &RegistryClient) -> Result<(Vec<Frame>, WatchStream), CallFailed> {
    let since = lead.view().since();
    let member = &lead.config.member;
    let mut frames = registry.watch(&member.clusterset, &member.cluster, None, since).await?;
    let mut told = Vec::new();
    loop {
        let frame = frames.next().await?;
        let is_end = matches!(frame, Frame::End { .. });
        told.push(frame);
        if is_end {
            return Ok((told, frames));
        }
    }
}

fn take_prepared(lead: &Lead, which: impl FnOnce(&mut Prepared) -> bool) -> Option<Prepared> {
    lead.prepared.lock().unwrap_or_else(PoisonError::into_inner).take_if(which)
}

/// Follows one watch to its end: that which was prepared, or a new one.
async fn follow(
    lead: &Lead,
    url: usize,
    prepared: Option<Prepared>,
    failures: &mut u32,
    split: &mut bool,
) -> CallFailed {
    let registry = &lead.registries[url];
    let mut frames = match prepared {
        Some(Prepared { told, frames, .. }) => {
            for frame in told {
                if let Err(failed) = take(lead, registry, frame, failures) {
                    return failed;
                }
            }
            queue_dirty(lead);
            frames
        }
        None => {
            let (resume, since) = {
                let view = lead.view();
                (view.resume(), view.since())
            };
            let member = &lead.config.member;
            match registry.watch(&member.clusterset, &member.cluster, resume, since).await {
                Ok(frames) => frames,
                Err(failed) => return failed,
            }
        }
    };
    loop {
        let deadline = lead.view().poll_timeout();
        tokio::select! {
            // What the registry has said already comes before a verdict that is due.
            biased;
            frame = frames.next() => match frame {
                Ok(frame) => {
                    // Not before some word of progress, for it passes soon where a registry was restarted.
                    let is_split = lead.view().is_split();
                    if matches!(&frame, Frame::Progress { .. }) && std::mem::replace(split, is_split) != is_split {
                        log_split(registry, is_split);
                    }
                    if let Err(failed) = take(lead, registry, frame, failures) {
                        return failed;
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

fn log_split(registry: &RegistryClient, split: bool) {
    let registry = registry.url();
    match split {
        true => warn!(
            %registry,
            "the registry process that is watched is not the one that takes renewals, as where several without a shared \
             store are behind one URL: nothing is deleted"
        ),
        false => info!(%registry, "the registry process that is watched is the one that takes renewals"),
    }
}

/// Tells the view one frame.
fn take(lead: &Lead, registry: &RegistryClient, frame: Frame, failures: &mut u32) -> Result<(), CallFailed> {
    if let Frame::End { revision, complete } = &frame {
        info!(registry = %registry.url(), revision, complete, "snapshot of the clusterset received");
    }
    // A watch that goes on where it stood has no snapshot, so any word of progress counts.
    if matches!(&frame, Frame::End { .. } | Frame::Progress { .. }) {
        *failures = 0;
        lead.outbox().watch_told();
    }
    let taken = lead.view().handle_frame(frame, lead.clock.elapsed());
    taken.map_err(|not_held| Refusal::new("kept", not_held.to_string()).into())
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
async fn wait_while_deciding(lead: &Lead, url: &mut watch::Receiver<usize>, wait: Duration) {
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
fn wait(timing: Timing, failures: u32, jitter: f64) -> Duration {
    timing.backoff(failures).mul_f64(jitter)
}
