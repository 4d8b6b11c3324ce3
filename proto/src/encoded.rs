//! Steps of a watch that are encoded once, however many watchers they are sent to.
//!
//! The generated server would encode each message for each stream. It is made with [`EncodedStep`] in the place of
//! [`pb::WatchResponse`]; on the wire the two are the same.

use crate::pb;
use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};
use std::sync::Arc;

/// What gRPC has before each message of a stream: that it is not compressed, and its length.
const HEAD: usize = 5;

/// A [`pb::WatchResponse`] as its bytes; cloning it copies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedStep(
    /// As a stream has it, its head included.
    Arc<[u8]>,
);

impl EncodedStep {
    fn message(&self) -> &[u8] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    /// How many bytes the step has.
    pub fn len(&self) -> usize {
        self.message().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.message().is_empty()
    }

    /// The step as gRPC has it in a stream, with what stands before each message. Copies nothing.
    pub fn framed(&self) -> Bytes {
        Bytes::from_owner(Arc::clone(&self.0))
    }

    /// The step, for a transport that does not send these bytes.
    ///
    /// # Errors
    /// When the bytes are not those of a step.
    pub fn decoded(&self) -> Result<pb::WatchResponse, DecodeError> {
        pb::WatchResponse::decode(self.message())
    }

    /// Whether both are the same bytes in memory, not only equal ones.
    pub fn shares_bytes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for EncodedStep {
    fn default() -> Self {
        Self::from(&pb::WatchResponse::default())
    }
}

impl From<&pb::WatchResponse> for EncodedStep {
    fn from(step: &pb::WatchResponse) -> Self {
        let len = step.encoded_len();
        let mut framed = Vec::with_capacity(HEAD + len);
        framed.put_u8(0);
        // A step is far smaller: larger objects are told in chunks.
        framed.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        step.encode_raw(&mut framed);
        Self(framed.into())
    }
}

impl Message for EncodedStep {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(self.message());
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
        self.len()
    }

    fn clear(&mut self) {
        *self = Self::default();
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

    #[test]
    fn a_framed_step_has_its_length_before_it_and_is_not_copied() {
        let step = pb::WatchResponse { revision: 300, ..pb::WatchResponse::default() };
        let encoded = EncodedStep::from(&step);
        let framed = encoded.framed();
        assert_eq!((&framed[..HEAD], &framed[HEAD..]), (&[0, 0, 0, 0, 3][..], &*step.encode_to_vec()));
        assert_eq!(framed.as_ptr(), encoded.framed().as_ptr());
        assert_eq!(EncodedStep::default().framed(), [0; HEAD][..]);
    }
}
