//! What AWS has and the emulator has not: replicas and point-in-time recovery of a table, the time in which a table
//! is made, and refusals of the time to live. As far as a program that prepares a table sees of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::Shared;
use super::asked::{Answer, Asked};

/// What is kept of it.
#[derive(Debug, Default)]
pub(super) struct Imitated(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What takes its time takes so many looks at it.
    looks: u32,
    tables: BTreeMap<String, Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// It is being made for so many looks more.
    making: u32,
    /// Its replicas elsewhere, each of which is being made for so many looks more.
    replicas: BTreeMap<String, u32>,
    /// Where it can be recovered to a point in time.
    recoverable: BTreeSet<String>,
}

impl Imitated {
    /// From now on, tables and replicas are being made for so many looks at them.
    pub(super) fn set_looks(&self, looks: u32) {
        self.state().looks = looks;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers what is imitated whole.
pub(super) fn answer(shared: &Shared, asked: &Asked) -> Option<Answer> {
    match asked.action.as_str() {
        "UpdateTimeToLive" => time_to_live(shared, asked),
        "UpdateContinuousBackups" | "DescribeContinuousBackups" => Some(backups(shared, asked)),
        "UpdateTable" if asked.body["ReplicaUpdates"].is_array() => Some(replicas(shared, asked)),
        _ if asked.is_read() || asked.is_write() => {
            let is_making =
                shared.imitated.state().tables.get(asked.table()).is_some_and(|table| table.making > 0);
            is_making.then(not_found)
        }
        _ => None,
    }
}

/// Completes what the emulator answered.
pub(super) fn completed(shared: &Shared, asked: &Asked, answer: Answer) -> Answer {
    if !answer.is_good() {
        return answer;
    }
    let mut state = shared.imitated.state();
    let looks = state.looks;
    let table = state.tables.entry(asked.table().to_owned()).or_default();
    match asked.action.as_str() {
        "CreateTable" => {
            table.making = looks;
            answer
        }
        "DeleteTable" => {
            *table = Table::default();
            answer
        }
        "DescribeTable" => {
            let mut body = answer.json();
            table.look_at(&mut body["Table"], asked.region().unwrap_or(&shared.region), &shared.region);
            Answer::good(&body)
        }
        _ => answer,
    }
}

impl Table {
    /// Somebody looks at it from a region: writes into its description what is imitated.
    fn look_at(&mut self, described: &mut Value, from: &str, home: &str) {
        if self.making > 0 {
            described["TableStatus"] = "CREATING".into();
            self.making -= 1;
        }
        self.describe(described, from, home);
        self.replicas.values_mut().for_each(|left| *left = left.saturating_sub(1));
    }

    fn describe(&self, described: &mut Value, from: &str, home: &str) {
        if self.replicas.is_empty() {
            return;
        }
        let status = |left: u32| if left > 0 { "CREATING" } else { "ACTIVE" };
        let at_home = std::iter::once((home, 0));
        let all = at_home.chain(self.replicas.iter().map(|(region, left)| (region.as_str(), *left)));
        let others = all.filter(|(region, _)| *region != from);
        let shown: Vec<_> = others
            .map(|(region, left)| json!({"RegionName": region, "ReplicaStatus": status(left)}))
            .collect();
        described["Replicas"] = shown.into();
        described["GlobalTableVersion"] = "2019.11.21".into();
        if self.replicas.values().any(|left| *left > 0) {
            described["TableStatus"] = "UPDATING".into();
        }
    }
}

fn not_found() -> Answer {
    Answer::refused("ResourceNotFoundException", "Requested resource not found")
}

fn invalid(message: &str) -> Answer {
    let kind = "com.amazon.coral.validate#ValidationException";
    Answer::error(hyper::StatusCode::BAD_REQUEST, &json!({"__type": kind, "message": message}))
}

/// Refuses what AWS refuses; the emulator does the rest.
fn time_to_live(shared: &Shared, asked: &Asked) -> Option<Answer> {
    let known = shared.emulator.ask("DescribeTimeToLive", json!({"TableName": asked.table()}))?;
    let known = &known["TimeToLiveDescription"];
    let is_on = known["TimeToLiveStatus"] == "ENABLED";
    let wanted = &asked.body["TimeToLiveSpecification"];
    let attribute = known["AttributeName"].as_str().unwrap_or_default();
    match (is_on, wanted["Enabled"] == true) {
        (true, true) if wanted["AttributeName"] == attribute => {
            Some(invalid("TimeToLive is already enabled"))
        }
        (true, true) => {
            let message = format!(
                "TimeToLive is active on a different AttributeName: current AttributeName is {attribute}"
            );
            Some(invalid(&message))
        }
        (false, false) => Some(invalid("TimeToLive is already disabled")),
        _ => None,
    }
}

fn backups(shared: &Shared, asked: &Asked) -> Answer {
    let name = asked.table();
    let region = asked.region().unwrap_or(&shared.region).to_owned();
    let mut state = shared.imitated.state();
    let table = state.tables.entry(name.to_owned()).or_default();
    let is_there = region == shared.region || table.replicas.get(&region) == Some(&0);
    if !is_there || !shared.emulator.has_table(name) {
        return Answer::refused("TableNotFoundException", &format!("Table not found: {name}"));
    }
    if asked.action == "UpdateContinuousBackups" {
        if table.making > 0 {
            return Answer::refused(
                "ContinuousBackupsUnavailableException",
                &format!("Backups are being enabled for the table: {name}. Please retry later"),
            );
        }
        match asked.body["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"].as_bool() {
            Some(true) => table.recoverable.insert(region.clone()),
            Some(false) => table.recoverable.remove(&region),
            None => return invalid("PointInTimeRecoverySpecification is missing"),
        };
    }
    let recovery = if table.recoverable.contains(&region) {
        json!({
            "PointInTimeRecoveryStatus": "ENABLED", "RecoveryPeriodInDays": 35,
            "EarliestRestorableDateTime": 1.7e9, "LatestRestorableDateTime": 1.7e9,
        })
    } else {
        json!({"PointInTimeRecoveryStatus": "DISABLED"})
    };
    Answer::good(&json!({"ContinuousBackupsDescription": {
        "ContinuousBackupsStatus": "ENABLED",
        "PointInTimeRecoveryDescription": recovery,
    }}))
}

/// Makes or removes a replica. Stricter than AWS need be: the table must have its stream of old and new images.
fn replicas(shared: &Shared, asked: &Asked) -> Answer {
    let name = asked.table();
    let Some(mut described) = shared.emulator.ask("DescribeTable", json!({"TableName": name})) else {
        return Answer::refused(
            "ResourceNotFoundException",
            &format!("Requested resource not found: Table: {name} not found"),
        );
    };
    let mut state = shared.imitated.state();
    let looks = state.looks;
    let table = state.tables.entry(name.to_owned()).or_default();
    if table.making > 0 || table.replicas.values().any(|left| *left > 0) {
        return Answer::refused(
            "ResourceInUseException",
            &format!("Attempt to change a resource which is still in use: Table is being updated: {name}"),
        );
    }
    let updates = asked.body["ReplicaUpdates"].as_array().cloned().unwrap_or_default();
    let [update] = updates.as_slice() else {
        return invalid("Only one replica update can be specified in a single request");
    };
    let stream = &described["Table"]["StreamSpecification"];
    if stream["StreamEnabled"] != true || stream["StreamViewType"] != "NEW_AND_OLD_IMAGES" {
        return invalid("Table must have DynamoDB Streams enabled with StreamViewType NEW_AND_OLD_IMAGES");
    }
    let region = |of: &str| update[of]["RegionName"].as_str().map(str::to_owned);
    if let Some(region) = region("Create") {
        if region == shared.region || table.replicas.contains_key(&region) {
            return invalid(&format!(
                "Replica specified in the Replica Update or Replica Delete action of the request was already found: {region}"
            ));
        }
        table.replicas.insert(region, looks);
    } else if let Some(region) = region("Delete") {
        if table.replicas.remove(&region).is_none() {
            return invalid(&format!("Replica not found: {region}"));
        }
        table.recoverable.remove(&region);
    } else {
        return invalid("A replica update needs Create or Delete");
    }
    let mut body = described["Table"].take();
    table.describe(&mut body, asked.region().unwrap_or(&shared.region), &shared.region);
    body["TableStatus"] = "UPDATING".into();
    Answer::good(&json!({"TableDescription": body}))
}
