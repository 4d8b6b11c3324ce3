//! The Helm charts: what they render and refuse, that programs and API servers take it, and that documentation, flags and
//! permissions are in step with them. Apart from the tests of whole clusters, since most of this needs none.
//!
//! Layout: [`helm`] runs helm, [`chart`] knows the charts of this repository, [`laws`] holds what is true of whatever
//! they render, [`cases`] the table of values with what comes of each, [`goldens`] some renderings as a whole, [`flags`]
//! and [`readme`] the documentation, [`permissions`] the roles, [`manifest`] the discovery service without helm, [`server`] a real API server, [`monitoring`]
//! alerts and dashboards, by a real Prometheus, [`guides`] the commands, links and names in the guides.

mod cases;
mod chart;
mod flags;
mod goldens;
mod guides;
mod helm;
mod laws;
mod manifest;
mod monitoring;
mod permissions;
mod readme;
mod server;
