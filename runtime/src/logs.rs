//! Logs: one subscriber for the process, to standard error, as text or as one JSON object a line.
//!
//! A panic is logged like any other error, so that a collector of JSON lines sees it. An event is one line, whatever its
//! values hold: control characters are written as escapes, so that nobody who names a thing or answers a call can forge
//! a line or move a terminal's cursor.

#[cfg(feature = "test-util")]
pub mod testing;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use mcs_core::rate::{Bucket, Rate};
use mcs_core::time::Timestamp;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::args::LogArgs;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Which events are logged: a least level, and other levels for single modules.
///
/// Tracing's own filter takes a misspelt level for the name of a module; this one refuses it.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

impl Default for LogFilter {
    fn default() -> Self {
        let loud = LOUD.map(|library| (library, LevelFilter::ERROR));
        let targets = Targets::new().with_default(LevelFilter::INFO).with_targets(loud);
        Self { text: "info".to_owned(), targets }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for LogFilter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut level, mut modules) = (LevelFilter::INFO, Vec::new());
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some((module, level)) if !module.is_empty() => modules.push((module, parse_level(level)?)),
                Some(_) => return Err(BadFilter::NoModule(part.to_owned())),
                None => level = parse_level(part)?,
            }
        }
        let loud = LOUD.map(|library| (library, level.min(LevelFilter::ERROR)));
        let targets = Targets::new().with_default(level).with_targets(loud).with_targets(modules);
        Ok(Self { text: text.to_owned(), targets })
    }
}

/// Libraries that warn of what is told elsewhere are heard when they are asked for by name: h2 and rustls warn of what a
/// client sent, as often as it sends it ([`crate::http`] and [`crate::tls`] count and log what matters of it), aws_config
/// of each place without a region or credentials, with whole answers (the error of who needs them says what to set).
const LOUD: [&str; 3] = ["aws_config", "h2", "rustls"];

fn parse_level(text: &str) -> Result<LevelFilter, BadFilter> {
    // The filter itself also takes the numbers 0 to 5, which no one can read.
    let named = text.chars().all(|c| c.is_ascii_alphabetic()) && !text.is_empty();
    text.parse().ok().filter(|_| named).ok_or_else(|| BadFilter::Level(text.to_owned()))
}

/// Why a text is no log filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// Not a level.
    #[error("'{0}' is not one of off, error, warn, info, debug, trace")]
    Level(String),
    /// A level without a module before the equals sign.
    #[error("'{0}' names no module, as in mcs_registry=debug")]
    NoModule(String),
}

/// Lets an event be logged so often at most, for what a client can cause as often as it likes.
#[derive(Debug)]
pub struct Sparse {
    rate: Rate,
    state: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    left: Bucket,
    unsaid: u64,
}

impl Sparse {
    /// An event is logged as often as `rate` says.
    pub fn new(rate: Rate) -> Self {
        Self { rate, state: Mutex::default() }
    }

    /// Whether the event is to be logged; then how many were not since the last one that was, if some were not: the
    /// field `unsaid` of its line.
    pub fn due(&self, now: Timestamp) -> Option<Option<u64>> {
        let mut lines = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.left.take(self.rate, 1, now).is_err() {
            lines.unsaid += 1;
            return None;
        }
        let unsaid = std::mem::take(&mut lines.unsaid);
        Some((unsaid > 0).then_some(unsaid))
    }
}

/// Starts logging for the whole process, and logs panics from now on.
///
/// # Errors
/// Logging was started before.
pub fn init(args: &LogArgs) -> Result<(), TryInitError> {
    subscriber(args, std::io::stderr().is_terminal(), std::io::stderr).try_init()?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("(no message)");
        tracing::error!(place, message, "panicked");
    }));
    Ok(())
}

fn subscriber<W>(args: &LogArgs, colours: bool, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let registry = tracing_subscriber::registry().with(args.log_level.targets.clone());
    let writer = OneLine { writer, colours };
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours);
    match args.log_format {
        LogFormat::Text => Box::new(registry.with(layer)),
        LogFormat::Json => Box::new(registry.with(layer.json().flatten_event(true))),
    }
}

/// Writes each event as one line.
struct OneLine<W> {
    writer: W,
    /// The formatter's own escape sequences stay; those of values it has made harmless.
    colours: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for OneLine<W> {
    type Writer = OneLine<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLine { writer: self.writer.make_writer(), colours: self.colours }
    }
}

impl<W: io::Write> io::Write for OneLine<W> {
    /// Takes a whole event, as the formatter hands it over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        self.writer.write_all(one_line(&text, self.colours).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// An event with all that would not stay in its line, but for the line's end, as escapes that are valid in JSON too.
fn one_line(event: &str, colours: bool) -> Cow<'_, str> {
    let (line, end) = event.strip_suffix('\n').map_or((event, ""), |line| (line, "\n"));
    let acts = |c: char| match c {
        '\x1b' => !colours,
        // Line and paragraph separators, and what turns the direction of reading.
        '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !line.contains(acts) {
        return Cow::Borrowed(event);
    }
    let mut escaped = String::with_capacity(event.len() + 16);
    for c in line.chars() {
        if acts(c) {
            // Writing to a String does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped + end)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_event_is_due_at_its_rate_and_says_how_many_were_not() {
        let sparse = Sparse::new(Rate::once_in(Duration::from_secs(60)));
        let due = |millis| sparse.due(Timestamp::from_millis(millis));
        let seen = [due(1), due(2), due(60_000), due(60_001), due(60_002), due(120_001), due(180_001)];
        assert_eq!(seen, [Some(None), None, None, Some(Some(2)), None, Some(Some(1)), Some(None)]);
    }

    #[test]
    fn json_lines_carry_values_as_fields() {
        let lines =
            logged(LogFormat::Json, "info", || tracing::info!(cluster = %"east", "cluster registered"));
        let [line] = lines.as_slice() else { panic!("one line expected: {lines:?}") };
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["level"], &line["message"], &line["cluster"]),
            (&"INFO".into(), &"cluster registered".into(), &"east".into())
        );
    }

    #[test]
    fn events_below_the_level_are_not_logged_except_for_the_modules_that_are_named() {
        let write = || {
            tracing::info!("quiet");
            tracing::warn!("loud");
            tracing::debug!(target: "other", "detail");
        };
        let seen: Vec<bool> = ["warn,other=debug", "error", "trace"]
            .map(|level| logged(LogFormat::Text, level, write))
            .iter()
            .flat_map(|lines| {
                ["quiet", "loud", "detail"].map(|word| lines.iter().any(|line| line.contains(word)))
            })
            .collect();
        assert_eq!(seen, [false, true, true, false, false, false, true, true, true]);
    }

    #[test]
    fn what_is_told_elsewhere_is_heard_of_libraries_when_it_is_asked_for() {
        let write = || {
            tracing::warn!(target: "aws_config::imds::region", "no region");
            tracing::warn!(target: "h2::proto::ping_pong", "an answer to no question");
            tracing::error!(target: "rustls", "something is wrong");
        };
        let seen = ["info", "debug", "info,h2=warn", "aws_config=warn", "off"].map(|level| {
            let lines = logged(LogFormat::Text, level, write);
            ["region", "answer", "wrong"].map(|word| lines.iter().any(|line| line.contains(word)))
        });
        let expected = [
            [false, false, true],
            [false, false, true],
            [false, true, true],
            [true, false, true],
            [false, false, false],
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_default_is_what_its_text_says() {
        assert_eq!(LogFilter::default(), LogFilter::default().to_string().parse().unwrap());
    }

    #[test]
    fn an_event_is_one_line_whatever_its_values_hold() {
        let forged = "a\r\n2026-01-01T00:00:00Z  INFO forged\u{1b}[2K\u{9b}\u{85}\u{2028}\u{202e}\0\t";
        let write = || {
            tracing::warn!(display = %forged, debug = ?forged, text = forged, "{forged}");
            tracing::info!("the end");
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = logged(format, "info", write);
            assert_eq!(lines.len(), 2, "{lines:?}");
            let acts = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(!lines[0].contains(acts), "{lines:?}");
        }
        let lines = logged(LogFormat::Json, "info", write);
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((&line["display"], &line["text"]), (&forged.into(), &forged.into()));
    }

    #[test]
    fn colours_stay_and_nothing_else_that_moves_the_cursor() {
        assert_eq!(one_line("\u{1b}[32mINFO\u{1b}[0m a\rb\n", true), "\u{1b}[32mINFO\u{1b}[0m a\\u000db\n");
        assert_eq!(one_line("\u{1b}[32mINFO\n", false), "\\u001b[32mINFO\n");
        assert_eq!(one_line("caf\u{e9}\n", false), "caf\u{e9}\n");
        assert_eq!(one_line("two\n\n", false), "two\\u000a\n");
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        let problems = ["loud", "", "info,mcs_core=", "3", "=info"]
            .map(|text| text.parse::<LogFilter>().map_err(|error| error.to_string()));
        let level = |text: &str| Err(format!("'{text}' is not one of off, error, warn, info, debug, trace"));
        let no_module = Err("'=info' names no module, as in mcs_registry=debug".to_owned());
        assert_eq!(problems, [level("loud"), level(""), level(""), level("3"), no_module]);
    }

    fn logged(log_format: LogFormat, level: &str, write: impl FnOnce()) -> Vec<String> {
        let buffer = Buffer::default();
        let args = LogArgs { log_format, log_level: level.parse().unwrap() };
        let writer = buffer.clone();
        tracing::subscriber::with_default(subscriber(&args, false, move || writer.clone()), write);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().map_err(|_| io::ErrorKind::Other)?.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
