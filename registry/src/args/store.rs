//! Flags of the store → the store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mcs_core::ids::Region;
use mcs_core::time::Clock;
use mcs_core::timing::{MAX_LEASE, Timing};
use mcs_runtime::args::duration;
use mcs_runtime::dynamodb::{self, Flags, Limits, RegionName, Settings};
use tracing::info;

use crate::Replication;
use crate::store::{DynamoDb, Memory, Store};

/// The table where no flag names one.
pub const DEFAULT_TABLE: &str = "global-discovery-mcs";

/// More often there is nothing new to read: what was changed is told at most every 250 ms.
const LEAST_REFRESH: Duration = Duration::from_millis(100);

/// A lease has at least so many refreshes, so that one which fails or is late is not all that is heard of others.
const REFRESHES_OF_A_LEASE: u32 = 6;

/// What messages call the flags.
const FLAGS: Flags = Flags { table: "--dynamodb-table", region: "--region", endpoint: "--dynamodb-endpoint" };

/// Flags of the store.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct StoreArgs {
    /// Where records are kept. `memory`: in one replica; after a restart the controllers bring everything back.
    /// `dynamodb`: in a table that any number of replicas share, in any number of regions
    #[arg(long, value_enum, default_value_t = Kind::Memory)]
    pub store: Kind,
    /// The table of `--store=dynamodb`; `mcs-admin create-table` makes one [default: global-discovery-mcs]
    #[arg(long, value_name = "NAME", value_parser = dynamodb::table_name)]
    pub dynamodb_table: Option<String>,
    /// The AWS region of the table, and by that the region that this replica is in. Unset, it is what AWS's own tools
    /// take: `AWS_REGION`, the profile, the metadata service of the machine
    #[arg(long, value_name = "REGION")]
    pub region: Option<RegionName>,
    /// Another endpoint of DynamoDB than that of the region, as for an emulator or a proxy
    #[arg(long, value_name = "URL", value_parser = dynamodb::endpoint)]
    pub dynamodb_endpoint: Option<String>,
    /// With `--store=dynamodb`, what other replicas changed is looked for this often. The default shows a change two
    /// seconds later elsewhere, and costs 900 read units an hour; `350ms` shows it within half a second. At most a sixth
    /// of the lease
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub refresh_interval: Duration,
    /// With `--store=dynamodb`, when all replicas of a region have fallen silent, its clusters are kept this much longer
    /// than their leases: regions that are cut off from each other look dead to each other. The default is longer than
    /// most such cuts last; a region that is truly gone is shown for as long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15m")]
    pub replication_grace: Duration,
}

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// In the memory of one replica.
    Memory,
    /// In a table of DynamoDB.
    #[value(name = "dynamodb")]
    DynamoDb,
}

impl StoreArgs {
    /// Looks at the flags, with the lease that some of them go by.
    pub(super) fn check(&self, lease: Duration) -> Result<(), String> {
        if self.replication_grace > MAX_LEASE {
            return Err(format!("--replication-grace must be at most {} hours", MAX_LEASE.as_secs() / 3_600));
        }
        if self.store == Kind::DynamoDb {
            return self.check_refresh(lease);
        }
        for (flag, is_given) in [
            ("dynamodb-table", self.dynamodb_table.is_some()),
            ("dynamodb-endpoint", self.dynamodb_endpoint.is_some()),
        ] {
            if is_given {
                return Err(format!(
                    "--{flag} goes with --store=dynamodb, and records would be kept in memory"
                ));
            }
        }
        Ok(())
    }

    fn check_refresh(&self, lease: Duration) -> Result<(), String> {
        if self.refresh_interval < LEAST_REFRESH {
            return Err(format!(
                "--refresh-interval must be at least {LEAST_REFRESH:?}: others tell what they changed at most every 250ms"
            ));
        }
        let most = lease / REFRESHES_OF_A_LEASE;
        if self.refresh_interval > most {
            return Err(format!(
                "--refresh-interval must be at most {most:?}, a sixth of --lease-duration: replicas read from each other \
                 who was heard"
            ));
        }
        Ok(())
    }

    /// How this replica and others keep up with each other.
    pub(super) fn replication(&self) -> Replication {
        let Self { region, refresh_interval, replication_grace, .. } = self;
        Replication {
            region: region.as_ref().and_then(label),
            refresh_interval: *refresh_interval,
            grace: *replication_grace,
        }
    }

    /// Opens the store; with the region that it is in, where that is known. Whether a table can be used is asked by who
    /// uses it: one that cannot keeps a registry from being ready, and does not end it.
    pub(super) async fn open(
        self,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<(Arc<dyn Store>, Option<Region>)> {
        let Self {
            store,
            dynamodb_table,
            region,
            dynamodb_endpoint,
            refresh_interval: _,
            replication_grace: _,
        } = self;
        if store == Kind::Memory {
            return Ok((Arc::new(Memory::default()), region.as_ref().and_then(label)));
        }
        let settings = Settings {
            table: dynamodb_table.unwrap_or_else(|| DEFAULT_TABLE.to_owned()),
            region: region.map(|region| region.to_string()),
            endpoint: dynamodb_endpoint,
            limits: Limits::within(timing.store_limit()),
            flags: FLAGS,
        };
        let client = settings.connect().await?;
        let place = client.place();
        let region =
            Region::new(place.region.as_str()).context("the region that AWS's configuration names")?;
        info!(table = place.table, %region, endpoint = place.endpoint, "records are kept in a table");
        Ok((Arc::new(DynamoDb::new(client, clock)), Some(region)))
    }
}

/// A region as clusters and replicas are labelled with it: each name of one is a label.
fn label(region: &RegionName) -> Option<Region> {
    Region::new(region.as_str()).ok()
}
