//! JSON of every message that is read from outside or written by a registry.

use mcs_core::model::ExportSpec;
use mcs_proto::convert::{Member, OpReader, read_registration, read_result, read_section};
use mcs_proto::frames::FrameReader;
use mcs_proto::pb;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many kinds of messages there are.
pub const KINDS: u8 = 19;

/// Reads a text as the message that its first byte names.
///
/// # Panics
/// What must hold does not.
pub fn play(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else { return };
    match kind % KINDS {
        0 => both(text, |request: pb::RegisterRequest| drop(read_registration(request))),
        1 => both(text, |request: pb::RenewRequest| {
            drop(Member::read(request.clusterset, request.cluster, request.uid));
        }),
        2 => both(text, |request: pb::WriteRequest| {
            let mut reader = OpReader::default();
            let _ = request.ops.into_iter().try_for_each(|op| reader.push(op).map(drop));
        }),
        3 => both::<pb::SyncRequest>(text, drop),
        4 => both::<pb::RemoveClusterRequest>(text, drop),
        5 => both::<pb::WatchRequest>(text, drop),
        6 => both::<pb::ListClustersRequest>(text, drop),
        7 => both::<pb::ListExportsRequest>(text, drop),
        8 => both::<pb::ListImportsRequest>(text, drop),
        9 => both(text, |op: pb::Op| drop(OpReader::default().push(op))),
        10 => both(text, |spec: pb::ExportSpec| drop(ExportSpec::try_from(spec))),
        11 => both(text, |result: pb::OpResult| drop(read_result(result))),
        12 => both(text, |section: pb::Section| drop(read_section(section))),
        13 => both(text, |step: pb::WatchResponse| drop(FrameReader::default().push(step))),
        14 => both::<pb::ListClustersResponse>(text, drop),
        15 => both::<pb::ListExportsResponse>(text, drop),
        16 => both::<pb::ListImportsResponse>(text, drop),
        17 => both::<pb::RegisterResponse>(text, drop),
        _ => both::<pb::SyncResponse>(text, drop),
    }
}

/// What is read is written so that it reads back equal, as JSON and as protobuf; then it is used.
fn both<M>(text: &[u8], use_it: impl FnOnce(M))
where
    M: Message + Default + DeserializeOwned + Serialize + PartialEq + Clone + std::fmt::Debug,
{
    let Ok(message) = serde_json::from_slice::<M>(text) else { return };
    let written = serde_json::to_string(&message).unwrap();
    assert!(!written.contains(|c: char| c < ' '), "JSON has control characters in escapes only: {written}");
    assert_eq!(serde_json::from_str::<M>(&written).unwrap(), message, "{written}");
    assert_eq!(M::decode(&*message.encode_to_vec()).unwrap(), message, "{written}");
    use_it(message);
}
