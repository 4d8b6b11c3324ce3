//! Flags of `--registration-storage=dynamodb` → a table.

use super::{DYNAMODB_HEADING, LeaseArgs, RegistrationStorage};
use crate::registrations::dynamodb::{CALL_LIMIT, Config};
use anyhow::Context;
use mcs_core::ids::Region;
use mcs_runtime::dynamodb::{self, Flags, Limits, Settings};
use std::time::Duration;

/// What messages call the flags.
const FLAGS: Flags =
    Flags { table: "--dynamodb-table", region: "--dynamodb-region", endpoint: "--dynamodb-endpoint" };

const DEFAULT_POLL: u64 = 2;
const DEFAULT_GRACE: u64 = 60;
const DEFAULT_SKEW: u64 = 2;

/// What `dynamodb` uses.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = DYNAMODB_HEADING)]
pub struct TableArgs {
    /// The table, with the string keys `pk` and `sk`; required
    #[arg(long, value_name = "NAME", value_parser = dynamodb::table_name)]
    pub dynamodb_table: Option<String>,
    /// The AWS region of the table, and by that the region that this replica writes through. Unset, it is what AWS's own
    /// tools take: `AWS_REGION`, the profile, the metadata service of the machine
    #[arg(long, value_name = "REGION")]
    pub dynamodb_region: Option<Region>,
    /// Another endpoint of DynamoDB than that of the region, as for an emulator or a proxy
    #[arg(long, value_name = "URL", value_parser = dynamodb::endpoint)]
    pub dynamodb_endpoint: Option<String>,
    /// Makes the table at the start where it is not, and has it delete what has expired; never replicas or recovery. For
    /// development: elsewhere a table is made once, and nobody else needs the permission [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub dynamodb_ensure_table: Option<bool>,
    /// How often the table is read, in seconds [default: 2]. What other replicas took is listed so much later; each read
    /// costs two read units and as much again for each 40 pools
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub dynamodb_poll_interval_secs: Option<u64>,
    /// How much longer pools are listed that were written through another region, in seconds [default: 60], while the list
    /// is not complete. The default is far above what replication takes, and bridges most cuts between regions
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub dynamodb_replication_grace_secs: Option<u64>,
    /// How far the clocks of two replicas may be apart, in seconds [default: 2]: leases are compared with the wall clock
    /// of whoever wrote them, and hold so much longer. The default is far above what NTP leaves
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub lease_skew_secs: Option<u64>,
}

impl TableArgs {
    /// Its flags, each with whether it was given.
    const fn given(&self) -> [(&'static str, bool); 7] {
        [
            ("--dynamodb-table", self.dynamodb_table.is_some()),
            ("--dynamodb-region", self.dynamodb_region.is_some()),
            ("--dynamodb-endpoint", self.dynamodb_endpoint.is_some()),
            ("--dynamodb-ensure-table", self.dynamodb_ensure_table.is_some()),
            ("--dynamodb-poll-interval-secs", self.dynamodb_poll_interval_secs.is_some()),
            ("--dynamodb-replication-grace-secs", self.dynamodb_replication_grace_secs.is_some()),
            ("--lease-skew-secs", self.lease_skew_secs.is_some()),
        ]
    }

    /// Looks at the flags, with the leases that they go by.
    pub(super) fn check(&self, storage: RegistrationStorage, leases: &LeaseArgs) -> Result<(), String> {
        if storage == RegistrationStorage::Memory {
            return match self.given().into_iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => {
                    Err(format!("{flag} is not used with --registration-storage={storage}; leave it out"))
                }
                None => Ok(()),
            };
        }
        if self.dynamodb_table.is_none() {
            return Err("--dynamodb-table is required with --registration-storage=dynamodb".to_owned());
        }
        let (poll, skew) = (self.poll_interval(), self.skew());
        let LeaseArgs { lease_duration_secs: lease, heartbeat_interval_secs: heartbeat, max_pools: _ } =
            leases;
        let longest = poll + Duration::from_secs(*heartbeat) * 3 / 2;
        if longest >= Duration::from_secs(*lease) + skew {
            return Err(format!(
                "--dynamodb-poll-interval-secs ({}) and one and a half times --heartbeat-interval-secs ({heartbeat}) \
                 must be below --lease-duration-secs ({lease}) and --lease-skew-secs ({}) together, or pools lapse \
                 before their next renewal is read",
                poll.as_secs(),
                skew.as_secs()
            ));
        }
        Ok(())
    }

    fn poll_interval(&self) -> Duration {
        Duration::from_secs(self.dynamodb_poll_interval_secs.unwrap_or(DEFAULT_POLL))
    }

    fn skew(&self) -> Duration {
        Duration::from_secs(self.lease_skew_secs.unwrap_or(DEFAULT_SKEW))
    }

    /// The table. No call is made to it.
    pub(super) async fn connect(self) -> anyhow::Result<Config> {
        let (poll_interval, skew) = (self.poll_interval(), self.skew());
        let Self {
            dynamodb_table,
            dynamodb_region,
            dynamodb_endpoint,
            dynamodb_ensure_table,
            dynamodb_poll_interval_secs: _,
            dynamodb_replication_grace_secs,
            lease_skew_secs: _,
        } = self;
        let settings = Settings {
            table: dynamodb_table.context("--dynamodb-table is required")?,
            region: dynamodb_region.map(|region| region.to_string()),
            endpoint: dynamodb_endpoint,
            limits: Limits::within(CALL_LIMIT),
            flags: FLAGS,
        };
        let client = settings.connect().await?;
        let place = client.place();
        let region =
            Region::new(place.region.as_str()).context("the region that AWS's configuration names")?;
        tracing::info!(table = place.table, %region, endpoint = place.endpoint, "registrations are kept in a table");
        Ok(Config {
            region,
            ensure_table: dynamodb_ensure_table.unwrap_or_default(),
            poll_interval,
            grace: Duration::from_secs(dynamodb_replication_grace_secs.unwrap_or(DEFAULT_GRACE)),
            skew,
            client,
        })
    }
}
