//! Random acts of three members: what is held does not depend on how they interleave, and follows a plain model.

use crate::fixture::{Fixture, cluster, delete, lists, put_spec, spec, uid};
use mcs_core::ids::ServiceKey;
use mcs_core::model::{ExportSpec, ObjectKey, ServiceType};
use mcs_core::registry::Op;
use mcs_core::time::WallTime;
use mcs_core::version::{Leaf, Sum, Version};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use std::collections::{BTreeMap, BTreeSet};

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const SERVICES: [&str; 3] = ["x", "y", "z"];

/// What a member does next.
#[derive(Clone, Debug)]
enum Act {
    Put {
        service: usize,
        headless: bool,
        host: u8,
        lost: bool,
    },
    Delete {
        service: usize,
        lost: bool,
    },
    /// The last act arrives a second time.
    Again,
    Renew,
    Register,
    Sync {
        breaks: bool,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let service = 0..SERVICES.len();
    prop_oneof![
        4 => (service.clone(), any::<bool>(), 0..4_u8, any::<bool>())
            .prop_map(|(service, headless, host, lost)| Act::Put { service, headless, host, lost }),
        2 => (service, any::<bool>()).prop_map(|(service, lost)| Act::Delete { service, lost }),
        1 => Just(Act::Again),
        1 => Just(Act::Renew),
        1 => Just(Act::Register),
        2 => any::<bool>().prop_map(|breaks| Act::Sync { breaks }),
    ]
}

/// A member as a controller sees it: what it exports, and what it was told to be taken.
struct Owner {
    name: &'static str,
    seq: u64,
    ended: u64,
    exports: BTreeMap<ServiceKey, Op>,
    last: Vec<Op>,
}

impl Owner {
    fn new(name: &'static str) -> Self {
        Self { name, seq: 0, ended: 0, exports: BTreeMap::new(), last: Vec::new() }
    }

    fn next(&mut self) -> Version {
        self.seq += 1;
        Version::new(1, self.seq)
    }

    fn sum(&self) -> Sum {
        self.exports.values().map(crate::fixture::leaf_of).collect()
    }

    fn act(&mut self, act: &Act, fixture: &mut Fixture) {
        let (name, id, now) = (cluster(self.name), uid(self.name), fixture.now());
        match *act {
            Act::Put { service, headless, host, lost } => {
                let service_type = if headless { ServiceType::Headless } else { ServiceType::ClusterSetIp };
                let created_at = WallTime::from_unix_secs(i64::from(host));
                let spec = ExportSpec { service_type, created_at, ..spec() };
                let op = put_spec(SERVICES[service], spec, &[&format!("10.0.0.{host}")]);
                self.exports.insert(op.key().clone(), op.clone());
                self.write(op, lost, fixture);
            }
            Act::Delete { service, lost } => {
                let op = delete(SERVICES[service]);
                self.exports.remove(op.key());
                self.write(op, lost, fixture);
            }
            Act::Again => {
                let version = Version::new(1, self.ended);
                let ops = self.last.clone();
                fixture.registry.write(&name, &id, version, ops, now).expect("taken");
            }
            Act::Renew => {
                let version = Version::new(1, self.ended);
                fixture.registry.renew(&name, &id, version, self.sum(), now).expect("renewed");
            }
            Act::Register => {
                let text = self.next().to_string();
                fixture.register(self.name, &text, self.sum()).expect("registered");
                self.end_of_act(Vec::new());
            }
            Act::Sync { breaks } => self.sync(breaks, fixture),
        }
        fixture.told();
    }

    /// A lost write was taken by another registry: the owner believes it to be held.
    fn write(&mut self, op: Op, lost: bool, fixture: &mut Fixture) {
        let version = self.next();
        if !lost {
            let (name, id, now) = (cluster(self.name), uid(self.name), fixture.now());
            fixture.registry.write(&name, &id, version, vec![op.clone()], now).expect("taken");
        }
        self.end_of_act(if lost { Vec::new() } else { vec![op] });
        if lost {
            // The call went elsewhere, so the owner registers before it speaks here again.
            self.act(&Act::Register, fixture);
        }
    }

    fn sync(&mut self, breaks: bool, fixture: &mut Fixture) {
        let version = self.next();
        let (name, id, now) = (cluster(self.name), uid(self.name), fixture.now());
        fixture.registry.begin_sync(&name, &id, version, now).expect("begun");
        let names: Vec<(ServiceKey, Leaf)> =
            self.exports.iter().map(|(key, op)| (key.clone(), crate::fixture::leaf_of(op))).collect();
        let wanted = fixture.registry.wanted(&name, &id, version, &names).expect("member");
        for key in wanted.into_iter().skip(usize::from(breaks)) {
            let op = self.exports[&key].clone();
            fixture.registry.write(&name, &id, version, vec![op], now).expect("taken");
        }
        if !breaks {
            let named: BTreeSet<ServiceKey> = self.exports.keys().cloned().collect();
            fixture.registry.end_sync(&name, &id, version, &named, now).expect("ended");
        }
        self.end_of_act(Vec::new());
    }

    fn end_of_act(&mut self, ops: Vec<Op>) {
        self.ended = self.seq;
        self.last = ops;
    }

    /// What is held is what the owner has, once its sums are equal; and while they differ, the registry knows.
    fn check(&self, fixture: &mut Fixture) {
        let held = |fixture: &Fixture| -> BTreeMap<ServiceKey, Leaf> {
            let member = fixture.registry.member(&cluster(self.name)).expect("member");
            member.exports().iter().map(|(key, export)| (key.clone(), export.leaf)).collect()
        };
        let owned: BTreeMap<ServiceKey, Leaf> =
            self.exports.iter().map(|(key, op)| (key.clone(), crate::fixture::leaf_of(op))).collect();
        let version = Version::new(1, self.ended);
        let (name, id, now) = (cluster(self.name), uid(self.name), fixture.now());
        let renewed = fixture.registry.renew(&name, &id, version, self.sum(), now).expect("renewed");
        assert_eq!(renewed.differs, held(fixture) != owned, "of {}", self.name);
    }
}

/// Runs each member's acts in its own order, interleaved as `turns` say, then ends with a sync of each.
fn run(acts: &[Vec<Act>], turns: &[usize]) -> BTreeMap<ObjectKey, mcs_core::model::Object> {
    let mut fixture = Fixture::new();
    let mut owners = MEMBERS.map(Owner::new);
    for owner in &mut owners {
        owner.act(&Act::Register, &mut fixture);
    }
    let mut left: Vec<std::slice::Iter<'_, Act>> = acts.iter().map(|acts| acts.iter()).collect();
    let rest = (0..MEMBERS.len()).cycle().take(MEMBERS.len() * acts.iter().map(Vec::len).max().unwrap_or(0));
    for member in turns.iter().copied().chain(rest) {
        if let Some(act) = left[member].next() {
            owners[member].act(act, &mut fixture);
            owners[member].check(&mut fixture);
            fixture.told();
        }
    }
    for owner in &mut owners {
        owner.act(&Act::Sync { breaks: false }, &mut fixture);
        owner.check(&mut fixture);
        let member = fixture.registry.member(&cluster(owner.name)).expect("member");
        assert_eq!((member.sum(), member.version()), (owner.sum(), Version::new(1, owner.ended)));
    }
    fixture.told();
    lists(&fixture.registry)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(300))]

    #[test]
    fn what_is_held_follows_the_owners_and_not_the_order_of_arrival(
        acts in vec(vec(act(), 0..12), 3),
        turns in vec(0..3_usize, 0..40),
        others in vec(0..3_usize, 0..40),
    ) {
        assert_eq!(run(&acts, &turns), run(&acts, &others));
    }
}
