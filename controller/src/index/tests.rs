use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcs_core::names::derived_service_name;

/// A terminating namespace takes no ServiceExports; what is in it is looked at again when that may have changed.
#[test]
fn a_namespace_that_changes_queues_the_exports_of_its_labelled_services() {
    let index = Index::default();
    let labelled = |namespace: &str, name: &str| {
        let mut service = mk_service(namespace, name);
        service.metadata.labels = Some([(LABEL_EXPORT.to_owned(), "true".to_owned())].into());
        service
    };
    for service in [labelled("shop", "cart"), labelled("shop2", "web"), labelled("a-shop", "web")] {
        index.apply(service);
    }
    index.apply(mk_service("shop", "plain"));
    index.exports.take_all();

    let key = |name: &str| ServiceKey::new("shop", name).expect("a valid key");
    let mut namespace = Namespace { metadata: mk_service("", "shop").metadata, ..Namespace::default() };
    namespace.metadata.namespace = None;
    assert_eq!(index.namespace_state(&key("cart")), NamespaceState::Missing);
    index.apply(namespace.clone());
    assert_eq!(index.namespace_state(&key("cart")), NamespaceState::Active);
    assert_eq!(index.exports.take_all(), [key("cart")]);

    namespace.metadata.resource_version = Some("2".to_owned());
    namespace.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    index.apply(namespace.clone());
    assert_eq!(index.namespace_state(&key("cart")), NamespaceState::Terminating);
    assert_eq!(index.exports.take_all(), [key("cart")]);

    index.delete(&namespace);
    assert_eq!(index.namespace_state(&key("cart")), NamespaceState::Missing);
    assert_eq!(index.exports.take_all(), [key("cart")]);
}

/// It was made for an import, which the answer told, and ended before it was looked at.
#[test]
fn a_namespace_that_is_not_there_is_missing_whoever_told_of_it_and_may_come_back() {
    let index = Index::default();
    let cart = ServiceKey::new("shop", "cart").expect("a valid key");
    let mut made = Namespace { metadata: mk_service("", "shop").metadata, ..Namespace::default() };
    made.metadata.namespace = None;
    index.namespace_is_gone(&cart.namespace);
    assert_eq!(index.hold(&cart), (NamespaceState::Missing, true));
    index.apply(made.clone());
    assert_eq!(
        (index.imports.take_all(), index.namespace_state(&cart)),
        (vec![cart.clone()], NamespaceState::Active)
    );
    index.namespace_is_gone(&cart.namespace);
    assert_eq!(
        (index.imports.take_all(), index.namespace_state(&cart)),
        (vec![cart.clone()], NamespaceState::Missing)
    );
    index.apply(made);
    assert_eq!(index.namespace_state(&cart), NamespaceState::Active);
}

/// What is no DNS label names no Service, and its ServiceExport is to say so.
#[test]
fn a_service_export_whose_name_no_service_can_have_is_queued_apart() {
    let index = Index::default();
    let of = |name: &str| ServiceExport { metadata: mk_service("shop", name).metadata, ..Default::default() };
    let names = ["a.b".to_owned(), "x".repeat(64)];
    for name in names.iter().map(String::as_str).chain(["cart"]) {
        index.apply(of(name));
    }
    let nameless = names.map(|name| ("shop".to_owned(), name));
    assert_eq!(index.nameless_exports(), nameless);
    assert_eq!(index.nameless.take_all(), nameless);
    let cart = ServiceKey::new("shop", "cart").expect("a valid key");
    assert_eq!(index.exports.take_all(), std::slice::from_ref(&cart));
    assert_eq!(index.all_exports(), [cart].into());
    assert_eq!(index.service_export(&nameless[1]).as_deref(), Some(&of(&nameless[1].1)));
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

/// An import of many slices would queue as many exports, none of which there is.
#[test]
fn an_imported_slice_queues_its_import_and_one_that_is_not_or_no_more_its_export() {
    let index = Index::default();
    let slice = |version: &str, labels: &[(&str, &str)]| {
        let mut metadata = mk_service("shop", "cart-1").metadata;
        metadata.resource_version = Some(version.to_owned());
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
        metadata.labels = Some(labels.collect());
        EndpointSlice { metadata, ..EndpointSlice::default() }
    };
    let (of, imported) = ((LABEL_SLICE_SERVICE, "pay"), (LABEL_SERVICE_NAME, "cart"));
    let queued = [slice("1", &[of, imported]), slice("2", &[of]), slice("3", &[of, imported])].map(|slice| {
        index.apply(slice);
        let names = |keys: Vec<ServiceKey>| keys.iter().map(|key| key.name.to_string()).collect::<Vec<_>>();
        (names(index.exports.take_all()), names(index.imports.take_all()))
    });
    let [nothing, pay, cart] = [vec![], vec!["pay".to_owned()], vec!["cart".to_owned()]];
    assert_eq!(queued, [(nothing, cart.clone()), (pay.clone(), cart.clone()), (pay, cart)]);
}

fn mk_service(namespace: &str, name: &str) -> Service {
    Service {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-of-{name}")),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }
}
