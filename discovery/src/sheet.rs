//! A list that is kept as what it is made of, and encoded as it is sent.
//!
//! An entry holds what others hold too, so the list costs a pointer or two for each. Who reads it is given the pages as they
//! are: a page is copied only if it changes while a reader still holds it, and its entries are encoded piece by piece, as
//! they are taken. So nobody holds the text of a long list, and a read of it waits for nobody. The text of a short one is
//! kept from one read to the next where nothing changes.
//!
//! Rejected: pages of text (each pool is held a second time, three times as large as it is packed; what is saved is the time
//! to encode an entry, some hundred ns, which sending it takes too).

use bytes::Bytes;
use std::sync::Arc;

/// A page that grows beyond so many entries is split.
const PAGE: usize = 64;
/// A list is encoded in pieces of about so many bytes, a frame of HTTP/2: a connection holds sixteen of them at most for a
/// reader that stands still.
const PIECE: usize = 16 * 1024;

/// A list of at most so many bytes, some 1,600 pools, is kept as text: to encode it takes less than a millisecond, in which
/// nothing else is done, and those who poll share it.
const SHORT: usize = 512 * 1024;

/// What a list is made of. Cheap to clone.
pub trait Entry: Clone {
    /// What it is found by.
    type Key: Ord + Clone;

    /// Its key.
    fn key(&self) -> &Self::Key;

    /// Writes what is sent of it.
    fn write(&self, text: &mut Vec<u8>);
}

type Page<E> = Arc<Vec<E>>;

/// Entries, ordered by their keys.
#[derive(Debug)]
pub(crate) struct Sheet<E> {
    pages: Vec<Page<E>>,
    /// How many entries there are.
    count: usize,
    /// How long the text of all is, with a comma before each.
    bytes: usize,
    /// The text of all as it was read last, where it is short and nothing has changed.
    text: Option<Bytes>,
}

impl<E> Default for Sheet<E> {
    fn default() -> Self {
        Self { pages: Vec::new(), count: 0, bytes: 0, text: None }
    }
}

impl<E: Entry> Sheet<E> {
    /// Puts an entry, whose text has so many bytes, in place of the one that its key had.
    pub(crate) fn put(&mut self, entry: E, bytes: usize) {
        let number = self.page_of(entry.key());
        self.text = None;
        self.bytes += bytes + 1;
        let Some(page) = self.pages.get_mut(number) else {
            self.count += 1;
            return self.pages.push(Arc::new(vec![entry]));
        };
        let page = Arc::make_mut(page);
        match page.binary_search_by(|known| known.key().cmp(entry.key())) {
            Ok(at) => {
                self.bytes -= length(&page[at]);
                page[at] = entry;
            }
            Err(at) => {
                self.count += 1;
                page.insert(at, entry);
                if page.len() > PAGE {
                    // Where the newest is the last one, only that goes: keys that rise would else leave every page half
                    // empty.
                    let rest = page.split_off(if at == PAGE { PAGE } else { PAGE / 2 });
                    page.shrink_to_fit();
                    self.pages.insert(number + 1, Arc::new(rest));
                }
            }
        }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: &E::Key) {
        let number = self.page_of(key);
        let Some(page) = self.pages.get_mut(number) else { return };
        let Ok(at) = page.binary_search_by(|known| known.key().cmp(key)) else { return };
        let page = Arc::make_mut(page);
        self.text = None;
        self.bytes -= length(&page.remove(at));
        self.count -= 1;
        if page.is_empty() {
            self.pages.remove(number);
        }
    }

    /// How many entries there are.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// All entries as they are now.
    pub(crate) fn entries(&mut self) -> Entries<E> {
        let left = self.bytes.saturating_sub(1);
        if left > SHORT {
            let pages = self.pages.clone().into_iter();
            return Entries { text: None, pages, next: 0, left, is_begun: false };
        }
        let text = self.text.get_or_insert_with(|| {
            let mut text = Vec::with_capacity(left);
            for entry in self.pages.iter().flat_map(|page| page.iter()) {
                if !text.is_empty() {
                    text.push(b',');
                }
                entry.write(&mut text);
            }
            text.into()
        });
        let text = Some(text.clone()).filter(|text| !text.is_empty());
        Entries { text, pages: Vec::new().into_iter(), next: 0, left, is_begun: false }
    }

    /// Writes a piece of the entries after `key`, each with a comma before it, or of all where there is no key. Gives the
    /// last key that is in it; none at the end.
    pub(crate) fn write_after(&self, key: Option<&E::Key>, text: &mut Vec<u8>) -> Option<E::Key> {
        let (number, next) = match key {
            Some(key) => {
                let number = self.page_of(key);
                (number, self.pages.get(number)?.partition_point(|known| known.key() <= key))
            }
            None => (0, 0),
        };
        let pages = self.pages.get(number..)?.iter().flat_map(|page| page.iter());
        let (end, mut last) = (text.len() + PIECE, None);
        for entry in pages.skip(next) {
            text.push(b',');
            entry.write(text);
            last = Some(entry);
            if text.len() >= end {
                break;
            }
        }
        last.map(|entry| entry.key().clone())
    }

    /// The page that has the key or would have it.
    fn page_of(&self, key: &E::Key) -> usize {
        let begins_later = |page: &Page<E>| page.first().is_none_or(|first| first.key() <= key);
        self.pages.partition_point(begins_later).saturating_sub(1)
    }
}

fn length<E: Entry>(entry: &E) -> usize {
    let mut text = Vec::new();
    entry.write(&mut text);
    text.len() + 1
}

/// The entries of a list as they were at one moment: their text with commas between them, in pieces.
#[derive(Debug)]
pub struct Entries<E> {
    /// Those of a short list.
    text: Option<Bytes>,
    pages: std::vec::IntoIter<Page<E>>,
    /// The entry of the first page that comes next.
    next: usize,
    left: usize,
    is_begun: bool,
}

impl<E> Entries<E> {
    /// How many bytes are still to come.
    pub const fn bytes(&self) -> usize {
        self.left
    }
}

impl<E: Entry> Iterator for Entries<E> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(text) = self.text.take() {
            self.left = 0;
            return Some(text);
        }
        let mut text = Vec::with_capacity(self.left.min(PIECE + PIECE / 8));
        while text.len() < PIECE
            && let Some(page) = self.pages.as_slice().first()
        {
            let Some(entry) = page.get(self.next) else {
                self.pages.next();
                self.next = 0;
                continue;
            };
            if std::mem::replace(&mut self.is_begun, true) {
                text.push(b',');
            }
            entry.write(&mut text);
            self.next += 1;
        }
        self.left = self.left.saturating_sub(text.len());
        (!text.is_empty()).then(|| text.into())
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
