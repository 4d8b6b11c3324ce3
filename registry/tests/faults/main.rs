//! The program as it is shipped, under attack: what is told to nobody else is lost, and an ordinary client notices
//! nothing. What takes minutes or ten thousand connections is run by `make faults`, with numbers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod connections;
mod floods;
mod hostile;
mod oversize;
mod program;
mod replicas;
mod slow;
#[path = "../it/started.rs"]
#[expect(dead_code, reason = "it is made for tests in process; these use what clients need")]
mod started;
mod stopped;
mod tls;
mod witness;
