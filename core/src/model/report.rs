//! What a cluster tells of itself with its renewals. No decision depends on it: it is for people to see.

use crate::ids::ServiceKey;
use crate::validate::Refusal;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it cannot import yet.
    pub held_imports: HeldImports,
    /// What it cannot export.
    pub refused_exports: RefusedExports,
}

/// The imports of one cluster that wait for their namespace there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldImports {
    /// How many there are.
    pub total: u32,
    /// The first of them by key, at most [`MAX_HELD_NAMED`](crate::limits::MAX_HELD_NAMED).
    pub first: Vec<ServiceKey>,
}

/// The exports of one cluster that registries refuse as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedExports {
    /// How many there are.
    pub total: u32,
    /// The first of them by key, at most [`MAX_REFUSED_NAMED`](crate::limits::MAX_REFUSED_NAMED), with the reasons.
    pub first: Vec<(ServiceKey, Refusal)>,
}
