//! Pools and router replicas by events: each test says what happened and compares the whole result.

#![expect(clippy::unwrap_used, reason = "builders of tests panic on bad texts of the tests")]

mod pools {
    pub(crate) mod build;
    mod cases;
    mod completeness;
    mod directory;
    mod index;
    mod join;
    mod naming;
    mod packed;
    mod registrations;
    mod stored;
    mod stored_histories;
    mod whole;
}
