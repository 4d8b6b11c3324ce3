//! `google.protobuf.Timestamp` and `Duration`, with the JSON that Go's protojson writes: times in UTC with `Z`,
//! durations as `"30s"`.
//!
//! Own types, since those of `pbjson-types` write times with `+00:00`.

use mcs_core::time::{WallMillis, WallTime};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// 0001-01-01T00:00:00Z, the first moment that RFC 3339 can write.
const FIRST_SECOND: i64 = -62_135_596_800;

const NANOS_OF_A_SECOND: i32 = 1_000_000_000;

/// A moment on the wall clock, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after that second, 0 to 999,999,999.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl From<WallTime> for Timestamp {
    fn from(time: WallTime) -> Self {
        Self { seconds: time.unix_secs(), nanos: 0 }
    }
}

impl From<Timestamp> for WallTime {
    fn from(time: Timestamp) -> Self {
        Self::from_unix_secs(time.seconds)
    }
}

impl From<WallMillis> for Timestamp {
    fn from(time: WallMillis) -> Self {
        let millis = i64::try_from(time.unix_millis()).unwrap_or(i64::MAX);
        let nanos = i32::try_from(millis % 1_000 * 1_000_000).unwrap_or_default();
        Self { seconds: millis / 1_000, nanos }
    }
}

/// None of what is not after 1970, or further away than can be counted: then nothing is known.
impl From<Timestamp> for Option<WallMillis> {
    fn from(time: Timestamp) -> Self {
        let millis = time.seconds.checked_mul(1_000)?.checked_add(i64::from(time.nanos) / 1_000_000)?;
        WallMillis::from_unix_millis(millis)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // What no calendar can show is shown as its nearest end: a list must not fail for one strange record.
        let first = jiff::Timestamp::constant(FIRST_SECOND, 0);
        let shown = jiff::Timestamp::new(self.seconds, self.nanos).ok();
        let end = if self.seconds < 0 { first } else { jiff::Timestamp::MAX };
        serializer.collect_str(&shown.unwrap_or(end).max(first))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|error| D::Error::custom(format!("{text:?} is not an RFC 3339 time: {error}")))?;
        // Before 1970 the fraction counts from the second before.
        Ok(match (time.as_second(), time.subsec_nanosecond()) {
            (seconds, nanos) if nanos < 0 => Self { seconds: seconds - 1, nanos: nanos + NANOS_OF_A_SECOND },
            (seconds, nanos) => Self { seconds, nanos },
        })
    }
}

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds besides, of the same sign.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl From<std::time::Duration> for Duration {
    fn from(span: std::time::Duration) -> Self {
        Self {
            seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            nanos: span.subsec_nanos().cast_signed(),
        }
    }
}

impl From<Duration> for std::time::Duration {
    /// A negative span counts as none.
    fn from(span: Duration) -> Self {
        match (u64::try_from(span.seconds), u32::try_from(span.nanos)) {
            (Ok(seconds), Ok(nanos)) => Self::new(seconds, 0).saturating_add(Self::from_nanos(nanos.into())),
            _ => Self::ZERO,
        }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sign = if self.seconds < 0 || self.nanos < 0 { "-" } else { "" };
        let (seconds, nanos) = (self.seconds.unsigned_abs(), self.nanos.unsigned_abs());
        match nanos {
            0 => serializer.collect_str(&format_args!("{sign}{seconds}s")),
            nanos if nanos % 1_000_000 == 0 => {
                serializer.collect_str(&format_args!("{sign}{seconds}.{:03}s", nanos / 1_000_000))
            }
            nanos if nanos % 1_000 == 0 => {
                serializer.collect_str(&format_args!("{sign}{seconds}.{:06}s", nanos / 1_000))
            }
            nanos => serializer.collect_str(&format_args!("{sign}{seconds}.{nanos:09}s")),
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse_duration(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not a duration such as \"30s\"")))
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (digits, sign) = match text.strip_suffix('s')?.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text.strip_suffix('s')?, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let decimal = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !decimal(whole) || !decimal(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos: i32 = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration { seconds: sign * whole.parse::<i64>().ok()?, nanos: i32::try_from(sign).ok()? * nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_in_z_and_are_read_back() {
        for (seconds, nanos, text) in [
            (0, 0, "\"1970-01-01T00:00:00Z\""),
            (1_795_978_809, 518_559_294, "\"2026-11-29T19:00:09.518559294Z\""),
            (-1, 500_000_000, "\"1969-12-31T23:59:59.5Z\""),
            (FIRST_SECOND, 0, "\"0001-01-01T00:00:00Z\""),
        ] {
            let time = Timestamp { seconds, nanos };
            assert_eq!(serde_json::to_string(&time).unwrap(), text);
            assert_eq!(serde_json::from_str::<Timestamp>(text).unwrap(), time);
        }
        for (seconds, text) in [
            (FIRST_SECOND - 1, "\"0001-01-01T00:00:00Z\""),
            (i64::MIN, "\"0001-01-01T00:00:00Z\""),
            (i64::MAX, "\"9999-12-30T22:00:00.999999999Z\""),
        ] {
            assert_eq!(serde_json::to_string(&Timestamp { seconds, nanos: 0 }).unwrap(), text);
        }
        let offset: Timestamp = serde_json::from_str("\"1970-01-01T01:00:00+01:00\"").unwrap();
        assert_eq!(offset, Timestamp { seconds: 0, nanos: 0 });
    }

    #[test]
    fn durations_are_seconds_with_an_s() {
        for (seconds, nanos, text) in [
            (30, 0, "\"30s\""),
            (0, 300_000_000, "\"0.300s\""),
            (1, 1_000, "\"1.000001s\""),
            (1, 1, "\"1.000000001s\""),
            (-1, -500_000_000, "\"-1.500s\""),
        ] {
            let span = Duration { seconds, nanos };
            assert_eq!(serde_json::to_string(&span).unwrap(), text);
            assert_eq!(serde_json::from_str::<Duration>(text).unwrap(), span);
        }
        for text in ["\"30\"", "\"s\"", "\"1.s\"", "\"--1s\"", "\"1m\"", "\"1.1234567890s\""] {
            assert!(serde_json::from_str::<Duration>(text).is_err(), "{text}");
        }
    }
}
