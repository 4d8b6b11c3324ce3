//! The store behind the registry: the suite that each store passes, and what the registry does while one fails.

mod double;
mod dynamodb;
mod long;
mod outages;
mod permissions;
mod recorded;
mod repairs;
mod replicas;
mod restarts;
mod shared;
mod stories;
mod suite;
mod tables;
mod world;

mod memory {
    use mcs_registry::store::Memory;

    super::suite::passes!(Memory::default());
}
