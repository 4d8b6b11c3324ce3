//! A list that is kept in the form in which it is sent.
//!
//! Items are encoded once, when they change, into pages of JSON text. Reading the list copies nothing: the answer is
//! made of the pages as they are, and a page is copied only if it changes while an answer still holds it. So a read
//! costs the same however often pools change, and memory holds each item's text once.

use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// A page that grows beyond this many bytes is split.
const PAGE: usize = 16 * 1024;

/// Encoded items, ordered by their keys. Each is preceded by a comma.
#[derive(Debug)]
pub(crate) struct Sheet<K> {
    pages: Vec<Page<K>>,
}

#[derive(Debug)]
struct Page<K> {
    keys: Vec<K>,
    /// Where the text of each item ends.
    ends: Vec<usize>,
    text: Text,
}

#[derive(Clone, Debug)]
struct Text(Arc<Vec<u8>>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Text {
    fn new(mut bytes: Vec<u8>) -> Self {
        bytes.reserve_exact(PAGE.saturating_sub(bytes.len()));
        Self(Arc::new(bytes))
    }
}

impl<K> Default for Sheet<K> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<K: Ord + Clone> Sheet<K> {
    /// Puts an item, in place of the one that the key had.
    pub(crate) fn put(&mut self, key: &K, item: &[u8]) {
        let number = self.page_of(key);
        let Some(page) = self.pages.get_mut(number) else {
            let mut page = Page { keys: Vec::new(), ends: Vec::new(), text: Text::new(Vec::new()) };
            page.put(key, item);
            return self.pages.push(page);
        };
        page.put(key, item);
        if page.text.0.len() > PAGE
            && let Some(rest) = page.split(key)
        {
            self.pages.insert(number + 1, rest);
        }
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, key: &K) {
        let number = self.page_of(key);
        if let Some(page) = self.pages.get_mut(number) {
            page.remove(key);
            if page.keys.is_empty() {
                self.pages.remove(number);
            }
        }
    }

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        self.pages.iter().map(|page| page.keys.len()).sum()
    }

    /// The items in order, with commas between them, in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Bytes> {
        self.pages.iter().enumerate().map(|(number, page)| {
            let text = Bytes::from_owner(page.text.clone());
            if number == 0 { text.slice(1..) } else { text }
        })
    }

    /// The items after `key` in its page, or else those of the next page: each with the comma before it, and the last
    /// key of them. From the begin where there is no key; none at the end.
    pub(crate) fn after(&self, key: Option<&K>) -> Option<(&[u8], &K)> {
        let Some(key) = key else { return self.pages.first()?.from(0) };
        let number = self.page_of(key);
        let page = self.pages.get(number)?;
        let next = page.keys.partition_point(|known| known <= key);
        page.from(next).or_else(|| self.pages.get(number + 1)?.from(0))
    }

    /// The page that has the key or would have it.
    fn page_of(&self, key: &K) -> usize {
        let begins_later = |page: &Page<K>| page.keys.first().is_none_or(|first| first <= key);
        self.pages.partition_point(begins_later).saturating_sub(1)
    }
}

impl<K: Ord + Clone> Page<K> {
    fn put(&mut self, key: &K, item: &[u8]) {
        let (at, old) = match self.keys.binary_search(key) {
            Ok(at) => (at, self.range(at)),
            Err(at) => {
                let start = self.start(at);
                self.keys.insert(at, key.clone());
                self.ends.insert(at, start);
                (at, start..start)
            }
        };
        let (removed, added) = (old.len(), item.len() + 1);
        let text = Arc::make_mut(&mut self.text.0);
        let (before, start) = (text.len(), old.start);
        let after = before + added - removed;
        text.resize(before.max(after), 0);
        text.copy_within(old.end..before, start + added);
        text.truncate(after);
        text[start] = b',';
        text[start + 1..start + added].copy_from_slice(item);
        self.shift(at, removed, added);
    }

    fn remove(&mut self, key: &K) {
        let Ok(at) = self.keys.binary_search(key) else { return };
        let old = self.range(at);
        self.shift(at, old.len(), 0);
        self.keys.remove(at);
        self.ends.remove(at);
        Arc::make_mut(&mut self.text.0).drain(old);
    }

    /// Moves the ends of the items from `at` on.
    fn shift(&mut self, at: usize, removed: usize, added: usize) {
        for end in self.ends.iter_mut().skip(at) {
            *end = *end + added - removed;
        }
    }

    /// The items from `at` on, and the last key of them.
    fn from(&self, at: usize) -> Option<(&[u8], &K)> {
        let last = self.keys.get(at..)?.last()?;
        Some((self.text.0.get(self.start(at)..)?, last))
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    fn range(&self, at: usize) -> Range<usize> {
        self.start(at)..self.ends.get(at).copied().unwrap_or(self.text.0.len())
    }

    /// Gives the upper half of the items away; none when there is but one. Where `newest` is the last one, only that
    /// goes: keys that rise would else leave every page half empty.
    fn split(&mut self, newest: &K) -> Option<Self> {
        let half = self.ends.partition_point(|end| *end <= self.text.0.len() / 2);
        let at = if self.keys.last() == Some(newest) { self.keys.len() - 1 } else { half.max(1) };
        if at == 0 || at >= self.keys.len() {
            return None;
        }
        let start = self.start(at);
        let text = self.text.0.get(..start).unwrap_or_default().to_vec();
        let rest = self.text.0.get(start..).unwrap_or_default().to_vec();
        self.text = Text::new(text);
        let ends = self.ends.split_off(at).into_iter().map(|end| end - start).collect();
        Some(Self { keys: self.keys.split_off(at), ends, text: Text::new(rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_sheet_reads_like_the_map_of_what_was_put_and_not_removed() {
        let (mut sheet, mut map) = (Sheet::default(), BTreeMap::new());
        let mut state = 7u64;
        for step in 0..5000 {
            // Knuth's MMIX generator: the same history in every run.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (state >> 33) % 300;
            if (state >> 20).is_multiple_of(4) {
                sheet.remove(&key);
                map.remove(&key);
            } else {
                let item = format!("[{key},{}]", "9".repeat(((state >> 40) % 400) as usize + 1));
                sheet.put(&key, item.as_bytes());
                map.insert(key, item);
            }
            if step % 50 == 0 {
                let expected: Vec<&str> = map.values().map(String::as_str).collect();
                assert_eq!((read(&sheet), sheet.len()), (expected.join(","), map.len()), "at step {step}");
            }
        }
        assert!(sheet.pages.len() > 2, "the history is too small to split pages");
    }

    #[test]
    fn a_sheet_is_read_on_from_any_key_there_or_not() {
        let mut sheet = Sheet::default();
        assert_eq!(sheet.after(None), None);
        for key in (0..3000).step_by(3) {
            sheet.put(&key, format!("{key},{}", "0".repeat(50)).as_bytes());
        }
        assert!(sheet.pages.len() > 2, "too few pages");
        let all: Vec<u8> = std::iter::successors(sheet.after(None), |(_, last)| sheet.after(Some(last)))
            .flat_map(|(items, _)| items.to_vec())
            .collect();
        assert_eq!(&all[1..], read(&sheet).as_bytes());
        for key in 0..3000 {
            let next = (key / 3 + 1) * 3;
            let begins =
                sheet.after(Some(&key)).map(|(items, _)| items.starts_with(format!(",{next},").as_bytes()));
            assert_eq!(begins, (next < 3000).then_some(true), "after {key}");
        }
    }

    #[test]
    fn what_was_read_does_not_change() {
        let mut sheet = Sheet::default();
        for key in [1, 2, 3] {
            sheet.put(&key, b"0");
        }
        let before: Vec<Bytes> = sheet.pieces().collect();
        sheet.put(&2, b"1");
        sheet.remove(&3);
        assert_eq!((before.concat(), read(&sheet)), (b"0,0,0".to_vec(), "0,1".to_owned()));
    }

    #[test]
    fn an_item_larger_than_a_page_has_a_page_of_its_own() {
        let mut sheet = Sheet::default();
        let large = "8".repeat(PAGE * 2);
        for key in [2, 1, 3] {
            sheet.put(&key, if key == 2 { large.as_bytes() } else { b"0" });
        }
        assert_eq!(read(&sheet), format!("0,{large},0"));
        for key in [2, 1, 3] {
            sheet.remove(&key);
        }
        assert_eq!((read(&sheet), sheet.len()), (String::new(), 0));
    }

    fn read(sheet: &Sheet<u64>) -> String {
        let all: Vec<Bytes> = sheet.pieces().collect();
        String::from_utf8(all.concat()).unwrap()
    }
}
