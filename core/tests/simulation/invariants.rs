//! What holds after every event. Each function checks one invariant of the protocol, and panics where it is broken.

mod importer;
mod registry;

pub(crate) use importer::*;
pub(crate) use registry::*;
