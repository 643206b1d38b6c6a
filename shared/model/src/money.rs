//! Prices as integers: no floating point takes part in a decision.

use std::{fmt, iter::Sum, ops::Add};

/// A price in nano-dollars (1e-9 USD) per hour.
///
/// Nine decimals hold every price that EC2 publishes without rounding. Arithmetic saturates;
/// [`NanoDollarsPerHour::MAX`] stands for "cannot be bought".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoDollarsPerHour(pub u64);

impl NanoDollarsPerHour {
    /// Nothing to pay.
    pub const ZERO: Self = Self(0);
    /// Cannot be bought.
    pub const MAX: Self = Self(u64::MAX);

    /// Rounds a price in dollars per hour to the nearest nano-dollar; negative, infinite and
    /// undefined inputs give `None`.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let nanos = (dollars * 1e9).round();
        // 2^63 nano-dollars an hour is nine billion dollars an hour: a wrong input, not a price.
        if (0.0..9.2e18).contains(&nanos) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was checked in the line above"
            )]
            Some(Self(nanos as u64))
        } else {
            None
        }
    }

    /// The price in dollars per hour, for display and for output documents.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "for people; decisions use the integer"
    )]
    pub fn as_dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for NanoDollarsPerHour {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for NanoDollarsPerHour {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for NanoDollarsPerHour {
    /// Dollars with four decimals, as price lists show them: `$0.0416/h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}/h", self.as_dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_round_to_the_nearest_nano_dollar_and_bad_prices_are_refused() {
        assert_eq!(
            NanoDollarsPerHour::from_dollars(0.0416),
            Some(NanoDollarsPerHour(41_600_000))
        );
        for bad in [-0.1, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(NanoDollarsPerHour::from_dollars(bad), None, "{bad}");
        }
    }
}
