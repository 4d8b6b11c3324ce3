//! From flags to a client.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region};
use axum::http::Uri;

use super::credentials::Lasting;
use super::{Client, Place};

/// The region is looked for at most this long where no flag gives it: AWS's chain ends at the metadata service of the
/// machine, which outside of AWS is an address that nobody answers at.
const REGION_LIMIT: Duration = Duration::from_secs(5);

/// Whose table, and how long it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The table.
    pub table: String,
    /// The region; none: by AWS's default chain.
    pub region: Option<String>,
    /// Another endpoint than that of AWS; calls to it are signed by the same credentials.
    pub endpoint: Option<String>,
    /// How long calls may take.
    pub limits: Limits,
    /// What the flags are called that messages send people to.
    pub flags: Flags,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A connection is made within this.
    pub connect: Duration,
    /// One try has its answer within this.
    pub attempt: Duration,
    /// The whole call, with all of its tries and the pauses between them, is over within this.
    pub total: Duration,
}

impl Limits {
    /// The limits of calls that are over within `total`: a try that is never answered leaves room for another one, on a
    /// new connection, and a connection that is not made leaves room for one more within the try.
    pub fn within(total: Duration) -> Self {
        Self { connect: total / 5, attempt: total * 2 / 5, total }
    }
}

/// The names of a program's flags, as its messages give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The flag of the table.
    pub table: &'static str,
    /// The flag of the region.
    pub region: &'static str,
    /// The flag of the endpoint.
    pub endpoint: &'static str,
}

/// Why there is no client. Nobody is asked for that, so that asking again helps nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoClient {
    /// There is no region.
    #[error("no AWS region for table {table}: set {} or AWS_REGION", .flags.region)]
    NoRegion {
        /// The table.
        table: String,
        /// The program's flags.
        flags: Flags,
    },
}

impl Settings {
    /// A client. No call is made, but the region may be asked for at the metadata service of the machine, where neither
    /// the flag nor the environment has it. Credentials are looked for with the first call, by AWS's default chain
    /// (environment, profile, web identity of a ServiceAccount, container, instance), with an endpoint of one's own
    /// too: an emulator takes any, and a proxy of AWS takes the right ones.
    ///
    /// # Errors
    /// There is no region.
    pub async fn connect(self) -> Result<Client, NoClient> {
        self.connect_with(aws_config::defaults(BehaviorVersion::latest())).await
    }

    /// A client by what else is in `loader`.
    pub(super) async fn connect_with(self, mut loader: ConfigLoader) -> Result<Client, NoClient> {
        let Self { table, region, endpoint, limits, flags } = self;
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        let loaded = tokio::time::timeout(REGION_LIMIT, loader.load()).await.ok();
        let Some((config, region)) = loaded.and_then(|config| {
            let region = config.region()?.to_string();
            Some((config, region))
        }) else {
            return Err(NoClient::NoRegion { table, flags });
        };
        // Of this service alone: whoever gives the credentials (STS, a metadata service) has the SDK's own endpoint,
        // limits and tries.
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(limits.connect)
            .operation_attempt_timeout(limits.attempt);
        let mut service = aws_sdk_dynamodb::config::Builder::from(&config)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build());
        // Else that of the environment stays, of this service or of all.
        if let Some(endpoint) = &endpoint {
            service = service.endpoint_url(endpoint);
        }
        if let Some(credentials) = config.credentials_provider() {
            service = service.credentials_provider(Lasting::new(credentials));
        }
        let sdk = aws_sdk_dynamodb::Client::from_conf(service.build());
        let endpoint = endpoint.or_else(|| config.endpoint_url().map(str::to_owned));
        let place = Arc::new(Place { table, region, endpoint, flags });
        Ok(Client { sdk, place, limits, tries: Arc::default(), observer: None })
    }
}

/// Reads the name of a table from a flag.
///
/// # Errors
/// What is wrong with it, by AWS's rules.
pub fn table_name(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (3..=255).contains(&text.len()) && text.chars().all(is_good) {
        Ok(text.to_owned())
    } else {
        Err("the name of a table is 3 to 255 of a-z, A-Z, 0-9, '_', '-' and '.'".to_owned())
    }
}

/// The name of an AWS region, as a flag gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionName(String);

impl RegionName {
    /// As AWS writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RegionName {
    type Err = &'static str;

    /// A region becomes a part of a host name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=63).contains(&text.len()) && text.chars().all(is_good);
        if is_name && !text.starts_with('-') && !text.ends_with('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err("the name of a region has lower case letters, digits and '-', as in us-east-1")
        }
    }
}

/// Reads the URL of an endpoint from a flag.
///
/// # Errors
/// What is wrong with it.
pub fn endpoint(text: &str) -> Result<String, String> {
    let form = || "not a URL of scheme and host, as in http://localhost:8000".to_owned();
    let url: Uri = text.parse().map_err(|_| form())?;
    let authority = url.authority().ok_or_else(form)?;
    match url.scheme_str() {
        Some("http" | "https") if authority.as_str().contains('@') => {
            Err("credentials are not given in the URL: they are AWS's, by its default chain".to_owned())
        }
        Some("http" | "https") if matches!(url.path(), "" | "/") && url.query().is_none() => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(form()),
    }
}

#[cfg(test)]
mod tests;
