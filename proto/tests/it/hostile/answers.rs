//! What a registry may answer to a member, played to the outbox of its controller.

use super::texts::is_plain;
use mcs_core::ids::ServiceKey;
use mcs_core::model::{EndpointSet, ExportSpec, IpFamily, Port};
use mcs_core::outbox::{Answer, Call, Failure, Outbox, Progress};
use mcs_core::time::Timestamp;
use mcs_core::timing::{MAX_LEASE, MIN_LEASE, Timing};
use mcs_core::validate::Refusal;
use mcs_proto::client::{Registered, Renewed, Written};
use mcs_proto::convert::read_key;
use mcs_proto::pb;
use mcs_proto::pb::sync_response::Step;
use mcs_proto::status::CallFailed;
use prost::Message;
use prost::bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// Answers, one after the other, each to what the outbox asks next.
#[derive(Clone, PartialEq, Message)]
pub struct Script {
    /// The answers.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Told>,
}

/// One answer.
#[derive(Clone, PartialEq, Message)]
pub struct Told {
    /// Milliseconds that pass before it.
    #[prost(uint32, tag = "1")]
    pub after: u32,
    /// What is answered.
    #[prost(oneof = "What", tags = "2, 3, 4, 5, 6")]
    pub what: Option<What>,
}

/// What is answered.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    /// To a Register.
    #[prost(message, tag = "2")]
    Registered(pb::RegisterResponse),
    /// To a Renew.
    #[prost(message, tag = "3")]
    Renewed(pb::RenewResponse),
    /// To a Write.
    #[prost(message, tag = "4")]
    Written(pb::WriteResponse),
    /// To a Sync.
    #[prost(message, tag = "5")]
    Synced(Answers),
    /// To any.
    #[prost(message, tag = "6")]
    Failed(Trailers),
}

/// The stream that a Sync is answered with.
#[derive(Clone, PartialEq, Message)]
pub struct Answers {
    /// Its messages.
    #[prost(message, repeated, tag = "1")]
    pub stream: Vec<pb::SyncResponse>,
}

/// A status as its trailers carry it.
#[derive(Clone, PartialEq, Message)]
pub struct Trailers {
    /// `grpc-status`.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// `grpc-message`.
    #[prost(string, tag = "2")]
    pub message: String,
    /// `grpc-status-details-bin`.
    #[prost(bytes = "vec", tag = "3")]
    pub details: Vec<u8>,
}

/// Plays a script, and looks at the outbox after each answer.
///
/// # Panics
/// What must hold does not.
pub fn play(bytes: &[u8]) {
    let Ok(script) = Script::decode(bytes) else { return };
    let mut now = Timestamp::from_millis(1_000);
    let mut outbox = Outbox::new(Timing::default(), 2, 3, now);
    let keys = ["cart", "till"].map(|name| ServiceKey::new("shop", name).unwrap());
    for key in &keys {
        outbox.set(key.clone(), Arc::new(spec(80)), Arc::default(), None);
    }
    for (place, told) in script.answers.into_iter().enumerate() {
        now = now + Duration::from_millis(told.after.into());
        let call = outbox.next_call(now);
        if let Some(answer) = told.what.and_then(|what| answer(call.as_ref(), what)) {
            outbox.handle_answer(answer, now, 0.5);
        }
        // A change, so that there is something to tell.
        let port = u16::try_from(81 + place % 8).unwrap();
        outbox.set(keys[0].clone(), Arc::new(spec(port)), Arc::<EndpointSet>::default(), None);
        look(&mut outbox, &keys);
    }
}

/// The answer to a call; none when the call is not one that is so answered.
fn answer(call: Option<&Call>, what: What) -> Option<Answer> {
    match what {
        What::Registered(answer) => match Registered::try_from(answer) {
            Ok(Registered { differs, lease, by }) => {
                assert_told(by.build.as_str());
                Some(Answer::Registered { differs, lease, by })
            }
            Err(error) => Some(Answer::ActFailed(failure(error.into()))),
        },
        What::Renewed(answer) => match Renewed::try_from(answer) {
            Ok(Renewed { differs, degraded, lease, by, .. }) => {
                Some(Answer::Renewed { differs, degraded, lease, by })
            }
            Err(error) => Some(Answer::RenewFailed(failure(error.into()))),
        },
        What::Written(answer) => match Written::try_from(answer) {
            Ok(written) => Some(Answer::Written(told(written).results)),
            Err(error) => Some(Answer::ActFailed(failure(error.into()))),
        },
        What::Synced(Answers { stream }) => match synced(stream) {
            Ok(written) => {
                let Written { results, held, .. } = told(written);
                Some(Answer::Synced { results, held })
            }
            Err(error) => Some(Answer::ActFailed(failure(error.into()))),
        },
        What::Failed(Trailers { code, message, details }) => {
            let status = Status::with_details(Code::from_i32(code), message, Bytes::from(details));
            let failure = failure(CallFailed::from(status));
            match call {
                Some(Call::Renew { .. }) => Some(Answer::RenewFailed(failure)),
                _ => Some(Answer::ActFailed(failure)),
            }
        }
    }
}

fn synced(stream: Vec<pb::SyncResponse>) -> Result<Written, Refusal> {
    let mut results = Vec::new();
    for step in stream.into_iter().map_while(|message| message.step) {
        match step {
            Step::Wants(wants) => {
                wants.keys.iter().try_for_each(|key| read_key(Some(key)).map(drop))?;
            }
            Step::Result(result) => results.push(result),
            Step::WantsEnd(_) | Step::Done(_) => {}
        }
    }
    Written::try_from(pb::WriteResponse { results, degraded: false })
}

fn told(written: Written) -> Written {
    for (_, dropped) in &written.dropped {
        assert_told(&dropped.to_string());
    }
    for refusal in written.results.iter().filter_map(|(_, result)| result.as_ref().err()) {
        assert_told(&refusal.to_string());
    }
    written
}

fn failure(failed: CallFailed) -> Failure {
    assert_told(&failed.to_string());
    let failure = Failure::from(failed);
    assert_told(&failure.to_string());
    failure
}

fn look(outbox: &mut Outbox, keys: &[ServiceKey]) {
    let timing = outbox.timing();
    assert!((MIN_LEASE..=MAX_LEASE).contains(&timing.lease()), "{:?}", timing.lease());
    for failures in [0, 1, 16, u32::MAX] {
        assert!(timing.backoff(failures) <= timing.lease());
    }
    let _ = (timing.return_after(), timing.late(), timing.dead_stream());
    let _ = (outbox.poll_timeout(), outbox.floor());
    if let Some(reason) = outbox.turned_away() {
        assert_told(reason);
    }
    while let Some(key) = outbox.next_dirty() {
        let _ = outbox.is_gone(&key);
    }
    for key in keys {
        if let Some(Progress::Refused(refusal)) = outbox.progress(key) {
            assert_told(&refusal.to_string());
        }
    }
}

fn spec(port: u16) -> ExportSpec {
    ExportSpec {
        ports: vec![Port { name: "http".to_owned(), port, ..Port::default() }],
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    }
}

/// What ends in a log line, an event or a condition.
fn assert_told(text: &str) {
    assert!(is_plain(text), "{text:?}");
    assert!(text.len() <= 4_000, "{} bytes: {text:?}", text.len());
}
