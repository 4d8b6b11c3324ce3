//! The controller's parts against checked-in facts and a mocked API server.

mod crds;
