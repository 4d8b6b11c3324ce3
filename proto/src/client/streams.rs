//! Calls that go on: a sync and a watch.

use super::{Line, RegistryClient, Synced, Written};
use crate::convert;
use crate::convert::required;
use crate::frames::FrameReader;
use crate::pb;
use crate::pb::sync_request::Step as Ask;
use crate::pb::sync_response::Step as Told;
use crate::status::CallFailed;
use mcs_core::model::Frame;
use mcs_core::registry::Op;
use mcs_core::validate::Refusal;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

/// A sync under way.
#[derive(Debug)]
pub struct SyncStream {
    pub(super) limit: Duration,
    pub(super) sender: mpsc::Sender<pb::SyncRequest>,
    pub(super) answers: Streaming<pb::SyncResponse>,
    pub(super) call: Ongoing,
}

impl SyncStream {
    pub(super) async fn next(&mut self) -> Result<Told, CallFailed> {
        let told = match tokio::time::timeout(self.limit, self.answers.message()).await {
            Err(_) => Err(CallFailed::TimedOut { limit: self.limit }),
            Ok(answer) => read_answer(answer),
        };
        told.map_err(|failed| self.call.explain(failed))
    }

    /// Tells what was wanted, and ends the sync. Each message that is sent or read begins the limit anew, so that a
    /// large export has its time and a registry that stands still is given up.
    ///
    /// # Errors
    /// Why the registry did not take it; then nothing was deleted.
    pub async fn finish(mut self, ops: &[Op]) -> Result<Synced, CallFailed> {
        let finished = self.try_finish(ops).await;
        finished.map_err(|failed| self.call.explain(failed))
    }

    async fn try_finish(&mut self, ops: &[Op]) -> Result<Synced, CallFailed> {
        let mut asks = ops.iter().flat_map(convert::op).map(Ask::Op).chain([Ask::End(pb::SyncEnd {})]);
        let mut ask = asks.next();
        let mut written = Written::default();
        loop {
            let told = tokio::select! {
                answer = self.answers.message() => read_answer(answer)?,
                room = self.sender.reserve(), if ask.is_some() => {
                    // Without a reader nothing more is sent; the answers say what broke.
                    ask = match room {
                        Ok(room) => {
                            room.send(pb::SyncRequest { step: ask });
                            asks.next()
                        }
                        Err(_) => None,
                    };
                    continue;
                }
                () = tokio::time::sleep(self.limit) => {
                    return Err(CallFailed::TimedOut { limit: self.limit });
                }
            };
            match told {
                Told::Result(result) => written.push(result)?,
                Told::Done(done) => {
                    written.degraded = done.degraded;
                    return Ok(Synced { written, deleted: done.deleted });
                }
                Told::Wants(_) | Told::WantsEnd(_) => return Err(out_of_turn()),
            }
        }
    }
}

/// A watch under way.
#[derive(Debug)]
pub struct WatchStream {
    pub(super) limit: Duration,
    pub(super) steps: Streaming<pb::WatchResponse>,
    pub(super) frames: FrameReader,
    pub(super) call: Ongoing,
}

impl WatchStream {
    /// The next frame. After an error the stream is to be dropped and the watch begun again; nothing is to be
    /// concluded from the frames that are missing.
    ///
    /// # Errors
    /// Why there is none: the registry's end, silence for half a lease, or a frame that cannot be read.
    pub async fn next(&mut self) -> Result<Frame, CallFailed> {
        let frame = self.try_next().await;
        frame.map_err(|failed| self.call.explain(failed))
    }

    async fn try_next(&mut self) -> Result<Frame, CallFailed> {
        loop {
            let step = match tokio::time::timeout(self.limit, self.steps.message()).await {
                Err(_) => return Err(CallFailed::TimedOut { limit: self.limit }),
                Ok(Err(status)) => return Err(status.into()),
                Ok(Ok(None)) => return Err(ended()),
                Ok(Ok(Some(step))) => step,
            };
            if let Some(frame) = self.frames.push(step)? {
                return Ok(frame);
            }
        }
    }
}

/// A stream's own line, which says why it broke.
#[derive(Debug)]
pub(super) struct Ongoing {
    pub(super) client: RegistryClient,
    pub(super) line: Line,
}

impl Ongoing {
    fn explain(&self, failed: CallFailed) -> CallFailed {
        self.client.explain(failed, &self.line)
    }
}

pub(super) fn out_of_turn() -> CallFailed {
    Refusal::new("step", "does not fit the steps before it").into()
}

fn ended() -> CallFailed {
    CallFailed::Unavailable { code: Code::Unavailable, message: "the registry ended the stream".to_owned() }
}

fn read_answer(answer: Result<Option<pb::SyncResponse>, Status>) -> Result<Told, CallFailed> {
    Ok(required(answer?.ok_or_else(ended)?.step, "step")?)
}
