//! Where registrations are kept: the one place that knows which storage there is.

use crate::driver::Driver;
use mcs_core::pools::directory::Full;
use mcs_core::pools::storage::Storage as Machine;
use mcs_core::pools::{Lease, PoolRegistration};
use mcs_core::time::Timestamp;
use std::sync::Arc;

pub mod dynamodb;

/// Where registrations are kept.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In this process.
    Memory,
    /// In a table of DynamoDB.
    DynamoDb(dynamodb::Config),
}

impl Storage {
    /// What decides about them.
    pub(crate) fn machine(&self, lease: Lease, now: Timestamp) -> Machine {
        match self {
            Self::Memory => Machine::memory(lease, now),
            Self::DynamoDb(config) => Machine::table(config.settings(lease)),
        }
    }
}

/// Takes registrations. Cheap to clone.
#[derive(Clone)]
pub enum Registrar {
    /// Into the memory of this process.
    Memory(Arc<Driver>),
    /// Into a table of DynamoDB.
    DynamoDb(Arc<dynamodb::Table>),
}

/// What a relay is told of a table that did not take its registration: nothing of tables and accounts, which the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Nothing came in time.
    #[error("does not answer in time")]
    TimedOut,
    /// There is no connection.
    #[error("cannot be reached")]
    Away,
    /// It is asked too much.
    #[error("takes no more at the moment")]
    Throttled,
    /// It takes none from this service.
    #[error("refuses the service, whose log says why")]
    Refused,
    /// The call ended before it was over.
    #[error("was not asked to its end")]
    Unasked,
}

/// Why a registration was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The store did not take it; why is in the log.
    #[error("the registration is not kept, register again on the next heartbeat: the table {0}")]
    Store(StoreFault),
    /// There are as many pools as there may be.
    #[error("{} pools are registered, the most that there may be (--max-pools): those that are go on", .0.most)]
    Full(#[from] Full),
    /// The store takes none of this size.
    #[error(
        "the registration has {bytes} bytes as it is stored, and the store takes at most {most}: shorten its lists"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is taken.
        most: usize,
    },
}

impl Registrar {
    /// Registers a pool or renews its lease.
    ///
    /// # Errors
    /// The storage does not take it.
    pub async fn register(&self, registration: PoolRegistration) -> Result<(), NotKept> {
        match self {
            Self::Memory(driver) => Ok(driver.register(registration)?),
            Self::DynamoDb(table) => table.register(registration).await,
        }
    }
}
