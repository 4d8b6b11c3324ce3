//! `mcs-admin`: what an operator asks about a clusterset and does to it, on the command line.
//!
//! [`args`] reads the command line and runs the subcommand; each subcommand has a file: `check`, `create`
//! (`create-table`), `describe`, `remove` (`delete-cluster`). `ask` finds the registry that answers, `store` opens the table, `confirm` asks the person, `output` is what is printed:
//! answers to standard output, everything else to standard error.

pub mod args;
mod ask;
mod check;
mod confirm;
mod create;
mod describe;
mod output;
mod remove;
mod store;
