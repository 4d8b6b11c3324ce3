//! The OpenAPI document: it is the one of the routes and the proto files, it holds together, and it is what is served.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::http::{call, get, request, send};
use super::schema::DOCUMENT;
use crate::started::Started;

/// Set to write the document anew instead of comparing it.
const UPDATE: &str = "UPDATE_OPENAPI";

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

#[test]
fn the_document_checked_in_is_that_of_the_routes_and_the_proto_files() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let made = mcs_runtime::openapi::text(&DOCUMENT);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(made == checked_in, "docs/openapi.json is not what the code gives; run with {UPDATE}=1");
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_reached() {
    let mut named = BTreeSet::new();
    references(&DOCUMENT, &mut named);
    for reference in &named {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(DOCUMENT.pointer(pointer).is_some_and(Value::is_object), "{reference}");
    }
    for part in ["schemas", "responses"] {
        for name in DOCUMENT["components"][part].as_object().unwrap().keys() {
            let reference = format!("#/components/{part}/{name}");
            assert!(named.contains(&reference), "{reference} is not used");
        }
    }
}

#[test]
fn everything_is_described() {
    let mut bare = Vec::new();
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        undescribed(name, schema, &mut bare);
    }
    for (path, method, operation) in operations() {
        undescribed(&format!("{method} {path}"), operation, &mut bare);
        for parameter in operation["parameters"].as_array().unwrap() {
            undescribed(&format!("{method} {path} {}", parameter["name"]), parameter, &mut bare);
        }
    }
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn operations_have_names_of_their_own_and_the_parameters_of_their_paths() {
    let names: BTreeSet<_> =
        operations().map(|(_, _, operation)| operation["operationId"].to_string()).collect();
    assert_eq!(names.len(), operations().count());
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let of_path: Vec<_> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let declared = item["parameters"].as_array().unwrap();
        assert_eq!(
            declared.iter().map(|each| each["name"].as_str().unwrap()).collect::<Vec<_>>(),
            of_path,
            "{path}"
        );
    }
}

/// What a gRPC caller can say, a REST caller can say: path, query and body have all fields of the request.
#[test]
fn path_query_and_body_have_every_field_of_the_request() {
    let requests = [
        ("Register", "clusterset cluster uid region instance build version sum"),
        ("Renew", "clusterset cluster uid version sum heldImports refusedExports"),
        ("RemoveCluster", "clusterset cluster uid force onlyUid"),
        ("PutExport", "clusterset cluster namespace name uid version leaf spec endpoints"),
        ("PutEndpoints", "clusterset cluster namespace name uid version leaf endpoints"),
        ("DeleteExport", "clusterset cluster namespace name uid term seq"),
        ("ListClusters", "clusterset pageSize pageToken"),
        ("ListExports", "clusterset cluster includeEndpoints pageSize pageToken"),
        ("ListImports", "clusterset includeEndpoints pageSize pageToken"),
        ("Watch", "clusterset cluster epoch revision"),
    ];
    for (name, fields) in requests {
        let (path, _, operation) = operations().find(|(_, _, each)| each["operationId"] == name).unwrap();
        let mut given: Vec<_> = DOCUMENT["paths"][path]["parameters"].as_array().unwrap().clone();
        given.extend(operation["parameters"].as_array().unwrap().iter().cloned());
        let mut given: BTreeSet<String> =
            given.iter().map(|each| each["name"].as_str().unwrap().to_owned()).collect();
        let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        if let Some(reference) = body.as_str() {
            let schema = DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).unwrap();
            given.extend(schema["properties"].as_object().unwrap().keys().cloned());
        }
        assert_eq!(given, fields.split(' ').map(str::to_owned).collect(), "{name}");
    }
}

#[tokio::test]
async fn what_is_documented_is_served_and_the_index_names_it() {
    let registry = Started::new().await;
    let (status, served) = get(&registry, "/openapi.json").await;
    assert!(status == 200 && served == *DOCUMENT, "another document is served");

    let mut routes = BTreeSet::new();
    for (path, method, _) in operations() {
        let method = method.to_uppercase();
        let filled = path.replace("{clusterset}", "prod").replace("{cluster}", "east");
        let filled = filled.replace("{namespace}", "shop").replace("{name}", "cart");
        routes.insert(format!("{method} {path}"));
        if path.ends_with("/watch") {
            // It has no end of its own; without an importer it does not begin.
            let (status, refused) = get(&registry, &filled).await;
            assert_eq!((status, &refused["details"][0]["metadata"]["field"]), (400, &json!("cluster")));
            continue;
        }
        let (status, answer) = call(&registry, &method, &filled, json!({})).await;
        let reason = answer["details"][0]["reason"].as_str();
        assert!(!matches!(reason, Some("NO_ROUTE" | "NO_METHOD")), "{method} {filled}: {answer}");
        assert!(matches!(status, 200 | 400 | 404), "{method} {filled}: {status} {answer}");
    }
    let (_, index) = get(&registry, "/").await;
    let named: BTreeSet<_> =
        index["routes"].as_array().unwrap().iter().map(|route| route.as_str().unwrap().to_owned()).collect();
    assert_eq!(named, routes);
    assert_eq!(
        json!({"program": "mcs-registry", "version": env!("CARGO_PKG_VERSION"), "api": "dynamo.mcs.v1",
            "document": "/openapi.json", "routes": index["routes"]}),
        index
    );
}

#[tokio::test]
async fn every_path_says_what_it_takes() {
    let registry = Started::new().await;
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let mut methods: Vec<_> = METHODS
            .iter()
            .filter(|method| item.get(**method).is_some())
            .map(|method| method.to_uppercase())
            .collect();
        if methods.contains(&"GET".to_owned()) {
            methods.push("HEAD".to_owned());
        }
        methods.push("OPTIONS".to_owned());
        let filled = path.replace(['{', '}'], "");
        let options = send(&registry, request("OPTIONS", &filled, "")).await;
        assert_eq!((options.status, &*options.text), (204, ""), "{path}");
        let refused = send(&registry, request("PATCH", &filled, "")).await;
        assert_eq!(refused.status, 405, "{path}");
        for answer in [options, refused] {
            let mut told: Vec<_> = answer.header("allow").split(", ").map(str::to_owned).collect();
            told.sort();
            methods.sort();
            assert_eq!(told, methods, "{path}");
        }
    }
}

fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        METHODS.iter().filter_map(move |method| Some((path.as_str(), *method, item.get(*method)?)))
    })
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    if let Some(reference) = value.get("$ref") {
        found.insert(reference.as_str().unwrap().to_owned());
    }
    for inner in value.as_object().into_iter().flat_map(|members| members.values()) {
        references(inner, found);
    }
    for inner in value.as_array().into_iter().flatten() {
        references(inner, found);
    }
}

/// Collects what has no description; a list is described as a whole.
fn undescribed(name: &str, of: &Value, bare: &mut Vec<String>) {
    if of["description"].as_str().unwrap_or_default().is_empty() {
        bare.push(name.to_owned());
    }
    for (inner, schema) in of["properties"].as_object().into_iter().flatten() {
        // Names of google.rpc are known.
        if !matches!(inner.as_str(), "error" | "details") {
            undescribed(&format!("{name}.{inner}"), schema, bare);
        }
    }
}
