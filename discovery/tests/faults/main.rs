//! The program as it is shipped, under attack: an ordinary relay, watcher, router and probe notice nothing. What takes
//! minutes or thousands of connections is run by `make faults`, with numbers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod connections;
#[path = "../it/events.rs"]
mod events;
mod floods;
mod hostile;
mod oversize;
mod program;
#[path = "../it/service.rs"]
#[expect(dead_code, reason = "it is made for tests in process; these use what clients need")]
mod service;
mod slow;
mod tls;
mod watchers;
mod witness;
