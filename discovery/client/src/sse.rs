//! Server-sent events: bytes in, frames out, however the network cuts them.
//!
//! As the WHATWG HTML standard says (section "Server-sent events"): lines end with LF, CR or both; a blank line ends an
//! event; a line that begins with a colon is a comment; several `data` lines are one text with line feeds between.
//! `id` and `retry` are passed over, since a watch begins with a resync and pauses are the reader's. What an event is
//! when the stream ends within it, is nothing.

use memchr::memchr2;

/// The most bytes of one event: a resync of a million pools is a third of it.
pub const MOST_BYTES: usize = 1 << 30;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name; `message` where it has none.
    pub event: String,
    /// Its data.
    pub data: Vec<u8>,
}

/// An event has more bytes than are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {most} bytes")]
pub struct TooLarge {
    /// The most.
    pub most: usize,
}

/// Reads one stream.
#[derive(Debug)]
pub struct Parser {
    most: usize,
    /// A line that has not ended.
    line: Vec<u8>,
    /// Whether the last byte was a CR, with which an LF is one end of a line.
    after_cr: bool,
    /// Whether nothing was read yet but perhaps a byte order mark.
    at_start: bool,
    event: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Parser {
    /// A stream of which nothing was read; `most` bytes of an event are held.
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            event: Vec::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    /// Takes the next bytes, and gives the events that they end.
    ///
    /// # Errors
    /// An event is too large; the stream cannot be read on.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, TooLarge> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = bytes.strip_prefix(b"\n")
            {
                bytes = rest;
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if part.len() > self.most.saturating_sub(self.line.len() + self.data.len()) {
                return Err(TooLarge { most: self.most });
            }
            self.line.extend_from_slice(part);
            bytes = rest;
            if let Some((ended_by, rest)) = rest.split_first() {
                self.after_cr = *ended_by == b'\r';
                bytes = rest;
                frames.extend(self.end_line());
            }
        }
        Ok(frames)
    }

    fn end_line(&mut self) -> Option<Frame> {
        let mut line = std::mem::take(&mut self.line);
        let frame = {
            let mut text = line.as_slice();
            if std::mem::take(&mut self.at_start) {
                text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            }
            if text.is_empty() { self.end_event() } else { self.field(text) }
        };
        // The next line is about as long, unless this was a resync.
        if line.capacity() <= 64 * 1024 {
            line.clear();
            self.line = line;
        }
        frame
    }

    fn field(&mut self, line: &[u8]) -> Option<Frame> {
        let at = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => self.event = value.to_vec(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Frame> {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        let event = if event.is_empty() {
            "message".to_owned()
        } else {
            String::from_utf8_lossy(&event).into_owned()
        };
        std::mem::take(&mut self.has_data).then_some(Frame { event, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.into() }
    }

    fn whole(text: &str) -> Vec<Frame> {
        Parser::new(1_000).feed(text.as_bytes()).expect("within the limit")
    }

    #[test]
    fn an_event_has_a_name_and_its_data_lines() {
        assert_eq!(whole("event: upserted\ndata: {\"a\":1}\n\n"), [frame("upserted", "{\"a\":1}")]);
        assert_eq!(whole("data:one\ndata: two\ndata\n\n"), [frame("message", "one\ntwo\n")]);
        assert_eq!(whole("event: x\ndata: 1\n\ndata: 2\n\n"), [frame("x", "1"), frame("message", "2")]);
    }

    #[test]
    fn comments_other_fields_and_events_without_data_are_passed_over() {
        let text = "\u{feff}: alive\n\nid: 7\nretry: 1\nevent: nothing\n\n:\nevent: x\nnonsense\ndata: 1\n\n";
        assert_eq!(whole(text), [frame("x", "1")]);
    }

    #[test]
    fn an_event_that_has_not_ended_is_none() {
        assert_eq!(whole("data: 1\n\nevent: x\ndata: 2\n"), [frame("message", "1")]);
    }

    #[test]
    fn lines_end_with_any_of_the_three_ends_wherever_the_bytes_are_cut() {
        let lines = [": alive", "event: removed", "data: a", "data: b", "", "data: c", "", ""];
        let expected = [frame("removed", "a\nb"), frame("message", "c")];
        for end in ["\n", "\r", "\r\n"] {
            let text: String = lines.iter().flat_map(|line| [*line, end]).collect();
            for cut in 0..=text.len() {
                let mut parser = Parser::new(1_000);
                let (first, second) = text.as_bytes().split_at(cut);
                let mut frames = parser.feed(first).expect("within the limit");
                frames.extend(parser.feed(second).expect("within the limit"));
                assert_eq!(frames, expected, "{end:?} cut at {cut}");
            }
            let mut parser = Parser::new(1_000);
            let bytes = text.as_bytes().chunks(1);
            let frames: Vec<_> =
                bytes.flat_map(|byte| parser.feed(byte).expect("within the limit")).collect();
            assert_eq!(frames, expected, "{end:?} byte by byte");
        }
    }

    #[test]
    fn an_event_is_held_up_to_its_limit_in_one_line_or_in_many() {
        let line = |data: usize| format!("data: {}", "x".repeat(data));
        let fits = |text: &str| Parser::new(20).feed(text.as_bytes()).is_ok();
        assert!(fits(&line(14)) && !fits(&line(15)));
        assert!(fits(&format!("{}\n{}", line(6), line(8))) && !fits(&format!("{}\n{}", line(6), line(9))));
        // What was told before does not count.
        assert!(fits(&format!("{}\n\n{}", line(14), line(14))));
    }
}
