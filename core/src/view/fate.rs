//! The rules: what may be shown of a source cluster, what may go, and which merge counts.

use super::known::{Known, Service};
use super::{Decision, Shown, Source, View, Wanted};
use crate::ids::{ClusterId, ClusterUid, Region, ServiceKey};
use crate::model::{GoodPort, Header, MemberState, Part, Participant, Section};
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a view says of a cluster. Two equal standings lead to equal decisions, apart from those that wait for a
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing<'a> {
    /// Nothing that could be relied on: what is applied stays.
    Unknown,
    /// Its parts are shown; what it has no more goes if all of it is known here.
    Listed { section: &'a Section, whole: bool },
    /// It was removed while all of it was known here.
    Left(&'a Section),
    /// Its lease has run out, or complete views have not listed it for long.
    Gone,
}

/// A [`Standing`] to compare with a later one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stands(u8, bool, Option<(ClusterUid, Option<Region>)>);

/// What becomes of one cluster's part of an import.
enum Fate {
    Show(Shown),
    Doubt,
    Gone,
}

/// All that is decided about one import.
pub(super) struct Judged<'a> {
    /// What shall be there of each source cluster.
    pub(super) sources: BTreeMap<ClusterId, Source>,
    /// The clusters about which that is not certain.
    pub(super) doubtful: BTreeSet<ClusterId>,
    /// The merge that the present view tells, if it counts.
    pub(super) believed: Option<&'a Arc<Header>>,
}

impl View {
    /// What shall be there of `key`.
    pub fn decide(&self, key: &ServiceKey) -> Decision {
        let Some(service) = self.services.get(key) else { return Decision::Keep };
        let Judged { sources, doubtful, believed } = self.judge(key, service);
        if self.current(service).is_none() && self.says_all() && sources.is_empty() && doubtful.is_empty() {
            let cause =
                service.sources.values().any(|known| known.applied.is_some() || known.merged.is_some());
            return if cause || self.all_is_known() { Decision::Remove } else { Decision::Keep };
        }
        let definition = believed.or(service.settled.as_ref()).map(|header| header.definition.clone());
        let nothing_to_say = sources.values().all(|source| *source == Source::Keep)
            && service.sources.values().filter(|known| known.applied.is_some()).count() == sources.len();
        if definition.is_none() && nothing_to_say {
            return Decision::Keep;
        }
        Decision::Apply(Wanted { definition, sources })
    }

    pub(super) fn judge<'a>(&'a self, key: &ServiceKey, service: &'a Service) -> Judged<'a> {
        // The names of ports are those of one merge, so sources and definition must be of the same.
        let Some(header) = self.current(service) else {
            let (sources, doubtful) = self.sources(key, service, false);
            return Judged { sources, doubtful, believed: None };
        };
        let older = self.older(service, header);
        if older.is_empty() {
            let (sources, doubtful) = self.sources(key, service, true);
            if self.merge_counts(service, header, &sources) {
                return Judged { sources, doubtful, believed: Some(header) };
            }
        }
        let (sources, mut doubtful) = self.sources(key, service, false);
        // The merge counts after all when their sections say so, and is told only once.
        doubtful.extend(older);
        Judged { sources, doubtful, believed: None }
    }

    fn sources(
        &self,
        key: &ServiceKey,
        service: &Service,
        believed: bool,
    ) -> (BTreeMap<ClusterId, Source>, BTreeSet<ClusterId>) {
        let mut sources = BTreeMap::new();
        let mut doubtful = BTreeSet::new();
        let nothing = Known::default();
        let own_only = (!service.sources.contains_key(&self.own)).then_some((&self.own, &nothing));
        for (cluster, known) in service.sources.iter().chain(own_only) {
            let ports = if believed { told_ports(service, cluster) } else { settled_ports(service, cluster) };
            let fate = if *cluster == self.own {
                self.own_fate(key, service, known, ports)
            } else {
                self.fate(cluster, service, known, ports)
            };
            match fate {
                Fate::Show(shown) => {
                    sources.insert(cluster.clone(), Source::Show(shown));
                }
                Fate::Doubt => {
                    doubtful.insert(cluster.clone());
                    if known.applied.is_some() {
                        sources.insert(cluster.clone(), Source::Keep);
                    }
                }
                Fate::Gone => {}
            }
        }
        (sources, doubtful)
    }

    fn fate(
        &self,
        cluster: &ClusterId,
        service: &Service,
        known: &Known,
        ports: Option<Vec<GoodPort>>,
    ) -> Fate {
        let (section, whole) = match self.standing(cluster) {
            Standing::Unknown => return Fate::Doubt,
            Standing::Gone => return Fate::Gone,
            Standing::Left(section) if self.is_past(section, known) => return Fate::Gone,
            Standing::Left(_) => return Fate::Doubt,
            Standing::Listed { section, whole } => (section, whole),
        };
        let counting = self
            .told_part(known, section)
            .map(|part| self.counts_as(part, known, section).map(|version| (part, version)));
        match (counting, ports) {
            (Some(Some((part, version))), Some(good_ports)) => Fate::Show(Shown {
                uid: Some(section.uid.clone()),
                region: section.region.clone(),
                version: Some(version),
                good_ports,
                endpoints: part.endpoints.clone(),
            }),
            // Part and merge are told one after the other, in either order.
            (Some(_), _) => Fate::Doubt,
            (None, _) if self.current(service).is_some_and(|header| takes_part(header, cluster)) => {
                Fate::Doubt
            }
            (None, _) if whole && self.is_past(section, known) => Fate::Gone,
            (None, _) => Fate::Doubt,
        }
    }

    /// The own cluster's part comes from its own watch, whatever the registry says of the cluster.
    fn own_fate(
        &self,
        key: &ServiceKey,
        service: &Service,
        known: &Known,
        ports: Option<Vec<GoodPort>>,
    ) -> Fate {
        let endpoints = match self.own_exports.get(key) {
            Some(Some(endpoints)) => endpoints,
            Some(None) => return Fate::Gone,
            None if self.own_listed => return Fate::Gone,
            None => return Fate::Doubt,
        };
        let settled = || service.settled.as_ref().filter(|_| known.applied.is_some());
        let ports = ports.or_else(|| settled().and_then(|header| participant(header, &self.own)).cloned());
        let Some(good_ports) = ports else { return Fate::Doubt };
        let section = self.own_section();
        Fate::Show(Shown {
            uid: section.map(|section| section.uid.clone()),
            region: section.and_then(|section| section.region.clone()),
            version: None,
            good_ports,
            endpoints: endpoints.clone(),
        })
    }

    /// Whether the merge that is told, and is made from no export that is [older](View::older), counts beside `sources`.
    fn merge_counts(
        &self,
        service: &Service,
        header: &Header,
        sources: &BTreeMap<ClusterId, Source>,
    ) -> bool {
        let all_shown = sources.keys().all(|cluster| takes_part(header, cluster));
        // A cluster that was merged before, and is not now, must be known to export it no more.
        let none_missing = service.sources.iter().all(|(cluster, known)| {
            known.merged.is_none()
                || takes_part(header, cluster)
                || *cluster == self.own
                || self.standing(cluster) != Standing::Unknown
        });
        all_shown && none_missing
    }

    /// The clusters of which the merge that is told takes in an older export than was merged before, as far as their
    /// sections say.
    fn older(&self, service: &Service, header: &Header) -> BTreeSet<ClusterId> {
        let is_current = |participant: &&Participant| {
            let cluster = &participant.cluster;
            // Of a cluster that is gone nothing is held, and a newer definition may never come.
            if self.standing(cluster) == Standing::Gone {
                return true;
            }
            // A merge is told before the section, which may be that of another cluster that had the id.
            let section = self.clusters.get(cluster).and_then(|known| known.told_in(self.watch.snapshot));
            let section = section.filter(|section| section.uid == participant.uid);
            let merged = service.sources.get(cluster).and_then(|known| known.merged.as_ref());
            match (merged.filter(|(of, _)| *of == participant.uid), section) {
                (Some((_, version)), section) => {
                    participant.version >= *version
                        || section.is_some_and(|section| proves(section, *version))
                }
                (None, Some(section)) => !self.lags(section),
                (None, None) => self.is_newest(&participant.uid, participant.version),
            }
        };
        let older = header.participants.iter().filter(|participant| !is_current(participant));
        older.map(|participant| participant.cluster.clone()).collect()
    }

    /// Notes that what is told of `cluster` for `key` was shown, if it counts.
    pub(super) fn raise_floor(&mut self, key: &ServiceKey, cluster: &ClusterId) {
        let counting =
            self.services.get(key).and_then(|service| service.sources.get(cluster)).and_then(|known| {
                let section = self.clusters.get(cluster)?.told_in(self.watch.snapshot)?;
                let part = self.told_part(known, section)?;
                Some((part.uid.clone(), self.counts_as(part, known, section)?))
            });
        if let (Some(floor), Some(service)) = (counting, self.services.get_mut(key))
            && let Some(known) = service.sources.get_mut(cluster)
        {
            known.floor = Some(floor);
        }
    }

    /// Whether a complete view should have listed `cluster`, and does not: it is not there, or its lease ran out long
    /// ago, before what was seen of it elsewhere.
    pub(super) fn is_absent(&self, cluster: &ClusterId) -> bool {
        let section = self.clusters.get(cluster).and_then(|known| known.told_in(self.watch.snapshot));
        section.is_none_or(|section| section.state == MemberState::Expired && self.lags(section))
    }

    /// The cluster's section, if all of it is known here and nothing newer was seen elsewhere.
    pub(super) fn whole_section(&self, cluster: &ClusterId) -> Option<&Section> {
        let section = self.clusters.get(cluster)?.told_in(self.watch.snapshot)?;
        (section.whole && !self.lags(section)).then_some(section)
    }

    /// What the standing of `cluster` is, to compare.
    pub(super) fn standing_of(&self, cluster: &ClusterId) -> Stands {
        let origin = |section: &Section| Some((section.uid.clone(), section.region.clone()));
        match self.standing(cluster) {
            Standing::Unknown => Stands(0, false, None),
            Standing::Listed { section, whole } => Stands(1, whole, origin(section)),
            Standing::Left(section) => Stands(2, true, origin(section)),
            Standing::Gone => Stands(3, false, None),
        }
    }

    /// Whether what was not told is not there: a snapshot was told to its end, by the registry that this cluster talks to.
    pub(super) fn says_all(&self) -> bool {
        self.watch.ended && !self.is_split()
    }

    fn standing(&self, id: &ClusterId) -> Standing<'_> {
        let Some(cluster) = self.clusters.get(id) else { return Standing::Unknown };
        let ended = self.says_all();
        let Some(section) = cluster.told_in(self.watch.snapshot) else {
            return match &cluster.left {
                _ if cluster.grace_is_over => Standing::Gone,
                Some(section) if ended => Standing::Left(section),
                Some(_) | None => Standing::Unknown,
            };
        };
        let lags = self.lags(section);
        match section.state {
            MemberState::Syncing => Standing::Unknown,
            MemberState::Active | MemberState::Held => {
                Standing::Listed { section, whole: ended && section.whole && !lags }
            }
            MemberState::Expired if ended && (!lags || cluster.grace_is_over) => Standing::Gone,
            MemberState::Expired => Standing::Unknown,
        }
    }

    /// Whether something newer of the same cluster was seen, so that its absences say nothing.
    fn lags(&self, section: &Section) -> bool {
        self.seen.get(&section.uid).is_some_and(|seen| section.version < *seen)
    }

    /// Whether what `uid` said as of `version` is newer than all that was seen of it as a whole.
    fn is_newest(&self, uid: &ClusterUid, version: Version) -> bool {
        self.seen.get(uid).is_none_or(|seen| version > *seen)
    }

    /// Whether `section` is recent enough to say that a part that is not told is gone.
    fn is_past(&self, section: &Section, known: &Known) -> bool {
        let own = self.clusters.get(&self.own).and_then(|own| own.told_in(self.watch.snapshot));
        own.is_some_and(|own| own.state.is_listed())
            && known.floor_of(&section.uid).is_none_or(|floor| section.version >= floor)
    }

    /// The part that the present view tells of the cluster that the section names.
    fn told_part<'a>(&self, known: &'a Known, section: &Section) -> Option<&'a Part> {
        let told = known.told.as_ref().filter(|told| told.snapshot == self.watch.snapshot);
        told.map(|told| &told.object).filter(|part| part.uid == section.uid)
    }

    /// The version of which `part` is the state, if it is not older than what was seen. A part may be older than that
    /// and be the state all the same: another registry, where the content never was another one, was not told it
    /// again; then its section says so. A part that is new here, but belongs to a state older than one that was seen
    /// whole, was deleted in between. What a whole section has told is the state as of its version, which is noted so:
    /// a registry that lags may have a state from between the two.
    fn counts_as(&self, part: &Part, known: &Known, section: &Section) -> Option<Version> {
        let counts = match known.floor_of(&part.uid) {
            Some(floor) => part.version >= floor || proves(section, floor),
            None => !self.lags(section) || self.is_newest(&part.uid, part.version),
        };
        let as_of = if section.whole { part.version.max(section.version) } else { part.version };
        counts.then_some(as_of)
    }

    /// The merge, if the present view tells it.
    fn current<'a>(&self, service: &'a Service) -> Option<&'a Arc<Header>> {
        service.header.as_ref().filter(|told| told.snapshot == self.watch.snapshot).map(|told| &told.object)
    }

    /// Whether no export can be hidden from this view: for an import that names no cluster any more.
    fn all_is_known(&self) -> bool {
        self.watch.long_complete && !self.clusters.keys().any(|cluster| self.may_hide(cluster))
    }

    /// Whether `cluster` may have exports that are not told, since it is listed and not known as a whole.
    pub(super) fn may_hide(&self, cluster: &ClusterId) -> bool {
        let section = self.clusters.get(cluster).and_then(|known| known.told_in(self.watch.snapshot));
        section.is_some_and(|section| {
            self.lags(section) || !(section.whole || section.state == MemberState::Expired)
        })
    }
}

/// Whether all that `section` has told is at least as new as `version`.
fn proves(section: &Section, version: Version) -> bool {
    section.whole && section.version >= version
}

fn takes_part(header: &Header, cluster: &ClusterId) -> bool {
    participant(header, cluster).is_some()
}

/// The import's ports that `cluster` serves, by `header`; none when it takes no part in it.
fn participant<'a>(header: &'a Header, cluster: &ClusterId) -> Option<&'a Vec<GoodPort>> {
    let found = header.participants.iter().find(|participant| participant.cluster == *cluster)?;
    Some(&found.good_ports)
}

/// The import's ports that `cluster` serves, by the merge that was told last.
fn told_ports(service: &Service, cluster: &ClusterId) -> Option<Vec<GoodPort>> {
    participant(&service.header.as_ref()?.object, cluster).cloned()
}

/// The import's ports that `cluster` serves, in terms of the merge that counted last. What is told now is relative to
/// another merge: it says of those ports only whether the cluster serves them which both merges define alike. Of the
/// others, what the cluster served then stands.
fn settled_ports(service: &Service, cluster: &ClusterId) -> Option<Vec<GoodPort>> {
    let Some(settled) = &service.settled else { return told_ports(service, cluster) };
    let then = participant(settled, cluster);
    let told = service.header.as_ref().map(|told| &told.object);
    let Some((told, now)) = told.and_then(|told| Some((told, participant(told, cluster)?))) else {
        return then.cloned();
    };
    let alike = |good: &&GoodPort| {
        let named = |header: &Header| {
            header.definition.ports.iter().find(|port| port.name == good.import_name).cloned()
        };
        named(told) == named(settled)
    };
    let stands = then.into_iter().flatten().filter(|good| !alike(good));
    Some(now.iter().filter(alike).chain(stands).cloned().collect())
}
