//! Durations that remember how they were spelled.
//!
//! A GitOps controller compares what it applied with what it reads back, so `60m` has to stay
//! `60m` and must not turn into `1h0m0s`. Each value therefore keeps the text it was read from
//! beside its length; values made here are rendered in Go's style. Lengths decide equality.
//!
//! Source: provisioning specification 1.1.1.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The spelling of "no duration".
pub const NEVER: &str = "Never";

/// Stands for a number of too many digits; saturates whatever it is multiplied with.
const HUGE: i128 = i64::MAX as i128;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: expected groups of digits followed by h, m, s, ms, us or ns")]
pub struct ParseDurationError {
    text: String,
}

/// A length of time, nanoseconds inside, with the spelling it was read with.
///
/// Parses more than the schemas admit (fractions, `ms`, `us`, `ns`), so that nothing an API server
/// ever stored is unreadable; lengths beyond 292 years saturate.
#[derive(Clone)]
pub struct Duration {
    nanos: i64,
    text: Option<Box<str>>,
}

impl Duration {
    /// A duration of whole seconds; saturates.
    #[must_use]
    pub fn from_secs(secs: i64) -> Self {
        Self::from_nanos(secs.saturating_mul(NANOS_PER_SECOND))
    }

    /// A duration of nanoseconds, not negative.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        Self {
            nanos: nanos.max(0),
            text: None,
        }
    }

    /// Nanoseconds, never negative.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.nanos
    }

    /// Whole milliseconds, rounded down, never negative.
    #[must_use]
    pub fn millis(&self) -> i64 {
        self.nanos / 1_000_000
    }

    /// The length as the standard library's type.
    #[must_use]
    pub fn as_std(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.nanos.unsigned_abs())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        // Go's style: the largest unit needed and everything below it down to seconds; fractions
        // only on the seconds, and a unit below seconds when there is nothing else.
        let (secs, nanos) = (self.nanos / NANOS_PER_SECOND, self.nanos % NANOS_PER_SECOND);
        let (hours, mins, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
        if self.nanos != 0 && self.nanos < NANOS_PER_SECOND {
            return match self.nanos {
                0..1_000 => write!(f, "{nanos}ns"),
                1_000..1_000_000 => write!(f, "{}µs", Fraction(nanos, 1_000)),
                _ => write!(f, "{}ms", Fraction(nanos, 1_000_000)),
            };
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || mins > 0 {
            write!(f, "{mins}m")?;
        }
        write!(
            f,
            "{}s",
            Fraction(secs * NANOS_PER_SECOND + nanos, NANOS_PER_SECOND)
        )
    }
}

/// `.0 / .1` (a power of ten) as a decimal number without trailing zeros.
struct Fraction(i64, i64);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / self.1, self.0 % self.1);
        write!(f, "{whole}")?;
        if rest == 0 {
            return Ok(());
        }
        let digits = format!("{:0width$}", rest, width = self.1.ilog10() as usize);
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let nanos = parse_nanos(text).ok_or_else(|| ParseDurationError {
            text: text.to_owned(),
        })?;
        Ok(Self {
            nanos,
            text: Some(text.into()),
        })
    }
}

/// Sums the groups of `text`; `None` when it is no duration.
fn parse_nanos(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut sum = 0_i128;
    if text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        sum = sum.saturating_add(group_nanos(number, unit)?);
        rest = tail;
    }
    Some(i64::try_from(sum).unwrap_or(i64::MAX))
}

fn group_nanos(number: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse().unwrap_or(HUGE)
    };
    // Eighteen digits are more than a nanosecond of an hour can resolve.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let mut part = 0;
    if !fraction.is_empty() {
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        part = fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale;
    }
    Some(whole.saturating_mul(unit).saturating_add(part))
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Duration {}

impl Hash for Duration {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A duration, or never.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NillableDuration(pub Option<Duration>);

impl NillableDuration {
    /// No duration at all.
    pub const NEVER: Self = Self(None);

    /// A duration of whole seconds; saturates.
    #[must_use]
    pub fn from_secs(secs: i64) -> Self {
        Self(Some(Duration::from_secs(secs)))
    }

    /// Reads a duration or `Never`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        if text == NEVER {
            Ok(Self::NEVER)
        } else {
            text.parse().map(|d| Self(Some(d)))
        }
    }

    /// Nanoseconds; `None` for never.
    #[must_use]
    pub fn nanos(&self) -> Option<i64> {
        self.0.as_ref().map(Duration::nanos)
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(duration) => duration.serialize(serializer),
            None => serializer.serialize_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for NillableDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NillableDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_survives_reading_and_writing() {
        for text in ["60m", "1h0m0s", "720h", "0s", "1h30m", "90s", "00h", "1m1h"] {
            let read: Duration = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), text);
        }
    }

    #[test]
    fn never_is_no_duration_and_is_written_as_never() {
        let never: NillableDuration = serde_json::from_value(NEVER.into()).unwrap();
        assert_eq!(never.nanos(), None);
        assert_eq!(serde_json::to_value(&never).unwrap(), NEVER);
    }

    #[test]
    fn durations_of_equal_length_are_equal_whatever_their_spelling() {
        assert_eq!(Duration::from_str("60m"), Duration::from_str("1h0m0s"));
        assert_ne!(Duration::from_str("60m"), Duration::from_str("61m"));
    }

    #[test]
    fn values_made_here_are_rendered_in_go_style() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (25_000_000, "25ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (2_592_000_000_000_000, "720h0m0s"),
            (3_723_000_000_001, "1h2m3.000000001s"),
        ] {
            assert_eq!(Duration::from_nanos(nanos).to_string(), text);
            assert_eq!(Duration::from_str(text).unwrap().nanos(), nanos, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_huge_values_saturate() {
        for text in [
            "", "5", "h", "1d", "1hr", "-5m", "1 h", "never", "1..5s", "Never",
        ] {
            assert!(Duration::from_str(text).is_err(), "{text}");
        }
        let huge = "9".repeat(60) + "h";
        assert_eq!(Duration::from_str(&huge).unwrap().nanos(), i64::MAX);
        assert_eq!(
            Duration::from_str("1.123456789123456789123s")
                .unwrap()
                .nanos(),
            1_123_456_789
        );
    }
}
