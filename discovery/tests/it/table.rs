//! Registrations in a table of DynamoDB, by replicas in this process against a stand-in for it.

mod cost;
mod items;
mod outages;
mod program;
mod regions;
mod sharing;
mod start;
pub(crate) mod world;
