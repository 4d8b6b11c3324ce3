//! Bodies of requests: one JSON object, or a stream of them, one after another. No more than the limit of one message
//! is held, however much is sent and however it is framed; what says its length is refused before it is read.

use std::error::Error as StdError;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use mcs_core::validate::Refusal;
use mcs_runtime::http::{NotWhole, whole};
use serde_json::{Map, Value};

use super::json;
use crate::error::Error;

/// Types of JSON, and of JSON values one after another.
const TYPES: [&str; 4] =
    ["application/json", "application/x-ndjson", "application/ndjson", "application/jsonl"];

/// Refuses what is said to be something else than JSON in UTF-8. That it is JSON need not be said.
///
/// # Errors
/// The header that is wrong.
pub(super) fn check_type(headers: &HeaderMap) -> Result<(), Error> {
    let told = |name: HeaderName| match headers.get(name) {
        None => Ok(String::new()),
        Some(value) => value.to_str().map(str::to_ascii_lowercase),
    };
    let problem = match (told(CONTENT_TYPE), told(CONTENT_ENCODING)) {
        (Ok(of), Ok(encoding)) if is_json(&of) && matches!(&*encoding, "" | "identity") => return Ok(()),
        (Ok(of), _) if is_json(&of) => "content-encoding: send the body as it is, not compressed",
        _ => "content-type: send JSON in UTF-8, as application/json",
    };
    Err(Error::Media { problem })
}

fn is_json(of: &str) -> bool {
    let mut parts = of.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let json =
        TYPES.contains(&essence) || (essence.starts_with("application/") && essence.ends_with("+json"));
    let utf8 = |part: &str| {
        part.strip_prefix("charset=")
            .is_none_or(|charset| matches!(charset.trim_matches('"'), "utf-8" | "utf8"))
    };
    essence.is_empty() || (json && parts.all(utf8))
}

/// The one object of a body.
///
/// # Errors
/// It is larger than `most`, too slow, or no JSON object.
pub(super) async fn one(body: Body, most: usize) -> Result<Map<String, Value>, Error> {
    let collected = whole(body, most).await?;
    if collected.trim_ascii().is_empty() {
        return Err(Refusal::new("the body", "is empty, must be a JSON object").into());
    }
    Ok(json::parse(&collected, 1)?)
}

/// Why a body cannot be read on.
fn broken(error: &(dyn StdError + 'static)) -> Error {
    Error::of_body(error).unwrap_or_else(|| NotWhole::Broken { problem: error.to_string() }.into())
}

/// Objects one after another, with or without line ends between them.
pub(super) struct Objects {
    body: Body,
    /// The most bytes of one.
    most: usize,
    /// What has come and was not taken.
    text: BytesMut,
    /// How much of it was looked at.
    seen: usize,
    /// The line that it begins on.
    line: usize,
    place: Place,
}

/// Where in an object the next byte is.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Objects and lists that are open.
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Objects {
    /// The objects of a body.
    pub(super) fn new(body: Body, most: usize) -> Self {
        Self { body, most, text: BytesMut::new(), seen: 0, line: 1, place: Place::default() }
    }

    /// The next one; none at the end of the body.
    ///
    /// # Errors
    /// It is larger than the limit, no JSON object, or not whole when the body ends.
    pub(super) async fn next(&mut self) -> Result<Option<Map<String, Value>>, Error> {
        loop {
            let line = self.skip_blank()?;
            if let Some(text) = self.take() {
                if text.len() > self.most {
                    return Err(Error::TooLarge { most: self.most });
                }
                return Ok(Some(json::parse(&text, line)?));
            }
            if self.text.len() > self.most {
                return Err(Error::TooLarge { most: self.most });
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.text.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(broken(&error)),
                None if self.text.is_empty() => return Ok(None),
                None => {
                    let problem = format!("ends within the object that begins at line {line}");
                    return Err(Refusal::new("the body", problem).into());
                }
            }
        }
    }

    /// Goes to the next object, and says on which line it begins.
    fn skip_blank(&mut self) -> Result<usize, Refusal> {
        if self.seen == 0 {
            let blank = self.text.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
            self.line += line_ends(&self.text[..blank]);
            self.text.advance(blank);
            if self.text.first().is_some_and(|first| *first != b'{') {
                let problem = format!("must be JSON objects one after another, see line {}", self.line);
                return Err(Refusal::new("the body", problem));
            }
        }
        Ok(self.line)
    }

    /// Takes an object when it is whole.
    fn take(&mut self) -> Option<BytesMut> {
        while let Some(byte) = self.text.get(self.seen) {
            self.seen += 1;
            self.place.pass(*byte);
            if self.place.depth == 0 {
                let text = self.text.split_to(self.seen);
                self.line += line_ends(&text);
                (self.seen, self.place) = (0, Place::default());
                return Some(text);
            }
        }
        None
    }
}

impl Place {
    fn pass(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

fn line_ends(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests;
