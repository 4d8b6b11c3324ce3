//! Keeps a pool registered: one task a pool, from the first registration until it is dropped.

use mcs_core::time::Timestamp;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, error, info, info_span, warn};

use crate::api::{Lease, PoolRegistration};
use crate::client::{Client, Failed};
use crate::heartbeat::{Heartbeat, Outcome};

/// How a registration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What came of the last try.
    pub state: State,
    /// Until when the service lists the pool at least, if nothing more is heard of it; none before it was ever taken.
    pub listed_until: Option<Timestamp>,
}

/// What came of the last try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing yet.
    Pending,
    /// The service took it.
    Registered(Lease),
    /// No replica took it; it is tried again.
    Failing(String),
    /// The service refuses it (422, 403, 413, 400): somebody has to mend the registration or what this client may do.
    Refused(String),
}

/// A pool that is kept registered until this is dropped; then its lease runs out.
#[derive(Debug)]
pub struct KeptRegistered {
    registration: watch::Sender<PoolRegistration>,
    standing: watch::Receiver<Standing>,
    _task: AbortOnDropHandle<()>,
}

impl KeptRegistered {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Waits until it stands otherwise than when last asked.
    pub async fn changed(&mut self) {
        // The task ends with this.
        let _ = self.standing.changed().await;
    }

    /// Waits until it stands as `condition` says.
    pub async fn until(&mut self, condition: impl Fn(&Standing) -> bool) -> Standing {
        match self.standing.wait_for(condition).await {
            Ok(standing) => standing.clone(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Registers something else from now on; the service is told at once.
    pub fn set(&self, registration: PoolRegistration) {
        self.registration.send_replace(registration);
    }
}

impl Client {
    /// Keeps a pool registered. It must be called within a tokio runtime.
    pub fn keep_registered(&self, registration: PoolRegistration) -> KeptRegistered {
        let standing = Standing { state: State::Pending, listed_until: None };
        let (tell, standing) = watch::channel(standing);
        let span = info_span!("keep registered", pool = %registration.key);
        let (registration, wanted) = watch::channel(registration);
        let task = tokio::spawn(keep(self.clone(), wanted, tell).instrument(span));
        KeptRegistered { registration, standing, _task: AbortOnDropHandle::new(task) }
    }
}

async fn keep(client: Client, mut wanted: watch::Receiver<PoolRegistration>, tell: watch::Sender<Standing>) {
    let mut heartbeat = Heartbeat::default();
    loop {
        let registration = wanted.borrow_and_update().clone();
        let begun = client.now();
        let result = client.register(&registration).await;
        let outcome = match &result {
            Ok(lease) => Outcome::Granted(*lease),
            Err(Failed::Refused { .. }) => Outcome::Refused,
            Err(Failed::Unavailable { .. }) => Outcome::Unavailable,
            Err(_) => Outcome::Unreachable,
        };
        let pool = &registration.key;
        let state = match result {
            Ok(lease) => State::Registered(lease),
            Err(refused @ Failed::Refused { .. }) => State::Refused(refused.to_string()),
            Err(failed) => State::Failing(failed.to_string()),
        };
        tell.send_if_modified(|standing| {
            let is_news = standing.state != state;
            match &state {
                State::Registered(lease) => {
                    // The service counts from when it took it, which was no earlier.
                    standing.listed_until = Some(begun + lease.duration);
                    if is_news {
                        info!(%pool, lease = ?lease.duration, "pool is registered");
                    }
                }
                State::Failing(why) if is_news => warn!(%pool, why, "pool could not be registered"),
                State::Refused(why) if is_news => {
                    error!(%pool, why, "the registration of the pool is refused")
                }
                State::Pending | State::Failing(_) | State::Refused(_) => {}
            }
            standing.state = state;
            true
        });
        tokio::select! {
            () = tokio::time::sleep(heartbeat.next_pause(outcome, rand::random())) => {}
            changed = wanted.changed() => match changed {
                Ok(()) => heartbeat.changed(),
                Err(_) => return,
            }
        }
    }
}
