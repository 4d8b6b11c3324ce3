//! Steps of a watch that are encoded once, however many watchers they are sent to.
//!
//! The generated server would encode each message for each stream. It is made with [`EncodedStep`] in the place of
//! [`pb::WatchResponse`]; on the wire the two are the same.

use crate::pb;
use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};
use std::sync::Arc;

/// A [`pb::WatchResponse`] as its bytes; cloning it copies nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedStep(Arc<[u8]>);

impl EncodedStep {
    /// How many bytes the step has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The step, for a transport that does not send these bytes.
    ///
    /// # Errors
    /// When the bytes are not those of a step.
    pub fn decoded(&self) -> Result<pb::WatchResponse, DecodeError> {
        pb::WatchResponse::decode(&*self.0)
    }

    /// Whether both are the same bytes in memory, not only equal ones.
    pub fn shares_bytes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<&pb::WatchResponse> for EncodedStep {
    fn from(step: &pb::WatchResponse) -> Self {
        Self(step.encode_to_vec().into())
    }
}

impl Message for EncodedStep {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    /// A server never reads steps; what would be read is skipped.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0 = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_step_has_the_bytes_of_the_message() {
        let step = pb::WatchResponse {
            revision: 7,
            step: Some(pb::watch_response::Step::Progress(pb::WatchProgress { complete: true })),
        };
        let encoded = EncodedStep::from(&step);
        assert_eq!(encoded.encode_to_vec(), step.encode_to_vec());
        assert_eq!(encoded.decoded(), Ok(step));
    }
}
