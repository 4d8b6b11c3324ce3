//! The OpenAPI document: it is the one checked in, and what it says is what the service does.

use crate::events::Events;
use crate::lists::registrations;
use crate::service::{Answer, Service, registration, request};
use global_discovery_service::http::openapi;
use mcs_runtime::openapi::{conforms, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

/// Set to write the document instead of comparing it.
const UPDATE: &str = "UPDATE_OPENAPI";

static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::document);

#[test]
fn the_document_checked_in_is_that_of_the_routes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi-discovery.json");
    let made = text(&DOCUMENT);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        made == checked_in,
        "docs/openapi-discovery.json is not what the code gives; run with {UPDATE}=1"
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_part_is_reached_and_described() {
    let (mut named, mut bare) = (BTreeSet::new(), Vec::new());
    look_through(&DOCUMENT, "", &mut named, &mut bare);
    for part in ["schemas", "parameters", "responses"] {
        for name in DOCUMENT["components"][part].as_object().unwrap().keys() {
            // What an event carries is said in words: the document has no schemas of events.
            let said = format!("`{name}`");
            let is_named = named.contains(&format!("#/components/{part}/{name}"))
                || DOCUMENT["paths"].to_string().contains(&said);
            assert!(is_named, "{name} is not used");
        }
    }
    for reference in &named {
        assert!(DOCUMENT.pointer(&reference[1..]).is_some_and(Value::is_object), "{reference}");
    }
    assert_eq!(bare, Vec::<String>::new(), "without a description");
}

fn look_through(value: &Value, at: &str, named: &mut BTreeSet<String>, bare: &mut Vec<String>) {
    if let Some(reference) = value["$ref"].as_str() {
        named.insert(reference.to_owned());
        return;
    }
    let is_described = value.get("description").is_some();
    let needs = at.rsplit_once('/').is_some_and(|(before, _)| {
        ["/properties", "/responses", "/schemas", "/parameters"].iter().any(|part| before.ends_with(part))
    });
    if needs && !is_described {
        bare.push(at.to_owned());
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        look_through(inner, &format!("{at}/{name}"), named, bare);
    }
    for (number, inner) in value.as_array().into_iter().flatten().enumerate() {
        look_through(inner, &format!("{at}/{number}"), named, bare);
    }
}

/// What the document says of an answer, by reference or not.
fn response(method: &str, path: &str, status: u16) -> &'static Value {
    let operation = &DOCUMENT["paths"][path][method.to_lowercase()];
    let responses = if operation.is_object() {
        &operation["responses"]
    } else {
        &DOCUMENT["paths"]["/livez"]["get"]["responses"]
    };
    let said = responses.get(status.to_string()).unwrap_or_else(|| &responses["default"]);
    said["$ref"].as_str().map_or(said, |reference| DOCUMENT.pointer(&reference[1..]).unwrap())
}

fn check(method: &str, path: &str, answer: &Answer) {
    let said = response(method, path, answer.status);
    let kind = answer.header("content-type").split(';').next().unwrap();
    if kind.is_empty() {
        assert!(said["content"].is_null() && answer.body.is_empty(), "{method} {path}: {answer:?}");
        return;
    }
    let schema = &said["content"][kind]["schema"];
    assert!(schema.is_object(), "{method} {path}: {} of {kind} is not documented", answer.status);
    if kind == "application/json" {
        conforms(&DOCUMENT, &answer.json(), schema)
            .unwrap_or_else(|problem| panic!("{method} {path}: {problem}"));
    }
}

#[tokio::test]
async fn what_is_documented_is_served_and_every_answer_is_as_documented() {
    let service = Service::start(registrations()).await;
    let served = service.ask("GET", "/openapi.json", &[]).await;
    assert!(served.json() == *DOCUMENT, "another document is served");

    let mut statuses = BTreeSet::new();
    let mut ask = async |method: &str, path: &str, headers: &[&str], body: &str| {
        let answer = request(service.address, method, path, headers, body.as_bytes()).await;
        check(method, path, &answer);
        statuses.insert((path.to_owned(), answer.status));
        answer
    };
    let whole = registration("chat").to_string();
    conforms(&DOCUMENT, &registration("chat"), &json!({"$ref": "#/components/schemas/PoolRegistration"}))
        .unwrap();
    ask("POST", "/pools", &[], &whole).await;
    ask("POST", "/pools", &[], "{}").await;
    ask("POST", "/pools", &[], &" ".repeat(5_000)).await;
    ask("GET", "/elsewhere", &[], "").await;
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if method == "GET" && !path.ends_with("/watch") {
                let answer = ask("GET", path, &[], "").await;
                assert_eq!(answer.status, 200, "{path}");
                if let Some(tag) = answer.headers.get("etag") {
                    let known = ask("GET", path, &[&format!("if-none-match: {tag}")], "").await;
                    assert_eq!(known.status, 304);
                }
            }
        }
        ask("PATCH", path, &[], "").await;
    }
    let of = |path: &str| {
        statuses.iter().filter(|(of, _)| of == path).map(|(_, status)| *status).collect::<Vec<_>>()
    };
    assert_eq!((of("/pools"), of("/routers")), (vec![200, 304, 405, 413, 422], vec![200, 304, 405]));
    service.shutdown.drain();
    for path in ["/healthz", "/pools/watch", "/routers/watch"] {
        let answer = service.ask("GET", path, &[]).await;
        assert_eq!(answer.status, 503);
        check("GET", path, &answer);
    }
}

#[tokio::test]
async fn every_event_is_as_documented() {
    let service = Service::start(registrations()).await;
    let schemas = |list: &str, one: &str, removed: &str| {
        [("resync", list), ("upserted", one), ("removed", removed)]
            .map(|(event, schema)| (event, json!({"$ref": format!("#/components/schemas/{schema}")})))
    };
    let told = |schemas: &[(&str, Value)], event: &str, data: &Value| {
        let (_, schema) = schemas.iter().find(|(name, _)| *name == event).unwrap();
        conforms(&DOCUMENT, data, schema).unwrap_or_else(|problem| panic!("{event}: {problem}: {data}"));
    };
    let of_pools = schemas("PoolList", "PoolListing", "PoolRemoved");
    // Where completeness changes with a pool, the list tells of both. Its time begins when the service has begun.
    service.list("/pools").await;
    service.pass(Duration::from_secs(15)).await;
    let mut events = Events::open(service.address, "/pools/watch").await;
    for step in ["resync", "upserted", "removed"] {
        let (event, data) = events.next().await.unwrap();
        assert_eq!(event, step);
        told(&of_pools, &event, &data);
        // The next one comes of what happens now.
        match step {
            "resync" => service.register("chat").await,
            _ => service.pass(Duration::from_secs(15)).await,
        }
    }
    let mut events = Events::open(service.address, "/routers/watch").await;
    let (event, data) = events.next().await.unwrap();
    told(&schemas("RouterList", "RouterReplica", "RouterRemoved"), &event, &data);
}
