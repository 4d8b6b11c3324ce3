//! A view that keeps what it has, beside one that is told everything again: through registries that restart and streams
//! that are cut anywhere, both decide alike.

use crate::fixture::{Fixture, POLICY, build, cluster, delete, key, leaf_of, lists, put};
use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{Frame, Since};
use mcs_core::registry::{Op, Registry};
use mcs_core::version::{Sum, Version};
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View};
use mcs_core::watch::Watcher;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof, proptest};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const SERVICES: [&str; 3] = ["x", "y", "z"];

/// Something happens.
#[derive(Clone, Debug)]
enum Event {
    Put {
        member: usize,
        service: usize,
        host: u8,
    },
    Delete {
        member: usize,
        service: usize,
    },
    /// A member tells a registry that may have restarted all that it has.
    Sync {
        member: usize,
    },
    /// A member says that it has something else, and not what.
    Behind {
        member: usize,
    },
    Restart,
    /// Both importers lose their watch, and begin another.
    Cut,
    /// Both are told at most so much.
    Told {
        most: usize,
    },
    Seconds {
        seconds: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (member, service) = (|| 0..MEMBERS.len(), || 0..SERVICES.len());
    prop_oneof![
        6 => (member(), service(), 0..3_u8)
            .prop_map(|(member, service, host)| Event::Put { member, service, host }),
        2 => (member(), service()).prop_map(|(member, service)| Event::Delete { member, service }),
        4 => member().prop_map(|member| Event::Sync { member }),
        1 => member().prop_map(|member| Event::Behind { member }),
        1 => any::<bool>().prop_map(|_| Event::Restart),
        3 => any::<bool>().prop_map(|_| Event::Cut),
        4 => (0..12_usize).prop_map(|most| Event::Told { most }),
        2 => (0..20_u64).prop_map(|seconds| Event::Seconds { seconds }),
    ]
}

struct World {
    fixture: Fixture,
    seq: u64,
    exports: [BTreeMap<ServiceKey, Op>; MEMBERS.len()],
    importers: [Importer; 2],
    restarts: u128,
}

impl World {
    fn new() -> Self {
        let importers = [true, false].map(Importer::new);
        let mut world =
            Self { fixture: Fixture::new(), seq: 0, exports: Default::default(), importers, restarts: 1 };
        (0..MEMBERS.len()).for_each(|member| world.sync(member));
        world
    }

    fn version(&mut self) -> String {
        self.seq += 1;
        Version::new(1, self.seq).to_string()
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Put { member, service, host } => {
                let op = put(SERVICES[service], &[&format!("10.0.{member}.{host}")]);
                self.exports[member].insert(op.key().clone(), op.clone());
                self.write(member, op);
            }
            Event::Delete { member, service } => {
                let op = delete(SERVICES[service]);
                self.exports[member].remove(op.key());
                self.write(member, op);
            }
            Event::Sync { member } => self.sync(member),
            Event::Behind { member } => {
                let version = self.version();
                let sum = Sum::from_bytes([7; 16]);
                // It may not be known yet.
                let _renewed = self.fixture.renew(MEMBERS[member], &version, sum);
            }
            Event::Restart => {
                self.restarts += 1;
                let epoch = Epoch(self.restarts);
                self.fixture.registry = Registry::new(POLICY, epoch, self.fixture.now());
                self.fixture.log = StateLog::keeping(2);
                self.importers.iter_mut().for_each(Importer::cut);
            }
            Event::Cut => self.importers.iter_mut().for_each(Importer::cut),
            Event::Told { most } => self.tell(most),
            Event::Seconds { seconds } => {
                let now = self.fixture.now().as_nanos() / 1_000_000_000;
                self.fixture.until(now + seconds);
            }
        }
        self.fixture.told();
    }

    fn write(&mut self, member: usize, op: Op) {
        let version = self.version();
        // A member that is not known, or whose act is lost, tells it with its next sync.
        let _taken = self.fixture.write(MEMBERS[member], &version, vec![op]);
    }

    fn sync(&mut self, member: usize) {
        let name = MEMBERS[member];
        let ops: Vec<Op> = self.exports[member].values().cloned().collect();
        let (register, sync) = (self.version(), self.version());
        self.fixture.register(name, &register, ops.iter().map(leaf_of).collect()).expect("its id");
        self.fixture.sync(name, &sync, ops);
    }

    fn tell(&mut self, most: usize) {
        for importer in &mut self.importers {
            importer.tell(&self.fixture, most);
        }
    }

    /// Both importers are told everything, decide and apply it; gives what each decided.
    fn decide(&mut self) -> [BTreeMap<&'static str, Decision>; 2] {
        self.tell(usize::MAX);
        self.importers.each_mut().map(Importer::decide)
    }
}

/// A controller in the cluster of the first member.
struct Importer {
    keeps: bool,
    view: View,
    watcher: Watcher,
    applied: BTreeMap<&'static str, Applied>,
    kept: usize,
}

impl Importer {
    fn new(keeps: bool) -> Self {
        let mut view = View::new(cluster(MEMBERS[0]));
        view.own_listed();
        let watcher = Watcher::new(cluster(MEMBERS[0]), None, Since::default(), &build());
        Self { keeps, view, watcher, applied: BTreeMap::new(), kept: 0 }
    }

    fn cut(&mut self) {
        self.view.disconnected();
        // Neither goes on where it stood, so that every watch is a snapshot.
        let since = if self.keeps { self.view.since() } else { Since::default() };
        self.watcher = Watcher::new(cluster(MEMBERS[0]), None, since, &build());
    }

    fn tell(&mut self, fixture: &Fixture, most: usize) {
        let registry = &fixture.registry;
        let mut frames = Vec::new();
        let complete = registry.is_complete(fixture.now());
        while frames.len() < most {
            let more = self.watcher.tell(
                &fixture.log,
                complete,
                |cluster| registry.proven(cluster),
                |told| {
                    frames.push(told.frame(registry, &build()));
                    if frames.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                },
            );
            if !more {
                break;
            }
        }
        for frame in frames {
            self.kept += usize::from(matches!(frame, Frame::Kept { .. }));
            self.view.handle_frame(frame, fixture.now()).expect("what it has");
        }
        self.view.handle_timeout(fixture.now());
    }

    fn decide(&mut self) -> BTreeMap<&'static str, Decision> {
        let dirty: BTreeSet<_> = std::iter::from_fn(|| self.view.next_dirty()).collect();
        let decide = |service: &'static str| {
            let key = key(service);
            let applied = self.applied.entry(service).or_default();
            if !applied.clusters.is_empty() {
                self.view.applied(key.clone(), applied.clone());
            }
            let decision = self.view.decide(&key);
            match &decision {
                _ if !dirty.contains(&key) => {}
                Decision::Keep => {}
                Decision::Remove => {
                    *applied = Applied::default();
                    self.view.removed(&key);
                }
                Decision::Apply(wanted) => {
                    let mut before = std::mem::take(&mut applied.clusters);
                    for (cluster, source) in &wanted.sources {
                        let source = match source {
                            Source::Show(shown) => {
                                AppliedSource { uid: shown.uid.clone(), version: shown.version }
                            }
                            Source::Keep => before.remove(cluster).unwrap_or_default(),
                        };
                        applied.clusters.insert(cluster.clone(), source);
                    }
                    self.view.applied(key, applied.clone());
                }
            }
            (service, decision)
        };
        SERVICES.into_iter().map(decide).collect()
    }
}

/// Takes the versions out of what is shown: parts that are kept stand as of their set, the others as of their change.
fn versions(decisions: &mut BTreeMap<&'static str, Decision>) -> BTreeMap<(String, String), Version> {
    let mut versions = BTreeMap::new();
    for (service, decision) in decisions {
        let Decision::Apply(wanted) = decision else { continue };
        for (cluster, source) in &mut wanted.sources {
            if let Source::Show(shown) = source
                && let Some(version) = shown.version.take()
            {
                versions.insert(((*service).to_owned(), cluster.to_string()), version);
            }
        }
    }
    versions
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(300))]

    #[test]
    fn a_view_that_keeps_what_it_has_decides_as_one_that_is_told_everything(
        rounds in vec(vec(event(), 0..10), 1..8),
    ) {
        let mut world = World::new();
        for events in &rounds {
            for event in events {
                world.happen(event);
            }
            let [mut keeps, mut told] = world.decide();
            let (newer, older) = (versions(&mut keeps), versions(&mut told));
            prop_assert_eq!(keeps, told);
            prop_assert_eq!(newer.keys().collect::<Vec<_>>(), older.keys().collect::<Vec<_>>());
            for (place, version) in newer {
                prop_assert_eq!(version, version.max(older[&place]), "{:?} went back", place);
            }
        }
    }
}

#[test]
fn both_views_of_a_history_with_a_restart_keep_and_are_told() {
    let mut world = World::new();
    for service in 0..2 {
        world.happen(&Event::Put { member: 1, service, host: 1 });
    }
    world.decide();
    world.happen(&Event::Restart);
    world.decide();
    world.happen(&Event::Sync { member: 0 });
    world.happen(&Event::Sync { member: 1 });
    let [mut keeps, mut told] = world.decide();
    versions(&mut keeps);
    versions(&mut told);
    assert_eq!(keeps, told);
    assert_eq!(
        world.importers.each_ref().map(|importer| (importer.kept, importer.watcher.spared())),
        [(1, 2), (0, 0)]
    );
    assert_eq!(lists(&world.fixture.registry).len(), 2 + 2 + 2, "two sections, headers and parts");
}
