//! The simulator's time.
//!
//! Everything that happens "later" (instances start, messages become visible again, buckets
//! refill) is measured on one [`Clock`], in milliseconds since the Unix epoch. Only two things
//! are real time on purpose: how long a long poll holds its connection, and injected latency,
//! because both are about the client on the other end of the socket.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// A source of time that tasks can wait on.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since the Unix epoch. Never goes back.
    fn now_ms(&self) -> u64;

    /// Completes when [`Clock::now_ms`] is at least `due_ms`.
    fn sleep_until(&self, due_ms: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Real time, optionally running faster: with a factor of 60 a minute passes in a second.
#[derive(Debug, Clone)]
pub struct RealClock {
    started: Instant,
    epoch_ms: u64,
    factor: u32,
}

impl RealClock {
    /// Wall time.
    #[must_use]
    pub fn new() -> Self {
        Self::scaled(1)
    }

    /// Starts at wall time and runs `factor` times as fast; 0 counts as 1.
    #[must_use]
    pub fn scaled(factor: u32) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: Instant::now(),
            epoch_ms: millis(since_epoch),
            factor: factor.max(1),
        }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_ms(&self) -> u64 {
        self.epoch_ms + millis(self.started.elapsed()) * u64::from(self.factor)
    }

    fn sleep_until(&self, due_ms: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // A wait is cut to milliseconds, so it can end a fraction early: look again.
            while let Some(left) = due_ms.checked_sub(self.now_ms()).filter(|left| *left > 0) {
                tokio::time::sleep(Duration::from_millis(left.div_ceil(u64::from(self.factor))))
                    .await;
            }
        })
    }
}

/// Time that stands still until a test moves it. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now_ms: Arc<watch::Sender<u64>>,
}

impl ManualClock {
    /// Starts at the given time.
    #[must_use]
    pub fn starting_at(now_ms: u64) -> Self {
        Self {
            now_ms: Arc::new(watch::Sender::new(now_ms)),
        }
    }

    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.now_ms.send_modify(|now| *now += millis(by));
    }
}

impl Default for ManualClock {
    /// Starts on 2026-01-01, a Thursday.
    fn default() -> Self {
        Self::starting_at(1_767_225_600_000)
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        *self.now_ms.borrow()
    }

    fn sleep_until(&self, due_ms: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut time = self.now_ms.subscribe();
        Box::pin(async move {
            // The sender lives in `self`, so the channel cannot close while this waits.
            let _still_open = time.wait_for(|now| *now >= due_ms).await;
        })
    }
}

/// Whole milliseconds; durations beyond 584 million years saturate.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `2026-01-01T00:00:00.000Z`, as EC2 writes times.
pub(crate) fn iso(at_ms: u64) -> String {
    let seconds = format_seconds(at_ms);
    format!("{seconds}.{:03}Z", at_ms % 1_000)
}

/// `2026-01-01T00:00:00Z`, as EventBridge and IAM write times.
pub(crate) fn iso_seconds(at_ms: u64) -> String {
    format!("{}Z", format_seconds(at_ms))
}

/// Date and time of day in UTC, by the civil calendar arithmetic on days since 0000-03-01.
fn format_seconds(at_ms: u64) -> String {
    let (days, second) = (at_ms / 86_400_000, at_ms / 1_000 % 86_400);
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}",
        day_of_year - (153 * shifted_month + 2) / 5 + 1,
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_aws_writes_them() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_767_225_600_007), "2026-01-01T00:00:00.007Z");
        assert_eq!(iso_seconds(1_709_210_096_000), "2024-02-29T12:34:56Z");
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_sleepers_when_moved() {
        let clock = ManualClock::default();
        let due = clock.now_ms() + 5_000;
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(due).await }
        });
        clock.advance(Duration::from_secs(4));
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("the sleeper does not panic");
    }
}
