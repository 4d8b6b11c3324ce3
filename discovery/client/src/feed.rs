//! A watch of one list: bytes in, events out, or why they are none.

use crate::api::{Item, List, read_list, read_removed};
use crate::sse::{Frame, MOST_BYTES, Parser, TooLarge};

/// A step of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<T: Item> {
    /// The list as it is.
    Resync(List<T>),
    /// One is listed, or listed otherwise than before.
    Upserted(T),
    /// One is not listed any more.
    Removed(T::Key),
}

/// Why a stream is left. What it said before stays known.
#[derive(Debug, thiserror::Error)]
pub enum BadStream {
    /// An event is too large.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// An event cannot be read.
    #[error("event {event:?} of the watch of {list} cannot be read: {problem}")]
    Unreadable {
        /// The list.
        list: &'static str,
        /// The event's name.
        event: &'static str,
        /// What is wrong with it.
        problem: serde_json::Error,
    },
    /// A stream that does not begin with the list as it is leaves open what it lacks.
    #[error("the watch of {list} begins with event {event:?} and not with a resync")]
    NoResync {
        /// The list.
        list: &'static str,
        /// The event's name.
        event: &'static str,
    },
}

/// Reads one stream.
#[derive(Debug)]
pub struct Feed {
    parser: Parser,
    has_begun: bool,
}

impl Default for Feed {
    fn default() -> Self {
        Self { parser: Parser::new(MOST_BYTES), has_begun: false }
    }
}

impl Feed {
    /// Takes the next bytes, and gives the events that they end. Events of unknown names are passed over, so that a
    /// service may tell more.
    ///
    /// # Errors
    /// The stream is to be left. The events before the bad one are lost with it: the next stream begins with a resync.
    pub fn feed<T: Item>(&mut self, bytes: &[u8]) -> Result<Vec<Event<T>>, BadStream> {
        let mut events = Vec::new();
        for frame in self.parser.feed(bytes)? {
            events.extend(self.event(&frame)?);
        }
        Ok(events)
    }

    fn event<T: Item>(&mut self, frame: &Frame) -> Result<Option<Event<T>>, BadStream> {
        let (name, event) = match frame.event.as_str() {
            "resync" => ("resync", read_list(&frame.data).map(Event::Resync)),
            "upserted" => ("upserted", serde_json::from_slice(&frame.data).map(Event::Upserted)),
            "removed" => ("removed", read_removed::<T>(&frame.data).map(Event::Removed)),
            _ => return Ok(None),
        };
        let event = event.map_err(|problem| BadStream::Unreadable { list: T::LIST, event: name, problem })?;
        if !self.has_begun && !matches!(event, Event::Resync(_)) {
            return Err(BadStream::NoResync { list: T::LIST, event: name });
        }
        self.has_begun = true;
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PoolKey, PoolListing, RouterReplica};

    fn read(text: &str) -> Result<Vec<Event<RouterReplica>>, String> {
        Feed::default().feed(text.as_bytes()).map_err(|error| error.to_string())
    }

    const RESYNC: &str = "event: resync\ndata: {\"routers\":[],\"complete\":true}\n\n";

    #[test]
    fn the_three_events_are_read_and_others_are_passed_over() {
        let text = format!(
            "{RESYNC}event: upserted\ndata: {{\"id\":\"east/r\",\"url\":\"http://10.0.0.1/\"}}\n\n\
             event: bookmark\ndata: ?\n\nevent: removed\ndata: {{\"id\":\"east/r\"}}\n\n"
        );
        let replica = RouterReplica { id: "east/r".to_owned(), url: "http://10.0.0.1/".to_owned() };
        let expected = vec![
            Event::Resync(List { items: vec![], complete: true }),
            Event::Upserted(replica),
            Event::Removed("east/r".to_owned()),
        ];
        assert_eq!(read(&text), Ok(expected));
    }

    #[test]
    fn a_pool_is_removed_by_its_key() {
        let text = "event: resync\ndata: {\"pools\":[],\"complete\":false}\n\n\
                    event: removed\ndata: {\"key\":{\"cluster_id\":\"east\",\"namespace\":\"ml\",\"dgd_name\":\"chat\"}}\n\n";
        let events: Vec<Event<PoolListing>> = Feed::default().feed(text.as_bytes()).expect("events");
        let [cluster_id, namespace, dgd_name] = ["east", "ml", "chat"].map(str::to_owned);
        assert_eq!(events.get(1), Some(&Event::Removed(PoolKey { cluster_id, namespace, dgd_name })));
    }

    #[test]
    fn a_bad_event_says_which_it_is() {
        for (text, expected) in [
            ("event: resync\ndata:\n\n", "event \"resync\" of the watch of routers cannot be read: EOF"),
            (
                "event: resync\ndata: {\"complete\":true}\n\n",
                "event \"resync\" of the watch of routers cannot be read: missing",
            ),
            (
                "event: upserted\ndata: {}\n\n",
                "event \"upserted\" of the watch of routers cannot be read: missing",
            ),
            (
                "event: removed\ndata: {\"id\":7}\n\n",
                "event \"removed\" of the watch of routers cannot be read: invalid",
            ),
            (
                "event: removed\ndata: {\"id\":\"a\"}\n\n",
                "the watch of routers begins with event \"removed\"",
            ),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.starts_with(expected), "{refused}");
        }
    }
}
