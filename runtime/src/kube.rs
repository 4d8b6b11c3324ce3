//! The client of a cluster's API server, with the limits and without the habits that the programs' own rules need.
//!
//! It tries nothing again by itself: who calls decides when to, and sees every failure. What is to be known of objects
//! from now on is followed ([`follow`]).

mod asked;
pub mod follow;
#[cfg(feature = "test-util")]
pub mod testing;

use ::kube::client::ClientBuilder;
use ::kube::config::InferConfigError;
use ::kube::{Client, Config};
use std::time::Duration;
use tower::layer::layer_fn;

/// How long a connection to the API server may take to be made.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the API server may be silent on a connection. A server that has died silently shows as an error then:
/// watches end on their own well before.
pub const READ_LIMIT: Duration = Duration::from_secs(75);

/// Why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// There is neither a kubeconfig nor a Pod's ServiceAccount.
    #[error("cannot find the API server: run this in a Pod with a ServiceAccount, or set KUBECONFIG")]
    Config(#[from] InferConfigError),
    /// What was found does not make a client.
    #[error("cannot make a client of the API server")]
    Client(#[from] ::kube::Error),
}

/// A client by KUBECONFIG, else by the Pod's ServiceAccount. Nothing is sent before the first call.
///
/// # Errors
/// Why there is none.
pub async fn client() -> Result<Client, NoClient> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.read_timeout = Some(READ_LIMIT);
    // The time a connection was idle before it is used again does not count as silence.
    config.reset_reader_on_write = true;
    // Its tries again would hide a refusal, and go on beside those of the caller.
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer_fn(asked::RetryAfter)).build())
}

/// How long the API server asks to be left alone (`Retry-After`); zero when it does not.
pub fn retry_after(error: &::kube::Error) -> Duration {
    match error {
        ::kube::Error::Api(status) => {
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(asked.into())
        }
        _ => Duration::ZERO,
    }
}
