use super::*;
use crate::sheet::testing::Numbered;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Numbers = Arc<Shown<Numbered>>;

/// What a reader of the stream has, by what it was told.
#[derive(Debug, Default, PartialEq)]
struct Reader {
    left: String,
    list: BTreeMap<u64, Value>,
    complete: Option<bool>,
    told: Vec<String>,
}

#[test]
fn a_watcher_is_told_the_list_and_then_each_change() {
    let shown = numbers(Completeness::Exact);
    put(&shown, 7, "a");
    let (mut watcher, mut reader) = (shown.watch(), Reader::default());
    assert_eq!(reader.read(&mut watcher), [Cause::Begin]);
    put(&shown, 5, "b");
    put(&shown, 7, "c");
    remove(&shown, 5);
    assert_eq!(reader.read(&mut watcher), []);
    let told = ["resync", "upserted", "upserted", "removed"].map(str::to_owned).to_vec();
    let list = [(7, json!({"key": 7, "text": "c"}))].into();
    assert_eq!(reader, Reader { left: String::new(), list, complete: Some(true), told });
}

#[test]
fn an_empty_list_is_told_as_such() {
    let (shown, mut reader) = (numbers(Completeness::Estimated), Reader::default());
    reader.read(&mut shown.watch());
    assert_eq!((reader.told.len(), reader.list.len(), reader.complete), (1, 0, Some(false)));
}

#[test]
fn a_watcher_1024_events_behind_is_told_them_and_one_that_is_1025_behind_the_whole_list() {
    for (behind, expected) in [(1_023, None), (1_024, None), (1_025, Some(Cause::Behind))] {
        let shown = numbers(Completeness::Exact);
        let (mut watcher, mut reader) = (shown.watch(), Reader::default());
        reader.read(&mut watcher);
        for number in 0..behind {
            put(&shown, number, "x");
        }
        let resyncs = reader.read(&mut watcher);
        assert_eq!((resyncs, reader.list.len()), (Vec::from_iter(expected), number(behind)));
        let told = if expected.is_some() { 2 } else { 1 + number(behind) };
        assert_eq!(reader.told.len(), told);
    }
}

#[test]
fn large_events_are_kept_up_to_a_number_of_bytes() {
    let shown = numbers(Completeness::Exact);
    let (mut watcher, mut reader) = (shown.watch(), Reader::default());
    reader.read(&mut watcher);
    let large = "x".repeat(KEPT_BYTES / 10);
    for number in 0..10 {
        put(&shown, number, &large);
    }
    assert_eq!(kept(&shown).0, 9);
    assert!(kept(&shown).1 < KEPT_BYTES);
    assert_eq!((reader.read(&mut watcher), reader.list.len()), (vec![Cause::Behind], 10));
}

#[test]
fn a_change_of_completeness_is_told_with_the_whole_list() {
    let shown = numbers(Completeness::Estimated);
    let (mut watcher, mut reader) = (shown.watch(), Reader::default());
    put(&shown, 1, "a");
    reader.read(&mut watcher);
    put(&shown, 2, "b");
    shown.edit().complete(Completeness::Exact);
    put(&shown, 3, "c");
    assert_eq!(reader.read(&mut watcher), [Cause::Completeness]);
    assert_eq!((reader.list.len(), reader.complete), (3, Some(true)));
    // Said again, it is no change.
    shown.edit().complete(Completeness::Exact);
    assert_eq!((reader.read(&mut watcher), watcher.next_piece()), (vec![], None));
}

#[test]
fn a_list_that_is_told_slowly_has_what_was_there_all_the_time_and_then_what_changed() {
    let shown = numbers(Completeness::Exact);
    let text = "x".repeat(1_000);
    for number in 0..100 {
        put(&shown, number, &text);
    }
    let (mut watcher, mut reader) = (shown.watch(), Reader::default());
    let first = watcher.next_piece().unwrap();
    reader.take(&first.text);
    put(&shown, 0, "changed before the place reached");
    remove(&shown, 1);
    put(&shown, 98, "changed behind it");
    remove(&shown, 99);
    put(&shown, 200, "new");
    reader.read(&mut watcher);
    let listed = json!(reader.list.values().map(|entry| &entry["text"]).collect::<Vec<_>>());
    let mut expected = vec![json!("changed before the place reached")];
    expected.extend((2..98).map(|_| json!(text)));
    expected.extend([json!("changed behind it"), json!("new")]);
    assert_eq!((listed, reader.complete), (expected.into(), Some(true)));
}

#[test]
fn a_list_that_became_exact_while_it_was_told_says_so_with_the_next_one_only() {
    for (before, after) in
        [(Completeness::Estimated, Completeness::Exact), (Completeness::Exact, Completeness::Estimated)]
    {
        let shown = numbers(before);
        put(&shown, 1, "a");
        let (mut watcher, mut reader) = (shown.watch(), Reader::default());
        reader.take(&watcher.next_piece().unwrap().text);
        shown.edit().complete(after);
        let end = watcher.next_piece().unwrap();
        reader.take(&end.text);
        assert_eq!((end.begins, reader.complete), (None, Some(false)));
        assert_eq!(reader.read(&mut watcher), [Cause::Completeness]);
        assert_eq!(reader.complete, Some(after == Completeness::Exact));
    }
}

#[test]
fn what_a_watcher_has_is_the_list_whatever_happens_between_its_reads() {
    let shown = numbers(Completeness::Exact);
    let (mut watching, mut reader) = (Some(shown.watch()), Reader::default());
    let mut state = 11u64;
    let (mut resyncs, mut begins) = (0, 0);
    for step in 0..60_000 {
        // Knuth's MMIX generator: the same history in every run.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (state >> 33) % 200;
        match (state >> 20) % 64 {
            0 => shown.edit().complete(Completeness::exact_if((state >> 40).is_multiple_of(3))),
            1..20 => remove(&shown, key),
            _ => put(&shown, key, &"y".repeat(((state >> 40) % 900) as usize)),
        }
        // It goes, so that nothing is kept, and comes again before or after what changes next.
        match (state >> 8) % 1_000 {
            0 => watching = None,
            1..300 if watching.is_none() => {
                (watching, reader) = (Some(shown.watch()), Reader::default());
                begins += 1;
            }
            _ => {}
        }
        if (state >> 50).is_multiple_of(97)
            && let Some(piece) = watching.as_mut().and_then(Watcher::next_piece)
        {
            resyncs += usize::from(piece.begins.is_some_and(|cause| cause != Cause::Begin));
            reader.take(&piece.text);
        }
        if step % 10_000 == 9_999 {
            let watcher = watching.get_or_insert_with(|| {
                reader = Reader::default();
                shown.watch()
            });
            reader.read(watcher);
            let List { entries, completeness, .. } = shown.list();
            let text = [b"[", &entries.collect::<Vec<_>>().concat()[..], b"]"].concat();
            let listed: Vec<Value> = serde_json::from_slice(&text).unwrap();
            assert_eq!(Vec::from_iter(reader.list.values().cloned()), listed, "at step {step}");
            assert_eq!(reader.complete, Some(completeness == Completeness::Exact));
        }
    }
    assert!(resyncs > 10 && begins > 10, "the history has too few of them: {resyncs}, {begins}");
}

#[test]
fn the_version_rises_with_every_change_and_with_nothing_else() {
    let shown = numbers(Completeness::Estimated);
    let mut versions = vec![shown.version()];
    put(&shown, 1, "a");
    versions.push(shown.version());
    versions.push(shown.list().version);
    remove(&shown, 1);
    versions.push(shown.version());
    shown.edit().complete(Completeness::Estimated);
    versions.push(shown.version());
    shown.edit().complete(Completeness::Exact);
    versions.push(shown.version());
    assert_eq!(versions, [0, 1, 1, 2, 2, 3]);
}

#[test]
fn nothing_is_kept_while_nobody_watches() {
    let shown = numbers(Completeness::Exact);
    let watcher = shown.watch();
    put(&shown, 1, "a");
    assert_eq!(kept(&shown).0, 1);
    drop(watcher);
    put(&shown, 2, "b");
    assert_eq!(kept(&shown), (0, 0));
}

#[tokio::test]
async fn a_change_wakes_all_who_wait_for_one() {
    let shown = numbers(Completeness::Exact);
    let mut watchers = [shown.watch(), shown.watch()];
    for watcher in &mut watchers {
        while watcher.next_piece().is_some() {}
    }
    let [one, other] = &mut watchers;
    let waiting = async { tokio::join!(one.changed(), other.changed()) };
    let changing = async { put(&shown, 1, "a") };
    tokio::time::timeout(std::time::Duration::from_secs(60), async { tokio::join!(waiting, changing) })
        .await
        .unwrap();
    assert!(watchers.iter_mut().all(|watcher| watcher.next_piece().is_some()));
}

fn numbers(completeness: Completeness) -> Numbers {
    Arc::new(Shown::new("numbers", completeness))
}

/// How many events are kept, and their bytes.
fn kept(shown: &Numbers) -> (usize, usize) {
    let state = shown.lock();
    (state.events.len(), state.bytes)
}

fn number(count: u64) -> usize {
    usize::try_from(count).unwrap()
}

fn put(shown: &Numbers, key: u64, text: &str) {
    shown.edit().put(Numbered(key, json!({"key": key, "text": text}).to_string().into()));
}

fn remove(shown: &Numbers, key: u64) {
    shown.edit().remove(&key, json!({"key": key}).to_string().as_bytes());
}

impl Reader {
    /// Reads until there is nothing to read: why the whole list was told, each time.
    fn read(&mut self, watcher: &mut Watcher<Numbered>) -> Vec<Cause> {
        let mut resyncs = Vec::new();
        while let Some(piece) = watcher.next_piece() {
            resyncs.extend(piece.begins);
            self.take(&piece.text);
        }
        resyncs
    }

    /// Applies the events that are whole now.
    fn take(&mut self, text: &[u8]) {
        self.left.push_str(std::str::from_utf8(text).unwrap());
        while let Some((event, left)) = self.left.split_once("\n\n") {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let (name, data) = (name.strip_prefix("event: ").unwrap().to_owned(), data.to_owned());
            self.left = left.to_owned();
            let data: Value = serde_json::from_str(&data).unwrap();
            let key = |entry: &Value| entry["key"].as_u64().unwrap();
            match &*name {
                "resync" => {
                    let entries = data["numbers"].as_array().unwrap().clone();
                    self.list = entries.into_iter().map(|entry| (key(&entry), entry)).collect();
                    self.complete = data["complete"].as_bool();
                }
                "upserted" => {
                    self.list.insert(key(&data), data);
                }
                "removed" => {
                    self.list.remove(&key(&data));
                }
                other => panic!("{other}"),
            }
            self.told.push(name);
        }
    }
}
