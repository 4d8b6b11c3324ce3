//! The bodies of items, as protobuf messages of the store's own around those of the wire.
//!
//! Field numbers are never used again. Unknown fields are ignored by every reader. A release that writes what an older
//! one would misread raises `needs` in what it writes; the older one then takes that item for unreadable, and shows
//! what it knew.

use mcs_proto::pb;

/// The newest form of bodies that this release reads.
pub(super) const FORM: u32 = 0;

/// The record of a member.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RecordBody {
    /// Who and how it is. Its version is that of the item.
    #[prost(message, optional, tag = "1")]
    pub(super) section: Option<pb::Section>,
    /// When it took its id, in milliseconds since 1970; 0: not known.
    #[prost(uint64, tag = "2")]
    pub(super) claimed_at: u64,
    /// The form that its reader must know.
    #[prost(uint32, tag = "15")]
    pub(super) needs: u32,
}

/// An export.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportBody {
    /// The definition.
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<pb::ExportSpec>,
    /// The owner's hash, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) leaf: Vec<u8>,
    /// When its owner saw the change, in milliseconds since 1970; 0: not known.
    #[prost(uint64, tag = "3")]
    pub(super) changed_at: u64,
    /// The endpoints, where they are few: a `pb::EndpointSet`.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) endpoints: Vec<u8>,
    /// The pieces that they lie in otherwise, in order: 16 bytes of the name, 2 of the day on which it was written.
    #[prost(bytes = "vec", tag = "5")]
    pub(super) pieces: Vec<u8>,
    /// The day on which the item was written, counted from 1970.
    #[prost(uint32, tag = "6")]
    pub(super) day: u32,
    /// The form that its reader must know.
    #[prost(uint32, tag = "15")]
    pub(super) needs: u32,
}

/// What a replica says of the renewals that it took. Lists of the same kind have the same length.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BeatBody {
    /// Its region; empty: not known.
    #[prost(string, tag = "1")]
    pub(super) region: String,
    /// The replicas that it read, 16 bytes each.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) echoed: Vec<u8>,
    /// The newest beat that it read of each.
    #[prost(uint64, repeated, tag = "3")]
    pub(super) echoes: Vec<u64>,
    /// The replicas of its region that are dead, 16 bytes each.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) dead: Vec<u8>,
    /// Whether a verdict waits for the others.
    #[prost(bool, tag = "5")]
    pub(super) is_due: bool,
    /// The members that it serves: 6 bytes of a hash of the UID, how many beats before this one told first of the newest
    /// renewal, and how many steps ago that was.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) renewals: Vec<u8>,
    /// How long a step is, in milliseconds.
    #[prost(uint64, tag = "7")]
    pub(super) step: u64,
    /// The form that its reader must know.
    #[prost(uint32, tag = "15")]
    pub(super) needs: u32,
}

/// What a replica changed lately.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NewsBody {
    /// The number of the first entry.
    #[prost(uint64, tag = "1")]
    pub(super) first: u64,
    /// The entries: 6 bytes of a hash of the member's UID, 8 of one of the Service's key.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) entries: Vec<u8>,
    /// The versions of the entries: term and sequence of each.
    #[prost(uint64, repeated, tag = "3")]
    pub(super) versions: Vec<u64>,
    /// The form that its reader must know.
    #[prost(uint32, tag = "15")]
    pub(super) needs: u32,
}
