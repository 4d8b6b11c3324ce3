//! Benchmarks: each measures one goal, prints a table of goal, floor, peer, ours and ratio, and says of the goal
//! whether it is met.
//!
//! | module | does |
//! |---|---|
//! | [`g1`], [`crossing`] (G2), [`g3`], [`g4`], [`g5`], [`g6`], [`g7`], [`g8`], [`g9`], [`g10`], [`g11`], [`g12`], [`g13`] | the benchmarks |
//! | [`schedule`] | when changes are due: open loop |
//! | [`stats`] | times, medians of ratios, blocks that take turns |
//! | [`compare`] | three systems under one load |
//! | [`hop`] | makes changes and looks for them at all watchers |
//! | [`ours`], [`etcd`], [`floor`] | the systems that are compared: our registry, the peer, and what the machine needs |
//! | [`shared`] | registries over one table |
//! | [`model`], [`fleet`] | a controller without an API server, and one for each of many clusters |
//! | [`wire`] | the watchers' end of a stream |
//! | [`population`] | what is exported meanwhile |
//! | [`exporters`] | members that a controller imports from |
//! | [`pools`] | the discovery service, and the pools registered with it |
//! | [`requests`], [`plain`], [`peers`] | the clients' end of HTTP, its floor, and servers of others |
//! | [`machine`] | cores, memory, load |
//! | [`report`] | the table and the verdicts |
//!
//! What is measured and what it is compared with take turns in blocks, so that a load that comes and goes falls on
//! both; the ratio of two neighbouring blocks says more than either number. Every number is that of a client: what a
//! server says of itself is not asked for.

pub mod compare;
pub mod crossing;
pub mod etcd;
pub mod exporters;
pub mod fleet;
pub mod floor;
pub mod g1;
pub mod g10;
pub mod g11;
pub mod g12;
pub mod g13;
pub mod g3;
pub mod g4;
pub mod g5;
pub mod g6;
pub mod g7;
pub mod g8;
pub mod g9;
pub mod hop;
pub mod machine;
pub mod model;
pub mod ours;
pub mod peers;
pub mod plain;
pub mod pools;
pub mod population;
pub mod report;
pub mod requests;
pub mod schedule;
pub mod shared;
pub mod stats;
pub mod wire;

use std::{
    io::{Write, stdout},
    time::Duration,
};

use anyhow::Result;
use clap::ValueEnum;

use crossing::Crossing;
use mcs_core::timing::DEFAULT_LEASE;
use report::Report;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Pairs of blocks.
    pub pairs: u16,
    /// How long a block is.
    pub block: Duration,
    /// How long changes are made before the first that counts.
    pub warm_up: Duration,
    /// How long a process is left alone before its memory is measured.
    pub quiet: Duration,
    /// The registry's lease where leases are waited for.
    pub lease: Duration,
    /// Clusters and watchers are divided by this.
    pub divisor: usize,
}

impl Scale {
    /// What goals are judged by.
    pub const FULL: Self = Self {
        pairs: 5,
        block: Duration::from_secs(30),
        warm_up: Duration::from_secs(10),
        quiet: Duration::from_secs(10),
        lease: DEFAULT_LEASE,
        divisor: 1,
    };
    /// For a first look: the same load for a shorter time.
    pub const QUICK: Self = Self {
        pairs: 3,
        block: Duration::from_secs(5),
        warm_up: Duration::from_secs(2),
        quiet: Duration::from_secs(3),
        lease: DEFAULT_LEASE,
        divisor: 1,
    };
    /// For tests of the benchmarks themselves: what it measures says nothing.
    pub const TINY: Self = Self {
        pairs: 1,
        block: Duration::from_millis(200),
        warm_up: Duration::from_millis(50),
        quiet: Duration::from_millis(50),
        lease: Duration::from_secs(3),
        divisor: 50,
    };

    /// How long the floor is measured in each pair: it varies less than what stands on it.
    pub fn floor_block(&self) -> Duration {
        self.block / 5
    }
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The registry's hop, from a write to the event at every watcher
    G1,
    /// The registry is killed and restarted: what is deleted, and how soon all is as before
    G5,
    /// Many watchers: a large change, many changes, and watchers that read nothing
    G6,
    /// The memory that endpoints take, and what idle clusters cost
    G7,
    /// How many registrations of pools one core takes
    G8,
    /// The memory that pools take, and lists of them that are being read
    G9,
    /// How long the list of pools takes to its last byte
    G10,
    /// What registries over one table cost, idle and under changes, and what that grows with
    G11,
    /// How soon a change is seen at another replica, and what looking for it costs
    G12,
    /// How soon the discovery service says that its view is old, and that it is not any more
    G13,
    // Those with clusters are last, since these stay until the process ends.
    /// From an EndpointSlice in one cluster to that in another
    #[value(alias = "g2")]
    Crossing,
    /// How many slices one controller updates
    G3,
    /// Many slices at once that a controller has never seen, and its restart
    G4,
}

/// Runs one benchmark; `crossing` says how that one is measured.
///
/// # Errors
/// It could not be measured.
pub fn run(name: Name, crossing: Crossing, scale: &Scale) -> Result<Report> {
    machine::raise_file_limit()?;
    match name {
        Name::G1 => g1::run(scale),
        Name::G5 => g5::run(scale),
        Name::G6 => g6::run(scale),
        Name::G7 => g7::run(scale),
        Name::G8 => g8::run(scale),
        Name::G9 => g9::run(scale),
        Name::G10 => g10::run(scale),
        Name::G11 => g11::run(scale),
        Name::G12 => g12::run(scale),
        Name::G13 => g13::run(scale),
        Name::Crossing => crossing.run(scale),
        Name::G3 => g3::run(scale),
        Name::G4 => g4::run(scale),
    }
}

/// Says what goes on; a table that cannot be printed fails later.
fn progress(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}
