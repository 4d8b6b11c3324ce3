//! Logs: one subscriber for the process, to standard error, as text or as one JSON object a line.
//!
//! A panic is logged like any other error, so that a collector of JSON lines sees it.

use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
        Self { text: "info".to_owned(), targets: Targets::new().with_default(LevelFilter::INFO) }
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
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for part in text.split(',').map(str::trim) {
            targets = match part.split_once('=') {
                Some((module, level)) if !module.is_empty() => {
                    targets.with_target(module, parse_level(level)?)
                }
                Some(_) => return Err(BadFilter::NoModule(part.to_owned())),
                None => targets.with_default(parse_level(part)?),
            };
        }
        Ok(Self { text: text.to_owned(), targets })
    }
}

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

/// Lets an event be logged at most once a period, for what a client can cause as often as it likes.
#[derive(Debug)]
pub struct Sparse {
    every: Duration,
    state: Mutex<Skipped>,
}

#[derive(Debug, Default)]
struct Skipped {
    next: Timestamp,
    count: u64,
}

impl Sparse {
    /// At most one event in `every`.
    pub const fn new(every: Duration) -> Self {
        Self { every, state: Mutex::new(Skipped { next: Timestamp::ZERO, count: 0 }) }
    }

    /// Whether the event is to be logged, and how many were not since the last one that was.
    pub fn due(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.next.has_passed(now) {
            state.count += 1;
            return None;
        }
        state.next = now + self.every;
        Some(std::mem::take(&mut state.count))
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
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours);
    match args.log_format {
        LogFormat::Text => Box::new(registry.with(layer)),
        LogFormat::Json => Box::new(registry.with(layer.json().flatten_event(true))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_event_is_due_once_a_period_and_says_how_many_were_not() {
        let sparse = super::Sparse::new(super::Duration::from_secs(60));
        let due = |millis| sparse.due(super::Timestamp::from_millis(millis));
        let seen = [due(1), due(2), due(60_000), due(60_001), due(60_002), due(120_001)];
        assert_eq!(seen, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

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
