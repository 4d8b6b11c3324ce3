use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mcs_core::names::derived_service_name;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Shutdown;

/// O43: what a relist lacks is gone; O46: what came before a list broke off is not taken for all.
#[tokio::test]
async fn a_list_counts_when_it_is_done_and_half_a_list_takes_nothing() {
    let begun = |names: &[&str]| -> Vec<watcher::Result<_>> {
        let all = names.iter().map(|name| Ok(Event::InitApply(mk(name))));
        std::iter::once(Ok(Event::Init)).chain(all).collect()
    };
    let done = || [Ok(Event::InitDone)];
    let broken = || [Err(watcher::Error::NoResourceVersion)];
    let index = Index::default();
    let ready = Ready::new(Shutdown::manual().watch());
    let listed = ready.wait_for("services");
    for (events, held, is_ready) in [
        (begun(&["a"]).into_iter().chain(broken()).collect(), vec!["a"], false),
        (begun(&["a", "b"]).into_iter().chain(done()).collect(), vec!["a", "b"], true),
        (vec![Ok(Event::Apply(mk("c")))], vec!["a", "b", "c"], true),
        (begun(&["a"]).into_iter().chain(broken()).collect(), vec!["a", "b", "c"], true),
        // What the broken list had is not what its successor has.
        (
            begun(&["b"])
                .into_iter()
                .chain(broken())
                .chain(begun(&["a", "c"]))
                .chain(done())
                .collect::<Vec<_>>(),
            vec!["a", "c"],
            true,
        ),
        (begun(&[]).into_iter().chain(done()).collect(), vec![], true),
    ] {
        index.follow(None, listed.clone(), futures::stream::iter(events)).await;
        let names: Vec<_> = index.all_exports().into_iter().map(|key| key.name.to_string()).collect();
        assert_eq!((names, ready.is_ready()), (held.into_iter().map(str::to_owned).collect(), is_ready));
    }
}

fn mk(name: &str) -> DeserializeGuard<Service> {
    DeserializeGuard(Ok(Service {
        metadata: ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-of-{name}")),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }))
}

/// O38: they are found by their names where they say nothing themselves, so that the import goes on when they go.
#[test]
fn objects_of_others_in_the_place_of_ours_are_seen_with_the_import_and_queue_it() {
    let key = ServiceKey::new("shop", "cart").unwrap();
    let derived = derived_service_name(&key);
    let metadata = |name: &str| ObjectMeta {
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-of-{name}")),
        resource_version: Some("1".to_owned()),
        annotations: Some([(ANNOTATION_DERIVED_SERVICE.to_owned(), derived.clone())].into()),
        ..ObjectMeta::default()
    };
    let slice = |name: &str| EndpointSlice { metadata: metadata(name), ..EndpointSlice::default() };
    let index = Index::default();
    index.apply(ServiceImport { metadata: metadata("cart"), ..ServiceImport::default() });
    let (cart, queued) = ([key.clone()], || index.imports.take_all());
    assert_eq!(queued(), cart);

    index.apply(Service { metadata: metadata(&derived), ..Service::default() });
    assert_eq!(queued(), cart);
    let called = slice(&format!("{derived}-0123456789-0"));
    for other in ["cart-abcde", "derived-0123456789-0123456789-0", "zzz"] {
        index.apply(slice(other));
    }
    assert_eq!(queued(), []);
    index.apply(called.clone());
    assert_eq!(queued(), cart);
    assert_eq!(index.import_objects(&key, &derived).slices, [Arc::new(called.clone())]);
    index.delete(&called);
    assert_eq!(queued(), cart);
    assert_eq!(index.import_objects(&key, &derived).slices, []);
}
