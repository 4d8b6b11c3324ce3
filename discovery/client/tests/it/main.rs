//! The client against a server that a test plays: what it asks, and what it makes of answers that are late, cut off,
//! wrong or missing.

mod following;
mod polling;
mod registering;
mod server;
mod tls;
