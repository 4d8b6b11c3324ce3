//! `mcs-admin`: what an operator asks about a clusterset, on the command line.
//!
//! [`args`] reads the command line and runs the subcommand; each subcommand has a file: `describe`. `output` is what is
//! printed: answers to standard output, everything else to standard error.

pub mod args;
mod describe;
mod output;
