//! Taking the answers to calls.

use super::{Act, ActKind, Answer, Link, Outbox, Sent, State, SyncCause, told};
use crate::time::Timestamp;

impl Outbox {
    /// Takes the answer to a call. `jitter`, a random number from 0 to 1, spreads the next try after a failure.
    pub fn handle_answer(&mut self, answer: Answer, now: Timestamp, jitter: f64) {
        match answer {
            Answer::RenewFailed(failure) => {
                let Some(renewal) = self.renewal.take() else { return };
                self.fail(failure, renewal.attempt, now, jitter);
            }
            Answer::Renewed { differs, degraded, lease, by } => {
                let Some(renewal) = self.renewal.take() else { return };
                self.renewed(renewal.sent_at, lease, now);
                self.answered(by);
                self.registries.degraded(degraded, now);
                // A sum that crossed an act on its way says nothing.
                if differs
                    && self.act.is_none()
                    && renewal.acts_begun == self.acts_begun
                    && self.link == Link::Steady
                {
                    self.doubt_all(SyncCause::Renewed);
                }
                self.note_works(renewal.attempt);
            }
            Answer::ActFailed(failure) => {
                let Some(act) = self.act.take() else { return };
                self.resend |= matches!(act.kind, ActKind::Sync { whole: true, .. });
                match act.url == self.url() {
                    true => self.fail(failure, act.attempt, now, jitter),
                    false => self.not_moved(failure, act.url),
                }
            }
            Answer::Registered { .. } | Answer::Written(_) | Answer::Synced { .. } => {
                self.act_done(answer, now)
            }
        }
    }

    fn act_done(&mut self, answer: Answer, now: Timestamp) {
        let Some(Act { version, url, attempt, kind }) = self.act.take() else { return };
        match (kind, answer) {
            (ActKind::Register { claims, sent_at }, Answer::Registered { differs, lease, by }) => {
                if url != self.url() && !self.move_to(url, version, now) {
                    return;
                }
                self.registries.taken(now);
                self.denied = None;
                self.turn_away(None);
                self.renewed(sent_at, lease, now);
                match (differs, self.told_by.is_some()) {
                    (false, _) => self.link = Link::Steady,
                    (true, false) => self.doubt_all(SyncCause::Start),
                    (true, true) => self.doubt_all(SyncCause::Registered),
                }
                self.answered(by);
                if differs {
                    // Renewals name this act from now on, so they carry its sum, not that of what was told before.
                    self.sum = claims.values().map(|claim| claim.leaf).collect();
                } else {
                    self.told_all(claims.iter().map(|(key, claim)| (key.clone(), claim.named())).collect());
                }
                self.note_works(self.registries.attempt());
            }
            (ActKind::Write { sent }, Answer::Written(results)) => {
                self.told_version = version;
                let whole = |sent: &Sent| {
                    sent.state.as_ref().filter(|_| !sent.endpoints_only).map(|state| state.leaf)
                };
                self.note_refusals(&results, |key| whole(sent.get(key)?));
                for (key, Sent { state, endpoints_only }) in sent {
                    let taken = results.iter().any(|(name, result)| *name == key && result.is_ok());
                    if taken {
                        self.tell(key.clone(), state.as_ref().map(State::held));
                    } else if endpoints_only && self.link == Link::Steady {
                        // The registry has not what it was believed to have.
                        self.doubt_all(SyncCause::Refused);
                    }
                    self.compare(key);
                }
                self.note_works(attempt);
            }
            (ActKind::Sync { claims, whole }, Answer::Synced { results, held }) => {
                self.told_version = version;
                self.note_refusals(&results, |key| claims.get(key).map(|claim| claim.state.leaf));
                // A renewal may have failed meanwhile: then another registry is to be asked first.
                if self.link == Link::Doubtful && !self.resend {
                    self.link = Link::Steady;
                }
                self.end_refusals(&claims, &results);
                self.told_all(told::after_sync(&claims, &results, &held));
                if whole {
                    self.try_refused_again(&claims);
                }
                self.note_works(attempt);
            }
            // An answer to a call that was given up meanwhile.
            (kind, _) => self.act = Some(Act { version, url, attempt, kind }),
        }
    }
}
