//! `mcs-admin`: what an operator asks about a clusterset, on the command line.
//!
//! [`args`] reads the command line and runs the subcommand; each subcommand has a file: [`describe`]. [`output`] is
//! what is printed: answers to standard output, everything else to standard error.

mod args;
mod describe;
mod output;

use mcs_runtime::args::{MCS, parse};
use std::process::ExitCode;

fn main() -> ExitCode {
    parse::<args::Args>(&MCS).run()
}
