//! Endpoint sets above what one message may carry.
//!
//! gRPC's default limit is 4 MiB a message, on both ends. A set is therefore split into chunks of less than
//! [`CHUNK_BYTES`] that follow each other in one stream, all but the last with `more` set; a reader has the set when
//! the last one is there, so no half of a set is ever seen. Everything else that is sent is packed by the same measure.

use crate::convert::{empty_group, endpoint, read_endpoints};
use crate::pb;
use mcs_core::limits::MAX_ENDPOINTS;
use mcs_core::model::{EndpointMap, EndpointSet, Group};
use mcs_core::validate::{Dropped, Refusal};
use prost::Message;

/// The most bytes of a chunk or of a packed message: a quarter of the default limit, so that what is around it fits
/// too.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Tag and length of an element of a list, at most.
const ELEMENT_OVERHEAD: usize = 6;

/// A set with more endpoints is refused as it is read; below, [`mcs_core::validate::check_endpoints`] decides.
const MAX_READ: usize = 2 * MAX_ENDPOINTS;

/// The most changes of one write: their results are one message.
pub const MAX_CHANGES: usize = 10_000;

/// At most this many left out endpoints are named for one set, or in the answer to one call; the rest goes unnamed.
pub const MAX_DROPPED: usize = 100;

/// A set as messages: at least one, each below [`CHUNK_BYTES`], all but the last with `more`.
pub fn split(endpoints: &EndpointSet) -> Vec<pb::EndpointSet> {
    let mut chunks = Vec::new();
    let mut chunk = pb::EndpointSet::default();
    let mut bytes = 0;
    for Group { key, members, .. } in endpoints.groups() {
        let empty = empty_group(&key);
        let head = empty.encoded_len() + ELEMENT_OVERHEAD;
        let mut group = empty.clone();
        bytes += head;
        for (address, member) in members {
            let member = endpoint(address, member);
            let size = member.encoded_len() + ELEMENT_OVERHEAD;
            if bytes + size > CHUNK_BYTES && !group.endpoints.is_empty() {
                chunk.groups.push(std::mem::replace(&mut group, empty.clone()));
                chunks.push(pb::EndpointSet { groups: std::mem::take(&mut chunk.groups), more: true });
                bytes = head;
            }
            bytes += size;
            group.endpoints.push(member);
        }
        chunk.groups.push(group);
    }
    chunks.push(chunk);
    chunks
}

/// Packs messages into lists of less than [`CHUNK_BYTES`] each, in order; a message above that is alone in its list.
pub fn pack<M: Message>(messages: impl IntoIterator<Item = M>) -> Vec<Vec<M>> {
    let mut packed: Vec<Vec<M>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let size = message.encoded_len() + ELEMENT_OVERHEAD;
        match packed.last_mut() {
            Some(last) if bytes + size <= CHUNK_BYTES => {
                bytes += size;
                last.push(message);
            }
            _ => {
                bytes = size;
                packed.push(vec![message]);
            }
        }
    }
    packed
}

/// Puts the chunks of one set together.
#[derive(Debug, Default)]
pub struct SetReader {
    endpoints: EndpointMap,
    dropped: Vec<Dropped>,
    refused: Option<Refusal>,
}

impl SetReader {
    /// Takes a chunk; true when the set is told. What cannot be read refuses the set, but its chunks are still taken,
    /// so that what follows in the stream is understood.
    pub fn push(&mut self, chunk: Option<pb::EndpointSet>) -> bool {
        let chunk = chunk.unwrap_or_default();
        let last = !chunk.more;
        if self.refused.is_none() {
            self.refused = self.take(chunk).err();
        }
        last
    }

    fn take(&mut self, chunk: pb::EndpointSet) -> Result<(), Refusal> {
        read_endpoints(chunk, &mut self.endpoints, &mut self.dropped)?;
        if self.endpoints.len() > MAX_READ {
            self.endpoints = EndpointMap::default();
            let problem = format!("has more than {MAX_READ} endpoints; at most {MAX_ENDPOINTS} are kept");
            return Err(Refusal::new("endpoints", problem));
        }
        Ok(())
    }

    /// The set, and what was left out of it.
    ///
    /// # Errors
    /// What makes the whole set unreadable.
    pub fn finish(self) -> Result<(EndpointSet, Vec<Dropped>), Refusal> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok((self.endpoints.pack(), self.dropped)),
        }
    }
}
