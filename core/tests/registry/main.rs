//! The registry's state machine, by events: calls go in, and what watchers are told is compared whole.
//!
//! After every step the fixture checks that replaying the log gives the lists, that sums and counts are fresh, that revisions
//! rise by one, and that the headers are the merge of what the whole members export.

mod acts;
mod counts;
mod fixture;
mod hold;
mod identity;
mod kept;
mod learn;
mod leases;
mod order;
mod repairs;
mod replicas;
mod restart;
mod store;
mod sync;
mod watches;
