//! Watchers that read slowly, which no network makes slow to order.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use mcs_core::ids::{Build, ClusterId, ClusterUid, ClustersetId, Instance, ServiceKey};
use mcs_core::model::{
    Change, Endpoint, EndpointMap, EndpointSet, ExportSpec, GroupKey, IpFamily, Object, ObjectKey, Since,
};
use mcs_core::registry::{Op, Policy, Registration};
use mcs_core::time::ManualClock;
use mcs_core::timing::DEFAULT_LEASE;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::frames::FrameReader;
use mcs_proto::pb;
use mcs_runtime::shutdown::Shutdown;
use prometheus::TextEncoder;
use prost::Message;

use super::*;
use crate::clusterset::State;
use crate::metrics::Metrics;

#[tokio::test]
async fn a_slow_watcher_skips_what_was_superseded_and_never_the_last_state() {
    let mut exporter = Exporter::new();
    exporter.put("cart");
    let mut watcher = exporter.watch();
    watcher.read(5).await;
    for _ in 0..5 {
        exporter.put("cart");
    }
    exporter.put("till");
    assert_eq!(parts(&watcher.read(4).await), [("cart".to_owned(), 7), ("till".to_owned(), 8)]);
}

#[tokio::test]
async fn what_changes_while_a_snapshot_is_told_follows_before_its_end() {
    let mut exporter = Exporter::new();
    for name in ["a", "b", "c"] {
        exporter.put_with_label(name, &"x".repeat(BATCH_BYTES));
    }
    let mut watcher = exporter.watch();
    // Begin, the section, and the first header, which fills the batch.
    watcher.read(3).await;
    exporter.delete("a");
    exporter.put("d");
    let mut shown = std::collections::BTreeSet::from(["a".to_owned()]);
    loop {
        match watcher.read(1).await.remove(0) {
            Frame::Change(Change { key: ObjectKey::Header(key), object, .. }) => {
                let name = key.name.to_string();
                if object.is_some() {
                    shown.insert(name)
                } else {
                    shown.remove(&name)
                };
            }
            Frame::End { .. } => break,
            _ => {}
        }
    }
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), ["b", "c", "d"]);
}

#[tokio::test]
async fn a_change_is_the_same_bytes_for_every_watcher() {
    let mut exporter = Exporter::new();
    exporter.put("cart");
    let mut told = Vec::new();
    for _ in 0..3 {
        let mut watcher = exporter.watch();
        // Begin, section, header, part.
        for _ in 0..4 {
            told.push(watcher.stream.next().await.unwrap().unwrap());
        }
    }
    let shared = |of: &EncodedStep| told.iter().filter(|step| step.shares_bytes_with(of)).count();
    assert_eq!(told[1..4].iter().map(shared).collect::<Vec<_>>(), [3, 3, 3]);
}

#[tokio::test]
async fn an_old_part_is_told_like_a_new_one_and_the_messages_of_a_large_one_are_kept() {
    let mut exporter = Exporter::new();
    exporter.put_endpoints("small", 10);
    exporter.put_endpoints("large", 10_000);
    // Begin, section, headers, then the parts by name.
    let new = exporter.watch().read_encoded(6).await;
    // All that was new makes room for this.
    for _ in 0..2_000 {
        exporter.put_endpoints("other", 50);
    }
    for _ in 0..2 {
        let old = exporter.watch().read_encoded(8).await;
        let ([.., large, small], [.., old_large, _, old_small]) = (&new[..], &old[..]) else { panic!() };
        assert!(old_large.shares_bytes_with(large) && !old_small.shares_bytes_with(small));
        assert_eq!(old_small, small);
    }
}

#[tokio::test]
async fn a_removal_is_the_same_bytes_for_every_watcher() {
    let mut exporter = Exporter::new();
    exporter.put("cart");
    let mut watchers = [exporter.watch(), exporter.watch()];
    for watcher in &mut watchers {
        // Begin, section, header, part, end.
        watcher.read(5).await;
    }
    exporter.delete("cart");
    // The section's new version, then the part and the header that are gone.
    for _ in 0..3 {
        let [one, other] = &mut watchers;
        let (one, other) = (one.stream.next().await.unwrap(), other.stream.next().await.unwrap());
        assert!(one.unwrap().shares_bytes_with(&other.unwrap()));
    }
}

#[tokio::test]
async fn a_drain_ends_a_watcher_that_has_more_to_read() {
    let mut exporter = Exporter::new();
    exporter.put("cart");
    let mut watcher = exporter.watch();
    watcher.read(1).await;
    exporter.shutdown.drain();
    assert!(watcher.stream.next().await.unwrap().is_err());
    assert!(watcher.stream.next().await.is_none());
}

/// Time is that of the runtime: nothing here waits for a socket.
#[tokio::test(start_paused = true)]
async fn progress_is_told_a_third_of_a_lease_after_the_last_message_and_not_a_tick_before() {
    let mut exporter = Exporter::new();
    let progress = Timing::default().progress();
    let tick = Duration::from_millis(1);
    exporter.put("cart");
    let mut watcher = exporter.watch();
    // Begin, section, header, part, end.
    watcher.read(5).await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(progress - tick, watcher.read(1)).await.is_err());
        let told = tokio::time::timeout(2 * tick, watcher.read(1)).await.unwrap();
        assert!(matches!(told[..], [Frame::Progress { .. }]), "{told:?}");
        // A change, told as part and section, is a sign of life too.
        tokio::time::sleep(progress / 2).await;
        exporter.put("cart");
        watcher.read(2).await;
    }
}

#[tokio::test]
async fn a_watcher_that_reads_nothing_holds_one_batch() {
    let mut exporter = Exporter::new();
    let object = BATCH_BYTES / 4;
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        exporter.put_with_label(name, &"x".repeat(object));
    }
    let held = |exporter: &Exporter| {
        let text = TextEncoder::new().encode_to_string(&exporter.registry.gather()).unwrap();
        let bytes = text.lines().find_map(|line| line.strip_prefix("mcs_registry_watch_bytes_total "));
        bytes.unwrap().parse::<usize>().unwrap()
    };
    let mut watcher = exporter.watch();
    watcher.read(1).await;
    let taken = held(&exporter);
    assert!(
        (BATCH_BYTES..BATCH_BYTES + 2 * object).contains(&taken),
        "{taken} bytes were taken from the log"
    );
    for _ in 0..100 {
        exporter.put_with_label("a", &"y".repeat(object));
    }
    assert_eq!(held(&exporter), taken, "what is not read is not taken");
    loop {
        if let [Frame::End { .. }] = watcher.read(1).await[..] {
            break;
        }
    }
    assert!(held(&exporter) < 11 * object, "a hundred states that were superseded are skipped");
}

#[tokio::test]
async fn how_watches_go_is_counted() {
    let mut exporter = Exporter::new();
    exporter.clusterset.keep_removals(1);
    exporter.put("cart");
    let counts = |exporter: &Exporter| {
        let text = TextEncoder::new().encode_to_string(&exporter.registry.gather()).unwrap();
        let of = |series: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("mcs_registry_{series} ")));
            line.unwrap().parse::<u64>().unwrap()
        };
        [
            "watchers_behind",
            "watch_snapshots_total{cause=\"new\"}",
            "watch_snapshots_total{cause=\"lagged\"}",
            "watches_ended_total{reason=\"caller\"}",
            "watches_ended_total{reason=\"drain\"}",
        ]
        .map(of)
    };
    let (mut slow, mut gone) = (exporter.watch(), exporter.watch());
    // Begin, section, header, part; and then the end.
    slow.read(4).await;
    gone.read(5).await;
    assert_eq!(counts(&exporter), [2, 2, 0, 0, 0], "what was read last may be on its way");
    assert!(gone.stream.next().now_or_never().is_none());
    assert_eq!(counts(&exporter), [1, 2, 0, 0, 0]);
    drop(gone);
    slow.read(1).await;
    exporter.delete("cart");
    assert!(matches!(slow.read(1).await[..], [Frame::Begin { .. }]));
    assert_eq!(counts(&exporter), [1, 2, 1, 1, 0]);
    exporter.shutdown.drain();
    while slow.stream.next().await.is_some() {}
    drop(slow);
    assert_eq!(counts(&exporter), [0, 2, 1, 1, 1]);
}

fn parts(frames: &[Frame]) -> Vec<(String, u64)> {
    let part = |frame: &Frame| match frame {
        Frame::Change(Change { key: ObjectKey::Part(key, _), object: Some(Object::Part(part)), .. }) => {
            Some((key.name.to_string(), part.version.seq))
        }
        _ => None,
    };
    frames.iter().filter_map(part).collect()
}

fn cluster() -> ClusterId {
    ClusterId::new("east").unwrap()
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

/// A cluster with a clusterset of its own.
struct Exporter {
    clusterset: Arc<Clusterset>,
    shutdown: Shutdown,
    registry: prometheus::Registry,
    metrics: Metrics,
    uid: ClusterUid,
    seq: u64,
}

impl Exporter {
    fn new() -> Self {
        let policy = Policy { max_writes_per_second: 1_000, ..Policy::of_lease(DEFAULT_LEASE) };
        let clock = Arc::new(ManualClock::default());
        let clusterset =
            Arc::new(Clusterset::new(ClustersetId::new("prod").unwrap(), policy, Epoch(1), clock, None));
        let uid = ClusterUid::new("u-1").unwrap();
        let registration = Registration {
            uid: uid.clone(),
            region: None,
            instance: Instance::default(),
            build: Build::default(),
            version: Version::new(1, 1),
            sum: Sum::EMPTY,
        };
        clusterset.with(|state, now| state.registry.register(&cluster(), registration, now)).unwrap();
        let registry = prometheus::Registry::new();
        let metrics = Metrics::register(&registry, Arc::clone(clusterset.clock())).unwrap();
        Self { clusterset, shutdown: Shutdown::manual(), registry, metrics, uid, seq: 1 }
    }

    fn write(&mut self, op: Op) {
        self.seq += 1;
        let version = Version::new(1, self.seq);
        let write =
            |state: &mut State, now| state.registry.write(&cluster(), &self.uid, version, vec![op], now);
        self.clusterset.with(write).unwrap();
    }

    fn put(&mut self, name: &str) {
        self.put_with_label(name, "");
    }

    fn put_with_label(&mut self, name: &str, label: &str) {
        let spec =
            ExportSpec { labels: [("label".to_owned(), label.to_owned())].into(), ..ExportSpec::default() };
        let leaf = Leaf::from_bytes(u128::from(self.seq).to_be_bytes());
        self.write(Op::Put {
            key: key(name),
            leaf,
            spec: Arc::new(spec),
            endpoints: Arc::new(EndpointSet::default()),
            changed_at: None,
        });
    }

    fn put_endpoints(&mut self, name: &str, count: u32) {
        let mut endpoints = EndpointMap::default();
        for number in 0..count {
            endpoints.insert(GroupKey::new(IpFamily::V4, []), IpAddr::V4(number.into()), Endpoint::default());
        }
        let leaf = Leaf::from_bytes(u128::from(self.seq).to_be_bytes());
        let (spec, endpoints) = (Arc::new(ExportSpec::default()), Arc::new(endpoints.pack()));
        self.write(Op::Put { key: key(name), leaf, spec, endpoints, changed_at: None });
    }

    fn delete(&mut self, name: &str) {
        self.write(Op::Delete { key: key(name) });
    }

    fn watch(&self) -> Reader {
        let request =
            Request { importer: ClusterId::new("west").unwrap(), from: None, since: Since::default() };
        let watches = self.metrics.watches().clone();
        let stream = stream(Arc::clone(&self.clusterset), request, watches, self.shutdown.watch());
        Reader { stream: Box::pin(stream), frames: FrameReader::default() }
    }
}

struct Reader {
    stream: Pin<Box<dyn Stream<Item = Result<EncodedStep, Status>>>>,
    frames: FrameReader,
}

impl Reader {
    /// Reads as many messages.
    async fn read_encoded(&mut self, count: usize) -> Vec<EncodedStep> {
        let mut steps = Vec::new();
        while steps.len() < count {
            steps.push(self.stream.next().await.unwrap().unwrap());
        }
        steps
    }

    /// Reads as many frames.
    async fn read(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let step = self.stream.next().await.unwrap().unwrap();
            let message = pb::WatchResponse::decode(&*step.encode_to_vec()).unwrap();
            frames.extend(self.frames.push(message).unwrap());
        }
        frames
    }
}
