//! The controller of a member cluster: exports its Services to a registry, writes what the clusterset exports.
//!
//! What is decided is decided in `mcs-core`; this crate watches objects, turns them into facts, carries out the steps
//! and the calls that the decisions ask for, and holds the leadership without which it writes nothing.

pub mod api;
pub mod args;
mod config;
pub mod crds;
mod discover;
mod events;
mod exports;
mod facts;
mod imports;
mod index;
mod labels;
mod lead;
pub mod leader;
mod metrics;
mod queue;
mod session;
mod subscription;
pub mod wiring;
mod writes;
