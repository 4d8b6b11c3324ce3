//! What a registry makes of its members: states, sections, merged Services.

use super::spec::read_list;
use super::{WireEnum, enumeration, read_sum, read_version, required};
use crate::pb;
use mcs_core::ids::{ClusterId, ClusterUid, Region};
use mcs_core::model::{
    Conflict, ConflictField, GoodPort, Header, MemberState, PartSet, Participant, Section,
};
use mcs_core::validate::Refusal;
use std::collections::BTreeMap;

enumeration!(
    MemberState, pb::LeaseState, "state", unspecified: None,
    { Syncing = Syncing, Active = Active, Held = Held, Expired = Expired }
);
enumeration!(
    ConflictField, pb::ConflictField, "field", unspecified: None,
    {
        Ports = Ports,
        Type = Type,
        SessionAffinity = SessionAffinity,
        SessionAffinityConfig = SessionAffinityConfig,
        InternalTrafficPolicy = InternalTrafficPolicy,
        TrafficDistribution = TrafficDistribution,
        Labels = Labels,
        Annotations = Annotations,
        IpFamily = IpFamily,
    }
);

impl From<&Conflict> for pb::Conflict {
    fn from(conflict: &Conflict) -> Self {
        Self {
            field: pb::ConflictField::from(conflict.field).into(),
            winner: conflict.winner.to_string(),
            differing: conflict.differing,
            clusters: conflict.clusters,
        }
    }
}

impl TryFrom<pb::Conflict> for Conflict {
    type Error = Refusal;

    fn try_from(conflict: pb::Conflict) -> Result<Self, Self::Error> {
        Ok(Self {
            field: ConflictField::from_wire(conflict.field)?,
            winner: ClusterId::new(conflict.winner)?,
            differing: conflict.differing,
            clusters: conflict.clusters,
        })
    }
}

impl From<&Participant> for pb::Participant {
    fn from(participant: &Participant) -> Self {
        let good_port = |port: &GoodPort| pb::GoodPort {
            import_name: port.import_name.clone(),
            export_name: port.export_name.clone(),
        };
        Self {
            cluster: participant.cluster.to_string(),
            uid: participant.uid.to_string(),
            version: Some(participant.version.into()),
            good_ports: participant.good_ports.iter().map(good_port).collect(),
        }
    }
}

impl TryFrom<pb::Participant> for Participant {
    type Error = Refusal;

    fn try_from(participant: pb::Participant) -> Result<Self, Self::Error> {
        let good_port =
            |port: pb::GoodPort| GoodPort { import_name: port.import_name, export_name: port.export_name };
        Ok(Self {
            cluster: ClusterId::new(participant.cluster)?,
            uid: ClusterUid::new(participant.uid)?,
            version: read_version(participant.version)?,
            good_ports: participant.good_ports.into_iter().map(good_port).collect(),
        })
    }
}

/// Reads a merged Service, but for its key.
///
/// # Errors
/// The field that is wrong.
pub fn read_header(header: pb::Header) -> Result<Header, Refusal> {
    let definition = required(header.definition, "definition")?;
    Ok(Header {
        definition: definition.try_into().map_err(|error: Refusal| error.within("definition"))?,
        participants: read_list(header.participants, "participants")?,
        conflicts: read_list(header.conflicts, "conflicts")?,
    })
}

/// A member as watchers are told of it.
pub fn section(cluster: &ClusterId, section: &Section) -> pb::Section {
    pb::Section {
        cluster: cluster.to_string(),
        uid: section.uid.to_string(),
        region: section.region.as_ref().map_or_else(String::new, ToString::to_string),
        state: pb::LeaseState::from(section.state).into(),
        whole: section.whole,
        version: Some(section.version.into()),
        sum: section.sum.to_bytes().to_vec(),
    }
}

/// Reads a member as watchers are told of it.
///
/// # Errors
/// The field that is wrong.
pub fn read_section(section: pb::Section) -> Result<(ClusterId, Section), Refusal> {
    let cluster = ClusterId::new(section.cluster)?;
    let section = Section {
        uid: ClusterUid::new(section.uid)?,
        region: read_region(section.region)?,
        state: MemberState::from_wire(section.state)?,
        whole: section.whole,
        version: read_version(section.version)?,
        sum: read_sum(&section.sum)?,
    };
    Ok((cluster, section))
}

/// The parts that a watcher has, cluster by cluster.
pub fn part_sets(sets: &BTreeMap<ClusterId, PartSet>) -> Vec<pb::PartSet> {
    sets.iter().map(|(cluster, set)| part_set(cluster, set)).collect()
}

/// Reads the parts that a watcher has, of the first `most` clusters: what it has beyond that is told again, which costs
/// time and nothing else.
///
/// # Errors
/// The field that is wrong.
pub fn read_part_sets(sets: Vec<pb::PartSet>, most: usize) -> Result<BTreeMap<ClusterId, PartSet>, Refusal> {
    let read =
        |(index, set)| read_part_set(set).map_err(|error: Refusal| error.within(&format!("since[{index}]")));
    sets.into_iter().take(most).enumerate().map(read).collect()
}

/// All parts of a cluster, in the place of them.
pub fn part_set(cluster: &ClusterId, set: &PartSet) -> pb::PartSet {
    pb::PartSet { cluster: cluster.to_string(), uid: set.uid.to_string(), sum: set.sum.to_bytes().to_vec() }
}

/// Reads all parts of a cluster, by what they add up to.
///
/// # Errors
/// The field that is wrong.
pub fn read_part_set(set: pb::PartSet) -> Result<(ClusterId, PartSet), Refusal> {
    let cluster = ClusterId::new(set.cluster)?;
    Ok((cluster, PartSet { uid: ClusterUid::new(set.uid)?, sum: read_sum(&set.sum)? }))
}

/// A region, which the wire leaves empty when there is none.
pub(super) fn read_region(region: String) -> Result<Option<Region>, Refusal> {
    if region.is_empty() { Ok(None) } else { Ok(Some(Region::new(region)?)) }
}
