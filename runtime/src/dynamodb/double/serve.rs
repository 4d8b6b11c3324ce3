//! From a request to its answer: what befalls it, what is imitated, what the emulator says, and what that costs.

use hyper::StatusCode;
use serde_json::{Map, json};

use super::asked::{Answer, Asked};
use super::copies::Change;
use super::faults::Fault;
use super::server::Hangup;
use super::{Shared, imitated, units};

/// Answers a request, or ends its connection.
pub(super) async fn answer(shared: &Shared, asked: Asked) -> Result<Answer, Hangup> {
    let (delay, fault) = shared.faults.befall(&asked);
    shared.counts.called(&asked.action);
    tokio::time::sleep(delay).await;
    match fault {
        None => Ok(shared.done(asked).await),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Reset) => Err(Hangup),
        Some(Fault::LostAnswer) => {
            shared.done(asked).await;
            Err(Hangup)
        }
        Some(Fault::Held) => {
            shared.faults.released(&asked).await;
            Ok(shared.done(asked).await)
        }
        Some(Fault::Unprocessed) => Ok(partly(shared, asked).await),
        Some(fault) => Ok(refusal(shared, &asked, fault)),
    }
}

/// What AWS says to this.
fn refusal(shared: &Shared, asked: &Asked, fault: Fault) -> Answer {
    let bad = |status, kind: &str, key: &str, message: &str| {
        Answer::error(status, &json!({"__type": kind, key: message}))
    };
    match fault {
        Fault::ThroughputExceeded => Answer::refused(
            "ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded. Consider increasing your \
             provisioning level with the UpdateTable API.",
        ),
        Fault::InternalError => bad(
            StatusCode::INTERNAL_SERVER_ERROR,
            "com.amazonaws.dynamodb.v20120810#InternalServerError",
            "message",
            "Internal server error",
        ),
        Fault::Unavailable => {
            Answer { status: StatusCode::SERVICE_UNAVAILABLE, body: "no healthy upstream".into() }
        }
        Fault::ExpiredToken => bad(
            StatusCode::BAD_REQUEST,
            "com.amazon.coral.service#ExpiredTokenException",
            "message",
            "The security token included in the request is expired",
        ),
        Fault::Denied => {
            let Asked { action, .. } = asked;
            let message = format!(
                "User: arn:aws:iam::123456789012:user/test is not authorized to perform: dynamodb:{action} on resource: \
                 arn:aws:dynamodb:{}:123456789012:table/{} because no identity-based policy allows the \
                 dynamodb:{action} action",
                shared.region,
                asked.table()
            );
            bad(
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.service#AccessDeniedException",
                "Message",
                &message,
            )
        }
        _ => bad(
            StatusCode::BAD_REQUEST,
            "com.amazon.coral.availability#ThrottlingException",
            "message",
            "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your \
             table or index so please try again shortly.",
        ),
    }
}

/// Does every second part of a batch, and names the others; anything else whole.
async fn partly(shared: &Shared, mut asked: Asked) -> Answer {
    let (name, of_read) = match asked.action.as_str() {
        "BatchWriteItem" => ("UnprocessedItems", false),
        "BatchGetItem" => ("UnprocessedKeys", true),
        _ => return shared.done(asked).await,
    };
    let mut left = Map::new();
    for (table, requests) in asked.body["RequestItems"].as_object_mut().into_iter().flatten() {
        let parts = if of_read { &mut requests["Keys"] } else { &mut *requests };
        let all = parts.as_array().cloned().unwrap_or_default();
        let every_second = |from: usize| all.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>();
        *parts = every_second(0).into();
        let undone = every_second(1);
        if !undone.is_empty() {
            left.insert(table.clone(), if of_read { json!({"Keys": undone}) } else { undone.into() });
        }
    }
    let answer = shared.done(asked).await;
    if !answer.is_good() {
        return answer;
    }
    let mut body = answer.json();
    body[name] = left.into();
    Answer::good(&body)
}

impl Shared {
    /// Does what is asked for.
    async fn done(&self, mut asked: Asked) -> Answer {
        self.arrive().await;
        if let Some(answer) = imitated::answer(self, &asked) {
            return answer;
        }
        if !asked.is_write() && !asked.is_read() {
            let answer = self.emulator.call(&asked.headers, asked.bytes()).await;
            return imitated::completed(self, &asked, answer);
        }
        let is_wanted = units::want(&mut asked);
        let mut copies = self.copies.lock().await;
        let answer = if asked.is_write() {
            let answer = self.emulator.call(&asked.headers, asked.bytes()).await;
            if answer.is_good() {
                for (table, key) in asked.written() {
                    let item = self.emulator.item(&table, &key);
                    copies.note(self, Change::new(table, key, item));
                }
            }
            answer
        } else {
            let stale = if asked.may_be_stale() { copies.stale(self.clock.elapsed()) } else { None };
            drop(copies);
            match stale {
                Some(stale) => stale.call(&asked.headers, asked.bytes()).await,
                None => self.emulator.call(&asked.headers, asked.bytes()).await,
            }
        };
        self.counts.counted(&asked, answer, is_wanted, &self.emulator)
    }
}
