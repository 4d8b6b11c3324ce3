//! The client of DynamoDB as the programs use it: who it speaks to, how long it waits, and why something was not done.
//!
//! - [`Settings`]: table, region, endpoint and limits → [`Client`]; credentials and region by AWS's default chain
//! - [`Client::call`], [`Client::write`], [`Client::query`]: one call within its limits, tried again where that may
//!   help, and what became of it
//! - [`Failed`]: why it was not done, in one line that says what, where and what to do
//! - [`check`], [`until_usable`]: whether a table can be used, asked when a program starts
//! - [`prepare`], [`until_prepared`]: a table that is made and set up where it is not
//!
//! The SDK has no time limit of its own for a whole call and tries again by itself; here each call has a limit, and
//! there is one layer that tries again (`tries`). TLS is rustls with aws-lc.

mod call;
mod check;
mod create;
mod credentials;
#[cfg(feature = "dynamodb-double")]
pub mod double;
mod failed;
mod settings;
mod tries;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::tries::Tries;

pub use self::call::{Action, Class, Condition, Item, Observer, Outcome};
pub use self::check::{PROBED, Unusable, check, until_usable};
pub use self::create::{
    CREATE_LIMIT, Created, EXPIRES_AT, NoTimeToLive, Prepared, TimeToLive, create_table, prepare,
    until_active, until_prepared,
};
pub use self::failed::{Failed, Why};
pub use self::settings::{Flags, Limits, NoClient, RegionName, Settings, endpoint, table_name};

/// The client of one table. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    sdk: aws_sdk_dynamodb::Client,
    place: Arc<Place>,
    limits: Limits,
    /// What clones share of their tries.
    tries: Arc<Tries>,
    observer: Option<Arc<dyn Observer>>,
}

/// Where calls go, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The table.
    pub table: String,
    /// The region that calls are signed for.
    pub region: String,
    /// Another endpoint than that of AWS in this region.
    pub endpoint: Option<String>,
    /// What the flags are called by which somebody changes that.
    pub flags: Flags,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} in {}", self.table, self.region)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, " at {endpoint}"),
            None => Ok(()),
        }
    }
}

impl Client {
    /// The SDK's client, to make requests with; who sends them past [`Client::call`] has one try, within
    /// [`Limits::attempt`].
    pub const fn sdk(&self) -> &aws_sdk_dynamodb::Client {
        &self.sdk
    }

    /// The name of the table.
    pub fn table(&self) -> &str {
        &self.place.table
    }

    /// Where calls go.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// How long calls may take.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// The same client, which tells of its requests.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// The same client with another limit of a whole call; the connection and each try keep theirs.
    #[must_use]
    pub fn with_total(&self, total: Duration) -> Self {
        Self { limits: Limits { total, ..self.limits }, ..self.clone() }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("place", &self.place)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod testing;
