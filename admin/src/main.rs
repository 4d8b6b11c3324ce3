//! The program of the command line; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_admin::args::Args::parse().run()
}
