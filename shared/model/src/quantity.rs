//! Kubernetes quantity text (`500m`, `1.5Gi`, `1e3`) to and from exact integers.
//!
//! Source: Kubernetes API conventions, "resource.Quantity": an optionally signed decimal, then
//! one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or a decimal exponent.

use std::fmt;

/// An exact amount in nano-units. The largest value that Kubernetes itself can hold
/// (2^63 - 1 units) fits with room to spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("quantity is empty")]
    Empty,
    /// There is no digit where a number should stand.
    #[error("quantity has no digits")]
    NoDigits,
    /// What follows the number is no known suffix.
    #[error(
        "quantity has an unknown suffix (use m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent)"
    )]
    Suffix,
    /// The number is larger than 2^63 - 1.
    #[error("quantity is out of range")]
    Range,
}

const NANOS: i128 = 1_000_000_000;
/// Kubernetes caps quantities at 2^63 - 1 whole units.
const LIMIT: i128 = (i64::MAX as i128) * NANOS;

impl Quantity {
    /// A whole number of units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
        }
    }

    /// A whole number of thousandths.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self {
            nanos: i128::from(millis) * (NANOS / 1000),
        }
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Thousandths, rounded up (towards positive infinity), as Kubernetes rounds requests.
    #[must_use]
    pub fn millis_ceil(self) -> i64 {
        div_ceil(self.nanos, NANOS / 1000)
    }

    /// Whole units, rounded up (towards positive infinity).
    #[must_use]
    pub fn units_ceil(self) -> i64 {
        div_ceil(self.nanos, NANOS)
    }

    /// Reads a quantity. Digits below one nano-unit round up, as in Kubernetes.
    ///
    /// # Errors
    /// When the text is not a quantity or exceeds 2^63 - 1 units.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::NoDigits);
        }
        let nanos = scale(whole, fraction, multiplier(suffix)?)?;
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
        })
    }
}

/// A suffix as `mantissa * 10^exponent`.
fn multiplier(suffix: &str) -> Result<(i128, i32), QuantityError> {
    Ok(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = suffix
                .strip_prefix(['e', 'E'])
                .ok_or(QuantityError::Suffix)?;
            (
                1,
                exponent.parse::<i32>().map_err(|_| QuantityError::Suffix)?,
            )
        }
    })
}

/// `(whole.fraction) * mantissa * 10^exponent` in nano-units, rounded up.
fn scale(
    whole: &str,
    fraction: &str,
    (mantissa, exponent): (i128, i32),
) -> Result<i128, QuantityError> {
    let mut value: i128 = 0;
    let mut dropped = false;
    // Digits beyond what can matter only tell whether to round up: 40 digits always suffice.
    let mut places = exponent.checked_add(9).ok_or(QuantityError::Range)?;
    for digit in whole.bytes() {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(i128::from(digit - b'0')))
            .filter(|v| *v < i128::MAX >> 72)
            .ok_or(QuantityError::Range)?;
    }
    for digit in fraction.bytes() {
        match value.checked_mul(10).filter(|v| *v < i128::MAX >> 72) {
            Some(next) if places > -40 => {
                value = next + i128::from(digit - b'0');
                places = places.saturating_sub(1);
            }
            _ => dropped |= digit != b'0',
        }
    }
    value = value.checked_mul(mantissa).ok_or(QuantityError::Range)?;
    while places > 0 {
        if value == 0 {
            break;
        }
        value = value.checked_mul(10).ok_or(QuantityError::Range)?;
        places -= 1;
    }
    while places < 0 && value != 0 {
        dropped |= value % 10 != 0;
        value /= 10;
        places += 1;
    }
    value += i128::from(dropped);
    if value > LIMIT {
        Err(QuantityError::Range)
    } else {
        Ok(value)
    }
}

fn div_ceil(value: i128, by: i128) -> i64 {
    let quotient = value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0);
    i64::try_from(quotient).unwrap_or(if quotient < 0 { i64::MIN } else { i64::MAX })
}

/// Formats thousandths in canonical decimal form: `1900m`, `2`, `0`.
#[must_use]
pub fn format_millis(millis: i64) -> String {
    if millis % 1000 == 0 {
        (millis / 1000).to_string()
    } else {
        format!("{millis}m")
    }
}

/// Formats bytes in canonical binary form: the largest suffix that divides exactly (`512Mi`,
/// `1000`).
#[must_use]
pub fn format_bytes(bytes: i64) -> String {
    const SUFFIXES: [(&str, u32); 6] = [
        ("Ei", 60),
        ("Pi", 50),
        ("Ti", 40),
        ("Gi", 30),
        ("Mi", 20),
        ("Ki", 10),
    ];
    for (suffix, shift) in SUFFIXES {
        let unit = 1_i64 << shift;
        if bytes != 0 && bytes % unit == 0 {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

impl fmt::Display for Quantity {
    /// Decimal, in thousandths when whole units do not suffice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_millis(self.millis_ceil()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_suffix_and_form_is_read_exactly() {
        for (text, millis) in [
            ("0", 0),
            ("1", 1000),
            ("-1", -1000),
            ("+.5", 500),
            ("1.", 1000),
            ("100m", 100),
            ("100u", 1),
            ("1n", 1),
            ("1500m", 1500),
            ("2k", 2_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("12e-1", 1200),
            ("0.0000000001", 1),
        ] {
            assert_eq!(
                Quantity::parse(text).map(Quantity::millis_ceil),
                Ok(millis),
                "{text}"
            );
        }
        assert_eq!(
            Quantity::parse("1E").map(Quantity::units_ceil),
            Ok(1_000_000_000_000_000_000)
        );
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_its_reason() {
        for (text, error) in [
            ("", QuantityError::Empty),
            ("-", QuantityError::NoDigits),
            (".", QuantityError::NoDigits),
            ("1.2.3", QuantityError::NoDigits),
            ("Gi", QuantityError::NoDigits),
            ("1Zi", QuantityError::Suffix),
            ("1 Gi", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("9Ei", QuantityError::Range),
            ("1e999999999", QuantityError::Range),
            (
                "99999999999999999999999999999999999999999999",
                QuantityError::Range,
            ),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text}");
        }
        assert_eq!(Quantity::parse("0e2147483647"), Err(QuantityError::Range));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "[-+0-9.eEkKMGinum ]{0,60}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn formatted_bytes_and_millis_read_back_unchanged(value in 0_i64..i64::MAX / 2000) {
            prop_assert_eq!(Quantity::parse(&format_bytes(value)).map(Quantity::units_ceil), Ok(value));
            prop_assert_eq!(Quantity::parse(&format_millis(value)).map(Quantity::millis_ceil), Ok(value));
        }
    }
}
