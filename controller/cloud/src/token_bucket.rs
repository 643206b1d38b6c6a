//! Pacing of calls that shares the wait instead of the error, and learns from throttling.
//!
//! The bucket mirrors the one that EC2 keeps for the account. It starts from the documented size and
//! refill; a throttling answer means that the true refill is smaller (others call too), so the
//! rate halves at once and recovers slowly. Callers reserve a place in line and are told how long
//! to wait; the line is bounded.

use millwright_model::{Span, Timestamp};

/// Tokens are counted in thousandths, so that slow rates stay exact.
const TOKEN: i64 = 1_000;
/// A rate never falls below this share of its start.
const RATE_FLOOR: i64 = 16;
/// Time in which a rate recovers from nothing to its start.
const RECOVERY: Span = Span::from_secs(60);
/// Throttling answers closer than this are about the same overdraft.
const SAME_OVERDRAFT: Span = Span::from_secs(1);

/// Size and refill of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// Tokens when full.
    pub size: u32,
    /// Tokens per second.
    pub refill: u32,
    /// Longest wait that is handed out; a call that would wait longer is refused.
    pub wait_max: Span,
}

/// The line is longer than callers are willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls are waiting: the next one could start in {wait_ms} ms")]
pub struct LineTooLong {
    /// When a token would have been there, milliseconds from now.
    pub wait_ms: i64,
}

/// A token bucket. Time comes in with every call and may stand still but not go back; a clock that
/// jumps back refills nothing.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    settings: BucketSettings,
    /// Thousandths of a token; negative while callers wait.
    tokens: i64,
    /// Thousandths of a token per second.
    rate: i64,
    at: Timestamp,
    throttled_at: Option<Timestamp>,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(settings: BucketSettings, now: Timestamp) -> Self {
        Self {
            settings,
            tokens: i64::from(settings.size) * TOKEN,
            rate: i64::from(settings.refill.max(1)) * TOKEN,
            at: now,
            throttled_at: None,
        }
    }

    /// Takes a token, possibly one that is still to come; answers how long to wait for it.
    ///
    /// # Errors
    /// When the wait would exceed the limit; nothing is taken then.
    pub fn reserve(&mut self, now: Timestamp) -> Result<Span, LineTooLong> {
        self.refill(now);
        let missing = (TOKEN - self.tokens).max(0);
        // Rounded up: a token that comes within the millisecond is waited for.
        let wait_ms = missing.saturating_mul(1_000).saturating_add(self.rate - 1) / self.rate;
        if wait_ms > self.settings.wait_max.as_millis() {
            return Err(LineTooLong { wait_ms });
        }
        self.tokens -= TOKEN;
        Ok(Span::from_millis(wait_ms))
    }

    /// Learns that a call was throttled: the service's bucket is empty and fills more slowly than
    /// thought.
    pub fn throttled(&mut self, now: Timestamp) {
        self.refill(now);
        self.tokens = self.tokens.min(0);
        if self
            .throttled_at
            .is_none_or(|last| now.since(last) >= SAME_OVERDRAFT)
        {
            let floor = (self.full_rate() / RATE_FLOOR).max(1);
            self.rate = (self.rate / 2).max(floor);
            self.throttled_at = Some(now);
        }
    }

    /// Tokens per second at present, in thousandths.
    #[must_use]
    pub const fn rate_millis(&self) -> i64 {
        self.rate
    }

    fn full_rate(&self) -> i64 {
        i64::from(self.settings.refill.max(1)) * TOKEN
    }

    fn refill(&mut self, now: Timestamp) {
        let elapsed = now.since(self.at).as_millis();
        if elapsed == 0 {
            return;
        }
        self.at = now;
        let gained = self.rate.saturating_mul(elapsed) / 1_000;
        let size = i64::from(self.settings.size) * TOKEN;
        self.tokens = self.tokens.saturating_add(gained).min(size);
        let recovered = self.full_rate().saturating_mul(elapsed) / RECOVERY.as_millis();
        self.rate = self.rate.saturating_add(recovered).min(self.full_rate());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SETTINGS: BucketSettings = BucketSettings {
        size: 3,
        refill: 2,
        wait_max: Span::from_secs(5),
    };

    fn bucket() -> TokenBucket {
        TokenBucket::new(SETTINGS, Timestamp(0))
    }

    #[test]
    fn a_full_bucket_lets_a_burst_through_and_then_hands_out_places_in_line() {
        let mut bucket = bucket();
        let waits: Vec<_> = (0..6)
            .map(|_| bucket.reserve(Timestamp(0)).expect("short").as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 500, 1_000, 1_500]);
        assert_eq!(bucket.reserve(Timestamp(2_000)), Ok(Span::from_millis(0)));
    }

    #[test]
    fn the_line_is_bounded_and_a_refused_call_takes_nothing() {
        let mut bucket = bucket();
        let served = (0..100)
            .filter(|_| bucket.reserve(Timestamp(0)).is_ok())
            .count();
        assert_eq!(served, 3 + 10);
        assert_eq!(
            bucket.reserve(Timestamp(0)),
            Err(LineTooLong { wait_ms: 5_500 })
        );
        assert!(bucket.reserve(Timestamp(500)).is_ok());
    }

    #[test]
    fn throttling_halves_the_rate_once_for_each_overdraft_and_the_rate_recovers() {
        let mut bucket = bucket();
        bucket.throttled(Timestamp(10));
        bucket.throttled(Timestamp(20));
        let halved = bucket.rate_millis();
        assert!((1_000..1_010).contains(&halved), "{halved}");
        assert!(bucket.reserve(Timestamp(20)).expect("short").as_millis() > 900);
        bucket.throttled(Timestamp(2_000));
        assert!(bucket.rate_millis() < halved);
        for second in 3..100 {
            bucket.throttled(Timestamp(second * 1_000));
        }
        assert!(
            bucket.rate_millis() >= 2_000 / RATE_FLOOR,
            "never below the floor"
        );
        assert!(bucket.reserve(Timestamp(200_000)).is_ok());
        assert_eq!(bucket.rate_millis(), 2_000);
    }

    #[test]
    fn a_clock_that_jumps_back_refills_nothing() {
        let mut bucket = TokenBucket::new(SETTINGS, Timestamp(10_000));
        for _ in 0..3 {
            assert_eq!(bucket.reserve(Timestamp(5_000)), Ok(Span::from_millis(0)));
        }
        assert_eq!(bucket.reserve(Timestamp(5_000)), Ok(Span::from_millis(500)));
    }

    proptest! {
        /// However callers come, calls that start (arrival plus wait) in any window never exceed
        /// what the bucket holds plus what flows in.
        #[test]
        fn starts_never_exceed_size_plus_refill(gaps in prop::collection::vec(0_i64..700, 1..80)) {
            let mut bucket = bucket();
            let mut now = 0;
            let mut starts = Vec::new();
            for gap in gaps {
                now += gap;
                if let Ok(wait) = bucket.reserve(Timestamp(now)) {
                    starts.push(now + wait.as_millis());
                }
            }
            starts.sort_unstable();
            for (first, start) in starts.iter().enumerate() {
                for (last, end) in starts.iter().enumerate().skip(first) {
                    let calls = i64::try_from(last - first + 1).expect("small");
                    // One more for rounding at either end.
                    let allowed = 3 + (end - start) * 2 / 1_000 + 1;
                    prop_assert!(calls <= allowed, "{calls} calls from {start} to {end} ms");
                }
            }
        }
    }
}
