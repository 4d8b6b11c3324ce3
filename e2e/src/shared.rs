//! The pair of clusters that the tests of one binary share.
//!
//! A cluster takes seconds to start and hundreds of megabytes, so tests do not have their own: each takes a
//! namespace ([`Pair::namespace`]) and treats all else as not its own. The pair is in a static, which is never
//! dropped; its processes end with the test binary all the same.

use anyhow::{Context, Result, anyhow};
use kube::Client;
use tokio::sync::OnceCell;

use crate::{Cluster, ClusterOptions, TempNamespace};

/// Two clusters in different regions.
#[derive(Debug)]
pub struct Pair {
    /// `us-east-1`.
    pub east: Cluster,
    /// `us-west-2`.
    pub west: Cluster,
}

impl Pair {
    /// Starts a pair that is not shared.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start() -> Result<Self> {
        let (east, west) = tokio::try_join!(
            Cluster::start(ClusterOptions::east()),
            Cluster::start(ClusterOptions::west()),
        )?;
        Ok(Self { east, west })
    }

    /// A namespace of one new name in both.
    ///
    /// # Errors
    /// An API server refused.
    pub async fn namespace(&self, prefix: &str) -> Result<TempNamespace> {
        TempNamespace::in_all([self.east.client(), self.west.client()], prefix).await
    }

    /// New clients of administrators, east's first.
    pub fn clients(&self) -> [Client; 2] {
        [self.east.client(), self.west.client()]
    }
}

/// The pair of this process; the first caller starts it.
///
/// # Errors
/// It did not start. It is not tried again, so that every test fails at once for the same reason.
pub async fn pair() -> Result<&'static Pair> {
    static PAIR: OnceCell<Result<Pair, String>> = OnceCell::const_new();
    let started = PAIR.get_or_init(async || Pair::start().await.map_err(|error| format!("{error:#}"))).await;
    started.as_ref().map_err(|error| anyhow!("{error}")).context("the shared clusters did not start")
}
