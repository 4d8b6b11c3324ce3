//! What a store has besides the lists that a registry gives: who was heard when, and what cannot be relied on.

use super::table::{Column, listed, or_dash};
use mcs_core::ids::ClusterUid;
use mcs_core::replicas::{Beat, UidTag};
use mcs_proto::convert::Member;
use mcs_proto::pb;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a store has besides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Stored {
    /// What could not be read, or does not fit together.
    pub(crate) doubts: Vec<String>,
    /// Clusters whose id belongs to another one, which claimed it earlier.
    pub(crate) claims: Vec<Claim>,
    /// What each replica of a registry said last.
    pub(crate) replicas: Vec<Replica>,
}

/// A cluster whose id belongs to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Claim {
    cluster: String,
    uid: String,
}

/// What one replica said last of the renewals that it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Replica {
    epoch: String,
    region: String,
    beat: u64,
    renewals: Vec<Renewal>,
}

/// The newest renewal of a cluster that a replica took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Renewal {
    cluster: String,
    /// How long before the replica's beat, in seconds.
    seconds_before: f64,
    #[serde(skip)]
    before: Duration,
}

impl Stored {
    pub(super) fn new(
        clusters: &[pb::Cluster],
        beats: &[Beat],
        claims: &[Member],
        doubts: Vec<String>,
    ) -> Self {
        let tagged = clusters.iter().filter_map(|cluster| {
            Some((UidTag::of(&ClusterUid::new(&*cluster.uid).ok()?), cluster.cluster.clone()))
        });
        let second = claims.iter().map(|claim| (UidTag::of(&claim.uid), claim.cluster.to_string()));
        let tags: BTreeMap<UidTag, String> = tagged.chain(second).collect();
        let claims = claims.iter();
        let claims = claims
            .map(|Member { cluster, uid, .. }| Claim { cluster: cluster.to_string(), uid: uid.to_string() });
        let mut replicas: Vec<_> = beats.iter().map(|beat| Replica::of(beat, &tags)).collect();
        replicas.sort_by(|a, b| (&a.region, &a.epoch).cmp(&(&b.region, &b.epoch)));
        Self { doubts, claims: claims.collect(), replicas }
    }

    /// The table for people.
    pub(super) fn print(&self) -> String {
        let Self { claims, replicas, .. } = self;
        let mut rows = Vec::new();
        for Replica { epoch, region, beat, renewals } in replicas {
            let row = |cluster: &str, before: String| {
                [
                    cluster.to_owned(),
                    epoch.chars().take(SHOWN).collect(),
                    or_dash(region),
                    beat.to_string(),
                    before,
                ]
            };
            rows.extend(renewals.iter().map(|renewal| row(&renewal.cluster, before(renewal.before))));
            if renewals.is_empty() {
                rows.push(row("-", "-".to_owned()));
            }
        }
        let mut text = if rows.is_empty() {
            "\nRenewals: none; no registry has said that it took one\n".to_owned()
        } else {
            listed("Renewals", rows.len(), &RENEWALS, rows)
                + "Each is as old as its registry's last beat says; a beat that does not rise is that of a registry that has ended.\n"
        };
        if !claims.is_empty() {
            let rows = claims.iter().map(|Claim { cluster, uid }| [cluster.clone(), uid.clone()]).collect();
            text += &listed("Ids claimed twice", claims.len(), &CLAIMS, rows);
            text += "These claimed it later, and are refused; give each another id.\n";
        }
        text
    }
}

/// So much of an epoch names a replica to people.
const SHOWN: usize = 8;

const RENEWALS: [Column; 5] =
    [("CLUSTER", false), ("REGISTRY", false), ("REGION", false), ("BEAT", true), ("RENEWED", false)];

const CLAIMS: [Column; 2] = [("CLUSTER", false), ("UID", false)];

/// `3.2s before`.
fn before(age: Duration) -> String {
    format!("{:.1}s before", age.as_secs_f64())
}

impl Replica {
    fn of(beat: &Beat, tags: &BTreeMap<UidTag, String>) -> Self {
        let renewals = beat.renewals.iter().map(|(tag, renewal)| Renewal {
            cluster: tags.get(tag).cloned().unwrap_or_else(|| "?".to_owned()),
            seconds_before: renewal.age.as_secs_f64(),
            before: renewal.age,
        });
        let mut renewals: Vec<_> = renewals.collect();
        renewals.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        let region = beat.region.as_ref().map_or_else(String::new, ToString::to_string);
        Self { epoch: beat.epoch.to_string(), region, beat: beat.number, renewals }
    }
}
