//! The registry as its users meet it: in process through its own client and over REST, and as a program.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod documented;
#[expect(unreachable_pub, reason = "the fuzz targets use what is in it")]
mod hostile;
mod identified;
mod leases;
mod life;
mod limits;
mod logged;
mod metrics;
mod pages;
mod ports;
mod program;
mod rest;
mod stalls;
mod started;
mod store;
mod syncs;
mod tls;
mod watches;
mod writes;
