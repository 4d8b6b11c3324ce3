//! The whole of one process: registrations, slices and the watch's errors in, steps of both lists out.

use super::build::*;
use mcs_core::ids::ClusterId;
use mcs_core::pools::Completeness::{Estimated, Exact};
use mcs_core::pools::directory::{Change, Directory, Full, ListsCompleteness, Sizes, Source, WatchNews};
use mcs_core::pools::index::SliceEvent;
use mcs_core::pools::naming::{Naming, Part, Services};
use mcs_core::pools::storage::Storage;
use mcs_core::pools::{Completeness, Notice, PoolListing, ReplicaId, RouterReplica};
use std::sync::Arc;

fn drain(directory: &mut Directory) -> Vec<Change> {
    std::iter::from_fn(|| directory.next_change()).collect()
}

fn of_slices(naming: Naming) -> Directory {
    Directory::new(Storage::memory(LEASE, at(0)), Source::Slices(naming, services()), at(0))
}

fn watched(event: SliceEvent) -> WatchNews {
    WatchNews::Event(event)
}

fn completeness(pools: Completeness, routers: Completeness) -> Change {
    Change::Completeness(ListsCompleteness { pools, routers })
}

#[test]
fn with_registrations_pools_are_those_that_registered_and_replicas_are_given() {
    let id = ReplicaId { cluster: ClusterId::new("aws-ohio").unwrap(), replica: "global-router-0".into() };
    let router = RouterReplica { id, url: "http://10.42.0.5:50051/".into() };
    let mut directory =
        Directory::new(Storage::memory(LEASE, at(0)), Source::Registrations(vec![router.clone()]), at(0));
    assert!(directory.has_view());
    directory.register(registration("east", "chat"), at(1000));
    let mut seen = drain(&mut directory);
    for now in [6_000, 11_000, 14_999, 15_000, 16_000] {
        directory.handle_timeout(at(now));
        seen.extend(drain(&mut directory));
    }
    let listing = PoolListing { registration: registration("east", "chat").into(), facts: None };
    let frontends: Vec<&str> = listing.contents().frontends().collect();
    assert_eq!((frontends, listing.contents().relay_identities().len()), (vec!["http://10.0.0.9:8000/"], 0));
    let expected = [
        Change::ReplicaUpserted(router),
        Change::PoolUpserted(listing),
        completeness(Exact, Exact),
        Change::PoolRemoved(key("east", "chat")),
    ];
    assert_eq!(seen, expected);
    assert_eq!(directory.poll_timeout(at(16_000)), None);
}

/// Fault 3: of what is removed after a pause everybody is told first that it may live.
#[test]
fn what_lapsed_while_the_process_stood_still_is_removed_from_a_list_that_is_not_complete() {
    let mut directory =
        Directory::new(Storage::memory(LEASE, at(0)), Source::Registrations(Vec::new()), at(0));
    for second in [5, 10, 15] {
        directory.register(registration("east", "chat"), at(second * 1000));
    }
    drain(&mut directory);
    for now in [35_000, 49_999, 50_000] {
        directory.handle_timeout(at(now));
    }
    let expected = [
        completeness(Estimated, Exact),
        Change::PoolRemoved(key("east", "chat")),
        completeness(Exact, Exact),
    ];
    assert_eq!(drain(&mut directory), expected);
}

#[test]
fn a_pool_is_refused_when_there_are_as_many_others_as_there_may_be_and_a_known_one_never_is() {
    let directory =
        || Directory::new(Storage::memory(LEASE, at(0)), Source::Registrations(Vec::new()), at(0));
    let mut directory = directory().with_most_pools(2);
    let mut admitted = Vec::new();
    for (dgd, now) in [("a", 0), ("b", 1_000), ("c", 2_000), ("a", 3_000), ("c", 15_999), ("c", 16_000)] {
        directory.handle_timeout(at(now));
        let is_admitted = directory.admit(&key("east", dgd));
        admitted.push(is_admitted.is_ok());
        match is_admitted {
            Ok(()) => directory.register(registration("east", dgd), at(now)),
            Err(full) => assert_eq!(full, Full { most: 2 }),
        }
    }
    // The second one lapsed at 16 s.
    assert_eq!(admitted, [true, true, false, true, false, true]);
}

#[test]
fn with_slices_a_view_is_there_after_the_first_complete_list_and_exact_only_while_both_sides_are() {
    let mut directory = of_slices(Naming::Mcs);
    directory.register(registration("east", "chat"), at(0));
    directory.handle_watch(watched(SliceEvent::Init), at(1000));
    directory.handle_watch(watched(init_apply("r", relay("east", "10.0.0.2"))), at(1000));
    directory.handle_watch(watched(init_apply("f", frontend("east", "10.0.0.1"))), at(1000));
    assert_eq!((drain(&mut directory), directory.has_view()), (vec![], false));

    directory.handle_watch(watched(SliceEvent::InitDone), at(1000));
    for now in [6_000, 10_000, 14_000] {
        directory.register(registration("east", "chat"), at(now));
    }
    directory.handle_timeout(at(15_999));
    let listing = PoolListing {
        registration: registration("east", "chat").into(),
        facts: Some(Arc::new(facts(&["ip:10.0.0.2"], &["http://10.0.0.1:8000/"]))),
    };
    let expected = [Change::PoolUpserted(listing), completeness(Estimated, Exact)];
    assert_eq!((drain(&mut directory), directory.has_view()), (expected.to_vec(), true));
    directory.handle_timeout(at(16_000));
    assert_eq!(drain(&mut directory), [completeness(Exact, Exact)]);
    assert_eq!(directory.sizes(), Sizes { registrations: 1, live: 1, slices: 2 });
}

/// Until the first view is there nobody can register, so a late one must not pass for a list without pools.
#[test]
fn the_list_is_not_exact_before_one_lease_after_the_first_view() {
    let mut directory = of_slices(Naming::Mcs);
    directory.handle_timeout(at(60_000));
    let listed = [
        SliceEvent::Init,
        init_apply("r", relay("east", "10.0.0.2")),
        init_apply("f", frontend("east", "10.0.0.1")),
        SliceEvent::InitDone,
    ];
    for event in listed {
        directory.handle_watch(watched(event), at(60_000));
    }
    assert_eq!(drain(&mut directory), [completeness(Estimated, Exact)]);
    assert_eq!(directory.poll_timeout(at(60_000)), Some(at(75_000)));
    directory.register(registration("east", "chat"), at(64_000));
    directory.handle_timeout(at(70_000));
    directory.handle_timeout(at(74_999));
    let before: Vec<_> = drain(&mut directory);
    directory.handle_timeout(at(75_000));
    assert!(matches!(before[..], [Change::PoolUpserted(_)]), "{before:?}");
    assert_eq!(drain(&mut directory), [completeness(Exact, Exact)]);
}

/// Case O47: relists that begin and fail do not hide an outage; what was listed stays listed.
#[test]
fn failing_relists_are_seen_after_a_minute_and_a_finished_one_ends_that() {
    let mut directory = of_slices(Naming::Mcs);
    let relay = || relay("east", "10.0.0.2");
    for event in [SliceEvent::Init, init_apply("r", relay()), SliceEvent::InitDone] {
        directory.handle_watch(watched(event), at(0));
    }
    directory.handle_timeout(at(15_000));
    directory.register(registration("east", "chat"), at(20_000));
    drain(&mut directory);

    let mut seen = Vec::new();
    for second in (20..320).step_by(10) {
        directory.handle_timeout(at(second * 1000 - 5_000));
        directory.register(registration("east", "chat"), at(second * 1000));
        directory.handle_watch(watched(SliceEvent::Init), at(second * 1000));
        directory.handle_watch(watched(init_apply("other", relay())), at(second * 1000));
        directory.handle_watch(WatchNews::Failed, at(second * 1000));
        seen.extend(drain(&mut directory).into_iter().map(|change| (second, change)));
    }
    directory.handle_timeout(at(315_000));
    for event in [SliceEvent::Init, init_apply("r", relay()), SliceEvent::InitDone] {
        directory.handle_watch(watched(event), at(320_000));
    }
    seen.extend(drain(&mut directory).into_iter().map(|change| (320, change)));
    assert_eq!(seen, [(80, completeness(Estimated, Estimated)), (320, completeness(Exact, Exact))]);
}

#[test]
fn an_accepted_watch_or_a_bookmark_ends_a_run_of_errors() {
    let mut directory = of_slices(Naming::Mcs);
    for event in [SliceEvent::Init, SliceEvent::InitDone] {
        directory.handle_watch(watched(event), at(0));
    }
    directory.handle_watch(WatchNews::Failed, at(16_000));
    directory.handle_timeout(at(76_000));
    directory.handle_watch(WatchNews::Alive, at(77_000));
    let changes = drain(&mut directory);
    let expected = [
        Change::Notice(Notice::EmptyRelist),
        completeness(Estimated, Exact),
        completeness(Exact, Exact),
        completeness(Estimated, Estimated),
        completeness(Exact, Exact),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn with_karmada_services_whose_names_are_too_long_are_told_at_the_start_and_at_a_registration() {
    let named = |naming| {
        let services = Services { router_service: "r".repeat(56), ..services() };
        let mut directory =
            Directory::new(Storage::memory(LEASE, at(0)), Source::Slices(naming, services), at(0));
        for length in [44, 45, 47] {
            directory.register(registration("east", &"a".repeat(length)), at(0));
            directory.register(registration("east", &"a".repeat(length)), at(5000));
        }
        drain(&mut directory)
    };
    let notice =
        |part, service: String| Change::Notice(Notice::ServiceNameTooLong { part, service, limit: 55 });
    let dgd = |length: usize| "a".repeat(length);
    let relay =
        |length| notice(Part::Relay(key("east", &dgd(length))), format!("{}-pool-relay", dgd(length)));
    let frontend = notice(Part::Frontend(key("east", &dgd(47))), format!("{}-frontend", dgd(47)));
    let expected = [notice(Part::Router, "r".repeat(56)), relay(45), relay(47), frontend];
    assert_eq!((named(Naming::Karmada), named(Naming::Mcs)), (expected.to_vec(), vec![]));
}

#[test]
fn the_flag_follows_the_timers_alone() {
    let mut directory = of_slices(Naming::Mcs);
    for event in [SliceEvent::Init, SliceEvent::InitDone] {
        directory.handle_watch(watched(event), at(0));
    }
    directory.handle_timeout(at(15_000));
    drain(&mut directory);
    directory.handle_watch(WatchNews::Failed, at(20_000));
    let mut seen = Vec::new();
    let mut now = at(20_000);
    while let Some(deadline) = directory.poll_timeout(now) {
        now = deadline;
        directory.handle_timeout(now);
        seen.extend(drain(&mut directory).into_iter().map(|change| (now, change)));
    }
    let expected =
        [(at(80_000), completeness(Estimated, Estimated)), (at(140_000), completeness(Exact, Exact))];
    assert_eq!(seen, expected);
    // What fails afterwards begins to count then.
    for (second, complete) in [(141, Exact), (200, Exact), (201, Estimated)] {
        directory.handle_watch(WatchNews::Failed, at(second * 1000));
        assert_eq!(directory.completeness(at(second * 1000)).routers, complete, "{second}");
    }
}
