//! The runtime of tasks that outlive a test.
//!
//! `#[tokio::test]` makes a runtime for each test and drops it with its tasks, but clusters are shared by the
//! tests of a binary. What belongs to a cluster runs here.

use std::{io, sync::LazyLock};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("clusters").enable_all().build()
});

/// The handle to spawn on.
pub(crate) fn handle() -> Result<Handle> {
    let runtime = RUNTIME.as_ref().map_err(|error| anyhow::anyhow!("{error}"));
    Ok(runtime.context("starting the threads of the clusters")?.handle().clone())
}
