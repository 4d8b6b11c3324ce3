//! The OpenAPI document of the API, made from the table of its routes. `docs/openapi-discovery.json` is its text, checked
//! in and served; a test holds it against the answers of the service.

use super::routes::{Call, ROUTES};
use mcs_runtime::openapi::sorted;
use serde_json::{Map, Value, json};

/// What the document says of the API as a whole.
const INTRODUCTION: &str = "Which inference pools exist in all clusters, and which router replicas a relay connects to.\n\n\
    - Until the first view is there, everything but `/livez` is 503.\n\
    - An error is `{\"error\": \"…\"}`, which says what is wrong and what to do.\n\
    - A list says whether it is `complete`: what a complete one lacks is gone, and what another one lacks is to be kept.\n\
    - A list has an `ETag`. A caller that sends it as `If-None-Match` is answered 304 while nothing has changed. The tags \
    of two replicas of the service never match.\n\
    - Every path that takes GET takes HEAD.";

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            item.insert(route.method.as_str().to_lowercase(), operation(route.call, route.path));
        }
    }
    sorted(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Global Discovery Service",
            "version": "v1",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "Pools", "description": "The pools of all clusters."},
            {"name": "Routers", "description": "The replicas of the Global Router."},
            {"name": "Process", "description": "What probes, Prometheus and people ask."},
        ],
        "paths": paths,
        "components": {"schemas": schemas(), "parameters": parameters(), "responses": responses()},
    }))
}

fn operation(call: Call, path: &str) -> Value {
    match call {
        Call::Register => json!({
            "operationId": "RegisterPool",
            "tags": ["Pools"],
            "summary": "Registers a pool, or renews its lease",
            "description": "A relay sends it again every `heartbeat_interval_secs`; the later body replaces the \
                earlier one. Unknown fields are ignored, and missing lists are empty. Where client certificates are \
                asked for, only one that names the cluster of the key is allowed to.",
            "requestBody": {"required": true, "description": "The pool.", "content": content("PoolRegistration")},
            "responses": answers(json!({
                "200": ok("Registered.", "Lease"),
                "403": response("Forbidden"),
                "408": response("TooSlow"),
                "413": response("TooLarge"),
                "422": response("Invalid"),
            })),
        }),
        Call::ListPools => list("ListPools", "Pools", "Lists the pools, sorted by key", "PoolList"),
        Call::ListRouters => {
            list("ListRouters", "Routers", "Lists the router replicas, sorted by id", "RouterList")
        }
        Call::WatchPools => {
            watch("WatchPools", "Pools", "Streams the pools", ["PoolList", "PoolListing", "PoolRemoved"])
        }
        Call::WatchRouters => {
            let data = ["RouterList", "RouterReplica", "RouterRemoved"];
            watch("WatchRouters", "Routers", "Streams the router replicas", data)
        }
        Call::Ready => {
            let (name, whose) = if path == "/healthz" {
                ("Healthz", "A readiness probe.")
            } else {
                ("Readyz", "The same as `/healthz`.")
            };
            process(name, "Says whether requests may come", whose, ok("They may.", "Status"))
        }
        Call::Live => {
            process("Livez", "Says that the process answers", "It is never 503.", ok("It does.", "Status"))
        }
        Call::Metrics => {
            let text = json!({"text/plain": {"schema": {"type": "string"}}});
            let answer = json!({"description": "The metrics, as Prometheus reads them.", "content": text});
            process("Metrics", "Tells the metrics", "Their names begin with `global_discovery_`.", answer)
        }
        Call::OpenApi => {
            let document = json!({"application/json": {"schema": {"type": "object"}}});
            let answer = json!({"description": "The document.", "content": document});
            process("OpenApi", "Tells this document", "It is that of the release that answers.", answer)
        }
    }
}

fn list(name: &str, tag: &str, summary: &str, schema: &str) -> Value {
    let mut answer = ok("The list.", schema);
    answer["headers"] = json!({"ETag": etag()});
    json!({
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "description": "It is sent from memory, and asks nobody.",
        "parameters": [{"$ref": "#/components/parameters/IfNoneMatch"}],
        "responses": answers(json!({"200": answer, "304": response("NotModified")})),
    })
}

fn watch(name: &str, tag: &str, summary: &str, [whole, one, removed]: [&str; 3]) -> Value {
    let about = format!(
        "Server-sent events, of which the data is one line of JSON:\n\n\
        - `resync`: the whole list, a `{whole}`. It comes first, again when completeness changes, and again when the \
        reader is more than 1,024 events behind, so that there is never a gap. Where `complete` is true it replaces what \
        the reader has, else it is merged with it.\n\
        - `upserted`: an entry that is new or has changed, a `{one}`.\n\
        - `removed`: an entry that is gone, a `{removed}`.\n\n\
        A reader passes over comments, which come every 15 s while nothing changes, and events of other names. The stream \
        ends when the replica shuts down; the reader then watches another one."
    );
    let events = json!({"text/event-stream": {"schema": {"type": "string"}}});
    json!({
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "description": about,
        "responses": answers(json!({"200": {"description": "The events.", "content": events}})),
    })
}

fn process(name: &str, summary: &str, about: &str, answer: Value) -> Value {
    json!({
        "operationId": name,
        "tags": ["Process"],
        "summary": summary,
        "description": about,
        "responses": answers(json!({"200": answer})),
    })
}

/// With what every operation may answer.
fn answers(mut own: Value) -> Value {
    own["503"] = response("NotNow");
    own["default"] = response("Failed");
    own
}

fn content(schema: &str) -> Value {
    json!({"application/json": {"schema": reference(schema)}})
}

fn ok(about: &str, schema: &str) -> Value {
    json!({"description": about, "content": content(schema)})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn response(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

fn etag() -> Value {
    json!({"description": "The tag of this list, strong.", "schema": {"type": "string"}})
}

fn parameters() -> Value {
    json!({"IfNoneMatch": {
        "name": "If-None-Match",
        "in": "header",
        "description": "Tags of lists that the caller has, as `ETag` told them.",
        "schema": {"type": "string"},
    }})
}

fn responses() -> Value {
    let failed = |about: &str| ok(about, "Error");
    json!({
        "NotModified": {"description": "The caller has the list.", "headers": {"ETag": etag()}},
        "Forbidden": failed("The client certificate is not that of the pool's cluster, or none was shown."),
        "TooSlow": failed("The body came too slowly."),
        "TooLarge": failed("The body has more bytes than `--max-body-bytes`."),
        "Invalid": failed("The body is no registration; the message names the field."),
        "NotNow": failed("The first view is not there, the process ends, or there is no room. Ask again, or another replica."),
        "Failed": failed("400: the body broke off; 403: no client certificate was shown; 404: no such path; 405: not this method; 500: a fault."),
    })
}

fn schemas() -> Value {
    let label = |about: &str| {
        json!({
            "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "description": about,
        })
    };
    let text = |about: &str| json!({"type": "string", "description": about});
    let place = |about: &str| json!({"type": ["string", "null"], "description": about});
    let seconds = |about: &str| json!({"type": "integer", "minimum": 1, "description": about});
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let list = |items: Value, about: &str| json!({"type": "array", "items": items, "description": about});
    let texts = |about: &str| list(json!({"type": "string"}), about);
    let object = |about: &str, required: &[&str], properties: Value| json!({"type": "object", "description": about, "required": required, "properties": properties});
    let complete = || flag("Whether what the list lacks is gone; if not, the reader keeps it.");
    let id = || text("`<cluster>/<replica>`.");
    json!({
        "PoolKey": object("Which pool.", &["cluster_id", "namespace", "dgd_name"], json!({
            "cluster_id": label("The cluster."),
            "namespace": label("The namespace of the DGD."),
            "dgd_name": label("The DynamoGraphDeployment."),
        })),
        "Location": object("Where a pool is.", &[], json!({
            "region": place("The region."),
            "availability_zone": place("The availability zone."),
            "datacenter": place("The datacenter."),
        })),
        "Capacity": object("An entry of a pool's capacity.", &["workers"], json!({
            "workers": count("How many workers there are."),
        })),
        "PoolRegistration": object("What a relay says of its pool.", &["key", "model"], json!({
            "key": reference("PoolKey"),
            "location": {"anyOf": [reference("Location"), {"type": "null"}], "description": "Where it is."},
            "model": text("The model it serves; not blank."),
            "capabilities": texts("What it can do."),
            "capacity": list(reference("Capacity"), "How much it can do."),
            "frontends": texts("URLs of its frontends; not listed where EndpointSlices give them."),
        })),
        "Lease": object(
            "How long a registration holds.",
            &["lease_duration_secs", "heartbeat_interval_secs"],
            json!({
                "lease_duration_secs": seconds("The pool is listed for this long."),
                "heartbeat_interval_secs": seconds("The relay registers again this often."),
            }),
        ),
        "PoolListing": object(
            "A pool as it is listed.",
            &["key", "location", "model", "capabilities", "frontends", "capacity", "relay_identities"],
            json!({
                "key": reference("PoolKey"),
                "location": reference("Location"),
                "model": text("The model it serves."),
                "capabilities": texts("What it can do."),
                "frontends": texts("URLs of its frontends, as WHATWG serialises them."),
                "capacity": list(reference("Capacity"), "How much it can do."),
                "relay_identities": texts(
                    "`ip:<address>` of each Ready relay, by which a router knows its callers; empty with \
                    `--pool-discovery=registrations`."
                ),
            }),
        ),
        "PoolList": object("The pools of all clusters.", &["pools", "complete"], json!({
            "pools": list(reference("PoolListing"), "Sorted by key."),
            "complete": complete(),
        })),
        "PoolRemoved": object("A pool that is gone.", &["key"], json!({"key": reference("PoolKey")})),
        "RouterReplica": object("A replica of the Global Router.", &["id", "url"], json!({
            "id": id(),
            "url": text("Where relays reach it, as WHATWG serialises URLs."),
        })),
        "RouterList": object("The replicas of the Global Router.", &["routers", "complete"], json!({
            "routers": list(reference("RouterReplica"), "Sorted by id."),
            "complete": complete(),
        })),
        "RouterRemoved": object("A router replica that is gone.", &["id"], json!({"id": id()})),
        "Status": object("All is well.", &["status"], json!({
            "status": {"type": "string", "enum": ["ok"], "description": "`ok`."},
        })),
        "Error": object("Why a request is not served.", &["error"], json!({
            "error": text("What is wrong and what to do, for people."),
        })),
    })
}
