use super::*;
use mcs_core::names::derived_service_name;

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
