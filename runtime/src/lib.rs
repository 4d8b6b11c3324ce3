//! The shell that the programs share. It decides nothing about clusters or Services; it makes every program start,
//! tell of itself and stop in the same way.
//!
//! - [`args`]: flags, each with an environment variable, refused in one line with exit code 2
//! - [`logs`]: one subscriber, text or JSON, to standard error
//! - [`clock`]: the only place that reads the time
//! - [`files`]: how many files may be open
//! - [`program`]: from a `main` function to an exit code
//! - [`shutdown`]: the first signal drains, the second aborts
//! - [`tasks`]: named tasks whose end is noticed
//! - [`ready`]: what a program still waits for
//! - [`http`]: an HTTP listener with limits and a graceful end
//! - [`tls`]: certificates of the ports and of their clients, read again when they change
//! - [`admin`]: `/metrics`, `/healthz`, `/readyz`
//! - `kube`: the client of an API server, and how its objects are followed (feature `kube`)
//! - `dynamodb`: the client of DynamoDB, and a stand-in for tests (features `dynamodb`, `dynamodb-double`)
//! - `openapi`: documents of an API (feature `openapi`)
//! - [`metrics`]: the registry of metrics, those of the process and of its build

pub mod admin;
pub mod args;
pub mod clock;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod files;
pub mod http;
#[cfg(feature = "kube")]
pub mod kube;
pub mod logs;
pub mod metrics;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod program;
pub mod ready;
pub mod shutdown;
pub mod tasks;
#[cfg(feature = "test-util")]
pub mod testing;
pub mod tls;

/// The version of the programs, as `--version`, the metric `build_info` and the protocol tell it.
pub const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
