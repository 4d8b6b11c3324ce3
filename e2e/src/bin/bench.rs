//! `make bench`: runs benchmarks and prints the table and the verdicts of each.

use std::io::{Write, stdout};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use mcs_e2e::bench::{self, Name, Scale, crossing::Crossing};

/// Measures the programs against their goals, on this machine
#[derive(Parser)]
struct Args {
    /// Which; all when none is named
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Measures for a shorter time: for a first look, not for a verdict
    #[arg(long)]
    quick: bool,
    /// Changes a second in `crossing`; goal G2 is judged at 1
    #[arg(long, default_value_t = 1)]
    rate: u16,
    /// Changes in all in `crossing`
    #[arg(long, default_value_t = 120)]
    count: u16,
}

fn main() -> Result<()> {
    let Args { names, quick, rate, count } = Args::parse();
    let names = if names.is_empty() { Name::value_variants().to_vec() } else { names };
    let scale = if quick { Scale::QUICK } else { Scale::FULL };
    for name in names {
        let report = bench::run(name, Crossing { rate, count }, &scale)?;
        write!(stdout(), "{report}")?;
    }
    Ok(())
}
