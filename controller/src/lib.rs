//! The controller of a member cluster: exports its Services to a registry, writes what the clusterset exports.
//!
//! What is decided is decided in `mcs-core`; this crate watches objects, turns them into facts, carries out the steps
//! and the calls that the decisions ask for, and holds the leadership without which it writes nothing.
//!
//! | module | does |
//! |---|---|
//! | [`args`], `config` | flags → who this controller is and how it works |
//! | [`wiring`] | the parts and how they are put together |
//! | `discover`, `served`, `identity`, `families` | what must be known of the cluster before it can start; the schema of its CRDs; its ids and region; its address families |
//! | [`leader`], `lead` | who leads, by a Lease; what acts while this controller does |
//! | `watch`, `index`, `queue` | the watches; the objects as they were told last; the keys to look at |
//! | `facts`, [`api`], [`crds`] | objects ↔ facts; the custom resources, and their definitions |
//! | `exports`, `labels` | reconciles ServiceExports, and makes those that a label asks for |
//! | `imports`, `writes` | carries out the plan of an import; every write to the API server |
//! | `session`, `subscription` | the calls to a registry; its watch, which feeds the view |
//! | [`leave`] | takes the cluster out, with all that was made of it |
//! | `pace` | how often an import is written |
//! | `failures` | what the log says of exports and imports that fail |
//! | `pages` | lists that are read once |
//! | `events`, `metrics` | what people and Prometheus are told |

pub mod api;
pub mod args;
mod config;
pub mod crds;
mod discover;
mod events;
mod exports;
mod facts;
mod failures;
mod families;
#[cfg(any(test, fuzzing))]
mod hostile;
mod identity;
mod imports;
mod index;
mod labels;
mod lead;
pub mod leader;
pub mod leave;
mod metrics;
mod pace;
mod pages;
mod queue;
mod served;
mod session;
mod subscription;
mod watch;
pub mod wiring;
mod writes;

/// Plays objects of an API server, as the fuzz target does.
#[cfg(fuzzing)]
pub fn play_objects(text: &str) {
    hostile::play(text);
}
