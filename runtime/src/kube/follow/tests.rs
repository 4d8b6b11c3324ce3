//! What the log says of a server that cannot be followed; all else is shown by the watches of the programs.

use super::*;
use crate::kube::testing::api_server;
use ::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcs_core::time::ManualClock;
use serde_json::{Value, json};
use std::io;
use std::sync::Mutex;
use tracing::subscriber::set_default;

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_an_event_and_ends_each_watch_is_told_of_once_until_one_lasts() {
    let lines = Lines::default();
    let _guard = lines.take_over();
    let (mut api, client) = api_server();
    let clock = Arc::<ManualClock>::default();
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
    let api_of_services = Api::<DynamicObject>::all_with(client, &services);
    tokio::spawn(follow(api_of_services, Query::default(), clock, |_| ()));
    api.list().await.listed("70", json!([]));
    for version in 70..74 {
        api.watch(&version.to_string()).await.event("ADDED", &service(version + 1));
    }
    // It tells something, and lasts.
    let watch = api.watch("74").await;
    watch.event("ADDED", &service(75));
    tokio::time::sleep(FIRST_PAUSE * 2).await;
    drop(watch);
    let _watch = api.watch("75").await;
    let cut = || ("WARN".to_owned(), Some("the watch ended as soon as it was accepted".to_owned()));
    assert_eq!(lines.seen(), [cut(), ("INFO".to_owned(), None), cut()]);
}

fn service(version: u64) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "shop", "name": "cart", "uid": "u", "resourceVersion": version.to_string()}
    })
}

/// The log of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn take_over(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || lines.clone());
        set_default(subscriber.finish())
    }

    /// The level and the error of each line.
    fn seen(&self) -> Vec<(String, Option<String>)> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| line[name].as_str().map(str::to_owned);
            (field("level").unwrap(), field("error"))
        };
        text.lines().map(line).collect()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::ErrorKind::Other)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
