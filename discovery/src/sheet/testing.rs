//! An entry for tests of lists.

use std::sync::Arc;

use super::Entry;

/// A number, and what is sent of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbered(pub(crate) u64, pub(crate) Arc<str>);

impl Entry for Numbered {
    type Key = u64;

    fn key(&self) -> &u64 {
        &self.0
    }

    fn write(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(self.1.as_bytes());
    }
}
