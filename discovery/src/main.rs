//! The Global Discovery Service: which pools exist in all clusters, and which routers a relay connects to.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcs_runtime::args::parse::<global_discovery_service::args::Args>(&mcs_runtime::args::GDS).run()
}
