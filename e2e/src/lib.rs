//! Real Kubernetes control planes for tests, the demo and the benchmarks.
//!
//! Layout: [`assets`] finds the binaries, [`ports`] picks their ports, `process` runs one of them,
//! `credentials` makes keys, certificates and kubeconfigs, [`cluster`] joins these to a cluster that is ready,
//! [`node`] plays its scheduler and kubelets, [`apply`] brings YAML into it. For tests: [`shared`] has one
//! pair of clusters for a test binary, [`namespace`] a namespace of its own for each test, [`objects`] builders
//! for what they create, [`wait`] the only way to wait. Above them: [`programs`] runs our programs as users do,
//! [`stack`] a registry with a controller in each cluster and, by `permissions`, with what these may do there, [`peer`]
//! a member that has no cluster at all, [`in_process`] controllers that a test can end at any of their writes, by a
//! [`tap`] in their client, and [`relay`] what stands between them and a registry. On top: [`demo`]; [`conformance`],
//! which runs the suite of the MCS API; [`mod@bench`], which measures with [`crossing`].
//!
//! Apart from all that: [`kind`], which runs the programs in clusters with nodes, and [`workload`], what runs beside them there.
//!
//! Guarantees: no process outlives the one that started it, however that ended; clusters never share ports or
//! credentials, and those of different index no address ranges.

pub mod apply;
pub mod assets;
mod background;
pub mod bench;
pub mod cluster;
pub mod conformance;
mod credentials;
pub mod crossing;
pub mod demo;
mod directory;
pub mod in_process;
pub mod kind;
pub mod namespace;
pub mod node;
pub mod objects;
pub mod peer;
mod permissions;
pub mod ports;
mod process;
pub mod programs;
pub mod relay;
mod screen;
pub mod shared;
pub mod stack;
mod table;
pub mod tap;
pub mod wait;
pub mod workload;

pub use cluster::{Cluster, ClusterOptions};
pub use namespace::{TempNamespace, with_temp_ns};
pub use wait::{wait_at_most, wait_for};
