//! Flags of the store → the store.

use std::sync::Arc;

use anyhow::Context;
use mcs_core::ids::Region;
use mcs_core::time::Clock;
use mcs_core::timing::Timing;
use mcs_runtime::args::Check;
use mcs_runtime::dynamodb::{self, Flags, Limits, Settings};
use tracing::info;

use crate::store::{DynamoDb, Memory, Store};

/// The table where no flag names one.
const DEFAULT_TABLE: &str = "global-discovery-mcs";

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
    pub region: Option<Region>,
    /// Another endpoint of DynamoDB than that of the region, as for an emulator or a proxy
    #[arg(long, value_name = "URL", value_parser = dynamodb::endpoint)]
    pub dynamodb_endpoint: Option<String>,
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

impl Check for StoreArgs {
    fn check(&self) -> Result<(), String> {
        if self.store == Kind::DynamoDb {
            return Ok(());
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
}

impl StoreArgs {
    /// Opens the store; with the region that it is in, where that is known. Whether a table can be used is asked by who
    /// uses it: one that cannot keeps a registry from being ready, and does not end it.
    pub(super) async fn open(
        self,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<(Arc<dyn Store>, Option<Region>)> {
        let Self { store, dynamodb_table, region, dynamodb_endpoint } = self;
        if store == Kind::Memory {
            return Ok((Arc::new(Memory::default()), region));
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
