//! `make bench`: runs one benchmark and prints its table.

use anyhow::Result;
use clap::{Parser, Subcommand};
use mcs_e2e::bench::Crossing;

/// Measures the whole system on local control planes
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// How long a change of an EndpointSlice takes from one cluster to another
    Crossing {
        /// Changes a second; goal G2 is judged at 1
        #[arg(long, default_value_t = 5)]
        rate: u16,
        /// Changes in all
        #[arg(long, default_value_t = 200)]
        count: u16,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Args::parse().benchmark {
        Benchmark::Crossing { rate, count } => Box::pin(Crossing { rate, count }.run()).await,
    }
}
