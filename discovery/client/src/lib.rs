//! A client of the Global Discovery Service for relays and routers.
//!
//! A relay keeps its pool registered and follows the router replicas; a router follows the pools:
//!
//! ```no_run
//! # async fn example(clock: std::sync::Arc<dyn mcs_core::time::Clock>, pool: global_discovery_client::PoolRegistration)
//! # -> Result<(), global_discovery_client::BadSettings> {
//! use global_discovery_client::{Client, How, RouterReplica, Settings};
//! let urls = ["https://discovery.east.example:8080", "https://discovery.west.example:8080"];
//! let client = Client::new(&Settings::of(urls), clock)?;
//! let registered = client.keep_registered(pool); // until it is dropped
//! let mut routers = client.follow::<RouterReplica>(How::Watch);
//! routers.changed().await;
//! for router in routers.read().items() {
//!     println!("{} is at {}", router.id, router.url);
//! }
//! # drop(registered); Ok(()) }
//! ```
//!
//! What is decided is decided without I/O, with time and jitter as arguments:
//!
//! | module | decides |
//! |---|---|
//! | [`known`] | what is known of a list: a complete one replaces, an incomplete one only adds |
//! | [`feed`], [`sse`] | bytes of a watch → events, or why they are none |
//! | [`replicas`] | which of several URLs is asked, and when one that failed is asked again |
//! | [`heartbeat`] | when a pool is registered again |
//!
//! and carried out by the rest: [`api`] (the JSON), [`client`] (one call), `connect` and [`tls`] (a connection),
//! [`register`] and [`follow`] (the two tasks).
//!
//! Guarantees: nothing that fails changes what is known (an answer counts when all of it was read, an event when it has
//! ended); an empty body or a missing list is an error and never "none"; only a complete list forgets; each URL is
//! judged by what came of its calls, and an earlier one is returned to.
//!
//! Rejected: HTTP/2 (what is between a relay and the service speaks HTTP/1.1 for certain, and one stream and one
//! heartbeat do not need more than two connections); a client generated from the OpenAPI document (it has no watch, no
//! merge and no failover, which are all that is difficult).

pub mod api;
pub mod client;
mod connect;
pub mod feed;
pub mod follow;
pub mod heartbeat;
pub mod known;
pub mod register;
pub mod replicas;
pub mod sse;
pub mod tls;

pub use api::{Capacity, Lease, List, Location, PoolKey, PoolListing, PoolRegistration, RouterReplica};
pub use client::{BadSettings, Client, Failed, Fetched, Settings};
pub use follow::{Followed, How};
pub use known::Known;
pub use register::{KeptRegistered, Standing, State};
pub use tls::TlsFiles;
