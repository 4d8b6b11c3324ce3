//! Watchers of a registry: what they are told, and what they are not told since they have it.

use crate::fixture::{Fixture, POLICY, build, cluster, delete, line, put, sum_of, uid};
use mcs_core::ids::Build;
use mcs_core::log::StateLog;
use mcs_core::model::{Object, PartSet, Since};
use mcs_core::registry::{Op, Policy};
use mcs_core::version::Sum;
use mcs_core::watch::{Told, Watcher};
use std::ops::ControlFlow;

/// East exports web and api, west exports web; the importer is north.
fn with_exports() -> Fixture {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.wrote("east", "1.2", east());
    fixture.wrote("west", "1.2", vec![put("web", &["10.2.0.1"])]);
    fixture.told();
    fixture
}

fn east() -> Vec<Op> {
    vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"])]
}

fn since(sets: &[(&str, Sum)]) -> Since {
    let set = |(name, sum): &(&str, Sum)| (cluster(name), PartSet { uid: uid(name), sum: *sum });
    Since { build: build(), sets: sets.iter().map(set).collect() }
}

fn watcher(since: Since) -> Watcher {
    Watcher::new(cluster("north"), None, since, &build())
}

/// At most `most` lines of what a watcher is told.
fn some(watcher: &mut Watcher, fixture: &mut Fixture, most: usize) -> Vec<String> {
    fixture.told();
    let mut told = Vec::new();
    let (registry, log, complete) =
        (&fixture.registry, &fixture.log, fixture.registry.is_complete(fixture.now()));
    while told.len() < most {
        let more = watcher.tell(
            log,
            complete,
            |cluster| registry.proven(cluster),
            |step| {
                told.push(text(step));
                if told.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        if !more {
            break;
        }
    }
    told
}

/// All that a watcher is told.
fn all(watcher: &mut Watcher, fixture: &mut Fixture) -> Vec<String> {
    some(watcher, fixture, usize::MAX)
}

/// As [`all`], without sections and headers.
fn parts(watcher: &mut Watcher, fixture: &mut Fixture) -> Vec<String> {
    let told = all(watcher, fixture);
    told.into_iter().filter(|line| line.starts_with("part") || line.starts_with("kept")).collect()
}

fn text(step: Told<'_, Object>) -> String {
    match step {
        Told::Begin => "begin".to_owned(),
        Told::Kept(cluster, set, version) => format!("kept {cluster} {} {version}", set.uid),
        Told::State(_, key, object) => line(key, object),
        Told::End(revision, complete) => format!("end {revision} {complete}"),
        Told::Progress(revision, complete) => format!("progress {revision} {complete}"),
    }
}

#[test]
fn a_watcher_that_has_the_parts_of_a_cluster_is_told_so_in_their_place() {
    let mut fixture = with_exports();
    let mut watcher = watcher(since(&[("east", sum_of(&east()))]));
    assert_eq!(
        all(&mut watcher, &mut fixture),
        [
            "begin",
            "east active whole 1.2",
            "west active whole 1.2",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east+west",
            "kept east uid-east 1.2",
            "part web of west 1.2 [10.2.0.1]",
            "end 10 false",
        ]
    );
    assert_eq!(watcher.spared(), 2);
}

#[test]
fn what_a_watcher_has_otherwise_is_told_again() {
    let behind = |fixture: &mut Fixture| {
        fixture.renew("east", "1.2", Sum::EMPTY).expect("renewed");
    };
    let as_it_is = |_: &mut Fixture| {};
    let good = || since(&[("east", sum_of(&east()))]);
    let another_uid = || {
        let mut since = good();
        for set in since.sets.values_mut() {
            set.uid = uid("another");
        }
        since
    };
    type Case = (&'static str, Since, fn(&mut Fixture));
    let cases: [Case; 5] = [
        ("nothing", Since::default(), as_it_is),
        ("another sum", since(&[("east", sum_of(&east()[..1]))]), as_it_is),
        ("another UID", another_uid(), as_it_is),
        ("told by another build", Since { build: Build::new("0.2.0").expect("a build"), ..good() }, as_it_is),
        ("all, but the member says that it has more", good(), behind),
    ];
    for (what, since, before) in cases {
        let mut fixture = with_exports();
        before(&mut fixture);
        let mut watcher = watcher(since);
        assert_eq!(
            parts(&mut watcher, &mut fixture),
            [
                "part api of east 1.2 [10.1.0.2]",
                "part web of east 1.2 [10.1.0.1]",
                "part web of west 1.2 [10.2.0.1]"
            ],
            "the watcher has {what}"
        );
        assert_eq!(watcher.spared(), 0);
    }
}

#[test]
fn a_member_that_becomes_whole_after_the_snapshot_is_compared_then() {
    let mut fixture = Fixture::new();
    let mut watcher =
        watcher(since(&[("east", sum_of(&east())), ("west", sum_of(&[put("web", &["10.2.0.9"])]))]));
    assert_eq!(all(&mut watcher, &mut fixture), ["begin", "end 0 false"]);
    for (name, ops) in [("east", east()), ("west", vec![put("web", &["10.2.0.1"])])] {
        fixture.register(name, "2.1", sum_of(&ops)).expect("free id");
        fixture.sync(name, "2.2", ops);
    }
    assert_eq!(
        all(&mut watcher, &mut fixture),
        [
            "kept east uid-east 2.2",
            "header api ClusterSetIp of east",
            "east active whole 2.2",
            "part web of west 2.2 [10.2.0.1]",
            "header web ClusterSetIp of east+west",
            "west active whole 2.2",
        ]
    );
}

#[test]
fn what_changes_after_parts_were_kept_is_told() {
    let mut fixture = with_exports();
    let mut watcher =
        watcher(since(&[("east", sum_of(&east())), ("west", sum_of(&[put("web", &["10.2.0.1"])]))]));
    // Begin, sections, headers, and what is kept of east.
    assert_eq!(
        some(&mut watcher, &mut fixture, 6).last().map(String::as_str),
        Some("kept east uid-east 1.2")
    );
    fixture.wrote("east", "1.3", vec![put("web", &["10.1.0.7"]), delete("api")]);
    fixture.wrote("west", "1.3", vec![put("web", &["10.2.0.7"])]);
    assert_eq!(
        parts(&mut watcher, &mut fixture),
        [
            "part web of east 1.3 [10.1.0.7]",
            "part web of west 1.3 [10.2.0.7]",
            "part web of east 1.3 [10.1.0.7]",
            "part api of east gone",
            "part web of west 1.3 [10.2.0.7]",
        ],
        "at their place in the snapshot, and as changes"
    );
}

#[test]
fn a_watcher_that_goes_on_is_told_what_it_missed_whatever_it_has() {
    let mut fixture = with_exports();
    let mut first = watcher(Since::default());
    assert_eq!(all(&mut first, &mut fixture).last().map(String::as_str), Some("end 10 false"));
    fixture.wrote("east", "1.3", vec![put("api", &["10.1.0.2"]), put("web", &["10.1.0.7"])]);
    let now = since(&[("east", sum_of(&[put("api", &["10.1.0.2"]), put("web", &["10.1.0.7"])]))]);
    let mut watcher = Watcher::new(cluster("north"), Some(10), now, &build());
    assert_eq!(
        all(&mut watcher, &mut fixture),
        ["part web of east 1.3 [10.1.0.7]", "east active whole 1.3", "progress 12 false"]
    );
}

/// As [`with_exports`], by a log that forgets every removal.
fn forgetful() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.log = StateLog::keeping(0);
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    fixture.wrote("east", "1.2", east());
    fixture.told();
    fixture
}

#[test]
fn a_watcher_that_cannot_go_on_is_told_a_snapshot_without_what_it_has() {
    let mut fixture = forgetful();
    fixture.wrote("east", "1.3", vec![put("new", &[])]);
    fixture.wrote("east", "1.4", vec![delete("new")]);
    fixture.told();
    let mut watcher = Watcher::new(cluster("north"), Some(3), since(&[("east", sum_of(&east()))]), &build());
    let told = all(&mut watcher, &mut fixture);
    assert_eq!((told[0].as_str(), told[4].as_str()), ("begin", "kept east uid-east 1.4"), "{told:?}");
}

#[test]
fn a_watcher_that_falls_too_far_behind_is_told_all_within_the_same_stream() {
    let mut fixture = forgetful();
    let mut watcher = watcher(since(&[("east", sum_of(&east()))]));
    assert_eq!(parts(&mut watcher, &mut fixture), ["kept east uid-east 1.2"]);
    fixture.wrote("east", "1.3", vec![put("web", &["10.1.0.7"])]);
    fixture.wrote("east", "1.4", vec![put("web", &["10.1.0.1"]), delete("api")]);
    fixture.wrote("east", "1.5", vec![put("api", &["10.1.0.2"])]);
    fixture.told();
    // What it had when it came says nothing now: it was told something else, and then lost count.
    assert_eq!(
        all(&mut watcher, &mut fixture),
        [
            "begin",
            "east active whole 1.5",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "part api of east 1.5 [10.1.0.2]",
            "part web of east 1.4 [10.1.0.1]",
            "end 15 false",
        ]
    );
}

#[test]
fn a_watcher_that_falls_too_far_behind_within_its_snapshot_is_told_all() {
    let mut fixture = forgetful();
    let mut watcher = watcher(since(&[("east", sum_of(&east()))]));
    let begun = some(&mut watcher, &mut fixture, 5);
    assert_eq!(begun.last().map(String::as_str), Some("kept east uid-east 1.2"), "{begun:?}");
    fixture.wrote("east", "1.3", vec![put("new", &[])]);
    fixture.wrote("east", "1.4", vec![delete("new")]);
    assert_eq!(
        all(&mut watcher, &mut fixture),
        [
            "begin",
            "east active whole 1.4",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "part api of east 1.2 [10.1.0.2]",
            "part web of east 1.2 [10.1.0.1]",
            "end 12 false",
        ]
    );
}

#[test]
fn what_a_watcher_has_is_forgotten_when_the_view_is_complete() {
    let mut fixture = Fixture::new();
    let mut watcher = watcher(since(&[("east", sum_of(&east()))]));
    fixture.until(30);
    assert_eq!(all(&mut watcher, &mut fixture), ["begin", "end 0 true"]);
    fixture.register("east", "2.1", sum_of(&east())).expect("free id");
    fixture.sync("east", "2.2", east());
    assert_eq!(
        parts(&mut watcher, &mut fixture),
        ["part api of east 2.2 [10.1.0.2]", "part web of east 2.2 [10.1.0.1]"]
    );
}

#[test]
fn the_own_parts_of_a_watcher_are_not_told() {
    let mut fixture = with_exports();
    let mut watcher = Watcher::new(cluster("east"), None, Since::default(), &build());
    assert_eq!(parts(&mut watcher, &mut fixture), ["part web of west 1.2 [10.2.0.1]"]);
    fixture.wrote("east", "1.3", vec![put("web", &["10.1.0.7"])]);
    assert_eq!(all(&mut watcher, &mut fixture), ["east active whole 1.3"]);
    fixture.wrote("east", "1.4", vec![delete("web")]);
    assert_eq!(
        all(&mut watcher, &mut fixture),
        ["header web ClusterSetIp of west", "east active whole 1.4"],
        "their removal neither"
    );
}

#[test]
fn progress_is_told_again_when_it_is_asked_for_or_when_the_view_becomes_complete() {
    let mut fixture = with_exports();
    let mut watcher = watcher(Since::default());
    all(&mut watcher, &mut fixture);
    assert_eq!(all(&mut watcher, &mut fixture), [""; 0]);
    watcher.remind();
    assert_eq!(all(&mut watcher, &mut fixture), ["progress 10 false"]);
    fixture.renewing_until(30, &["east", "west"]);
    assert_eq!(all(&mut watcher, &mut fixture), ["progress 10 true"]);
    watcher.remind();
    fixture.wrote("west", "1.3", vec![put("web", &["10.2.0.7"])]);
    assert_eq!(
        all(&mut watcher, &mut fixture),
        ["part web of west 1.3 [10.2.0.7]", "west active whole 1.3", "progress 12 true"],
        "after what there is to tell"
    );
}

#[test]
fn a_walk_past_parts_that_are_kept_pauses_so_that_it_holds_nobody_up() {
    let names: Vec<String> = (0..1_500).map(|number| format!("svc-{number}")).collect();
    let ops: Vec<Op> = names.iter().map(|name| put(name, &[])).collect();
    let mut fixture = Fixture::with(Policy { max_exports: 1_500, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    fixture.wrote("east", "1.2", ops.clone());
    fixture.told();
    let mut watcher = watcher(since(&[("east", sum_of(&ops))]));
    let mut walks = Vec::new();
    loop {
        let mut told = 0;
        let more = watcher.tell(
            &fixture.log,
            false,
            |cluster| fixture.registry.proven(cluster),
            |_| {
                told += 1;
                ControlFlow::Continue(())
            },
        );
        walks.push(told);
        if !more {
            break;
        }
    }
    // Begin, the section and 999 headers; the other headers, and what is kept; nothing; the end.
    assert_eq!((walks, watcher.spared()), (vec![1 + 1_000, 501 + 1, 0, 1], 1_500));
}
