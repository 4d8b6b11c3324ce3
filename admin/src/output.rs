//! What is printed of a clusterset: a table for people, proto3 JSON and the same as YAML for programs.
//!
//! Guarantees: equal answers give equal text, sorted by cluster and Service whatever the registry's order; no colours,
//! no wrapping at the width of a terminal. Times are shown as the registry told them, not as an age: an age would mix
//! the registry's clock with the caller's.

mod stored;
mod table;

pub(crate) use stored::Stored;
pub(crate) use table::{Column, conflict, or_dash, table};

use mcs_core::ids::ClustersetId;
use mcs_proto::pb;
use mcs_registry::recorded::Recorded;
use serde::Serialize;

/// How a description is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Format {
    /// `value` in this form, with a line end; `table` makes it for people.
    ///
    /// # Errors
    /// JSON and YAML have no form for it.
    pub(crate) fn print(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<String, Unprintable> {
        match self {
            Self::Table => Ok(table()),
            Self::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
            Self::Yaml => Ok(serde_saphyr::to_string(value)?),
        }
    }
}

/// Why an answer cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unprintable {
    /// A value that JSON has no form for, such as an enum value of a newer registry.
    #[error("the registry's answer cannot be written as JSON; -o table may still show it")]
    Json(#[from] serde_json::Error),
    /// The same of YAML.
    #[error("the registry's answer cannot be written as YAML; -o table may still show it")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// What one registry, or a store, knows of a clusterset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Description {
    /// Where it was read, for people.
    #[serde(skip)]
    pub(crate) place: String,
    #[serde(skip)]
    pub(crate) clusterset: ClustersetId,
    pub(crate) clusters: Vec<pb::Cluster>,
    pub(crate) exports: Vec<pb::Export>,
    pub(crate) imports: Vec<pb::Import>,
    /// Whether every cluster of the set is known to the registry, in all three answers; of a store: whether all of it was
    /// read, and fits together.
    pub(crate) complete: bool,
    /// What a store has besides; none of a registry.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) stored: Option<Stored>,
}

impl Description {
    /// The three lists of the registry at this place.
    pub(crate) fn new(
        place: String,
        clusterset: ClustersetId,
        clusters: pb::ListClustersResponse,
        exports: pb::ListExportsResponse,
        imports: pb::ListImportsResponse,
    ) -> Self {
        let complete = clusters.complete && exports.complete && imports.complete;
        let (clusters, exports, imports) = (clusters.clusters, exports.exports, imports.imports);
        Self { place, clusterset, clusters, exports, imports, complete, stored: None }.sorted()
    }

    /// What the store at this place holds.
    pub(crate) fn of_store(place: String, clusterset: ClustersetId, recorded: Recorded) -> Self {
        let Recorded { clusters, exports, imports, beats, claims, doubts } = recorded;
        let complete = doubts.is_empty();
        let stored = Some(Stored::new(&clusters, &beats, &claims, doubts));
        Self { place, clusterset, clusters, exports, imports, complete, stored }.sorted()
    }

    fn sorted(mut self) -> Self {
        self.clusters.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        self.exports.sort_by_cached_key(|export| (name(export.key.as_ref()), export.cluster.clone()));
        self.imports.sort_by_cached_key(|import| name(import.key.as_ref()));
        self
    }

    /// The text to print, with a line end.
    ///
    /// # Errors
    /// JSON and YAML have no form for it.
    pub(crate) fn print(&self, format: Format) -> Result<String, Unprintable> {
        format.print(self, || table::print(self))
    }
}

/// A moment, by seconds since 1970, as people and programs read it.
pub(crate) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

/// `1 export`, `2 exports`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `namespace/name`.
pub(crate) fn name(key: Option<&pb::ServiceKey>) -> String {
    key.map_or_else(|| "?".to_owned(), |key| format!("{}/{}", key.namespace, key.name))
}

#[cfg(test)]
mod tests;
