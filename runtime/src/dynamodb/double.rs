//! DynamoDB for tests: an emulator behind HTTP, in this process.
//!
//! A [`Double`] listens on a port of its own and is reached like AWS: by [`Double::client`], or by a program that is
//! started with [`Double::environment`] and [`Double::endpoint`]. Behind it is an emulator in memory.
//!
//! It runs on a thread of its own, so that a test may block its own, or hold still what is tested, while it goes on.

mod emulator;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::config::Credentials;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::emulator::Emulator;
use super::{Client, Flags, Limits, Settings};

/// The table that is there from the start.
pub const TABLE: &str = "global-discovery-test";

/// The region of a double that was not told another.
pub const REGION: &str = "eu-test-1";

/// What the flags are called in messages of [`Double::client`].
const FLAGS: Flags = Flags { table: "--dynamodb-table", region: "--region", endpoint: "--dynamodb-endpoint" };

/// Longer than any call takes on a busy machine; a test of limits sets its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stand-in. Dropped, it is gone with its connections.
pub struct Double {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What the server and the test's hand share.
struct Shared {
    region: String,
    emulator: Emulator,
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Double {
    /// Starts it, with [`TABLE`].
    pub async fn start() -> Self {
        let double = Self::empty().await;
        double.create_table(TABLE);
        double
    }

    /// Starts it, without a table.
    ///
    /// # Panics
    /// There is no port for it.
    pub async fn empty() -> Self {
        let (tell, told) = oneshot::channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("no runtime").block_on(async {
                let emulator = Emulator::start(stopped.clone()).await;
                let shared = Arc::new(Shared { region: REGION.to_owned(), emulator });
                let listener = server::listen().await;
                let address = listener.local_addr().expect("no address");
                // Who started this waits for it.
                let _ = tell.send((Arc::clone(&shared), address));
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = server::serve(listener, shared) => {}
                }
            });
        });
        let (shared, address) = told.await.expect("the double did not start");
        Self { shared, address, stop, thread: Some(thread) }
    }

    /// Where it is reached, as a URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its region.
    pub fn region(&self) -> &str {
        &self.shared.region
    }

    /// What a program needs in its environment to call it, beside the endpoint: any credentials do.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", self.region().to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// The settings of a client of [`TABLE`], with limits that a busy machine keeps.
    pub fn settings(&self) -> Settings {
        Settings {
            table: TABLE.to_owned(),
            region: Some(self.region().to_owned()),
            endpoint: Some(self.endpoint()),
            limits: Limits::within(PATIENCE),
            flags: FLAGS,
        }
    }

    /// A client of [`TABLE`].
    pub async fn client(&self) -> Client {
        self.client_of(self.settings()).await
    }

    /// A client by settings of one's own.
    ///
    /// # Panics
    /// They have no region.
    pub async fn client_of(&self, settings: Settings) -> Client {
        let loader = aws_config::defaults(BehaviorVersion::latest());
        let loader = loader.credentials_provider(Credentials::new("test", "test", None, None, "test"));
        settings.connect_with(loader).await.expect("settings without a region")
    }

    /// Makes a table with the string keys `pk` and `sk`, past the server.
    ///
    /// # Panics
    /// It exists.
    pub fn create_table(&self, name: &str) {
        let key = |name: &str| json!({"AttributeName": name, "AttributeType": "S"});
        self.shared.emulator.direct(
            "CreateTable",
            json!({
                "TableName": name,
                "AttributeDefinitions": [key("pk"), key("sk")],
                "KeySchema": [
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "BillingMode": "PAY_PER_REQUEST",
            }),
        );
    }

    /// All items of a table as they are, past the server and all faults, in the JSON of DynamoDB, by their keys.
    pub fn items(&self, table: &str) -> Vec<Value> {
        self.shared.emulator.items(table)
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It may have panicked, which is then on the test's standard error.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
