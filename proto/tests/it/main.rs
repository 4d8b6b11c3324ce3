//! What the wire promises: what is written reads back equal, whatever its size, and JSON has the form that is agreed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chunks;
mod json;
mod model;
mod round_trip;
mod status;
