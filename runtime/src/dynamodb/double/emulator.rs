//! The emulator: DynamoDB in memory, with an HTTP server of its own that reads requests as AWS does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dynoxide::Database;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper_util::rt::TokioIo;
use mcs_core::time::WallTime;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::asked::Answer;

/// An emulator.
pub(super) struct Emulator {
    database: Database,
    address: SocketAddr,
    /// Connections to its server that nobody uses.
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Emulator {
    /// Starts it.
    pub(super) async fn start(stop: CancellationToken) -> Self {
        let database = Database::memory().expect("no database in memory");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("no free port");
        let address = listener.local_addr().expect("no address");
        let stopped = stop.cancelled_owned();
        tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database.clone(), stopped));
        Self { database, address, idle: Mutex::default() }
    }

    /// Passes a request on.
    pub(super) async fn call(&self, headers: &HeaderMap, body: Bytes) -> Answer {
        let mut connection = match self.idle() {
            Some(connection) => connection,
            None => self.connect().await,
        };
        let mut request = Request::post("/").body(Full::new(body)).expect("no request");
        let of_the_connection = [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];
        for (name, value) in headers {
            if !of_the_connection.contains(name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        let host = self.address.to_string().parse().expect("an address is a header");
        request.headers_mut().insert(HOST, host);
        let response = connection.send_request(request).await.expect("the emulator is gone");
        let status = response.status();
        let body = response.into_body().collect().await.expect("the emulator is gone").to_bytes();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Answer { status, body }
    }

    /// Calls the database past its server. None where it refuses.
    ///
    /// # Panics
    /// The request is none, or this is none of the actions that it is called for.
    pub(super) fn ask(&self, action: &str, request: Value) -> Option<Value> {
        macro_rules! call {
            ($method:ident) => {{
                let request = serde_json::from_value(request).expect("no such request");
                let answer = self.database.$method(request).ok()?;
                Some(serde_json::to_value(answer).expect("no JSON"))
            }};
        }
        match action {
            "CreateTable" => call!(create_table),
            "DeleteItem" => call!(delete_item),
            "DescribeTable" => call!(describe_table),
            "DescribeTimeToLive" => call!(describe_time_to_live),
            "GetItem" => call!(get_item),
            "ListTables" => call!(list_tables),
            "PutItem" => call!(put_item),
            "Scan" => call!(scan),
            other => panic!("the double does not call {other} itself"),
        }
    }

    /// Makes a table.
    pub(super) fn create_table(&self, name: &str) {
        let key = |name: &str| json!({"AttributeName": name, "AttributeType": "S"});
        let request = json!({
            "TableName": name,
            "AttributeDefinitions": [key("pk"), key("sk")],
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "BillingMode": "PAY_PER_REQUEST",
        });
        self.ask("CreateTable", request).expect("the table exists");
    }

    pub(super) fn tables(&self) -> Vec<String> {
        let answer = self.ask("ListTables", json!({})).unwrap_or_default();
        let names = answer["TableNames"].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub(super) fn has_table(&self, name: &str) -> bool {
        self.ask("DescribeTable", json!({"TableName": name})).is_some()
    }

    /// One item, where it is there.
    pub(super) fn item(&self, table: &str, key: &Value) -> Option<Value> {
        let mut answer = self.ask("GetItem", json!({"TableName": table, "Key": key}))?;
        answer.get_mut("Item").map(Value::take).filter(Value::is_object)
    }

    /// Makes an item be this; none: be gone.
    pub(super) fn set(&self, table: &str, key: &Value, item: Option<&Value>) {
        let done = match item {
            Some(item) => self.ask("PutItem", json!({"TableName": table, "Item": item})),
            None => self.ask("DeleteItem", json!({"TableName": table, "Key": key})),
        };
        done.expect("the emulator refuses what it had itself");
    }

    /// All items of a table, by their keys.
    pub(super) fn items(&self, table: &str) -> Vec<Value> {
        let (mut items, mut from) = (Vec::new(), Value::Null);
        loop {
            let mut request = json!({"TableName": table});
            if !from.is_null() {
                request["ExclusiveStartKey"] = from;
            }
            let mut page = self.ask("Scan", request).expect("no such table");
            if let Some(Value::Array(read)) = page.get_mut("Items").map(Value::take) {
                items.extend(read);
            }
            from = page.get_mut("LastEvaluatedKey").map_or(Value::Null, Value::take);
            if from.is_null() {
                break;
            }
        }
        items.sort_by_cached_key(|item| [item["pk"].to_string(), item["sk"].to_string()]);
        items
    }

    pub(super) fn sweep_expired(&self) -> usize {
        self.database.sweep_ttl().expect("the emulator cannot sweep")
    }

    pub(super) fn sweep_expired_at(&self, table: &str, now: WallTime) -> usize {
        let has_expired = |item: &Value| {
            let at = item["expires_at"]["N"].as_str().and_then(|secs| secs.parse::<i64>().ok());
            at.is_some_and(|at| at <= now.unix_secs())
        };
        let expired: Vec<_> = self.items(table).into_iter().filter(has_expired).collect();
        for item in &expired {
            let key = super::key_of(item).expect("an item without keys");
            self.set(table, &key, None);
        }
        expired.len()
    }

    fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(SendRequest::is_ready);
        idle.pop()
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.expect("the emulator is gone");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("the emulator is gone");
        tokio::spawn(connection);
        sender
    }
}
