//! What a program for people prints: numbered sections with a caption, tables, JSON, and lines of progress with the time
//! that has passed.

use std::{
    fmt::Display,
    future::Future,
    io::{self, Write, stdout},
    pin::pin,
    time::Duration,
};

use anyhow::Result;
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::SystemClock;
use serde_json::Value;
use tokio::time::timeout;

/// Longer silence looks like a hang.
const REASSURE: Duration = Duration::from_secs(5);
/// JSON that fits stays on one line.
const WIDTH: usize = 110;

/// The terminal, since the program began.
#[derive(Debug)]
pub(crate) struct Screen {
    start: Timestamp,
    sections: u32,
}

impl Screen {
    /// The program begins.
    pub(crate) fn new() -> Self {
        Self { start: SystemClock.elapsed(), sections: 0 }
    }

    /// Text as it is.
    pub(crate) fn text(&self, text: impl Display) -> io::Result<()> {
        let mut out = stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }

    /// Text that stands in from the edge, as what a program answered.
    pub(crate) fn quote(&self, text: &str) -> io::Result<()> {
        let lines: Vec<_> = text.trim_end().lines().map(|line| format!("  {line}")).collect();
        self.text(lines.join("\n").replace("\n  \n", "\n\n"))
    }

    /// JSON, short lists and objects on one line.
    pub(crate) fn json(&self, value: &Value) -> io::Result<()> {
        self.quote(&pretty(value, 0))
    }

    /// What happens, and when.
    pub(crate) fn progress(&self, what: impl Display) -> io::Result<()> {
        let passed = SystemClock.elapsed().since(self.start).as_secs_f64();
        self.text(format!("[{passed:5.1} s] {what}"))
    }

    /// The next section.
    pub(crate) fn section(&mut self, title: &str, caption: &str) -> io::Result<()> {
        self.sections += 1;
        let title = format!("{}. {title}", self.sections);
        self.text(format!("\n{title}\n{}\n{caption}\n", "-".repeat(title.chars().count())))
    }

    /// Says what is done, does it, and says again and again that it is still being done.
    pub(crate) async fn during<T>(&self, what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
        self.progress(what)?;
        let mut doing = pin!(doing);
        loop {
            match timeout(REASSURE, doing.as_mut()).await {
                Ok(outcome) => return outcome,
                Err(_) => self.progress("  still at it")?,
            }
        }
    }
}

fn pretty(value: &Value, depth: usize) -> String {
    let short = flat(value);
    if 2 * depth + short.chars().count() <= WIDTH {
        return short;
    }
    let (open, close, items) = match value {
        Value::Array(items) => ("[", "]", items.iter().map(|item| pretty(item, depth + 1)).collect()),
        Value::Object(fields) => {
            let field = |(name, value)| format!("{}: {}", Value::from(name), pretty(value, depth + 1));
            ("{", "}", fields.iter().map(|(name, value)| field((name.as_str(), value))).collect::<Vec<_>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return short,
    };
    let inner = "  ".repeat(depth + 1);
    format!("{open}\n{inner}{}\n{}{close}", items.join(&format!(",\n{inner}")), "  ".repeat(depth))
}

fn flat(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flat).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), flat(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_that_fits_stays_on_one_line_and_the_rest_is_broken_at_its_outermost_level() {
        let long = "x".repeat(100);
        let value = json!({ "complete": true, "pools": [{ "key": { "name": "a" } }, long] });
        let wanted = format!(
            "{{\n  \"complete\": true,\n  \"pools\": [\n    {{\"key\": {{\"name\": \"a\"}}}},\n    \"{long}\"\n  ]\n}}"
        );
        assert_eq!(pretty(&value, 0), wanted);
    }
}
