//! The controller's parts against checked-in facts and a mocked API server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod crds;
mod documented;
mod leader;
mod lease_server;
mod metrics;
mod rbac;
mod startup;
mod troubleshooting;
