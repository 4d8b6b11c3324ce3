//! Which slice holds which endpoint: an endpoint's slot stays while it lives.
//!
//! Slices are numbered by slot. Guarantees: an endpoint that stays, stays in its slot; new ones fill the lowest free
//! places, so that few endpoints are in one slice; no slice holds more than [`SLICE_ENDPOINTS`], and none is empty.
//! So a change rewrites only the slices that it touches, and a slice that goes renames no other.
//!
//! Rejected: closing gaps by moving endpoints. It would rewrite slices of endpoints that did not change, and let an
//! endpoint be missing while it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most endpoints of one slice, as many as Kubernetes' own controller puts there; its limit is 1,000.
pub const SLICE_ENDPOINTS: usize = 100;

/// The members of each slot.
pub type Slots = BTreeMap<u32, BTreeSet<IpAddr>>;

/// Shares `wanted` out to slots, given the slices of one source and group that exist. A slot in `blocked` takes none:
/// its name belongs to an object that must not be written. An address in two slots stays in the lower one.
pub fn assign(existing: &Slots, blocked: &BTreeSet<u32>, wanted: impl IntoIterator<Item = IpAddr>) -> Slots {
    let mut waiting: BTreeSet<IpAddr> = wanted.into_iter().collect();
    let mut slots = Slots::new();
    for (slot, members) in existing {
        if blocked.contains(slot) {
            continue;
        }
        let staying = members.iter().filter(|address| waiting.contains(*address)).take(SLICE_ENDPOINTS);
        let staying: BTreeSet<IpAddr> = staying.copied().collect();
        for address in &staying {
            waiting.remove(address);
        }
        if !staying.is_empty() {
            slots.insert(*slot, staying);
        }
    }
    let mut waiting = waiting.into_iter().peekable();
    for slot in (0..).filter(|slot| !blocked.contains(slot)) {
        if waiting.peek().is_none() {
            break;
        }
        let members = slots.entry(slot).or_default();
        let places = SLICE_ENDPOINTS.saturating_sub(members.len());
        members.extend(waiting.by_ref().take(places));
    }
    slots
}
