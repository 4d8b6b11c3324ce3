//! Several registries over one table of several regions, the clusters that they serve and those that import.
//!
//! The registries, outboxes, logs and views are the real ones; table, network and drivers are models. Every verdict, every
//! member that goes, every version and every endpoint that an importer drops is held against what truly happened.

mod actions;
mod checks;
mod importer;
mod notes;
mod owner;
mod process;
mod saving;
mod table;
mod world;

pub(crate) use world::run;
