//! The only time types of the pure crates: a point and a distance, in whole milliseconds.
//!
//! Nothing here can read a clock; the outer ring passes `now` in.

use std::ops::{Add, Sub};

/// A point in time, milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A distance in time, milliseconds, never negative when it describes a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub i64);

impl Span {
    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// A span of whole seconds; saturates.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// The span in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl Timestamp {
    /// The span since `earlier`; zero when `earlier` lies in the future (clocks jump).
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        let distance = self.0.saturating_sub(earlier.0);
        Span(if distance < 0 { 0 } else { distance })
    }
}

impl Add<Span> for Timestamp {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Timestamp {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
