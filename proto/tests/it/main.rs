//! What the wire promises: what is written reads back equal, whatever its size, and JSON has the form that is agreed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chunks;
#[expect(unreachable_pub, reason = "the fuzz targets use what is in it")]
mod hostile;
mod json;
mod model;
mod round_trip;
mod status;
