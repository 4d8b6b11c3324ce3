//! A registry on a clock that the test moves, and short texts for what it tells.

use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, Instance, Region, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointSet, ExportSpec, GroupKey, Header, IpFamily, MemberState, Object,
    ObjectKey, Part, Port, Section,
};
use mcs_core::registry::{
    Op, OpOutcome, Policy, Reading, Refused, Registered, Registration, Registry, Renewed, Sizes,
};
use mcs_core::replicas::Beat;
use mcs_core::time::{Timestamp, WallTime};
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const POLICY: Policy = Policy::of_lease(Duration::from_secs(30));

pub(crate) struct Fixture {
    pub(crate) registry: Registry,
    pub(crate) log: StateLog<Object>,
    now: u64,
}

impl Fixture {
    /// A registry that starts at second 0.
    pub(crate) fn new() -> Self {
        Self::with(POLICY)
    }

    pub(crate) fn with(policy: Policy) -> Self {
        Self { registry: Registry::new(policy, Epoch(1), Timestamp::ZERO), log: StateLog::default(), now: 0 }
    }

    /// One of the replicas of a shared store, with a grace of ten minutes.
    pub(crate) fn shared(epoch: u128, region_name: &str) -> Self {
        let grace = Duration::from_secs(600);
        let region = Some(region(region_name));
        let registry = Registry::shared(POLICY, Epoch(epoch), region, grace, Timestamp::ZERO);
        Self { registry, log: StateLog::default(), now: 0 }
    }

    /// Takes a refresh that brought these items, without news.
    pub(crate) fn hear(&mut self, items: &[&Beat]) -> Reading {
        let items: Vec<_> = items.iter().map(|beat| ((*beat).clone(), None)).collect();
        self.registry.hear(&items, self.now())
    }

    /// Makes the own item and has it written.
    pub(crate) fn beat(&mut self) -> Beat {
        let now = self.now();
        let beat = self.registry.beat(now);
        self.registry.beat_written(beat.number, now);
        beat
    }

    /// A registry whose members are active and export nothing: each registered at second 0 as 1.1.
    pub(crate) fn with_members(names: &[&str]) -> Self {
        let mut fixture = Self::new();
        for name in names {
            fixture.register(name, "1.1", Sum::EMPTY).expect("free id");
        }
        fixture.told();
        fixture
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Lets the time come to `millis` with a driver that keeps the registry's deadlines.
    pub(crate) fn until_millis(&mut self, millis: u64) {
        let target = Timestamp::from_millis(millis);
        while let Some(at) = self.registry.poll_timeout().filter(|at| *at < target) {
            self.registry.handle_timeout(at);
        }
        self.registry.handle_timeout(target);
        self.now = millis;
    }

    pub(crate) fn until(&mut self, seconds: u64) {
        self.until_millis(seconds * 1000);
    }

    /// As [`Fixture::until`], with `names` renewing every 10 s, the last time at `seconds`.
    pub(crate) fn renewing_until(&mut self, seconds: u64, names: &[&str]) {
        while self.now < seconds * 1000 {
            self.until((self.now / 1000 + 10).min(seconds));
            for name in names {
                self.renew_as_held(name);
            }
        }
    }

    /// Lets the process stand still until `seconds`: nobody is called.
    pub(crate) fn stall_until_millis(&mut self, millis: u64) {
        self.now = millis;
    }

    pub(crate) fn register(&mut self, name: &str, act: &str, sum: Sum) -> Result<Registered, Refused> {
        self.register_as(name, &format!("uid-{name}"), act, sum)
    }

    pub(crate) fn register_as(
        &mut self,
        name: &str,
        uid: &str,
        act: &str,
        sum: Sum,
    ) -> Result<Registered, Refused> {
        let registration = Registration {
            uid: uid_of(uid),
            region: Some(region("eu-1")),
            instance: Instance::default(),
            build: build(),
            version: version(act),
            sum,
        };
        self.registry.register(&cluster(name), registration, self.now())
    }

    pub(crate) fn renew(&mut self, name: &str, act: &str, sum: Sum) -> Result<Renewed, Refused> {
        self.registry.renew(&cluster(name), &uid(name), version(act), sum, self.now())
    }

    /// A renewal by which the member has just what is held.
    pub(crate) fn renew_as_held(&mut self, name: &str) -> Renewed {
        let member = self.registry.member(&cluster(name)).expect("member");
        let (version, sum) = (member.version(), member.sum());
        self.registry.renew(&cluster(name), &uid(name), version, sum, self.now()).expect("renewed")
    }

    /// A renewal that names an act, by which the member has just what is held.
    pub(crate) fn renew_as_held_at(&mut self, name: &str, act: &str) -> Renewed {
        let sum = self.registry.member(&cluster(name)).expect("member").sum();
        self.renew(name, act, sum).expect("renewed")
    }

    pub(crate) fn count_write(&mut self, name: &str) -> Result<(), Refused> {
        self.registry.count_write(&cluster(name), &uid(name), self.now())
    }

    pub(crate) fn write(&mut self, name: &str, act: &str, ops: Vec<Op>) -> Result<Vec<OpOutcome>, Refused> {
        self.registry.write(&cluster(name), &uid(name), version(act), ops, self.now())
    }

    /// A write of which each operation is taken.
    pub(crate) fn wrote(&mut self, name: &str, act: &str, ops: Vec<Op>) {
        let outcomes = self.write(name, act, ops).expect("taken");
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 0, "{outcomes:?}");
    }

    pub(crate) fn begin(&mut self, name: &str, act: &str) {
        self.registry.begin_sync(&cluster(name), &uid(name), version(act), self.now()).expect("begun");
    }

    pub(crate) fn end(&mut self, name: &str, act: &str, named: &[&str]) -> Result<usize, Refused> {
        let named: BTreeSet<ServiceKey> = named.iter().map(|service| key(service)).collect();
        self.registry.end_sync(&cluster(name), &uid(name), version(act), &named, self.now())
    }

    /// A whole sync: begin, all `ops`, end naming them.
    pub(crate) fn sync(&mut self, name: &str, act: &str, ops: Vec<Op>) -> usize {
        let named: Vec<String> = ops.iter().map(|op| op.key().name.to_string()).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        self.begin(name, act);
        self.wrote(name, act, ops);
        self.end(name, act, &named).expect("ended")
    }

    pub(crate) fn state(&self, name: &str) -> Option<MemberState> {
        self.registry.member(&cluster(name)).map(mcs_core::registry::Member::state)
    }

    /// What watchers were told since the last look, one line a change.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(change) = self.registry.next_change() {
            assert_eq!(change.revision, self.log.revision() + 1, "revisions rise by one");
            assert_ne!(self.log.get(&change.key), change.object.as_ref(), "a change changes something");
            told.push(line(&change.key, change.object.as_ref()));
            self.log.append(change.key, change.revision, change.object);
        }
        self.check_invariants();
        told
    }

    /// What a new watcher is told, one line an object.
    pub(crate) fn snapshot(&mut self) -> Vec<String> {
        self.told();
        self.log.snapshot().map(|(_, key, object)| line(key, Some(object))).collect()
    }

    fn check_invariants(&self) {
        let replayed: BTreeMap<ObjectKey, Object> =
            self.log.snapshot().map(|(_, key, object)| (key.clone(), object.clone())).collect();
        assert_eq!(replayed, lists(&self.registry), "replaying the log gives the lists");
        let mut fresh = Sizes::default();
        for (name, member) in self.registry.members() {
            let sum: Sum = member.exports().values().map(|export| export.leaf).collect();
            assert_eq!(member.sum(), sum, "the sum of {name} is that of its leaves");
            *fresh.members.entry(member.state()).or_default() += 1;
            fresh.exports += member.exports().len();
            fresh.endpoints += member.exports().values().map(|export| export.endpoints.len()).sum::<usize>();
        }
        for (_, header) in headers(&self.registry) {
            fresh.imports += 1;
            fresh.conflicts += usize::from(!header.conflicts.is_empty());
        }
        assert_eq!(self.registry.sizes(), fresh, "the counts are those of what is held");
        let mut exports: BTreeMap<&ServiceKey, BTreeMap<ClusterId, Exported<'_>>> = BTreeMap::new();
        for (name, member) in self.registry.members().filter(|(_, member)| member.is_whole()) {
            for (key, export) in member.exports() {
                let exported = Exported { uid: member.uid(), version: export.version, spec: &export.spec };
                exports.entry(key).or_default().insert(name.clone(), exported);
            }
        }
        let merged: BTreeMap<_, _> =
            exports.iter().filter_map(|(key, of)| Some((*key, merge(of)?))).collect();
        let held: BTreeMap<_, _> = headers(&self.registry).collect();
        assert_eq!(
            merged.keys().collect::<Vec<_>>(),
            held.keys().collect::<Vec<_>>(),
            "each Service has a header"
        );
        for (key, header) in merged {
            let (ours, fresh) = (&held[key], header);
            assert_eq!(
                (&ours.definition, &ours.conflicts),
                (&fresh.definition, &fresh.conflicts),
                "of {key}"
            );
        }
    }
}

/// What the lists of a registry say, as objects of the log.
pub(crate) fn lists(registry: &Registry) -> BTreeMap<ObjectKey, Object> {
    let mut objects = BTreeMap::new();
    for (name, member) in registry.members() {
        let section = Section {
            uid: member.uid().clone(),
            region: member.region().cloned(),
            state: member.state(),
            whole: member.is_whole(),
            version: member.version(),
            sum: if member.is_whole() { member.sum() } else { Sum::EMPTY },
        };
        objects.insert(ObjectKey::Section(name.clone()), Object::Section(section));
        for (key, export) in member.exports().iter().filter(|_| member.is_in_log()) {
            let part = Part {
                uid: member.uid().clone(),
                version: export.version,
                leaf: export.leaf,
                endpoints: export.endpoints.clone(),
                changed_at: export.changed_at,
            };
            objects.insert(ObjectKey::Part(key.clone(), name.clone()), Object::Part(part));
        }
    }
    for (key, header) in headers(registry) {
        objects.insert(ObjectKey::Header(key.clone()), Object::Header(header));
    }
    objects
}

fn headers(registry: &Registry) -> impl Iterator<Item = (&ServiceKey, Header)> {
    registry.imports(None).filter_map(|key| Some((key, registry.header(key)?)))
}

pub(crate) fn line(key: &ObjectKey, object: Option<&Object>) -> String {
    match (key, object) {
        (ObjectKey::Section(cluster), None) => format!("{cluster} gone"),
        (ObjectKey::Header(key), None) => format!("header {} gone", key.name),
        (ObjectKey::Part(key, cluster), None) => format!("part {} of {cluster} gone", key.name),
        (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
            let whole = if section.whole { "whole" } else { "in part" };
            format!("{cluster} {} {whole} {}", section.state, section.version)
        }
        (ObjectKey::Header(key), Some(Object::Header(header))) => {
            let from: Vec<_> = header.participants.iter().map(|one| one.cluster.as_str()).collect();
            format!("header {} {:?} of {}", key.name, header.definition.service_type, from.join("+"))
        }
        (ObjectKey::Part(key, cluster), Some(Object::Part(part))) => {
            let addresses: Vec<_> = part
                .endpoints
                .groups()
                .flat_map(|group| group.members)
                .map(|(address, _)| address.to_string())
                .collect();
            format!("part {} of {cluster} {} [{}]", key.name, part.version, addresses.join(" "))
        }
        _ => panic!("the object of {key:?} is of another kind: {object:?}"),
    }
}

pub(crate) fn put(service: &str, addresses: &[&str]) -> Op {
    put_spec(service, spec(), addresses)
}

pub(crate) fn put_spec(service: &str, spec: ExportSpec, addresses: &[&str]) -> Op {
    let (key, endpoints) = (key(service), endpoints(addresses));
    let leaf = Leaf::of(&key, &spec, &endpoints);
    Op::Put { key, leaf, spec: Arc::new(spec), endpoints: Arc::new(endpoints), changed_at: None }
}

pub(crate) fn put_endpoints(service: &str, addresses: &[&str]) -> Op {
    let (key, endpoints) = (key(service), endpoints(addresses));
    let leaf = Leaf::of(&key, &spec(), &endpoints);
    Op::PutEndpoints { key, leaf, replaces: None, endpoints: Arc::new(endpoints), changed_at: None }
}

pub(crate) fn delete(service: &str) -> Op {
    Op::Delete { key: key(service) }
}

pub(crate) fn leaf_of(op: &Op) -> Leaf {
    match op {
        Op::Put { leaf, .. } | Op::PutEndpoints { leaf, .. } => *leaf,
        Op::Delete { key } => panic!("a delete of {key} has no leaf"),
    }
}

pub(crate) fn sum_of(ops: &[Op]) -> Sum {
    ops.iter().map(leaf_of).collect()
}

pub(crate) fn spec() -> ExportSpec {
    ExportSpec {
        created_at: WallTime::from_unix_secs(1_700_000_000),
        ports: vec![Port { name: "http".to_owned(), port: 80, ..Port::default() }],
        ip_families: vec![IpFamily::V4],
        ..ExportSpec::default()
    }
}

pub(crate) fn endpoints(addresses: &[&str]) -> EndpointSet {
    let mut set = EndpointMap::default();
    for address in addresses {
        let group = GroupKey::new(IpFamily::V4, []);
        set.insert(group, address.parse().expect("address"), Endpoint::default());
    }
    set.pack()
}

pub(crate) fn key(service: &str) -> ServiceKey {
    ServiceKey::new("default", service).expect("key")
}

pub(crate) fn cluster(name: &str) -> ClusterId {
    ClusterId::new(name).expect("cluster")
}

pub(crate) fn uid(name: &str) -> ClusterUid {
    uid_of(&format!("uid-{name}"))
}

pub(crate) fn uid_of(text: &str) -> ClusterUid {
    ClusterUid::new(text).expect("uid")
}

pub(crate) fn region(text: &str) -> Region {
    Region::new(text).expect("region")
}

pub(crate) fn build() -> Build {
    Build::new("0.1.0").expect("a build")
}

pub(crate) fn version(text: &str) -> Version {
    text.parse().expect("version")
}

/// The refusal of an export above this limit.
pub(crate) fn too_many(limit: usize) -> Refusal {
    let problem = format!(
        "the cluster has {limit} exports, the most that this registry takes (--max-exports-per-cluster): delete one, or \
         raise it"
    );
    Refusal::new("exports", problem)
}
