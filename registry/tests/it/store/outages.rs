//! D3: while its store does not do its work, a registry goes on with what it knows, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mcs_core::ids::ClustersetId;
use mcs_core::model::{Frame, MemberState, Object, ObjectKey};
use mcs_core::registry::Op;
use mcs_core::timing::Timing;
use mcs_core::version::{Sum, Version};
use mcs_proto::convert::Member;
use mcs_proto::status::CallFailed;
use mcs_registry::store::{Known, Store};
use tonic::Code;

use super::double::{Double, Mood};
use crate::logged::Logged;
use crate::started::{Exporter, LEASE, LIMIT, Started, http, key, prod, put};

/// A registry whose calls to the store are given half a second.
async fn over(store: &Arc<Double>) -> Started {
    Started::over(store.clone(), |policy| policy.timing = Timing::of_lease(Duration::from_secs(3))).await
}

/// Waits until the registry says that nothing is in memory only.
async fn until_saved(exporter: &Exporter) {
    let saved = async {
        while exporter
            .client
            .renew(&exporter.member, exporter.version(), exporter.sum)
            .await
            .is_ok_and(|renewed| renewed.degraded)
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, saved).await.unwrap();
}

/// The names of what the store holds of a member, each with its version.
async fn stored(store: &Double, exporter: &Exporter) -> BTreeMap<String, Version> {
    let exports = store.records().exports(&exporter.member, &Known::new()).await.unwrap();
    exports.whole.into_iter().map(|(key, export)| (key.name.to_string(), export.version)).collect()
}

/// O55: a store that takes a call and never answers is one of the moods.
#[tokio::test]
async fn what_is_said_while_the_store_is_away_is_taken_shown_and_stored_later() {
    for mood in [Mood::Away, Mood::Silent, Mood::Throttled] {
        let store = Double::in_mood(Mood::Fine);
        let started = over(&store).await;
        let mut east = started.register("east").await;
        let before = east.write(&[put("web", 1), put("old", 1)]).await;
        assert!(!before.degraded, "{mood:?}");
        let (mut watch, _) = started.watch().await;

        store.turn(mood);
        let written = east.write(&[put("api", 2), Op::Delete { key: key("old") }]).await;
        assert_eq!((written.degraded, written.results.len()), (true, 2), "{mood:?}");
        let mut told = Vec::new();
        while !told.contains(&ObjectKey::Part(key("api"), east.member.cluster.clone())) {
            if let Frame::Change(change) = watch.next().await.unwrap() {
                told.push(change.key);
            }
        }
        assert_eq!(
            stored(&store, &east).await,
            BTreeMap::from([("old".to_owned(), Version::new(1, 2)), ("web".to_owned(), Version::new(1, 2))]),
            "{mood:?}"
        );

        store.turn(Mood::Fine);
        east.sum.remove(crate::started::leaf(&put("old", 1)));
        until_saved(&east).await;
        assert_eq!(
            stored(&store, &east).await,
            BTreeMap::from([("api".to_owned(), Version::new(1, 3)), ("web".to_owned(), Version::new(1, 2))]),
            "{mood:?}"
        );
        assert!(!east.write(&[put("more", 1)]).await.degraded, "{mood:?}");
    }
}

/// The partition of one cluster is written too fast, or an item of it refused: no other is to leave for that.
#[tokio::test]
async fn what_the_store_does_not_take_of_one_cluster_degrades_no_answer_to_another() {
    let store = Double::in_mood(Mood::Fine);
    let started = over(&store).await;
    let (mut east, mut west) = (started.register("east").await, started.register("west").await);
    store.is_hot(Some(&east.member.cluster));
    for count in 1..=3 {
        assert!(east.write(&[put("web", count)]).await.degraded, "{count}");
        assert!(!west.write(&[put(&format!("web-{count}"), 1)]).await.degraded, "{count}");
    }
    east.sum = [crate::started::leaf(&put("web", 3))].into_iter().collect();
    let degraded = async |exporter: &Exporter| {
        let renewed =
            exporter.client.renew(&exporter.member, exporter.version(), exporter.sum).await.unwrap();
        (renewed.degraded, renewed.differs)
    };
    assert_eq!((degraded(&east).await, degraded(&west).await), ((true, false), (false, false)));
    assert_eq!(stored(&store, &west).await.len(), 3);
    store.is_hot(None);
    until_saved(&east).await;
    assert_eq!(stored(&store, &east).await, BTreeMap::from([("web".to_owned(), east.version())]));
}

/// A store that refuses writes for their number still answers, so time goes on; one that does not answer stops it.
#[tokio::test]
async fn no_lease_is_judged_and_no_view_complete_while_the_store_does_not_answer() {
    let store = Double::in_mood(Mood::Fine);
    let started = Started::over(store.clone(), |_| {}).await;
    let (mut east, west) = (started.register("east").await, started.register("west").await);
    started.pass(LEASE / 2).await;
    let keep = |exporter: &Exporter| {
        let (client, member) = (exporter.client.clone(), exporter.member.clone());
        let (version, sum) = (exporter.version(), exporter.sum);
        async move { client.renew(&member, version, sum).await.unwrap() }
    };
    keep(&east).await;
    keep(&west).await;
    started.pass(LEASE / 2).await;
    let listed = async || started.client.list_clusters(&prod()).await.unwrap();
    assert!(listed().await.1);

    store.turn(Mood::Away);
    assert!(east.write(&[put("web", 1)]).await.degraded);
    let noticed = async { while listed().await.1 {} };
    tokio::time::timeout(LIMIT, noticed).await.unwrap();
    started.pass(LEASE * 5).await;
    let states = |(clusters, _): (Vec<mcs_proto::pb::Cluster>, bool)| -> Vec<String> {
        let states =
            clusters.iter().map(|cluster| cluster.lease.as_ref().unwrap().state().as_str_name().to_owned());
        states.collect()
    };
    assert_eq!(states(listed().await), ["LEASE_STATE_ACTIVE", "LEASE_STATE_ACTIVE"]);

    store.turn(Mood::Fine);
    until_saved(&east).await;
    assert!(listed().await.1);
    let (mut watch, _) = started.watch().await;
    let expired = async {
        loop {
            started.pass(LEASE / 3).await;
            keep(&east).await;
            while let Ok(Ok(frame)) = tokio::time::timeout(Duration::from_millis(10), watch.next()).await {
                if let Frame::Change(change) = frame
                    && let Some(Object::Section(section)) = change.object
                    && section.state == MemberState::Expired
                {
                    return change.key;
                }
            }
        }
    };
    let expired = tokio::time::timeout(LIMIT, expired).await.unwrap();
    assert_eq!(expired, ObjectKey::Section(west.member.cluster.clone()));
}

/// A store that is away for long does not fill the memory: what can still be changed is bounded, and leases go on.
#[tokio::test]
async fn a_hundred_thousand_records_may_wait_for_the_store_and_no_more_is_taken_then() {
    let store = Double::in_mood(Mood::Fine);
    let started = Started::over(store.clone(), |policy| {
        policy.timing = Timing::of_lease(Duration::from_secs(30));
        policy.max_exports = 10_000;
    })
    .await;
    let mut clusters = Vec::new();
    for number in 0..10 {
        clusters.push(started.register(&format!("c{number}")).await);
    }
    store.turn(Mood::Away);
    let puts = |range: std::ops::Range<usize>| -> Vec<Op> {
        range.map(|number| put(&format!("svc-{number}"), 0)).collect()
    };
    // Each waits with its record, too.
    for cluster in &mut clusters {
        for first in (0..8_888).step_by(1_111) {
            assert!(cluster.write(&puts(first..first + 1_111)).await.degraded);
        }
    }
    let (last, others) = clusters.split_last_mut().unwrap();
    for cluster in others {
        assert_eq!(cluster.write(&puts(8_888..9_999)).await.results.len(), 1_111);
    }
    last.write(&puts(8_888..9_998)).await;
    // 99,999 wait.
    assert_eq!(last.write(&puts(9_998..9_999)).await.results.len(), 1);

    let refused = CallFailed::Unavailable {
        code: Code::Unavailable,
        message: "100000 records wait for a store that does not take them, the most that this registry keeps: send \
                  this again later, here or to another one"
            .to_owned(),
    };
    let version = Version::new(1, last.seq + 1);
    // One that waits already is no exception.
    for put in [put("web", 1), put("svc-0", 1)] {
        assert_eq!(last.client.write(&last.member, version, &[put]).await.unwrap_err(), refused);
    }
    assert_eq!(last.client.begin_sync(&last.member, version, &[]).await.map(drop).unwrap_err(), refused);
    assert!(last.client.renew(&last.member, last.version(), last.sum).await.unwrap().degraded);
    last.seq += 1;

    store.turn(Mood::Fine);
    until_saved(last).await;
    assert_eq!(stored(&store, last).await.len(), 9_999);
    assert!(!last.write(&[put("web", 1)]).await.degraded);
}

/// What could not be read may be there: nobody is taken for absent.
#[tokio::test]
async fn a_clusterset_that_was_not_read_is_not_complete_while_the_store_does_not_answer() {
    let store = Double::in_mood(Mood::Fine);
    let started = Started::over(store.clone(), |_| {}).await;
    let mut east = started.register("east").await;
    let test = || ClustersetId::new("test").unwrap();
    let member = Member { clusterset: test(), ..crate::started::member("east", "uid-of-east") };
    let registration = crate::started::registration(&member, Version::new(1, 1), Sum::EMPTY);
    let complete = async || {
        let (clusters, of_clusters) = started.client.list_clusters(&test()).await.unwrap();
        let (exports, of_exports) = started.client.list_exports(&test(), true).await.unwrap();
        let (imports, of_imports) = started.client.list_imports(&test(), true).await.unwrap();
        assert_eq!((clusters.len(), exports.len(), imports.len()), (0, 0, 0));
        [of_clusters, of_exports, of_imports]
    };
    assert_eq!(complete().await, [false; 3]);
    started.pass(LEASE).await;
    assert_eq!(complete().await, [true; 3]);

    store.turn(Mood::Away);
    assert!(east.write(&[put("web", 1)]).await.degraded);
    let noticed = async { while complete().await != [false; 3] {} };
    tokio::time::timeout(LIMIT, noticed).await.unwrap();

    store.turn(Mood::Fine);
    until_saved(&east).await;
    assert_eq!(complete().await, [true; 3]);

    // One that somebody asked for, and that could not be read.
    store.turn(Mood::Away);
    started.client.register(&member, &registration).await.unwrap_err();
    store.turn(Mood::Fine);
    assert!(!east.write(&[put("api", 1)]).await.degraded);
    assert_eq!(complete().await, [false; 3]);
    assert!(started.client.register(&member, &registration).await.is_ok());
    assert_eq!(started.client.list_clusters(&test()).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_registry_is_ready_when_its_store_answered_once_and_stays_so() {
    let store = Double::in_mood(Mood::Away);
    let started = over(&store).await;
    let ready = || http(started.admin, "GET", "/readyz");
    assert_eq!(ready().await, ("503 Service Unavailable".to_owned(), "not ready: the store\n".to_owned()));
    let member = crate::started::member("east", "uid-of-east");
    let registration =
        crate::started::registration(&member, Version::new(1, 1), mcs_core::version::Sum::EMPTY);
    let refused = started.client.register(&member, &registration).await.unwrap_err();
    assert_eq!(
        refused,
        CallFailed::Unavailable {
            code: Code::Unavailable,
            message: "what is stored of the clusterset cannot be read now: try again".to_owned(),
        }
    );

    store.turn(Mood::Fine);
    let became_ready = async { while ready().await.0 != "200 OK" {} };
    tokio::time::timeout(LIMIT, became_ready).await.unwrap();
    let mut east = started.register("east").await;
    store.turn(Mood::Away);
    assert!(east.write(&[put("web", 1)]).await.degraded);
    assert_eq!(ready().await.0, "200 OK");
}

#[tokio::test]
async fn a_cluster_that_is_removed_while_the_store_is_away_is_removed_from_it_later() {
    let store = Double::in_mood(Mood::Fine);
    let started = over(&store).await;
    let (mut east, west) = (started.register("east").await, started.register("west").await);
    east.write(&[put("web", 1)]).await;
    store.turn(Mood::Away);
    started.client.remove(&prod(), &east.member.cluster, Some(&east.member.uid), false).await.unwrap();
    assert_eq!(store.records().members(&prod()).await.unwrap().whole.len(), 2);
    store.turn(Mood::Fine);
    until_saved(&west).await;
    let left: Vec<_> =
        store.records().members(&prod()).await.unwrap().whole.into_iter().map(|(of, _)| of).collect();
    assert_eq!(left, std::slice::from_ref(&west.member));
    assert_eq!(stored(&store, &east).await, BTreeMap::new());
}

/// What it had is not mixed with what it has.
#[tokio::test]
async fn a_cluster_that_leaves_and_comes_back_while_the_store_is_away_is_stored_as_it_is() {
    let store = Double::in_mood(Mood::Fine);
    let started = over(&store).await;
    let mut east = started.register("east").await;
    east.write(&[put("web", 1), put("api", 1)]).await;
    store.turn(Mood::Away);
    assert!(east.write(&[put("more", 1)]).await.degraded);
    started.client.remove(&prod(), &east.member.cluster, Some(&east.member.uid), false).await.unwrap();
    let again = crate::started::registration(&east.member, Version::new(2, 1), mcs_core::version::Sum::EMPTY);
    started.client.register(&east.member, &again).await.unwrap();
    let written = started.client.write(&east.member, Version::new(2, 2), &[put("new", 1)]).await.unwrap();
    assert!(written.degraded);
    store.turn(Mood::Fine);
    let saved = async {
        while stored(&store, &east).await != [("new".to_owned(), Version::new(2, 2))].into() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, saved).await.unwrap();
    let members = store.records().members(&prod()).await.unwrap().whole;
    assert_eq!(members.len(), 1, "{members:#?}");
}

/// A caller that goes away leaves its change for the task that saves.
#[tokio::test]
async fn a_write_whose_caller_gave_up_is_stored_all_the_same() {
    let store = Double::in_mood(Mood::Fine);
    // Calls to the store are given minutes here, so that the caller gives up first.
    let started = Started::over(store.clone(), |_| {}).await;
    let mut east = started.register("east").await;
    store.turn(Mood::Silent);
    let (mut watch, _) = started.watch().await;
    let told = async {
        loop {
            if let Frame::Change(change) = watch.next().await.unwrap()
                && matches!(change.key, ObjectKey::Part(..))
            {
                return;
            }
        }
    };
    let ops = [put("web", 1)];
    tokio::select! {
        _ = east.write(&ops) => panic!("the store answered"),
        () = told => {}
    }
    store.turn(Mood::Fine);
    let saved = async {
        while stored(&store, &east).await != [("web".to_owned(), Version::new(1, 2))].into() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, saved).await.unwrap();
}

#[tokio::test]
async fn calls_to_the_store_are_counted_by_what_became_of_them() {
    let store = Double::in_mood(Mood::Fine);
    let started = over(&store).await;
    let mut east = started.register("east").await;
    store.turn(Mood::Throttled);
    east.write(&[put("web", 1)]).await;
    store.turn(Mood::Silent);
    let counted = async || {
        let (_, text) = http(started.admin, "GET", "/metrics").await;
        let of = |line: &str| {
            let call = line.strip_prefix("mcs_registry_store_call_duration_seconds_count{")?;
            Some(call.split_once('}')?.0.to_owned())
        };
        text.lines().filter_map(of).collect::<Vec<_>>()
    };
    let expected = [
        r#"operation="check",outcome="ok""#,
        r#"operation="check",outcome="timed_out""#,
        r#"operation="members",outcome="ok""#,
        r#"operation="write",outcome="ok""#,
        r#"operation="write",outcome="throttled""#,
    ];
    let all = async {
        loop {
            let seen = counted().await;
            if expected.iter().all(|call| seen.iter().any(|seen| seen == call)) {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, all).await.unwrap();
}

#[tokio::test]
async fn an_outage_of_the_store_is_told_by_metrics() {
    let store = Double::in_mood(Mood::Fine);
    let started = Started::over(store.clone(), |_| {}).await;
    let mut east = started.register("east").await;
    started.pass(LEASE).await;
    let seen = async |series: &[(&str, &str)]| {
        let all = async {
            loop {
                let (_, text) = http(started.admin, "GET", "/metrics").await;
                let has = |(series, value): &(&str, &str)| {
                    let line = format!("mcs_registry_{series} {value}");
                    text.lines().any(|found| found == line)
                };
                if series.iter().all(has) {
                    return;
                }
            }
        };
        tokio::time::timeout(LIMIT, all).await.unwrap();
    };
    store.turn(Mood::Away);
    assert!(east.write(&[put("web", 1)]).await.degraded);
    seen(&[
        ("store_condition{condition=\"away\"}", "1"),
        ("store_condition{condition=\"fine\"}", "0"),
        ("unsaved_clusters", "1"),
        ("views_incomplete", "1"),
    ])
    .await;
    started.clock.advance(Duration::from_secs(5));
    seen(&[("view_age_seconds", "5")]).await;

    store.turn(Mood::Fine);
    seen(&[
        ("store_condition{condition=\"fine\"}", "1"),
        ("unsaved_clusters", "0"),
        ("views_incomplete", "0"),
        ("view_age_seconds", "0"),
    ])
    .await;
}

#[tokio::test]
async fn an_outage_of_the_store_is_logged_when_it_begins_and_ends() {
    let store = Double::in_mood(Mood::Fine);
    let started = Started::over(store.clone(), |_| {}).await;
    let mut east = started.register("east").await;
    let logged = Logged::from_now_on();
    store.turn(Mood::Away);
    east.write(&[put("web", 1)]).await;
    east.write(&[put("api", 1)]).await;
    let away = "store does not take what it is given: it is held in memory, answers are degraded";
    let why = "the store cannot be used now: connection refused retry_helps=true";
    assert_eq!(
        logged.take(2).await,
        [
            format!("WARN {away} cluster=east condition=behind error={why}"),
            format!("WARN {away} condition=away error={why}"),
        ]
    );
    started.clock.advance(Duration::from_secs(5));
    store.turn(Mood::Fine);
    assert_eq!(logged.take(1).await, ["INFO store takes what it is given again lasted=5s"]);
}
