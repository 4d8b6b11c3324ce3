//! Registrations, renewals, writes and removals.

use mcs_core::ids::ServiceKey;
use mcs_core::model::{
    Change, Endpoint, EndpointMap, EndpointSet, Frame, HeldImports, MemberState, Object, RefusedExports,
    Report,
};
use mcs_core::registry::Op;
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::{Removed, Renewed};
use mcs_proto::status::CallFailed;
use mcs_proto::{convert, pb};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::started::{
    Exporter, LEASE, Started, endpoints, endpoints_and_loopback, http, id, key, leaf, member, prod, put,
    read_set, registration,
};

#[tokio::test]
async fn a_renewal_says_whether_both_sides_hold_the_same() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;

    let version = east.next();
    let registered = registration(&east.member, version, east.sum);
    let by = registry.client.register(&east.member, &registered).await.unwrap().by;
    assert_eq!(by.build.as_str(), mcs_runtime::version());
    let renewed = |differs| Renewed {
        state: MemberState::Active,
        differs,
        degraded: false,
        lease: LEASE,
        by: by.clone(),
    };
    let renew = |sum| registry.client.renew(&east.member, version, sum);
    assert_eq!(renew(east.sum).await, Ok(renewed(false)));
    assert_eq!(renew(Sum::EMPTY).await, Ok(renewed(true)));
}

#[tokio::test]
async fn held_imports_are_listed_with_their_cluster_as_its_last_renewal_said() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let keys = |count: u32| (0..count).map(|n| ServiceKey::new("web", &format!("s-{n}")).unwrap()).collect();
    let of = |total, named| HeldImports { total, first: keys(named) };
    // More names than that are left out, and cost no lease.
    let cases = [
        (of(2, 2), Some(of(2, 2))),
        (of(700, 99), Some(of(700, 99))),
        (of(700, 100), Some(of(700, 100))),
        (of(700, 101), Some(of(700, 100))),
        (of(0, 0), None),
    ];
    for (held, told) in cases {
        let report = Report { held_imports: held.clone(), ..Report::default() };
        let listed = report_and_list(&registry, &mut east, &report).await;
        let told = told.as_ref().and_then(convert::held_imports);
        assert_eq!((listed.held_imports, listed.refused_exports), (told, None), "{held:?}");
    }
}

#[tokio::test]
async fn refused_exports_are_listed_with_their_cluster_as_its_last_renewal_said() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let of = |total, named: u32, problem: &str| RefusedExports {
        total,
        first: (0..named)
            .map(|n| {
                let key = ServiceKey::new("web", &format!("s-{n}")).unwrap();
                (key, Refusal::new("ports[0].name", problem))
            })
            .collect(),
    };
    let long = "é".repeat(1_000);
    let cases = [
        (of(2, 2, "is too long"), Some(of(2, 2, "is too long"))),
        (of(700, 100, "no"), Some(of(700, 100, "no"))),
        (of(700, 101, "no"), Some(of(700, 100, "no"))),
        (of(1, 1, &long), Some(of(1, 1, &format!("{}...", "é".repeat(250))))),
        (of(1, 1, "two\nlines"), Some(of(1, 1, "two\\nlines"))),
        (of(0, 0, ""), None),
    ];
    for (refused, told) in cases {
        let report = Report { refused_exports: refused.clone(), ..Report::default() };
        let listed = report_and_list(&registry, &mut east, &report).await;
        let told = told.as_ref().and_then(convert::refused_exports);
        assert_eq!((listed.held_imports, listed.refused_exports), (None, told), "{refused:?}");
    }
}

/// Renews with a report, and lists the one cluster that there is.
async fn report_and_list(registry: &Started, exporter: &mut Exporter, report: &Report) -> pb::Cluster {
    let version = exporter.next();
    registry.client.renew_reporting(&exporter.member, version, exporter.sum, report).await.unwrap();
    let (clusters, _) = registry.client.list_clusters(&exporter.member.clusterset).await.unwrap();
    let [cluster] = <[pb::Cluster; 1]>::try_from(clusters).unwrap();
    cluster
}

#[tokio::test]
async fn an_old_term_is_refused_with_the_highest_seen() {
    let registry = Started::new().await;
    let east = registry.register("east").await;
    let newer = registration(&east.member, Version::new(7, 1), Sum::EMPTY);
    registry.client.register(&east.member, &newer).await.unwrap();

    let refused = Err(CallFailed::OldTerm { floor: 7 });
    let old = registration(&east.member, Version::new(6, 9), Sum::EMPTY);
    assert_eq!(registry.client.register(&east.member, &old).await.map(|_| ()), refused);
    assert_eq!(
        registry.client.renew(&east.member, Version::new(6, 10), Sum::EMPTY).await.map(|_| ()),
        refused
    );
    let write = registry.client.write(&east.member, Version::new(6, 11), &[put("cart", 1)]).await;
    assert_eq!(write.map(|_| ()), refused);
}

/// O32: a second cluster with the same id.
#[tokio::test]
async fn a_second_cluster_with_an_id_whose_lease_is_active_is_refused_with_both_uids() {
    let registry = Started::new().await;
    registry.register("east").await;
    let second = member("east", "uid-of-another");
    let refused = registry
        .client
        .register(&second, &registration(&second, Version::new(1, 1), Sum::EMPTY))
        .await
        .unwrap_err();
    let CallFailed::Claimed { message } = refused else { panic!("{refused}") };
    assert!(message.contains("uid-of-east") && message.contains("uid-of-another"), "{message}");
}

#[tokio::test]
async fn who_is_not_registered_is_told_so() {
    let registry = Started::new().await;
    let stranger = member("east", "u-1");
    let renewed = registry.client.renew(&stranger, Version::new(1, 1), Sum::EMPTY).await;
    assert_eq!(renewed, Err(CallFailed::UnknownCluster));
    let written = registry.client.write(&stranger, Version::new(1, 1), &[put("cart", 1)]).await;
    assert_eq!(written.map(|_| ()), Err(CallFailed::UnknownCluster));
}

#[tokio::test]
async fn a_refused_export_and_a_bad_endpoint_hold_up_nothing_else() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let Op::Put { spec, endpoints, .. } = put("bad", 1) else { panic!() };
    let mut broken = (*spec).clone();
    broken.ports[0].name = "Web".to_owned();
    let bad = Op::Put {
        key: key("bad"),
        leaf: Leaf::default(),
        spec: Arc::new(broken),
        endpoints,
        changed_at: None,
    };
    let half = Arc::new(endpoints_and_loopback(1, 1));
    let loopback =
        Op::Put { key: key("half"), leaf: Leaf::default(), spec, endpoints: half, changed_at: None };
    let alone = Op::PutEndpoints {
        key: key("alone"),
        leaf: Leaf::default(),
        replaces: None,
        endpoints: Arc::new(crate::started::endpoints(1)),
        changed_at: None,
    };

    let written = east.write(&[bad, put("cart", 1), loopback, alone]).await;
    let fields: Vec<_> = written
        .results
        .iter()
        .map(|(key, result)| {
            (key.name.as_str(), result.as_ref().map_err(|refusal: &Refusal| refusal.field.as_str()))
        })
        .map(|(name, result)| (name, result.err()))
        .collect();
    assert_eq!(
        fields,
        [("bad", Some("ports[0].name")), ("cart", None), ("half", None), ("alone", Some("spec"))]
    );
    let dropped: Vec<_> =
        written.dropped.iter().map(|(key, dropped)| (key.name.as_str(), dropped.address.as_str())).collect();
    assert_eq!(dropped, [("half", "127.0.0.1")]);

    let (exports, _) = registry.client.list_exports(&prod(), false).await.unwrap();
    let held: Vec<_> =
        exports.into_iter().map(|export| (export.key.unwrap().name, export.endpoint_count)).collect();
    assert_eq!(held, [("cart".to_owned(), 1), ("half".to_owned(), 1)]);
}

/// O02: a set replaces the one before it.
#[tokio::test]
async fn a_put_replaces_what_was_there() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 3)]).await;
    let two = Arc::new(endpoints(2));
    east.write(&[Op::PutEndpoints {
        key: key("cart"),
        leaf: Leaf::default(),
        replaces: None,
        endpoints: Arc::clone(&two),
        changed_at: None,
    }])
    .await;
    let (imports, _) = registry.client.list_imports(&prod(), true).await.unwrap();
    assert_eq!(read_set(imports[0].parts[0].endpoints.clone()), *two);

    east.write(&[Op::Delete { key: key("cart") }]).await;
    assert_eq!(registry.client.list_imports(&prod(), true).await, Ok((Vec::new(), false)));
}

/// O31: what one cluster exports of a Service is neither replaced nor taken by what another one exports of it.
#[tokio::test]
async fn a_second_exporter_of_a_service_changes_its_own_endpoints_only() {
    let registry = Started::new().await;
    let (mut east, mut west) = (registry.register("east").await, registry.register("west").await);
    let listed = async || {
        let (imports, _) = registry.client.list_imports(&prod(), false).await.unwrap();
        let parts = imports.into_iter().flat_map(|import| import.parts);
        parts.map(|part| (part.cluster, part.endpoint_count)).collect::<Vec<_>>()
    };
    let of = |east, west| vec![("east".to_owned(), east), ("west".to_owned(), west)];
    east.write(&[put("cart", 2)]).await;
    west.write(&[put("cart", 1)]).await;
    assert_eq!(listed().await, of(2, 1));
    let none = Arc::default();
    west.write(&[Op::PutEndpoints {
        key: key("cart"),
        leaf: Leaf::default(),
        replaces: None,
        endpoints: none,
        changed_at: None,
    }])
    .await;
    assert_eq!(listed().await, of(2, 0));
    west.write(&[Op::Delete { key: key("cart") }]).await;
    assert_eq!(listed().await, of(2, 0)[..1]);
}

/// O20: each of the three conditions is true, false or not said, and stays so on every path.
#[tokio::test]
async fn the_conditions_of_endpoints_are_told_as_they_were_put() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let Op::Put { key, leaf, spec, endpoints, .. } = put("cart", 1) else { panic!() };
    let group = endpoints.groups().next().unwrap().key;
    let mut map = EndpointMap::default();
    let said = |number: usize| [None, Some(false), Some(true)][number % 3];
    let mut all = Vec::new();
    for number in 0..27 {
        let (ready, serving, terminating) = (said(number), said(number / 3), said(number / 9));
        let endpoint = Endpoint { ready, serving, terminating, ..Endpoint::default() };
        let address = Ipv4Addr::new(10, 0, 0, u8::try_from(number).unwrap());
        map.insert(group.clone(), address.into(), endpoint);
        let mut told = json!({"address": address.to_string()});
        for (name, value) in [("ready", ready), ("serving", serving), ("terminating", terminating)] {
            value.into_iter().for_each(|value| told[name] = value.into());
        }
        all.push(told);
    }
    let set = map.pack();
    let op = Op::Put { key, leaf, spec, endpoints: Arc::new(set.clone()), changed_at: None };
    assert_eq!(east.write(&[op]).await.results.len(), 1);

    let (imports, _) = registry.client.list_imports(&prod(), true).await.unwrap();
    assert_eq!(read_set(imports[0].parts[0].endpoints.clone()), set);
    let (exports, _) = registry.client.list_exports(&prod(), true).await.unwrap();
    assert_eq!(read_set(exports[0].endpoints.clone()), set);
    let (_, frames) = registry.watch().await;
    let parts = frames.into_iter().filter_map(|frame| match frame {
        Frame::Change(Change { object: Some(Object::Part(part)), .. }) => Some(part.endpoints),
        _ => None,
    });
    assert_eq!(parts.map(|set| EndpointSet::clone(&set)).collect::<Vec<_>>(), [set]);
    let path = "/v1/clustersets/prod/imports?includeEndpoints=true";
    let (_, listed) = http(registry.rest, "GET", path).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let endpoints = &listed["imports"][0]["parts"][0]["endpoints"]["groups"][0]["endpoints"];
    let told: Vec<_> = endpoints.as_array().unwrap().iter().map(without_empty).collect();
    assert_eq!(told, all);
}

/// An object without the fields of it that say nothing.
fn without_empty(object: &Value) -> Value {
    let said = object.as_object().unwrap().iter().filter(|(_, value)| !value.is_null() && *value != "");
    said.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[tokio::test]
async fn an_active_cluster_is_removed_by_itself_or_by_force_only() {
    let registry = Started::new().await;
    for cluster in ["east", "west"] {
        registry.register(cluster).await.write(&[put("cart", 2)]).await;
    }
    let uid_of_west = member("west", "uid-of-west").uid;
    let remove = async |cluster, uid, force| registry.client.remove(&prod(), &id(cluster), uid, force).await;
    let refused = remove("east", None, false).await;
    assert!(matches!(refused, Err(CallFailed::LeaseActive { .. })), "{refused:?}");
    let removed = Ok(Removed { exports: 1, endpoints: 2 });
    assert_eq!(remove("east", None, true).await, removed);
    assert_eq!(remove("west", Some(&uid_of_west), false).await, removed);
    assert_eq!(remove("west", None, true).await, Err(CallFailed::UnknownCluster));
}

/// Who was asked about one cluster does not remove another one that has taken its id meanwhile.
#[tokio::test]
async fn of_clusters_with_one_id_only_the_one_that_is_named_is_removed_by_force() {
    let registry = Started::new().await;
    registry.register("east").await.write(&[put("cart", 2)]).await;
    let (of_east, another) = (member("east", "uid-of-east").uid, member("east", "uid-of-another").uid);
    let remove = async |only| registry.client.remove_only(&prod(), &id("east"), only, true).await;
    let message = "cluster id east is that of the cluster with UID uid-of-east, not of that with UID uid-of-another: \
                   nothing was removed";
    assert_eq!(remove(&another).await, Err(CallFailed::Claimed { message: message.to_owned() }));
    let not_forced = registry.client.remove_only(&prod(), &id("east"), &of_east, false).await;
    assert!(matches!(not_forced, Err(CallFailed::LeaseActive { .. })), "{not_forced:?}");
    assert_eq!(remove(&of_east).await, Ok(Removed { exports: 1, endpoints: 2 }));
    assert_eq!(remove(&of_east).await, Err(CallFailed::UnknownCluster));
}

#[tokio::test]
async fn limits_are_named() {
    let registry = Started::with(|policy| {
        policy.max_clusters = 1;
        policy.max_exports = 1;
    })
    .await;
    let mut east = registry.register("east").await;
    let second = member("west", "u-2");
    let refused =
        registry.client.register(&second, &registration(&second, Version::new(1, 1), Sum::EMPTY)).await;
    assert!(matches!(refused, Err(CallFailed::Limit { .. })), "{refused:?}");
    let written = east.write(&[put("cart", 1), put("till", 1)]).await;
    let taken: Vec<_> = written.results.iter().map(|(_, result)| result.is_ok()).collect();
    assert_eq!(taken, [true, false]);
}

#[tokio::test]
async fn a_cluster_that_writes_too_often_is_told_the_limit_and_syncs_and_renews_all_the_same() {
    let registry = Started::with(|policy| policy.max_writes_per_second = 2).await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1)]).await;
    east.write(&[put("till", 1)]).await;
    let version = east.next();
    let refused = registry.client.write(&east.member, version, &[put("desk", 1)]).await;
    let Err(CallFailed::Busy { message }) = refused else { panic!("{refused:?}") };
    assert!(message.contains("--max-writes-per-second"), "{message}");
    registry.register("west").await.write(&[put("cart", 1)]).await;

    let desk = put("desk", 1);
    let names = [(key("desk"), leaf(&desk))];
    let (wants, sync) = registry.client.begin_sync(&east.member, version, &names).await.unwrap();
    assert_eq!((wants, sync.finish(&[desk]).await.unwrap().deleted), (vec![key("desk")], 2));
    registry.client.renew(&east.member, version, east.sum).await.unwrap();
    registry.pass(Duration::from_millis(500)).await;
    east.write(&[put("cart", 1)]).await;
}

#[tokio::test]
async fn a_write_that_is_larger_than_all_exports_is_refused_with_the_limit() {
    let registry = Started::with(|policy| policy.max_exports = 1).await;
    let east = registry.register("east").await;
    let ops = ["a", "b", "c"].map(|name| put(name, 1));
    let refused = registry.client.write(&east.member, Version::new(1, 2), &ops).await;
    let message =
        "this write has more than 2 changes, the most that this registry takes: send several".to_owned();
    assert_eq!(refused, Err(CallFailed::Limit { message }));
}

/// Deletes are taken first, so a put and a delete of one export would not be taken in the order they have.
#[tokio::test]
async fn of_two_changes_of_one_export_in_a_write_the_second_is_refused() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let version = east.next();
    let ops = [put("cart", 1), Op::Delete { key: key("cart") }, put("till", 1)];
    let written = registry.client.write(&east.member, version, &ops).await.unwrap();
    let twice = Refusal::new("key", "is named by an earlier change of this call: send one after the other");
    let results: Vec<_> = written.results.into_iter().map(|(_, result)| result).collect();
    assert_eq!(results, [Ok(()), Err(twice), Ok(())]);
}

/// gRPC's default limit is that of every client: the answer to the most changes, all refused, stays below it.
#[tokio::test]
async fn the_answer_to_a_write_can_be_read_whatever_is_refused() {
    let registry = Started::with(|policy| policy.max_exports = 10_000).await;
    let mut east = registry.register("east").await;
    let Op::Put { leaf, spec, endpoints, .. } = put("cart", 0) else { panic!() };
    let mut wrong = (*spec).clone();
    wrong.ports[0].name = "A".repeat(200);
    let spec = Arc::new(wrong);
    let ops: Vec<_> = (0..10_000)
        .map(|index| {
            let key = ServiceKey::new(&"n".repeat(63), &format!("{}-{index:05}", "s".repeat(57))).unwrap();
            Op::Put { key, leaf, spec: spec.clone(), endpoints: endpoints.clone(), changed_at: None }
        })
        .collect();
    let version = east.next();
    let written = registry.client.write(&east.member, version, &ops).await.unwrap();
    let refusals: Vec<_> = written.results.iter().map(|(_, result)| result.as_ref().unwrap_err()).collect();
    let (first, last) = (&refusals[0], &refusals[9_999]);
    assert!(first.problem.contains("AAAA"), "{first}");
    assert_eq!(last.problem, "refused; send fewer changes at once to be told why");
    assert!(refusals.iter().all(|refusal| refusal.field == first.field), "{first}");
}

#[tokio::test]
async fn an_answer_names_a_hundred_endpoints_that_were_left_out() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let loopback = |name: &str| {
        let Op::Put { key, leaf, spec, .. } = put(name, 1) else { panic!() };
        Op::Put { key, leaf, spec, endpoints: Arc::new(endpoints_and_loopback(1, 80)), changed_at: None }
    };
    let written = east.write(&[loopback("cart"), loopback("till")]).await;
    let of = |name: &str| written.dropped.iter().filter(|(key, _)| key.name.as_str() == name).count();
    assert_eq!((of("cart"), of("till")), (80, 20));
}

#[tokio::test]
async fn a_message_above_the_limit_is_no_wrong_field() {
    let registry = Started::new().await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap();
    let mut client = mcs_proto::pb::members_client::MembersClient::new(channel.connect().await.unwrap());
    let too_large = mcs_proto::pb::WriteRequest {
        clusterset: "x".repeat(5 * 1024 * 1024),
        ..mcs_proto::pb::WriteRequest::default()
    };
    let message = "a message has at most 4194304 bytes here (--max-message-bytes); larger sets of endpoints go in chunks";
    let refused = CallFailed::Limit { message: message.to_owned() };
    let written = client.write(tokio_stream::iter([too_large.clone()])).await.unwrap_err();
    assert_eq!(CallFailed::from(written), refused);
    let begin = mcs_proto::pb::SyncBegin { clusterset: too_large.clusterset, ..Default::default() };
    let step = Some(mcs_proto::pb::sync_request::Step::Begin(begin.clone()));
    let mut sync =
        client.sync(tokio_stream::iter([mcs_proto::pb::SyncRequest { step }])).await.unwrap().into_inner();
    assert_eq!(CallFailed::from(sync.message().await.unwrap_err()), refused);
    let renewal = mcs_proto::pb::RenewRequest { clusterset: begin.clusterset, ..Default::default() };
    assert_eq!(CallFailed::from(client.renew(renewal).await.unwrap_err()), refused);
    let (_, text) = http(registry.admin, "GET", "/metrics").await;
    let counted = "mcs_registry_limits_hit_total{limit=\"max-message-bytes\"} 3";
    assert!(text.lines().any(|line| line == counted), "{text}");
}

/// O60: what is not a DNS label is refused, and the field is named.
#[tokio::test]
async fn a_wrong_id_is_refused_by_name() {
    let registry = Started::new().await;
    let mut wrong = mcs_proto::convert::registration(
        &member("east", "u-1"),
        &registration(&member("east", "u-1"), Version::new(1, 1), Sum::EMPTY),
    );
    wrong.cluster = "East".to_owned();
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap();
    let mut client = mcs_proto::pb::members_client::MembersClient::new(channel.connect().await.unwrap());
    let status = client.register(wrong).await.unwrap_err();
    let CallFailed::Invalid { field, .. } = CallFailed::from(status) else { panic!() };
    assert_eq!(field, "cluster");
}
