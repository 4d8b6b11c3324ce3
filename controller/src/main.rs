//! The controller's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_controller::args::Args::parse().run()
}
