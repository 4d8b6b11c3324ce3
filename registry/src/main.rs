//! The registry's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_registry::args::Args::parse().run()
}
