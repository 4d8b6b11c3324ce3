//! The decisions of the multi-cluster service platform.
//!
//! The four programs feed events in, and carry out what comes out; what is decided is decided here. Four rules hold for
//! every module:
//!
//! 1. no `async`, no clock, no I/O: time ([`time::Timestamp`]) and randomness are arguments;
//! 2. a machine names its next deadline (`poll_timeout`) and is told when it has come (`handle_timeout`);
//! 3. what iterates is ordered, so that equal input gives equal output in every process;
//! 4. incomplete knowledge never deletes.
//!
//! ```text
//!  member cluster                  registry                          importing cluster
//!  objects ─► outbox ──Write/Sync──► registry ─► merge ─► log ──Watch──► view ─► plan ─► API writes
//!             (versions, sum)       (leases, wholeness)              (what may go)  (ordered steps)
//! ```
//!
//! | module | decides |
//! |---|---|
//! | [`ids`], [`names`], [`limits`], [`validate`] | what a name, label, count and endpoint may be |
//! | [`text`] | how texts from outside are shown |
//! | [`time`], [`timing`], [`lease`] | deadlines: every duration in one table, every comparison at one place |
//! | [`rate`], [`backoff`] | how often something may happen; how long to wait before the next try |
//! | [`model`], [`version`] | what is exported and imported; which of two statements is newer; what differs |
//! | [`merge`] | exports of one Service → one import and its conflicts |
//! | [`registry`], [`log`], [`watch`] | members, leases, wholeness; the state log and those who follow it |
//! | [`outbox`] | what a controller still has to tell its registry |
//! | [`failover`] | which of several registries a controller talks to |
//! | [`view`] | what an importing controller may believe, show and delete |
//! | [`plan`] | wanted import + what exists → ordered steps |
//! | [`conditions`] | facts of a ServiceExport → its conditions |
//! | [`election`] | who leads, and until when it may write |
//! | [`pools`] | slice facts and registrations → pools and router replicas |

// What decides looks at every variant, so that a new one is not decided by chance.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod backoff;
pub mod conditions;
pub mod election;
pub mod failover;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod log;
pub mod merge;
pub mod model;
pub mod names;
pub mod outbox;
mod packing;
pub mod plan;
pub mod pools;
pub mod rate;
pub mod registry;
pub mod replicas;
pub mod text;
pub mod time;
pub mod timing;
pub mod validate;
pub mod version;
pub mod view;
pub mod watch;
