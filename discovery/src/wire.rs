//! The JSON of the HTTP API: what is read and written, and its translation from and to the vocabulary of the core.
//!
//! Unknown fields are ignored, so that relays newer than this service can register; missing lists are empty. URLs are
//! normalised as WHATWG serialises them, so that equal URLs are equal texts.

use crate::sheet::Entry;
use bytes::Bytes;
use mcs_core::pools::packed::Contents;
use mcs_core::pools::{
    Capacity, Completeness, Lease, Location, PoolKey, PoolListing, PoolRegistration, ReplicaId, RouterReplica,
};
use mcs_core::text::{quoted, shown};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use url::Url;

/// What is wrong with the shape of a body is told in at most about so many bytes.
const SHOWN: usize = 1_000;

/// Why a body is no registration.
#[derive(Debug, thiserror::Error)]
pub enum BadRegistration {
    /// It is not JSON of the right shape.
    #[error("{0}")]
    Shape(String),
    /// A part of the key is no DNS-1123 label.
    #[error(transparent)]
    Key(#[from] mcs_core::ids::InvalidId),
    /// A field has a value that it cannot have.
    #[error("{field}: {problem}")]
    Value {
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

#[derive(Deserialize)]
struct RegistrationBody {
    key: Object<KeyBody>,
    #[serde(default)]
    location: Option<Object<LocationBody>>,
    model: String,
    #[serde(default)]
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    capacity: Option<Vec<Object<CapacityBody>>>,
    #[serde(default)]
    frontends: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct KeyBody {
    cluster_id: String,
    namespace: String,
    dgd_name: String,
}

#[derive(Default, Deserialize)]
struct LocationBody {
    #[serde(default)]
    region: Option<Box<str>>,
    #[serde(default)]
    availability_zone: Option<Box<str>>,
    #[serde(default)]
    datacenter: Option<Box<str>>,
}

#[derive(Deserialize, Serialize)]
struct CapacityBody {
    workers: u64,
}

/// A JSON object. The readers that serde makes take the values of a struct as a list, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Members(PhantomData)).map(Self)
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

/// Reads the body of `POST /pools`.
///
/// # Errors
/// The field that is wrong, and why.
pub fn registration(body: &[u8]) -> Result<PoolRegistration, BadRegistration> {
    let shape = |rejection: axum::extract::rejection::JsonRejection| {
        let text = rejection.body_text();
        let said = text.strip_prefix("Failed to deserialize the JSON body into the target type: ");
        // It names fields, which the caller may have called anything.
        BadRegistration::Shape(shown(said.unwrap_or(&text), SHOWN))
    };
    // To know the field that is wrong costs as much as to read the body, so it is looked for only where one is.
    let Object(body) = match serde_json::from_slice::<Object<RegistrationBody>>(body) {
        Ok(read) => read,
        Err(_) => axum::Json::<Object<RegistrationBody>>::from_bytes(body).map_err(shape)?.0,
    };
    let Object(KeyBody { cluster_id, namespace, dgd_name }) = body.key;
    let key = PoolKey::new(&cluster_id, &namespace, &dgd_name)?;
    if body.model.trim().is_empty() {
        let problem = "must not be blank".to_owned();
        return Err(BadRegistration::Value { field: "model".to_owned(), problem });
    }
    let location = body.location.map_or_else(LocationBody::default, |Object(location)| location);
    let capabilities = body.capabilities.unwrap_or_default();
    check_plain(|| "model".to_owned(), Some(&body.model))?;
    for (part, text) in [
        ("region", &location.region),
        ("availability_zone", &location.availability_zone),
        ("datacenter", &location.datacenter),
    ] {
        check_plain(|| format!("location.{part}"), text.as_deref())?;
    }
    for (number, capability) in capabilities.iter().enumerate() {
        check_plain(|| format!("capabilities[{number}]"), Some(capability))?;
    }
    let frontends = body.frontends.unwrap_or_default().into_iter().enumerate().map(|(number, url)| {
        let bad = |problem| BadRegistration::Value { field: format!("frontends[{number}]"), problem };
        http_url(&url).map(Into::into).map_err(bad)
    });
    Ok(PoolRegistration {
        key,
        location: Location {
            region: location.region,
            availability_zone: location.availability_zone,
            datacenter: location.datacenter,
        },
        model: body.model.into(),
        capabilities: capabilities.into_iter().map(Into::into).collect(),
        capacity: body
            .capacity
            .unwrap_or_default()
            .into_iter()
            .map(|Object(entry)| Capacity { workers: entry.workers })
            .collect(),
        frontends: frontends.collect::<Result<_, _>>()?,
    })
}

/// What is listed is shown to people, and is one line.
fn check_plain(field: impl FnOnce() -> String, text: Option<&str>) -> Result<(), BadRegistration> {
    if text.is_some_and(|text| text.contains(char::is_control)) {
        let problem = "must not contain control characters".to_owned();
        return Err(BadRegistration::Value { field: field(), problem });
    }
    Ok(())
}

/// An HTTP URL as WHATWG serialises it.
///
/// # Errors
/// Why the text is none.
pub fn http_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("{} is not a URL: {error}", quoted(text)))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("{} is not an http or https URL", quoted(text)));
    }
    Ok(url.into())
}

#[derive(Serialize)]
struct LeaseBody {
    lease_duration_secs: u64,
    heartbeat_interval_secs: u64,
}

#[derive(Serialize)]
struct StoredBody<'a> {
    key: PoolKeyBody<'a>,
    location: PoolLocationBody<'a>,
    model: &'a str,
    capabilities: &'a [Box<str>],
    capacity: Vec<CapacityBody>,
    frontends: &'a [Box<str>],
}

#[derive(Serialize)]
struct PoolKeyBody<'a> {
    cluster_id: &'a str,
    namespace: &'a str,
    dgd_name: &'a str,
}

impl<'a> From<&'a PoolKey> for PoolKeyBody<'a> {
    fn from(key: &'a PoolKey) -> Self {
        Self { cluster_id: key.cluster_id(), namespace: key.namespace(), dgd_name: key.dgd_name() }
    }
}

#[derive(Serialize)]
struct PoolLocationBody<'a> {
    region: Option<&'a str>,
    availability_zone: Option<&'a str>,
    datacenter: Option<&'a str>,
}

#[derive(Serialize)]
struct PoolRemovedBody<'a> {
    key: PoolKeyBody<'a>,
}

#[derive(Serialize)]
struct ReplicaRemovedBody {
    id: String,
}

#[derive(Serialize)]
struct ReplicaBody<'a> {
    id: String,
    url: &'a str,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
}

/// The answer to a registration.
pub fn lease(lease: Lease) -> Vec<u8> {
    json(&LeaseBody {
        lease_duration_secs: lease.duration.as_secs(),
        heartbeat_interval_secs: lease.heartbeat_interval.as_secs(),
    })
}

/// Writes one entry of `GET /pools`. A list is as many of them, each encoded anew when it is read, so it is written by
/// hand: in a third of the time that serde takes.
pub fn pool(listing: &PoolListing, text: &mut Vec<u8>) {
    let ((cluster_id, namespace, dgd_name), listed) = (listing.key().parts(), listing.contents());
    let Contents { region, availability_zone, datacenter, model, capabilities, capacity, frontends: _ } =
        &listed.registered;
    for (before, value) in [
        (&br#"{"key":{"cluster_id":"#[..], cluster_id),
        (br#","namespace":"#, namespace),
        (br#","dgd_name":"#, dgd_name),
    ] {
        text.extend_from_slice(before);
        string(text, value);
    }
    for (before, value) in [
        (&br#"},"location":{"region":"#[..], region),
        (br#","availability_zone":"#, availability_zone),
        (br#","datacenter":"#, datacenter),
    ] {
        text.extend_from_slice(before);
        match value {
            Some(value) => string(text, value),
            None => text.extend_from_slice(b"null"),
        }
    }
    text.extend_from_slice(br#"},"model":"#);
    string(text, model);
    text.extend_from_slice(br#","capabilities":"#);
    list(text, capabilities.clone(), string);
    text.extend_from_slice(br#","frontends":"#);
    list(text, listed.frontends(), string);
    text.extend_from_slice(br#","capacity":"#);
    list(text, capacity.clone(), |text, entry| {
        text.extend_from_slice(br#"{"workers":"#);
        // Into memory it does not fail.
        let _ = write!(text, "{}", entry.workers);
        text.push(b'}');
    });
    text.extend_from_slice(br#","relay_identities":"#);
    list(text, listed.relay_identities().iter().map(AsRef::as_ref), string);
    text.push(b'}');
}

/// Writes a string as serde does.
fn string(text: &mut Vec<u8>, value: &str) {
    // Looked at to the end, which is faster than to stop at the first one.
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if value.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
        // Into memory it does not fail.
        let _ = serde_json::to_writer(text, value);
        return;
    }
    text.push(b'"');
    text.extend_from_slice(value.as_bytes());
    text.push(b'"');
}

fn list<T>(text: &mut Vec<u8>, items: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    text.push(b'[');
    for (number, item) in items.enumerate() {
        if number > 0 {
            text.push(b',');
        }
        write(text, item);
    }
    text.push(b']');
}

impl Entry for PoolListing {
    type Key = PoolKey;

    fn key(&self) -> &PoolKey {
        self.key()
    }

    fn write(&self, text: &mut Vec<u8>) {
        pool(self, text);
    }
}

impl Entry for RouterReplica {
    type Key = ReplicaId;

    fn key(&self) -> &ReplicaId {
        &self.id
    }

    fn write(&self, text: &mut Vec<u8>) {
        text.extend(replica(self));
    }
}

/// A registration as it could be registered, which [`registration`] reads back equal.
pub fn registered(registration: &PoolRegistration) -> Vec<u8> {
    let PoolRegistration { key, location, model, capabilities, capacity, frontends } = registration;
    json(&StoredBody {
        key: key.into(),
        location: PoolLocationBody {
            region: location.region.as_deref(),
            availability_zone: location.availability_zone.as_deref(),
            datacenter: location.datacenter.as_deref(),
        },
        model,
        capabilities,
        capacity: capacities(capacity),
        frontends,
    })
}

fn capacities(capacity: &[Capacity]) -> Vec<CapacityBody> {
    capacity.iter().map(|entry| CapacityBody { workers: entry.workers }).collect()
}

/// One entry of `GET /routers`.
pub fn replica(replica: &RouterReplica) -> Vec<u8> {
    json(&ReplicaBody { id: replica.id.to_string(), url: &replica.url })
}

/// The data of the event that a pool is not listed any more.
pub fn pool_removed(key: &PoolKey) -> Vec<u8> {
    json(&PoolRemovedBody { key: key.into() })
}

/// The data of the event that a router replica is not listed any more.
pub fn replica_removed(id: &ReplicaId) -> Vec<u8> {
    json(&ReplicaRemovedBody { id: id.to_string() })
}

/// A server-sent event; the data is one line of JSON.
pub fn event(name: &str, data: &[u8]) -> Bytes {
    [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"].concat().into()
}

/// What stands before the entries of the list `name` where a watcher is told all of it.
pub fn resync_begin(name: &str) -> String {
    format!("event: resync\ndata: {{\"{name}\":[")
}

/// What stands after them.
pub fn resync_end(completeness: Completeness) -> String {
    format!("{}\n\n", list_frame("", completeness).1)
}

/// The body of an answer that is no success.
pub fn error(message: &str) -> Vec<u8> {
    json(&ErrorBody { error: message })
}

/// What stands before and after the entries of a list.
pub fn list_frame(name: &str, completeness: Completeness) -> (String, String) {
    let complete = completeness == Completeness::Exact;
    (format!("{{\"{name}\":["), format!("],\"complete\":{complete}}}"))
}

/// The text of a value that always has one: its fields are texts, numbers and lists.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{
        "key": {"cluster_id": "east", "namespace": "ml", "dgd_name": "chat"},
        "location": {"region": "us-east-2", "availability_zone": null, "datacenter": "ohio"},
        "model": "llama", "capabilities": ["chat", "tools"],
        "capacity": [{"workers": 4}, {"workers": 2, "gpus": 8}],
        "frontends": ["HTTP://10.43.1.2:8000", "http://[FD00:0::1]:80"],
        "weight": 5
    }"#;

    /// Case O62: an unknown field is accepted and ignored.
    #[test]
    fn a_registration_is_listed_with_normalised_urls_and_without_unknown_fields() {
        let expected = concat!(
            r#"{"key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"},"#,
            r#""location":{"region":"us-east-2","availability_zone":null,"datacenter":"ohio"},"#,
            r#""model":"llama","capabilities":["chat","tools"],"#,
            r#""frontends":["http://10.43.1.2:8000/","http://[fd00::1]/"],"#,
            r#""capacity":[{"workers":4},{"workers":2}],"relay_identities":[]}"#,
        );
        assert_eq!(listed(registration(WHOLE.as_bytes()).unwrap()), expected);
    }

    fn listed(registration: PoolRegistration) -> String {
        let mut text = Vec::new();
        pool(&PoolListing { registration: registration.into(), facts: None }, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn texts_are_listed_as_serde_writes_them() {
        for model in ["", "a\"b", "\\", "ä \u{10ffff}\u{7f}", "\u{0}\n\u{1f}", "\u{2028}</script>"] {
            let registration =
                PoolRegistration { model: model.into(), ..registration(WHOLE.as_bytes()).unwrap() };
            let text = listed(registration);
            assert!(text.contains(&format!(r#""model":{},"#, serde_json::json!(model))), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["model"], model);
        }
    }

    #[test]
    fn missing_and_null_lists_are_empty_and_a_missing_location_is_unknown() {
        let key = r#""key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"}"#;
        let short = registration(format!(r#"{{{key},"model":"llama"}}"#).as_bytes()).unwrap();
        let nulls = format!(
            r#"{{{key},"model":"llama","location":null,"capabilities":null,"capacity":null,"frontends":null}}"#
        );
        assert_eq!(registration(nulls.as_bytes()).unwrap(), short);
        assert_eq!((short.location, short.frontends.len()), (Location::default(), 0));
    }

    #[test]
    fn a_refusal_names_the_field() {
        let cases: [(&str, &str, &str); 12] = [
            (r#""east""#, "7", "key.cluster_id: invalid type"),
            (r#""east""#, r#""East""#, r#"key.cluster_id "East": must consist of"#),
            (r#""ml""#, r#""""#, r#"key.namespace "": must not be empty"#),
            (r#", "dgd_name": "chat""#, "", "key: missing field `dgd_name`"),
            (r#""llama""#, r#"" ""#, "model: must not be blank"),
            (r#""llama""#, "null", "model: invalid type"),
            (r#"["chat", "tools"]"#, r#""chat""#, "capabilities: invalid type"),
            (r#"{"workers": 4}"#, "{}", "capacity[0]: missing field `workers`"),
            (r#"{"workers": 4}"#, r#"{"workers": -1}"#, "capacity[0].workers: invalid value"),
            (r#"HTTP://10.43.1.2:8000"#, "10.43.1.2:8000", "frontends[0]: \"10.43.1.2:8000\" is not a URL"),
            (r#"HTTP://10.43.1.2:8000"#, "unix:/run/x", "frontends[0]: \"unix:/run/x\" is not an http"),
            (r#""ohio""#, "1", "location.datacenter: invalid type"),
        ];
        for (from, to, expected) in cases {
            let body = WHOLE.replacen(from, to, 1);
            let refused = registration(body.as_bytes()).unwrap_err().to_string();
            assert!(refused.starts_with(expected), "{to}: {refused}");
        }
        assert!(registration(b"{").is_err());
    }

    #[test]
    fn a_refusal_is_one_short_line_whatever_fields_are_called() {
        let called = |name: &str| {
            let body = WHOLE.replacen(r#""ohio""#, &format!(r#""ohio", "{name}": x"#), 1);
            registration(body.as_bytes()).unwrap_err().to_string()
        };
        let refused = "Failed to parse the request body as JSON: location.a\\u{7f}\\u{1b}b: expected value";
        assert!(called("a\u{7f}\\u001bb").starts_with(refused), "{}", called("a\u{7f}\\u001bb"));
        assert!(called(&"a".repeat(3_000)).len() < 1_010);
    }

    /// The core writes URLs of endpoints without the url crate; both must give the same text.
    #[test]
    fn urls_of_endpoints_are_as_whatwg_serialises_them() {
        use mcs_core::model::{EndpointPort, Protocol};
        use mcs_core::pools::slices::{SliceEndpoint, SliceFacts, ready_endpoints};
        for address in
            ["10.0.0.1", "fd00::1", "2001:db8:0:0:1:0:0:1", "::1", "fe80:0:0:1::", "::ffff:10.0.0.1"]
        {
            for (number, app_protocol) in
                [(80, None), (443, Some("https")), (443, None), (8000, Some("https"))]
            {
                let app_protocol: Option<String> = app_protocol.map(str::to_owned);
                let slice = SliceFacts {
                    service: "chat-frontend".into(),
                    cluster: mcs_core::ids::ClusterId::new("east").unwrap(),
                    region: None,
                    ports: vec![EndpointPort {
                        name: "http".into(),
                        protocol: Protocol::Tcp,
                        port: Some(number),
                        app_protocol,
                    }],
                    endpoints: vec![SliceEndpoint {
                        addresses: vec![address.parse().unwrap()],
                        ..SliceEndpoint::default()
                    }],
                };
                let url = ready_endpoints([&slice]).pods.first().and_then(|pod| pod.url("http")).unwrap();
                assert_eq!(http_url(&url), Ok(url));
            }
        }
    }
}
