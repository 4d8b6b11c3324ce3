//! The table that registries share, as this program reaches it. The library of the registry reads and writes it: one place
//! knows its layout, at the price that this program holds transports which it never starts.

use aws_sdk_dynamodb::types::{TableDescription, TableStatus};
use mcs_registry::args::{DEFAULT_TABLE, Kind};
use mcs_registry::store::DynamoDb;
use mcs_runtime::args::Check;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::dynamodb::{self, Flags, Limits, NoClient, RegionName, Settings};
use std::sync::Arc;
use std::time::Duration;

/// A call may take so long: somebody waits for it, and nothing else does.
const LIMIT: Duration = Duration::from_secs(30);

const FLAGS: Flags = Flags { table: "--table", region: "--region", endpoint: "--endpoint" };

/// The flags of the store.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "The store, unless a registry is asked")]
pub(crate) struct StoreArgs {
    /// Where registries keep their records [default: dynamodb]. What is in `memory` is in a registry's process: ask that with
    /// --registry-url
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// The table [default: global-discovery-mcs]
    #[arg(long, value_name = "TABLE", value_parser = dynamodb::table_name)]
    table: Option<String>,
    /// The table's region, as in `us-east-1` [default: as AWS's tools find it, by AWS_REGION, the profile, or the machine]
    #[arg(long, value_name = "REGION")]
    region: Option<RegionName>,
    /// Another endpoint than that of AWS in the region, as in `http://localhost:8000`
    #[arg(long, value_name = "URL", value_parser = dynamodb::endpoint)]
    endpoint: Option<String>,
}

impl Check for StoreArgs {
    fn check(&self) -> Result<(), String> {
        match self.store {
            Some(Kind::Memory) => {
                Err("--store=memory is in a registry's process: ask that with --registry-url".to_owned())
            }
            Some(Kind::DynamoDb) | None => Ok(()),
        }
    }
}

impl StoreArgs {
    /// The records of registries, and where they are, for people.
    ///
    /// # Errors
    /// There is no region.
    pub(crate) async fn open(self) -> Result<(DynamoDb, String), NoClient> {
        let client = self.settings().connect().await?;
        let place = client.place().to_string();
        Ok((DynamoDb::new(client, Arc::new(SystemClock)), place))
    }

    /// How the table is reached.
    pub(crate) fn settings(self) -> Settings {
        let Self { store: _, table, region, endpoint } = self;
        Settings {
            table: table.unwrap_or_else(|| DEFAULT_TABLE.to_owned()),
            region: region.map(|region| region.to_string()),
            endpoint,
            limits: Limits::within(LIMIT),
            flags: FLAGS,
        }
    }
}

/// Whether a table takes changes of itself.
pub(crate) fn is_active(table: &TableDescription) -> bool {
    table.table_status() == Some(&TableStatus::Active)
}
