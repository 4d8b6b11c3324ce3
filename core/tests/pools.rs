//! Pools and router replicas by events: each test says what happened and compares the whole result.

mod pools {
    pub(crate) mod build;
    mod completeness;
    mod directory;
    mod index;
    mod join;
    mod naming;
    mod registrations;
}
