//! Endpoints as they are stored: a sequence of endpoints, cut where its content says so.
//!
//! An endpoint that comes, goes or changes changes one piece, or two: where a piece ends depends on the addresses
//! beside it and not on what came before, so that all other pieces stay what they are, under the key that is their
//! content. A group that is cut goes on in the next piece without being named again: the ports of a group may take more
//! room than a piece has, and must not be in each of them.
//!
//! The pieces of a set are, one after the other, one [`pb::EndpointSet`], in which a group without family goes on with
//! the one before.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use mcs_core::model::{EndpointMap, EndpointSet, Group};
use mcs_proto::convert::{empty_group, endpoint, read_endpoints};
use mcs_proto::pb;
use prost::Message;
use sha2::{Digest as _, Sha256};

use super::codec::Unreadable;

/// Endpoints of at most so many bytes lie in the item of their export: about a hundred of them, which then cost one write
/// and one read with it.
pub(super) const INLINE: usize = 8 * 1024;

/// A piece of fewer bytes is not ended, or a small change would end many.
const LEAST: usize = 4 * 1024;

/// A piece has no more bytes than this, unless a single group or endpoint has. A write costs by the piece.
pub(super) const MOST: usize = 30 * 1024;

/// A piece ends where the highest bits of an address's hash are none: above [`LEAST`] at one address of 64, so that
/// pieces have about 8 KB. Smaller ones would cost more in the list that names them than they save.
const ENDS: u32 = 6;

/// After so many pieces they end for their size alone: whoever picks the addresses cannot make the list that names them
/// larger than an item may be. Sets that are that large have about 16 MB.
const MANY: usize = 2_000;

/// Tag and length of an element of a list, at most.
const ELEMENT: usize = 6;

/// What a piece is called: the first half of the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest(pub(super) [u8; 16]);

impl Digest {
    /// The name of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(bytes).into();
        Self(std::array::from_fn(|place| hash[place]))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Cuts a set into pieces. One set gives the same pieces in every process of a release.
pub(super) fn cut(set: &EndpointSet) -> Vec<Vec<u8>> {
    let mut cutter = Cutter::default();
    for Group { key, members, .. } in set.groups() {
        cutter.group(empty_group(&key));
        for (address, member) in members {
            cutter.endpoint(address, endpoint(address, member));
        }
    }
    cutter.end_piece();
    cutter.pieces
}

/// The pieces of a set by their names.
pub(super) fn named(pieces: Vec<Vec<u8>>) -> Vec<(Digest, Vec<u8>)> {
    pieces.into_iter().map(|piece| (Digest::of(&piece), piece)).collect()
}

#[derive(Default)]
struct Cutter {
    pieces: Vec<Vec<u8>>,
    open: pb::EndpointSet,
    bytes: usize,
}

impl Cutter {
    fn group(&mut self, head: pb::EndpointGroup) {
        let size = head.encoded_len() + ELEMENT;
        if self.bytes + size > MOST {
            self.end_piece();
        }
        self.bytes += size;
        self.open.groups.push(head);
    }

    fn endpoint(&mut self, address: IpAddr, endpoint: pb::Endpoint) {
        let size = endpoint.encoded_len() + ELEMENT;
        if self.bytes + size > MOST || self.may_end() && ends_before(address) {
            self.end_piece();
        }
        self.bytes += size;
        match self.open.groups.last_mut() {
            Some(group) => group.endpoints.push(endpoint),
            None => {
                self.open.groups.push(pb::EndpointGroup { endpoints: vec![endpoint], ..Default::default() });
            }
        }
    }

    const fn may_end(&self) -> bool {
        self.bytes >= LEAST && self.pieces.len() < MANY
    }

    fn end_piece(&mut self) {
        let piece = std::mem::take(&mut self.open);
        self.bytes = 0;
        if !piece.groups.is_empty() {
            self.pieces.push(piece.encode_to_vec());
        }
    }
}

/// Whether a piece ends before this address: Fibonacci hashing, which spreads addresses that follow each other evenly.
fn ends_before(address: IpAddr) -> bool {
    let folded = match address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let [.., a, b, c, d, e, f, g, h] = address.octets();
            u64::from_be_bytes([a, b, c, d, e, f, g, h])
        }
    };
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENDS) == 0
}

/// Puts a set together from all of its pieces, in their order.
pub(super) fn join<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<EndpointSet, Unreadable> {
    let (mut endpoints, mut unread) = (EndpointMap::default(), Vec::new());
    let mut open: Option<pb::EndpointGroup> = None;
    for piece in pieces {
        let mut piece = pb::EndpointSet::decode(piece)?;
        for group in &mut piece.groups {
            if group.family == pb::IpFamily::Unspecified as i32 {
                let before = open.as_ref().ok_or(Unreadable::Headless)?;
                group.family = before.family;
                group.ports.clone_from(&before.ports);
            } else {
                let (family, ports) = (group.family, group.ports.clone());
                open = Some(pb::EndpointGroup { family, ports, endpoints: Vec::new() });
            }
        }
        read_endpoints(piece, &mut endpoints, &mut unread)?;
    }
    match unread.first() {
        None => Ok(endpoints.pack()),
        Some(_) => Err(Unreadable::Endpoint),
    }
}

/// The pieces of a set that is held, to be found by their names.
pub(super) fn index(set: &EndpointSet) -> BTreeMap<Digest, Vec<u8>> {
    named(cut(set)).into_iter().collect()
}

#[cfg(test)]
mod tests;
