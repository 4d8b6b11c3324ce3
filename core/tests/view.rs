//! What an importer believes, told as stories of frames.

#[path = "view/absence.rs"]
mod absence;
#[path = "view/changes.rs"]
mod changes;
#[path = "view/feed.rs"]
mod feed;
#[path = "view/kept.rs"]
mod kept;
#[path = "view/merges.rs"]
mod merges;
#[path = "view/never.rs"]
mod never;
#[path = "view/own.rs"]
mod own;
#[path = "view/split.rs"]
mod split;

use feed::{Feed, GRACE, active, endpoints, expired, key, port_of, reborn, show, state, syncing, uid};
use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::model::MemberState;
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
use mcs_core::view::{Applied, Counts, Decision, Source};
use std::collections::BTreeSet;

#[test]
fn an_export_is_shown_when_part_and_merge_are_told_also_within_a_snapshot() {
    let mut feed = Feed::new();
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    assert_eq!(feed.decide(), Decision::Keep);
    feed.header(&[("alpha", 5)]);
    assert_eq!(feed.sources(), show([]));
    feed.part("alpha", 5, &[1]);
    assert_eq!(feed.drain(), BTreeSet::from([key()]));
    let Decision::Apply(wanted) = feed.decide() else { panic!("nothing to apply") };
    let Source::Show(shown) = &wanted.sources[&feed::id("alpha")] else { panic!("{wanted:?}") };
    assert_eq!(shown.uid, Some(uid("", "alpha")));
    assert_eq!(shown.region.as_ref().map(|region| region.as_str()), Some("eu-west-1"));
    assert_eq!(shown.version, Some(Version::new(1, 5)));
    assert_eq!(shown.endpoints, endpoints(&[1]));
    assert_eq!(feed.definition().as_deref(), Some("http"));
    assert_eq!(feed.view.resume(), None, "half a snapshot is no place to go on from");
    feed.end(true);
    assert_eq!(feed.view.resume(), Some((Epoch(1), 4)));
    assert_eq!(feed.view.counts(), Counts { clusters: 2, imports: 1, endpoints: 1 });
}

#[test]
fn each_change_makes_its_service_dirty_once() {
    let mut feed = Feed::with_alpha();
    assert_eq!(feed.drain(), BTreeSet::new());
    feed.part("alpha", 6, &[1, 2]);
    feed.part("alpha", 7, &[2]);
    assert_eq!(feed.view.next_dirty(), Some(key()));
    assert_eq!(feed.view.next_dirty(), None);
    feed.section("alpha", active(7));
    feed.progress(true);
    assert_eq!(feed.drain(), BTreeSet::new(), "a version and a sign of life change nothing");
}

#[test]
fn telling_what_is_applied_makes_nothing_dirty() {
    let mut feed = Feed::with_alpha();
    feed.apply();
    feed.view.removed(&key());
    feed.view.applied(key(), Applied::default());
    assert_eq!(feed.drain(), BTreeSet::new());
    let other = ServiceKey::new("shop", "other").expect("a key");
    feed.view.applied(other.clone(), Applied::default());
    assert_eq!(feed.view.decide(&other), Decision::Keep, "nothing is known of it");
    assert_eq!(feed.drain(), BTreeSet::new());
}

/// Cases O23 and O31: an export that is gone takes its own endpoints only; with the last one all goes.
#[test]
fn what_a_whole_cluster_no_longer_has_goes() {
    let mut feed = Feed::with_alpha();
    feed.section("beta", active(3));
    feed.header(&[("alpha", 5), ("beta", 3)]);
    feed.part("beta", 3, &[9]);
    feed.apply();
    assert_eq!(feed.sources(), show([("alpha", Some(&[1])), ("beta", Some(&[9]))]));

    feed.section("alpha", active(6));
    feed.header(&[("beta", 3)]);
    feed.part_gone("alpha");
    assert_eq!(feed.sources(), show([("beta", Some(&[9]))]));
    feed.apply();
    feed.section("beta", active(4));
    feed.part_gone("beta");
    feed.header_gone();
    assert_eq!(feed.decide(), Decision::Remove);
    feed.apply();
    assert_eq!(feed.decide(), Decision::Keep, "it is forgotten");
}

#[test]
fn an_absence_counts_only_from_the_applied_version_on() {
    let mut feed = Feed::with_alpha();
    feed.part("alpha", 9, &[1, 2]);
    feed.apply();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(8));
    feed.end(true);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.section("alpha", active(9));
    assert_eq!(feed.drain(), BTreeSet::from([key()]));
    assert_eq!(feed.decide(), Decision::Remove);
}

#[test]
fn nothing_goes_while_the_own_cluster_is_not_listed() {
    for own in [None, Some(syncing()), Some(expired(1))] {
        let mut feed = Feed::with_alpha();
        feed.begin(2);
        if let Some(own) = own {
            feed.section("gamma", own);
        }
        feed.section("alpha", active(6));
        feed.end(true);
        assert_eq!(feed.sources(), show([("alpha", None)]));
        feed.section("gamma", state(MemberState::Held, true, 1));
        assert_eq!(feed.drain(), BTreeSet::from([key()]));
        assert_eq!(feed.decide(), Decision::Remove);
    }
}

#[test]
fn a_syncing_cluster_keeps_what_is_applied_and_shows_nothing_new() {
    let mut feed = Feed::with_alpha();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", syncing());
    feed.part("alpha", 6, &[1, 2]);
    feed.end(false);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.section("alpha", active(6));
    feed.header(&[("alpha", 6)]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 2]))]));
}

/// Case O33: the lease hides endpoints, keeps the import, and one section brings all back.
#[test]
fn an_expired_lease_hides_endpoints_and_a_renewal_brings_them_back() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", state(MemberState::Held, true, 5));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]), "a verdict that is held changes nothing");
    feed.section("alpha", expired(5));
    assert_eq!(feed.drain(), BTreeSet::from([key()]));
    assert_eq!(feed.sources(), show([]));
    assert_eq!(feed.definition().as_deref(), Some("http"));
    feed.apply();
    feed.section("alpha", active(5));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
}

#[test]
fn an_expiry_within_a_snapshot_counts_at_its_end() {
    let mut feed = Feed::with_alpha();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", expired(5));
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.sources(), show([]));
}

#[test]
fn what_was_hidden_does_not_come_back_with_a_new_snapshot() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", expired(5));
    feed.apply();
    feed.begin(2);
    assert_eq!(feed.sources(), show([]));
}

#[test]
fn half_a_snapshot_deletes_nothing() {
    let mut feed = Feed::with_alpha();
    feed.begin(2);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.section("gamma", active(1));
    feed.section("alpha", active(9));
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.view.disconnected();
    feed.wait(GRACE * 5);
    assert_eq!(feed.sources(), show([("alpha", None)]));
}

/// Case O39: what was deleted and made while no registry was in reach, with and without a restart.
#[test]
fn deletes_that_were_missed_are_found_by_the_next_snapshot() {
    let restarted = || {
        let mut feed = Feed::new();
        feed.seed(&[("alpha", 5)]);
        feed
    };
    for mut feed in [Feed::with_alpha(), restarted()] {
        feed.view.disconnected();
        feed.begin(1);
        feed.section("gamma", active(1));
        feed.section("alpha", active(7));
        feed.end(true);
        assert_eq!(feed.decide(), Decision::Remove);
    }
}

#[test]
fn a_registry_that_lags_brings_nothing_back_and_deletes_nothing() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", active(8));
    feed.part("alpha", 8, &[1, 2]);
    feed.apply();
    // It is behind: it holds an older state of this export.
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    feed.wait(GRACE * 3);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    // It catches up.
    feed.part("alpha", 8, &[1, 2]);
    feed.section("alpha", active(8));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 2]))]));
}

#[test]
fn an_export_that_was_deleted_does_not_come_back_from_a_registry_that_lags() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", active(8));
    feed.part_gone("alpha");
    feed.header_gone();
    feed.apply();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.decide(), Decision::Keep);
    feed.part("alpha", 9, &[3]);
    feed.section("alpha", active(9));
    feed.header(&[("alpha", 9)]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[3]))]), "made anew");
}

#[test]
fn a_restarted_importer_shows_nothing_older_than_its_slices_name() {
    let mut feed = Feed::new();
    feed.seed(&[("alpha", 8)]);
    assert_eq!(feed.decide(), Decision::Keep);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.decide(), Decision::Keep);
    feed.part("alpha", 8, &[1, 2]);
    feed.section("alpha", active(8));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 2]))]));
}

/// Case O32: another cluster under the same id is another cluster; its versions start anew.
#[test]
fn another_uid_is_another_cluster() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", reborn(syncing()));
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.section("alpha", reborn(active(2)));
    feed.part_of("alpha", "second", 2, &[7]);
    feed.header(&[("alpha", 2)]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[7]))]));

    let mut feed = Feed::with_alpha();
    feed.section("alpha", reborn(active(1)));
    feed.part_gone("alpha");
    feed.header_gone();
    assert_eq!(feed.decide(), Decision::Remove, "the new one is whole and exports nothing");
}

#[test]
fn a_part_of_another_uid_than_the_section_names_is_not_shown() {
    let mut feed = Feed::with_alpha();
    feed.part_of("alpha", "second", 2, &[7]);
    assert_eq!(feed.sources(), show([("alpha", None)]));
}

#[test]
fn a_whole_registry_restart_keeps_all_until_each_cluster_has_synced() {
    let mut feed = Feed::with_alpha();
    feed.section("beta", active(3));
    feed.header(&[("alpha", 5), ("beta", 3)]);
    feed.part("beta", 3, &[9]);
    feed.apply();
    feed.begin(2);
    feed.end(false);
    assert_eq!(feed.sources(), show([("alpha", None), ("beta", None)]));
    feed.section("gamma", active(1));
    feed.section("alpha", active(6));
    feed.header_of(&port_of("web"), &[("alpha", 5)]);
    feed.part("alpha", 5, &[1, 4]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 4])), ("beta", None)]));
    assert_eq!(feed.definition().as_deref(), Some("http"), "beta is not in the merge yet");
    feed.section("beta", active(4));
    feed.part("beta", 3, &[9]);
    feed.header_of(&port_of("web"), &[("alpha", 5), ("beta", 3)]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 4])), ("beta", Some(&[9]))]));
    assert_eq!(feed.definition().as_deref(), Some("web"));
}

#[test]
fn time_that_does_not_pass_takes_no_verdict() {
    let mut feed = Feed::with_alpha();
    feed.view.handle_timeout(Timestamp::MAX);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
}
