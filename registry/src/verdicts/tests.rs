//! What is logged, event by event.

use mcs_core::ids::{Build, Epoch, Instance, ServiceKey};
use mcs_core::model::{EndpointSet, ExportSpec, Object, ObjectKey};
use mcs_core::registry::{Op, Policy, Registration};
use mcs_core::timing::Timing;
use mcs_core::version::{Leaf, Sum, Version};
use std::sync::Arc;

use super::*;

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn a_lease_that_runs_out_is_noted_and_so_is_the_return() {
    let mut fixture = Fixture::new();
    fixture.register("east", "u-1", Sum::EMPTY);
    fixture.put("east");
    assert_eq!(fixture.noted(), [Verdict::Whole { cluster: id("east"), exports: 0 }]);
    fixture.pass(LEASE);
    assert_eq!(fixture.noted(), [Verdict::Expired { cluster: id("east"), silent: LEASE, exports: 1 }]);
    fixture.register("east", "u-1", Sum::EMPTY);
    assert_eq!(fixture.noted(), [], "what it has is not held");
    let held = fixture.registry.member(&id("east")).unwrap().sum();
    fixture.register("east", "u-1", held);
    assert_eq!(fixture.noted(), [Verdict::Back(id("east"))]);
    fixture.pass(LEASE);
    fixture.noted();
    fixture.register("east", "u-2", Sum::EMPTY);
    let taken = Verdict::TakenOver { cluster: id("east"), before: uid("u-1"), now: uid("u-2") };
    assert_eq!(fixture.noted(), [taken]);
}

#[test]
fn a_cluster_that_had_not_said_all_is_dropped_and_one_that_is_removed_is_left_to_the_call() {
    let mut fixture = Fixture::new();
    let something = [Leaf::from_bytes([1; 16])].into_iter().collect();
    fixture.register("east", "u-1", something);
    fixture.pass(LEASE);
    assert_eq!(fixture.noted(), [Verdict::Dropped(id("east"))]);
    fixture.register("east", "u-1", Sum::EMPTY);
    fixture.noted();
    fixture.call(|registry, now| registry.remove(&id("east"), None, true, now).map(|_| ()));
    assert_eq!(fixture.noted(), []);
}

#[test]
fn a_hold_is_noted_with_the_silent_and_ends_with_its_time() {
    let mut fixture = Fixture::new();
    for cluster in ["east", "north", "south"] {
        fixture.register(cluster, "u-1", Sum::EMPTY);
    }
    fixture.noted();
    fixture.pass(LEASE);
    let held = |cluster| Verdict::Held { cluster: id(cluster), silent: LEASE };
    assert_eq!(
        fixture.noted(),
        [Verdict::HoldBegan(Census { active: 3, silent: 3 }), held("east"), held("north"), held("south"),]
    );
    fixture.register("east", "u-1", Sum::EMPTY);
    fixture.pass(LEASE / 3);
    for cluster in ["north", "south"] {
        fixture.register(cluster, "u-1", Sum::EMPTY);
    }
    fixture.pass(LEASE / 3);
    for cluster in ["east", "north", "south"] {
        fixture.register(cluster, "u-1", Sum::EMPTY);
    }
    fixture.pass(LEASE / 3);
    let back = ["east", "north", "south"].map(|cluster| Verdict::Back(id(cluster)));
    let ended = Verdict::HoldEnded(Census { active: 3, silent: 0 });
    assert_eq!(fixture.noted(), [back.as_slice(), &[ended]].concat());
}

#[test]
fn a_pause_of_the_registry_is_noted_with_its_length() {
    let mut fixture = Fixture::new();
    fixture.register("east", "u-1", Sum::EMPTY);
    fixture.noted();
    let away = Duration::from_secs(100);
    fixture.now = fixture.now + away;
    fixture.time();
    assert_eq!(fixture.noted(), [Verdict::Paused(away)]);
}

/// The judging clock takes a week in half seconds; nothing else is to be judged meanwhile.
#[test]
fn a_cluster_that_is_collected_is_noted() {
    let mut fixture = Fixture::new();
    fixture.register("east", "u-1", Sum::EMPTY);
    fixture.pass(LEASE);
    fixture.noted();
    fixture.pass(Timing::of_lease(LEASE).collection());
    assert_eq!(fixture.noted(), [Verdict::Collected(id("east"))]);
}

fn id(cluster: &str) -> ClusterId {
    ClusterId::new(cluster).unwrap()
}

fn uid(uid: &str) -> ClusterUid {
    ClusterUid::new(uid).unwrap()
}

struct Fixture {
    registry: Registry,
    verdicts: Verdicts,
    noted: Vec<Verdict>,
    now: Timestamp,
    seq: u64,
}

impl Fixture {
    fn new() -> Self {
        let policy = Policy { max_writes_per_second: 1_000, ..Policy::of_lease(LEASE) };
        let now = Timestamp::ZERO;
        let registry = Registry::new(policy, Epoch(1), now);
        Self { registry, verdicts: Verdicts::default(), noted: Vec::new(), now, seq: 0 }
    }

    fn register(&mut self, cluster: &str, caller: &str, sum: Sum) {
        self.seq += 1;
        let registration = Registration {
            uid: uid(caller),
            region: None,
            instance: Instance::default(),
            build: Build::default(),
            version: Version::new(1, self.seq),
            sum,
        };
        self.call(|registry, now| registry.register(&id(cluster), registration, now).map(|_| ()));
    }

    fn put(&mut self, cluster: &str) {
        self.seq += 1;
        let version = Version::new(1, self.seq);
        let put = Op::Put {
            key: ServiceKey::new("shop", "cart").unwrap(),
            leaf: Leaf::from_bytes([2; 16]),
            spec: Arc::new(ExportSpec::default()),
            endpoints: Arc::new(EndpointSet::default()),
            changed_at: None,
        };
        self.call(|registry, now| {
            registry.write(&id(cluster), &uid("u-1"), version, vec![put], now).map(|_| ())
        });
    }

    fn call(
        &mut self,
        call: impl FnOnce(&mut Registry, Timestamp) -> Result<(), mcs_core::registry::Refused>,
    ) {
        self.time();
        call(&mut self.registry, self.now).unwrap();
        self.look(Cause::Call);
    }

    fn time(&mut self) {
        self.registry.handle_timeout(self.now);
        self.look(Cause::Time);
    }

    /// Lets time pass as a running registry sees it.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + end.since(self.now).min(Duration::from_millis(500));
            self.time();
        }
    }

    fn look(&mut self, cause: Cause) {
        self.noted.extend(self.verdicts.of_all(&self.registry, self.now));
        while let Some(change) = self.registry.next_change() {
            if let ObjectKey::Section(cluster) = &change.key {
                let section = match &change.object {
                    Some(Object::Section(section)) => Some(section),
                    _ => None,
                };
                self.noted.extend(self.verdicts.of_one(cluster, section, cause, &self.registry, self.now));
            }
        }
    }

    fn noted(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.noted)
    }
}
