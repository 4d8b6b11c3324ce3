//! The service as its clients see it: in one process over HTTP with a clock that the test moves, against a stand-in
//! for the API server, and as a program with flags and signals.

#![expect(clippy::unwrap_used, reason = "a test fails where its own set-up does")]

mod answers;
mod bodies;
mod client;
mod document;
mod documented;
mod drain;
mod events;
mod flags;
#[expect(unreachable_pub, reason = "the fuzz target uses what is in it")]
mod hostile;
mod karmada;
mod lists;
mod objects;
mod outages;
mod program;
mod service;
mod slices;
mod sources;
mod streams;
mod table;
mod tags;
mod tls;
mod watch;
