//! The outbox by events: what it asks for, in which order, and what it believes afterwards.

use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::model::{EndpointMap, EndpointSet, ExportSpec, GroupKey, HeldExport, IpFamily, RefusedExports};
use mcs_core::outbox::{Answer, Call, Failure, OpAnswer, Outbox, Process, Progress, SyncCause};
use mcs_core::registry::Op;
use mcs_core::time::{Timestamp, WallMillis};
use mcs_core::timing::{MAX_LEASE, MIN_LEASE, Timing};
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(10);

#[test]
fn a_registry_that_holds_the_same_is_told_nothing() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);

    assert_eq!(
        test.call(),
        Some(Call::Register { version: Version::new(7, 1), sum: test.sum_of(&[("cart", 1)]) })
    );
    test.answer(registered(false));

    assert_eq!(test.call(), None);
    assert_eq!(test.progress("cart"), Some(Progress::Accepted));
    assert_eq!(test.outbox.poll_timeout(), Some(test.now + HEARTBEAT));
}

#[test]
fn a_registry_that_differs_is_synced_with_what_it_wants() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    test.set("pay", 1);
    test.register(true);

    let names = vec![(key("cart"), leaf("cart", 1)), (key("pay"), leaf("pay", 1))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 2), names }));
    assert_eq!(test.outbox.sync_ops(&[key("pay")]), vec![put("pay", 1)]);
    test.answer(synced(vec![(key("pay"), Ok(()))]));

    assert_eq!(test.call(), None);
    assert_eq!(
        (test.progress("cart"), test.progress("pay")),
        (Some(Progress::Accepted), Some(Progress::Accepted))
    );
}

#[test]
fn a_change_is_sent_at_once_and_the_next_of_the_same_export_a_tenth_of_a_second_later() {
    let mut test = TestOutbox::steady();
    test.set("cart", 1);
    assert_eq!(test.call(), Some(Call::Write { version: Version::new(7, 2), ops: vec![put("cart", 1)] }));
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));

    test.set("cart", 2);
    test.set("cart", 3);
    test.advance(Duration::from_millis(99));
    assert_eq!(test.call(), None);
    test.advance(Duration::from_millis(1));
    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 3), ops: vec![put_endpoints("cart", 1, 3)] })
    );
}

#[test]
fn a_change_and_its_reversal_send_nothing() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);

    test.set("cart", 2);
    test.set("cart", 1);
    test.advance(Duration::from_secs(1));

    assert_eq!(test.call(), None);
    assert_eq!(test.progress("cart"), Some(Progress::Accepted));
}

#[test]
fn a_refused_export_waits_for_its_next_change_and_holds_up_no_other() {
    let mut test = TestOutbox::steady();
    test.set("cart", 1);
    test.set("pay", 1);
    assert!(test.call().is_some());
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal())), (key("pay"), Ok(()))]));

    assert_eq!(
        (test.progress("cart"), test.progress("pay")),
        (Some(Progress::Refused(refusal())), Some(Progress::Accepted))
    );
    test.advance(HEARTBEAT);
    assert_eq!(
        test.call(),
        Some(Call::Renew { version: Version::new(7, 2), sum: test.sum_of(&[("pay", 1)]) })
    );
    let told = RefusedExports { total: 1, first: vec![(key("cart"), refusal())] };
    assert_eq!(test.outbox.refused(), told);
    test.set("cart", 2);
    assert_eq!(test.outbox.refused(), RefusedExports::default());
    assert_eq!(test.call(), Some(Call::Write { version: Version::new(7, 3), ops: vec![put("cart", 2)] }));
}

#[test]
fn the_state_that_was_accepted_before_a_refusal_stays_in_the_sum() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set_spec("cart", bad_spec(), 1);
    assert!(test.call().is_some());
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal()))]));

    test.advance(HEARTBEAT);
    assert_eq!(
        test.call(),
        Some(Call::Renew { version: Version::new(7, 3), sum: test.sum_of(&[("cart", 1)]) })
    );
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    assert_eq!(
        test.call(),
        Some(Call::Register { version: Version::new(7, 4), sum: test.sum_of(&[("cart", 1)]) })
    );
}

#[test]
fn endpoints_stay_current_under_the_definition_that_was_taken_while_a_later_one_is_refused() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set_spec("cart", bad_spec(), 1);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal()))]));
    assert_eq!(test.progress("cart"), Some(Progress::Refused(refusal())));

    test.advance(Duration::from_millis(100));
    test.set_spec("cart", bad_spec(), 2);
    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 4), ops: vec![put_endpoints("cart", 1, 2)] })
    );
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Refused(refusal())), None));
}

#[test]
fn a_sync_that_is_refused_what_another_registry_took_is_not_repeated_for_ever() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.answer(synced(vec![(key("cart"), Err(refusal()))]));

    test.advance(HEARTBEAT);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 4), sum: Sum::EMPTY }));
    test.answer(renewed(false));
    assert_eq!((test.call(), test.progress("cart")), (None, Some(Progress::Refused(refusal()))));
}

#[test]
fn a_change_is_sent_with_the_time_at_which_it_was_seen_first() {
    let mut test = TestOutbox::steady();
    for (content, millis) in [(1, 7_000), (2, 8_000), (2, 9_000)] {
        let at = WallMillis::from_unix_millis(millis);
        test.outbox.set(key("cart"), Arc::default(), Arc::new(endpoints(content)), at);
    }
    let Some(Call::Write { ops, .. }) = test.call() else { panic!("nothing is sent") };
    let [Op::Put { leaf: sent, changed_at, .. }] = &ops[..] else { panic!("{ops:?}") };
    assert_eq!((*sent, *changed_at), (leaf("cart", 2), WallMillis::from_unix_millis(8_000)));
}

/// A registry that restarts is told everything anew, which is no change to anyone.
#[test]
fn what_a_registry_has_taken_has_no_time_when_it_is_told_again() {
    let mut test = TestOutbox::steady();
    let at = WallMillis::from_unix_millis(7_000);
    test.outbox.set(key("cart"), Arc::default(), Arc::new(endpoints(1)), at);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    test.outbox.set(key("pay"), Arc::default(), Arc::new(endpoints(1)), at);
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    let mut times = Vec::new();
    for op in test.outbox.sync_ops(&[key("cart"), key("pay")]) {
        let Op::Put { key, changed_at, .. } = op else { panic!("{op:?}") };
        times.push((key.name.to_string(), changed_at));
    }
    assert_eq!(times, [("cart".to_owned(), None), ("pay".to_owned(), at)]);
}

#[test]
fn a_sync_names_what_made_it_necessary() {
    let mut causes = Vec::new();
    let mut test = TestOutbox::new(1);
    let mut sync = |test: &mut TestOutbox, results| {
        assert!(matches!(test.call(), Some(Call::Sync { .. })));
        causes.push(test.outbox.sync_cause());
        test.answer(synced(results));
    };
    test.set("cart", 1);
    test.register(true);
    sync(&mut test, vec![(key("cart"), Ok(()))]);

    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(renewed(true));
    sync(&mut test, vec![]);

    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal()))]));
    sync(&mut test, vec![(key("cart"), Ok(()))]);

    test.renew_by(process(1, "1.0"));
    test.renew_by(process(1, "1.1"));
    sync(&mut test, vec![]);

    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    test.register(true);
    sync(&mut test, vec![]);
    let all = ["start", "renewal_differs", "write_refused", "registry_version", "registered"];
    assert_eq!(causes.iter().map(|cause| cause.as_str()).collect::<Vec<_>>(), all);
    assert_eq!(SyncCause::ALL.len(), all.len());
}

/// The state that the leader before it had told, it cannot know; the refusal says so.
#[test]
fn what_stands_of_an_export_that_a_new_leader_is_refused_stays_named_and_its_endpoints_current() {
    let mut test = TestOutbox::new(1);
    test.set_spec("cart", bad_spec(), 2);
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    assert_eq!(test.outbox.sync_ops(&[key("cart")]), vec![put_spec("cart", bad_spec(), 2)]);
    test.answer(refused_by_sync("cart", Some(held("cart", 1))));
    assert_eq!(test.progress("cart"), Some(Progress::Refused(refusal())));

    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 3), ops: vec![put_endpoints("cart", 1, 2)] })
    );
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    test.advance(HEARTBEAT);
    let sum = test.sum_of(&[("cart", 2)]);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 3), sum }));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    test.register(true);

    // A registry that has not even that gets it.
    let names = vec![(key("cart"), leaf("cart", 2))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 5), names }));
    assert_eq!(test.outbox.sync_ops(&[key("cart")]), vec![put("cart", 2)]);
    test.answer(synced(vec![(key("cart"), Ok(()))]));
    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Refused(refusal())), None));

    test.set("cart", 2);
    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Accepted), None));
}

/// As where a request was sent twice.
#[test]
fn what_stands_of_an_export_stays_known_though_its_refusal_is_told_twice() {
    let mut test = TestOutbox::new(1);
    test.set_spec("cart", bad_spec(), 1);
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    let held = BTreeMap::from([(key("cart"), held("cart", 1))]);
    let refused = (key("cart"), Err(refusal()));
    test.answer(Answer::Synced { results: vec![refused.clone(), refused], held });

    test.advance(HEARTBEAT);
    let sum = test.sum_of(&[("cart", 1)]);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 2), sum }));
}

#[test]
fn endpoints_that_are_refused_leave_what_stands_and_are_not_sent_again_before_they_change() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal()))]));

    let names = vec![(key("cart"), leaf("cart", 2))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 4), names }));
    test.answer(refused_by_sync("cart", Some(held("cart", 1))));
    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Refused(refusal())), None));
    test.advance(HEARTBEAT);
    let sum = test.sum_of(&[("cart", 1)]);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 4), sum }));
    test.answer(renewed(true));

    // It is named as it stands; a registry that has something else is asked for its reason once more.
    let names = vec![(key("cart"), leaf("cart", 1))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 5), names }));
    assert_eq!(test.outbox.sync_ops(&[key("cart")]), vec![put("cart", 2)]);
    test.answer(refused_by_sync("cart", Some(held("cart", 3))));
    test.advance(HEARTBEAT);
    let sum = test.sum_of(&[("cart", 3)]);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 5), sum }));

    test.set("cart", 4);
    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 6), ops: vec![put_endpoints("cart", 3, 4)] })
    );
}

#[test]
fn endpoints_that_a_registry_has_no_definition_for_are_told_again_with_it() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Err(refusal()))]));

    let names = vec![(key("cart"), leaf("cart", 2))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 4), names }));
    assert_eq!(test.outbox.sync_ops(&[key("cart")]), vec![put("cart", 2)]);
    test.answer(synced(vec![(key("cart"), Ok(()))]));
    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Accepted), None));
}

/// An earlier release may have dropped fields that it did not know, and no sum tells of them.
#[test]
fn when_the_version_of_the_registry_changes_all_is_put_and_what_was_refused_is_tried_again() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.set("new", 1);
    test.set_spec("pay", ExportSpec::default(), 1);
    assert!(test.call().is_some());
    test.answer(Answer::Written(vec![(key("new"), Err(refusal())), (key("pay"), Ok(()))]));
    test.advance(Duration::from_millis(100));
    test.set_spec("pay", bad_spec(), 1);
    assert!(test.call().is_some());
    test.answer(Answer::Written(vec![(key("pay"), Err(refusal()))]));

    test.renew_by(process(1, "0.2.0"));
    let names =
        vec![(key("cart"), leaf("cart", 1)), (key("new"), leaf("new", 1)), (key("pay"), leaf("pay", 1))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 5), names }));
    assert_eq!(test.outbox.sync_ops(&[]), vec![put("cart", 1), put("new", 1), put("pay", 1)]);
    test.answer(synced(vec![(key("cart"), Ok(())), (key("new"), Ok(())), (key("pay"), Ok(()))]));
    assert_eq!(test.progress("new"), Some(Progress::Accepted));

    // What stands of the other one was told, so it is safe to try.
    let put = put_spec("pay", bad_spec(), 1);
    assert_eq!(test.call(), Some(Call::Write { version: Version::new(7, 6), ops: vec![put] }));
    test.answer(Answer::Written(vec![(key("pay"), Err(refusal()))]));
    assert_eq!((test.progress("pay"), test.call()), (Some(Progress::Refused(refusal())), None));

    // But not for ever.
    test.renew_by(process(2, "0.2.0"));
    test.renew_by(process(2, ""));
    test.renew_by(process(2, "0.2.0"));
    assert_eq!(test.call(), None);
}

#[test]
fn what_a_sync_of_all_is_refused_is_not_tried_at_once_again() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.renew_by(process(1, "0.2.0"));
    test.set_spec("cart", bad_spec(), 1);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.answer(refused_by_sync("cart", Some(held("cart", 1))));

    assert_eq!((test.progress("cart"), test.call()), (Some(Progress::Refused(refusal())), None));
}

#[test]
fn a_sync_of_all_that_breaks_is_made_after_the_next_registration() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.renew_by(process(1, "0.2.0"));
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.answer(Answer::ActFailed(unavailable()));
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(Answer::Registered { differs: false, lease: LEASE, by: process(1, "0.2.0") });

    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    assert_eq!(test.outbox.sync_ops(&[]), vec![put("cart", 1)]);
    test.answer(synced(vec![(key("cart"), Ok(()))]));
    assert_eq!(test.call(), None);
}

#[test]
fn the_registry_process_that_has_the_cluster_is_named_until_none_has_it() {
    let mut test = TestOutbox::new(1);
    assert_eq!(test.outbox.registry(), None);
    test.register(false);
    assert_eq!(test.outbox.registry(), Some(Epoch(1)));
    test.renew_by(process(2, "0.1.0"));
    assert_eq!(test.outbox.registry(), Some(Epoch(2)));

    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    assert_eq!(test.outbox.registry(), Some(Epoch(2)));
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(Answer::ActFailed(Failure::Refused { reason: "id in use".to_owned() }));
    assert_eq!(test.outbox.registry(), None);
}

#[test]
fn two_calls_that_a_dead_registry_fails_have_one_more_try_there_and_then_the_next_one() {
    let mut test = TestOutbox::new(2);
    test.register(false);
    test.advance(HEARTBEAT);
    test.set("cart", 1);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::RenewFailed(unavailable()));
    test.answer(Answer::ActFailed(unavailable()));

    assert_eq!(test.outbox.url(), 0);
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(Answer::ActFailed(unavailable()));
    assert_eq!(test.outbox.url(), 1);
    assert!(matches!(test.call(), Some(Call::Register { .. })));
}

#[test]
fn a_differing_renewal_starts_a_sync_unless_an_act_crossed_it() {
    let mut test = TestOutbox::steady();
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.set("cart", 1);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    test.answer(renewed(true));
    assert_eq!(test.call(), None);

    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(renewed(true));
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
}

#[test]
fn a_failed_write_ends_in_registrations_that_claim_the_last_state_until_one_is_taken() {
    let mut test = TestOutbox::new(2);
    test.register(false);
    test.set("cart", 1);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::ActFailed(unavailable()));

    assert_eq!(test.progress("cart"), Some(Progress::Pending));
    let claim = |seq, sum| Some(Call::Register { version: Version::new(7, seq), sum });
    let sum = test.sum_of(&[("cart", 1)]);
    assert_eq!((test.outbox.url(), test.call()), (0, claim(3, sum)));
    test.answer(Answer::ActFailed(unavailable()));
    assert_eq!((test.outbox.url(), test.call()), (1, claim(4, sum)));
}

#[test]
fn a_cluster_that_a_registry_denies_asks_the_next_one_and_tells_people_when_all_deny_it() {
    let mut test = TestOutbox::new(2);
    test.set("cart", 1);
    let denied = || Answer::ActFailed(Failure::Denied { reason: "of another clusterset".to_owned() });
    assert!(test.call().is_some());
    test.answer(denied());
    assert_eq!((test.outbox.url(), test.outbox.turned_away()), (1, None));
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(denied());
    assert_eq!((test.outbox.url(), test.outbox.turned_away()), (0, Some("of another clusterset")));
    test.register(false);
    assert_eq!(test.outbox.turned_away(), None);
}

#[test]
fn a_better_registry_is_asked_once_its_watch_has_told_all_and_gone_to_when_it_takes_the_cluster() {
    let mut test = TestOutbox::on_second();
    test.write("cart", 1);
    test.heal_first();
    assert_eq!((test.outbox.candidate(), test.call()), (Some(0), None));
    test.outbox.candidate_watched(0);
    let sum = test.sum_of(&[("cart", 1)]);
    assert_eq!(test.call(), Some(Call::Register { version: Version::new(7, 5), sum }));
    assert_eq!((test.outbox.url(), test.outbox.act_url()), (1, 0));

    // Until it has taken the cluster, the one in use is told and renewed at as before.
    assert_eq!(test.progress("cart"), Some(Progress::Accepted));
    test.renew(false);
    test.answer(registered(true));
    assert_eq!((test.outbox.url(), test.outbox.candidate()), (0, None));
    let names = vec![(key("cart"), leaf("cart", 1))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 6), names }));
}

#[test]
fn a_better_registry_that_does_not_take_the_cluster_changes_nothing() {
    let mut test = TestOutbox::on_second();
    test.write("cart", 1);
    test.heal_first();
    test.outbox.candidate_watched(0);
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(Answer::ActFailed(Failure::Refused { reason: "too many clusters".to_owned() }));

    let standing = (test.outbox.url(), test.outbox.is_registered(), test.outbox.turned_away());
    assert_eq!(standing, (1, true, None));
    assert_eq!((test.outbox.candidate(), test.progress("cart")), (None, Some(Progress::Accepted)));
    test.advance(Duration::from_millis(100));
    test.set("cart", 2);
    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 6), ops: vec![put_endpoints("cart", 1, 2)] })
    );
}

#[test]
fn a_better_registry_is_forgotten_when_the_one_in_use_fails_meanwhile() {
    let mut test = TestOutbox::on_second();
    test.heal_first();
    test.outbox.candidate_watched(0);
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(unavailable()));
    test.answer(registered(false));

    assert_eq!((test.outbox.url(), test.outbox.is_registered()), (1, false));
    test.register(false);
    assert_eq!((test.outbox.url(), test.outbox.is_registered()), (1, true));
}

#[test]
fn a_watch_that_fails_twice_turns_to_the_next_registry_where_there_is_one() {
    let fails_twice = |urls| {
        let mut test = TestOutbox::new(urls);
        test.register(false);
        test.outbox.watch_failed(test.now, 0.0);
        test.outbox.watch_told();
        test.outbox.watch_failed(test.now, 0.0);
        let once = (test.outbox.url(), test.outbox.is_registered());
        test.outbox.watch_failed(test.now, 0.0);
        (once, (test.outbox.url(), test.outbox.is_registered()))
    };
    assert_eq!(fails_twice(1), ((0, true), (0, true)));
    assert_eq!(fails_twice(2), ((0, true), (1, false)));
}

#[test]
fn tries_are_spread_further_apart_with_every_round_and_never_more_than_a_fifteenth_of_a_lease() {
    let mut test = TestOutbox::new(1);
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert!(matches!(test.call(), Some(Call::Register { .. })));
        test.fail_with_jitter(Answer::ActFailed(unavailable()), 1.0);
        let retry_at = test.outbox.poll_timeout().expect("another try");
        waits.push(retry_at.since(test.now).as_millis());
        test.now = retry_at;
    }
    assert_eq!(waits, [300, 600, 1_200, 2_000, 2_000, 2_000, 2_000, 2_000]);
}

#[test]
fn a_registry_that_takes_the_cluster_and_fails_each_sync_is_left_for_the_next_one() {
    for failure in [unavailable(), Failure::UnknownMember] {
        let mut test = TestOutbox::new(2);
        test.set("cart", 1);
        let asked: Vec<_> = (0..4).map(|_| test.fail_sync(failure.clone()).0).collect();
        assert_eq!(asked, [0, 1, 1, 0], "{failure}");
    }
}

#[test]
fn the_only_registry_that_fails_each_sync_is_asked_further_and_further_apart_until_one_succeeds() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    let waits: Vec<_> = (0..5).map(|_| test.fail_sync(unavailable()).1).collect();
    assert_eq!(waits, [300, 600, 1_200, 2_000, 2_000]);
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.answer(synced(vec![(key("cart"), Ok(()))]));

    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    assert_eq!(test.fail_act(unavailable()), 300);
}

/// All is to be put once more, and that fails: the registration, by which nothing differs, says nothing.
#[test]
fn a_sync_of_all_that_fails_each_time_is_tried_further_and_further_apart() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.renew_by(process(1, "0.2.0"));
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert!(matches!(test.call(), Some(Call::Sync { .. })));
        waits.push(test.fail_act(unavailable()));
        assert!(matches!(test.call(), Some(Call::Register { .. })));
        test.answer(Answer::Registered { differs: false, lease: LEASE, by: process(1, "0.2.0") });
    }
    assert_eq!(waits, [300, 600, 1_200, 2_000]);
}

#[test]
fn a_renewal_that_is_taken_during_a_sync_says_not_that_the_registry_works() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    test.fail_sync(unavailable());
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(renewed(true));
    assert_eq!(test.fail_act(unavailable()), 600);
}

/// A registry that differs by the last registration may hold just what it was told before: it must not take a renewal
/// for the proof that this is all there is as of the registration.
#[test]
fn a_renewal_carries_the_sum_of_the_act_that_it_names() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::ActFailed(unavailable()));
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.advance(LEASE / 3);
    let sum = test.sum_of(&[("cart", 2)]);
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 4), sum }));
}

#[test]
fn a_deposed_leader_sends_nothing_more() {
    let mut test = TestOutbox::steady();
    test.set("cart", 1);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::ActFailed(Failure::OldTerm { floor: 9 }));

    test.advance(LEASE);
    assert_eq!((test.call(), test.outbox.floor(), test.outbox.poll_timeout()), (None, Some(9), None));
}

#[test]
fn a_cluster_that_is_refused_asks_again_after_a_lease_and_at_the_same_url() {
    let mut test = TestOutbox::new(2);
    assert!(test.call().is_some());
    test.answer(Answer::ActFailed(Failure::Refused { reason: "id in use".to_owned() }));

    assert_eq!((test.outbox.url(), test.outbox.poll_timeout()), (0, Some(test.now + LEASE)));
}

#[test]
fn a_member_that_a_registry_is_too_busy_for_tries_the_same_one_soon_and_tells_everything() {
    let mut test = TestOutbox::new(2);
    test.register(false);
    test.write("cart", 1);
    test.advance(Duration::from_millis(100));
    test.set("cart", 2);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.fail_with_jitter(Answer::ActFailed(Failure::Busy { reason: "too many writes".to_owned() }), 1.0);

    let retry_at = test.now + Duration::from_millis(300);
    assert_eq!((test.outbox.url(), test.outbox.poll_timeout()), (0, Some(retry_at)));
    assert_eq!((test.outbox.turned_away(), test.progress("cart")), (None, Some(Progress::Pending)));
    test.now = retry_at;
    test.register(true);
    let names = vec![(key("cart"), leaf("cart", 2))];
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 5), names }));
}

#[test]
fn every_export_of_a_cluster_that_is_refused_is_told_so_until_it_is_taken() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    assert!(test.call().is_some());
    while test.outbox.next_dirty().is_some() {}
    test.answer(Answer::ActFailed(Failure::Refused { reason: "id in use".to_owned() }));
    assert_eq!(test.outbox.next_dirty(), Some(key("cart")));
    assert_eq!(test.outbox.turned_away(), Some("id in use"));

    test.advance(LEASE);
    test.register(false);
    assert_eq!(test.outbox.next_dirty(), Some(key("cart")));
    assert_eq!(test.outbox.turned_away(), None);
}

#[test]
fn a_member_whose_call_is_refused_registers_again_within_its_lease() {
    let mut test = TestOutbox::steady();
    test.set("cart", 1);
    assert!(matches!(test.call(), Some(Call::Write { .. })));
    test.answer(Answer::ActFailed(Failure::Refused { reason: "too many names".to_owned() }));

    assert_eq!(test.outbox.poll_timeout(), Some(test.now + LEASE / 15));
    assert_eq!(test.outbox.turned_away(), None);
}

#[test]
fn the_lease_ends_one_lease_after_the_last_accepted_renewal_was_sent() {
    let mut test = TestOutbox::steady();
    let registered_at = test.now;
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(unavailable()));

    let end = registered_at + LEASE;
    assert!(!test.outbox.lease_has_ended(Timestamp::from_nanos(end.as_nanos() - 1)));
    assert!(test.outbox.lease_has_ended(end));
}

/// Its predecessor renewed last before this leader began, so the lease has ended a lease later at the latest.
#[test]
fn the_lease_of_a_leader_that_no_registry_took_ends_one_lease_after_its_lead_began() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    let end = test.now + LEASE;
    assert!(matches!(test.call(), Some(Call::Register { .. })));
    test.answer(Answer::ActFailed(unavailable()));
    assert_eq!(test.outbox.lease_until(), end);
    assert!(!test.outbox.lease_has_ended(Timestamp::from_nanos(end.as_nanos() - 1)));
    assert!(test.outbox.lease_has_ended(end));
    assert!(test.outbox.lease_has_ended(Timestamp::from_nanos(end.as_nanos() + 1)));

    test.advance(LEASE);
    test.register(false);
    assert!(!test.outbox.lease_has_ended(test.now));
    assert_eq!(test.outbox.lease_until(), test.now + LEASE);
}

#[test]
fn a_registry_whose_watch_broke_is_asked_at_once_and_only_once() {
    let mut test = TestOutbox::steady();
    let registered_at = test.now;
    test.advance(Duration::from_secs(1));
    test.outbox.doubt();
    assert_eq!(test.outbox.poll_timeout(), Some(Timestamp::ZERO));
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 1), sum: Sum::EMPTY }));

    // It breaks again while that is asked: the answer may be from before.
    test.outbox.doubt();
    assert_eq!(test.call(), None);
    test.answer(renewed(false));
    assert_eq!(test.call(), Some(Call::Renew { version: Version::new(7, 1), sum: Sum::EMPTY }));
    test.answer(renewed(false));

    assert_eq!(test.call(), None);
    assert_eq!(test.outbox.poll_timeout(), Some(registered_at + Duration::from_secs(1) + HEARTBEAT));
}

#[test]
fn a_broken_watch_adds_nothing_where_the_cluster_is_to_register_anyway() {
    let mut test = TestOutbox::steady();
    test.outbox.doubt();
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(Failure::UnknownMember));
    test.outbox.doubt();
    test.register(false);

    assert_eq!(test.call(), None);
    assert_eq!(test.outbox.poll_timeout(), Some(test.now + HEARTBEAT));
}

#[test]
fn an_export_is_gone_only_when_a_registry_has_confirmed_it() {
    let mut test = TestOutbox::new(1);
    assert!(!test.outbox.is_gone(&key("cart")), "no registry was asked yet");
    test.register(false);
    test.write("cart", 1);
    test.outbox.unset(&key("cart"));
    assert!(!test.outbox.is_gone(&key("cart")));

    test.advance(Duration::from_secs(1));
    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 3), ops: vec![Op::Delete { key: key("cart") }] })
    );
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    assert!(test.outbox.is_gone(&key("cart")));
}

/// Half a megabyte of keys of the greatest length.
#[test]
fn deletes_are_told_in_batches_like_all_else() {
    let mut test = TestOutbox::new(1);
    let names: Vec<_> = (0..4_000).map(|index| format!("service-{index}")).collect();
    names.iter().for_each(|name| test.set(name, 1));
    test.register(false);
    names.iter().for_each(|name| test.outbox.unset(&key(name)));
    let mut told = Vec::new();
    while let Some(Call::Write { ops, .. }) = test.call() {
        told.push(ops.len());
        test.answer(Answer::Written(ops.iter().map(|op| (op.key().clone(), Ok(()))).collect()));
    }
    assert_eq!(told, [3_744, 256]);
}

#[test]
fn an_export_that_is_on_its_way_is_not_gone() {
    let mut test = TestOutbox::steady();
    test.set("cart", 1);
    assert!(test.call().is_some());
    test.outbox.unset(&key("cart"));

    assert!(!test.outbox.is_gone(&key("cart")), "the registry may have taken it");
    test.answer(Answer::Written(vec![(key("cart"), Ok(()))]));
    assert!(!test.outbox.is_gone(&key("cart")));
}

#[test]
fn what_was_deleted_while_no_registry_was_in_reach_is_left_out_of_the_next_sync() {
    let mut test = TestOutbox::steady();
    test.write("cart", 1);
    test.advance(HEARTBEAT);
    assert!(matches!(test.call(), Some(Call::Renew { .. })));
    test.answer(Answer::RenewFailed(unavailable()));
    test.outbox.unset(&key("cart"));

    assert_eq!(test.call(), Some(Call::Register { version: Version::new(7, 3), sum: Sum::EMPTY }));
    test.answer(registered(true));
    assert_eq!(test.call(), Some(Call::Sync { version: Version::new(7, 4), names: vec![] }));
    test.answer(synced(vec![]));
    assert!(test.outbox.is_gone(&key("cart")));
    assert_eq!(test.call(), None);
}

#[test]
fn a_change_during_a_sync_is_told_after_it() {
    let mut test = TestOutbox::new(1);
    test.set("cart", 1);
    test.register(true);
    assert!(matches!(test.call(), Some(Call::Sync { .. })));
    test.set("cart", 2);
    assert_eq!(test.call(), None);
    test.answer(synced(vec![(key("cart"), Ok(()))]));

    assert_eq!(
        test.call(),
        Some(Call::Write { version: Version::new(7, 3), ops: vec![put_endpoints("cart", 1, 2)] })
    );
}

#[test]
fn a_shorter_lease_of_the_registry_is_followed() {
    let mut test = TestOutbox::new(1);
    assert!(test.call().is_some());
    test.answer(Answer::Registered {
        differs: false,
        lease: Duration::from_secs(3),
        by: process(1, "0.1.0"),
    });

    assert_eq!(test.outbox.poll_timeout(), Some(test.now + Duration::from_secs(1)));
}

/// From a longer one durations would follow that cannot be counted.
#[test]
fn no_lease_above_a_day_and_none_below_a_second_is_believed() {
    let believed = |lease| {
        let mut test = TestOutbox::new(1);
        assert!(test.call().is_some());
        test.answer(Answer::Registered { differs: false, lease, by: process(1, "0.1.0") });
        test.outbox.timing().lease()
    };
    let nanosecond = Duration::from_nanos(1);
    assert_eq!([MIN_LEASE - nanosecond, MIN_LEASE].map(believed), [MIN_LEASE; 2]);
    assert_eq!([MAX_LEASE, MAX_LEASE + nanosecond, Duration::MAX].map(believed), [MAX_LEASE; 3]);
    assert_eq!(believed(MAX_LEASE - nanosecond), MAX_LEASE - nanosecond);
}

struct TestOutbox {
    outbox: Outbox,
    now: Timestamp,
}

impl TestOutbox {
    fn new(urls: usize) -> Self {
        let now = Timestamp::from_millis(1_000);
        Self { outbox: Outbox::new(Timing::of_lease(LEASE), urls, 7, now), now }
    }

    fn steady() -> Self {
        let mut test = Self::new(1);
        test.register(false);
        test
    }

    /// Registered at the second of two registries, after the first one failed.
    fn on_second() -> Self {
        let mut test = Self::new(2);
        test.register(false);
        test.advance(HEARTBEAT);
        assert!(matches!(test.call(), Some(Call::Renew { .. })));
        test.answer(Answer::RenewFailed(unavailable()));
        assert!(matches!(test.call(), Some(Call::Register { .. })));
        test.answer(Answer::ActFailed(unavailable()));
        test.register(false);
        assert_eq!(test.outbox.url(), 1);
        test
    }

    /// Lets time pass in which each probe finds the first registry well, until it is to be gone back to.
    fn heal_first(&mut self) {
        for _ in 0..7 {
            while self.outbox.next_probe(self.now).is_some() {
                self.outbox.probed(0, true, self.now, 0.0);
            }
            self.advance(HEARTBEAT);
            self.renew(false);
        }
        assert_eq!(self.outbox.candidate(), Some(0));
    }

    fn renew(&mut self, degraded: bool) {
        if let Some(call) = self.call() {
            assert!(matches!(call, Call::Renew { .. }), "{call:?}");
            self.answer(Answer::Renewed { differs: false, degraded, lease: LEASE, by: process(1, "0.1.0") });
        }
    }

    fn register(&mut self, differs: bool) {
        assert!(matches!(self.call(), Some(Call::Register { .. })));
        self.answer(registered(differs));
    }

    fn renew_by(&mut self, by: Process) {
        self.advance(HEARTBEAT);
        assert!(matches!(self.call(), Some(Call::Renew { .. })));
        self.answer(renewed_by(by));
    }

    fn write(&mut self, name: &str, content: u8) {
        self.set(name, content);
        assert!(matches!(self.call(), Some(Call::Write { .. })));
        self.answer(Answer::Written(vec![(key(name), Ok(()))]));
    }

    fn set(&mut self, name: &str, content: u8) {
        self.set_spec(name, ExportSpec::default(), content);
    }

    fn set_spec(&mut self, name: &str, spec: ExportSpec, content: u8) {
        self.outbox.set(key(name), Arc::new(spec), Arc::new(endpoints(content)), None);
    }

    fn call(&mut self) -> Option<Call> {
        self.outbox.next_call(self.now)
    }

    fn answer(&mut self, answer: Answer) {
        self.fail_with_jitter(answer, 0.0);
    }

    /// The registry takes the cluster, and fails the sync: which is asked next, and after how many milliseconds at most.
    fn fail_sync(&mut self, failure: Failure) -> (usize, u128) {
        self.register(true);
        assert!(matches!(self.call(), Some(Call::Sync { .. })));
        let wait = self.fail_act(failure);
        (self.outbox.url(), wait)
    }

    /// The act under way fails: after how many milliseconds at most the next try is due, which time passes.
    fn fail_act(&mut self, failure: Failure) -> u128 {
        self.fail_with_jitter(Answer::ActFailed(failure), 1.0);
        let retry_at = self.outbox.poll_timeout().expect("another try");
        let wait = retry_at.since(self.now);
        self.now = retry_at;
        wait.as_millis()
    }

    fn fail_with_jitter(&mut self, answer: Answer, jitter: f64) {
        self.outbox.handle_answer(answer, self.now, jitter);
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    fn progress(&self, name: &str) -> Option<Progress> {
        self.outbox.progress(&key(name))
    }

    fn sum_of(&self, exports: &[(&str, u8)]) -> Sum {
        exports.iter().map(|(name, content)| leaf(name, *content)).collect()
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).expect("a valid key")
}

fn endpoints(content: u8) -> EndpointSet {
    let mut set = EndpointMap::default();
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, content));
    set.insert(GroupKey::new(IpFamily::V4, []), address, Default::default());
    set.pack()
}

fn leaf(name: &str, content: u8) -> Leaf {
    Leaf::of(&key(name), &ExportSpec::default(), &endpoints(content))
}

fn put(name: &str, content: u8) -> Op {
    put_spec(name, ExportSpec::default(), content)
}

fn put_spec(name: &str, spec: ExportSpec, content: u8) -> Op {
    let (key, endpoints) = (key(name), Arc::new(endpoints(content)));
    let leaf = Leaf::of(&key, &spec, &endpoints);
    Op::Put { key, leaf, spec: Arc::new(spec), endpoints, changed_at: None }
}

fn held(name: &str, content: u8) -> HeldExport {
    HeldExport { leaf: leaf(name, content), spec: Arc::default() }
}

fn registered(differs: bool) -> Answer {
    Answer::Registered { differs, lease: LEASE, by: process(1, "0.1.0") }
}

fn renewed(differs: bool) -> Answer {
    Answer::Renewed { differs, degraded: false, lease: LEASE, by: process(1, "0.1.0") }
}

fn renewed_by(by: Process) -> Answer {
    Answer::Renewed { differs: false, degraded: false, lease: LEASE, by }
}

fn process(epoch: u128, build: &str) -> Process {
    Process { epoch: Some(Epoch(epoch)), build: build.parse().expect("a build") }
}

fn synced(results: Vec<OpAnswer>) -> Answer {
    Answer::Synced { results, held: BTreeMap::new() }
}

fn refused_by_sync(name: &str, held: Option<HeldExport>) -> Answer {
    let held = held.map(|held| (key(name), held)).into_iter().collect();
    Answer::Synced { results: vec![(key(name), Err(refusal()))], held }
}

fn put_endpoints(name: &str, before: u8, content: u8) -> Op {
    Op::PutEndpoints {
        key: key(name),
        leaf: leaf(name, content),
        replaces: Some(leaf(name, before)),
        endpoints: Arc::new(endpoints(content)),
        changed_at: None,
    }
}

fn bad_spec() -> ExportSpec {
    ExportSpec { traffic_distribution: Some("Nonsense".to_owned()), ..ExportSpec::default() }
}

fn refusal() -> Refusal {
    Refusal { field: "ports".to_owned(), problem: "too many".to_owned() }
}

fn unavailable() -> Failure {
    Failure::Unavailable { reason: "connection refused".to_owned() }
}
