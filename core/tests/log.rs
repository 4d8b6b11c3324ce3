//! The state log: the last state of each object, in the order of the last changes.

use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::log::{StateLog, TooOld};
use mcs_core::model::ObjectKey;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::proptest;
use std::collections::BTreeMap;

fn section(name: &str) -> ObjectKey {
    ObjectKey::Section(ClusterId::new(name).expect("cluster"))
}

fn header(name: &str) -> ObjectKey {
    ObjectKey::Header(ServiceKey::new("default", name).expect("key"))
}

fn since(log: &StateLog<u8>, cursor: u64) -> Result<Vec<(u64, ObjectKey, Option<u8>)>, TooOld> {
    Ok(log.since(cursor)?.map(|(revision, key, state)| (revision, key.clone(), state.copied())).collect())
}

#[test]
fn an_object_that_changes_moves_to_the_end() {
    let mut log = StateLog::default();
    log.append(header("web"), 1, Some(1));
    log.append(section("east"), 2, Some(2));
    log.append(header("web"), 3, Some(3));
    assert_eq!(since(&log, 0), Ok(vec![(2, section("east"), Some(2)), (3, header("web"), Some(3))]));
    assert_eq!(since(&log, 2), Ok(vec![(3, header("web"), Some(3))]));
    assert_eq!(since(&log, 3), Ok(vec![]));
    assert_eq!(log.len(), 2);
}

#[test]
fn a_snapshot_has_sections_first_and_no_removals() {
    let mut log = StateLog::default();
    log.append(header("web"), 1, Some(1));
    log.append(section("west"), 2, Some(2));
    log.append(section("east"), 3, Some(3));
    log.append(section("west"), 4, None);
    let snapshot: Vec<_> =
        log.snapshot().map(|(revision, key, state)| (revision, key.clone(), *state)).collect();
    assert_eq!(snapshot, [(3, section("east"), 3), (1, header("web"), 1)]);
    assert_eq!((log.get(&section("west")), log.get(&section("east"))), (None, Some(&3)));
    assert_eq!(since(&log, 3), Ok(vec![(4, section("west"), None)]));
}

#[test]
fn a_removal_is_no_object_and_is_kept_as_long_as_others_that_went() {
    let mut log = StateLog::keeping(1);
    log.append(section("east"), 1, Some(1));
    log.append(section("east"), 2, None);
    assert_eq!(since(&log, 1), Ok(vec![(2, section("east"), None)]));
    assert_eq!((log.get(&section("east")), log.snapshot().count()), (None, 0));
    log.append(section("west"), 3, None);
    assert_eq!(since(&log, 1), Err(TooOld { cursor: 1, oldest: 2, newest: 3 }));
}

#[test]
fn a_cursor_from_before_a_forgotten_removal_is_refused() {
    let mut log = StateLog::keeping(2);
    for (revision, name) in ["a", "b", "c"].into_iter().enumerate() {
        log.append(section(name), revision as u64 + 1, Some(0));
    }
    for (revision, name) in ["a", "b", "c"].into_iter().enumerate() {
        log.append(section(name), revision as u64 + 4, None);
    }
    assert_eq!(since(&log, 3), Err(TooOld { cursor: 3, oldest: 4, newest: 6 }));
    assert_eq!(since(&log, 4), Ok(vec![(5, section("b"), None), (6, section("c"), None)]));
    assert_eq!(since(&log, 7), Err(TooOld { cursor: 7, oldest: 4, newest: 6 }));
    log.append(section("b"), 7, Some(1));
    log.append(section("d"), 8, None);
    assert_eq!(since(&log, 4).map(|told| told.len()), Ok(3), "what came back is no removal any more");
}

#[test]
fn a_revision_that_does_not_rise_is_ignored() {
    let mut log = StateLog::default();
    log.append(section("east"), 5, Some(5));
    log.append(section("east"), 5, Some(6));
    log.append(section("west"), 4, Some(4));
    assert_eq!(since(&log, 0), Ok(vec![(5, section("east"), Some(5))]));
    assert_eq!((log.revision(), log.is_empty()), (5, false));
}

proptest! {
    /// A watcher that stops anywhere and goes on from its cursor has what a new one has, or is told to start anew.
    #[test]
    fn going_on_from_any_cursor_gives_the_snapshot(
        changes in vec((0..6_u8, option::of(0..4_u8)), 0..40),
        stop in 0..40_usize,
        kept in 0..8_usize,
    ) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut log = StateLog::keeping(kept);
        let mut watcher = BTreeMap::new();
        let mut cursor = 0;
        for (index, (object, state)) in changes.iter().enumerate() {
            log.append(section(names[usize::from(*object)]), index as u64 + 1, *state);
            if index < stop {
                watcher = log.snapshot().map(|(_, key, state)| (key.clone(), *state)).collect();
                cursor = log.revision();
            }
        }
        let truth: BTreeMap<_, _> = log.snapshot().map(|(_, key, state)| (key.clone(), *state)).collect();
        match since(&log, cursor) {
            Ok(told) => {
                for (_, key, state) in told {
                    match state {
                        Some(state) => watcher.insert(key, state),
                        None => watcher.remove(&key),
                    };
                }
                assert_eq!(watcher, truth);
            }
            Err(refused) => assert!(changes[stop.min(changes.len())..].iter().filter(|(_, state)| state.is_none()).count() > kept, "{refused}"),
        }
    }
}
