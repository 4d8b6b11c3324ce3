//! Tests that need real API servers. They share one pair of clusters, see `mcs_e2e::shared`.

mod bench;
mod conditions;
mod configuration;
mod controlplane;
mod crash;
mod crds;
mod digest;
mod discovery;
mod exports;
mod faults;
mod flapping;
mod identity;
mod imports;
mod labels;
mod leaving;
mod lifecycle;
mod merge;
mod names;
mod outages;
mod path;
mod permissions;
mod programs;
mod registries;
mod support;
mod witness;
