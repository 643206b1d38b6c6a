//! The batch window: when to plan (decision D-007).
//!
//! Pure: times come in, the next deadline goes out. The window opens with the first arrival and
//! closes at the latest after `max`; after `idle` without an arrival; at once when the batch is
//! complete; and after a learned short quiet time when nothing is known to be missing. Upstream's
//! two settings are upper limits.

use std::time::Duration;

use millwright_model::{Span, Timestamp};
use millwright_state::Completeness;

/// Upper limits of the window.
#[derive(Clone, Copy, Debug)]
pub struct BatchSettings {
    /// Longest quiet time (`BATCH_IDLE_DURATION`).
    pub idle: Span,
    /// Longest window (`BATCH_MAX_DURATION`).
    pub max: Span,
}

/// Shortest quiet time that may close a window: two sweeps of a busy watch.
const QUIET_MIN: Span = Span::from_millis(50);
/// Quiet must last this many mean gaps between arrivals before it counts as the end.
const QUIET_GAPS: i64 = 20;
/// A complete batch still waits this long, so that a second owner created together with the first
/// (two `kubectl apply` documents) joins the same plan.
const SETTLE: Span = Span::from_millis(100);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing waits.
    Closed,
    /// Ask again at this time, or after the next arrival.
    WaitUntil(Timestamp),
    /// Plan now; the window is closed again.
    Plan(Closing),
}

/// What closed a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// No more pods are known to come.
    Complete,
    /// Arrivals ceased, measured by their own rate or by the idle time.
    Quiet,
    /// It was open for as long as a window may be.
    Maximum,
}

/// The window.
#[derive(Clone, Debug)]
pub struct BatchWindow {
    settings: BatchSettings,
    opened: Option<Timestamp>,
    last: Timestamp,
    arrivals: i64,
}

impl BatchWindow {
    /// A closed window.
    #[must_use]
    pub const fn new(settings: BatchSettings) -> Self {
        Self {
            settings,
            opened: None,
            last: Timestamp(0),
            arrivals: 0,
        }
    }

    /// So many pods began to wait, or must be planned again.
    pub fn arrive(&mut self, now: Timestamp, count: u64) {
        self.opened.get_or_insert(now);
        self.last = now;
        self.arrivals = self
            .arrivals
            .saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Decides, given whether more pods are known to come.
    pub fn decide(&mut self, now: Timestamp, completeness: Completeness) -> Decision {
        let Some(opened) = self.opened else {
            return Decision::Closed;
        };
        let quiet = match completeness {
            Completeness::Complete => SETTLE.min(self.settings.idle),
            Completeness::Unknown => self.learned_quiet(opened),
            Completeness::Incomplete => self.settings.idle,
        };
        let deadline = (self.last + quiet).min(opened + self.settings.max);
        if now < deadline {
            return Decision::WaitUntil(deadline);
        }
        let closing = if now >= opened + self.settings.max {
            Closing::Maximum
        } else if completeness == Completeness::Complete {
            Closing::Complete
        } else {
            Closing::Quiet
        };
        *self = Self::new(self.settings);
        Decision::Plan(closing)
    }

    /// Quiet time that ends a burst whose arrivals came this densely.
    fn learned_quiet(&self, opened: Timestamp) -> Span {
        let Some(gaps) = self.arrivals.checked_sub(1).filter(|gaps| *gaps >= 10) else {
            return self.settings.idle;
        };
        let mean = self.last.since(opened).as_millis() / gaps;
        Span::from_millis(mean.saturating_mul(QUIET_GAPS))
            .max(QUIET_MIN)
            .min(self.settings.idle)
    }
}

/// The time until a decision is due.
#[must_use]
pub fn until(now: Timestamp, due: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(due.since(now).as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> BatchWindow {
        BatchWindow::new(BatchSettings {
            idle: Span::from_secs(1),
            max: Span::from_secs(10),
        })
    }

    /// Plays arrivals at the given milliseconds and says when the window closes.
    fn closes_at(arrivals: &[i64], completeness: Completeness) -> (i64, Closing) {
        let mut window = window();
        let mut arrivals = arrivals.iter().copied().peekable();
        for now in 0..60_000 {
            while arrivals.next_if_eq(&now).is_some() {
                window.arrive(Timestamp(now), 1);
            }
            if let Decision::Plan(closing) = window.decide(Timestamp(now), completeness) {
                return (now, closing);
            }
        }
        panic!("the window never closed");
    }

    #[test]
    fn a_complete_batch_is_planned_at_once() {
        assert_eq!(
            closes_at(&[0, 5, 10], Completeness::Complete),
            (110, Closing::Complete)
        );
    }

    #[test]
    fn an_incomplete_batch_waits_for_the_idle_time_and_never_longer_than_the_maximum() {
        assert_eq!(
            closes_at(&[0, 500], Completeness::Incomplete),
            (1500, Closing::Quiet)
        );
        let steady: Vec<i64> = (0..200).map(|n| n * 100).collect();
        assert_eq!(
            closes_at(&steady, Completeness::Incomplete),
            (10_000, Closing::Maximum)
        );
    }

    #[test]
    fn a_dense_burst_of_unknown_size_ends_after_a_learned_quiet_time() {
        let burst: Vec<i64> = (0..500).collect();
        assert_eq!(closes_at(&burst, Completeness::Unknown).0, 499 + 50);
        let slow: Vec<i64> = (0..20).map(|n| n * 20).collect();
        assert_eq!(closes_at(&slow, Completeness::Unknown).0, 380 + 400);
        assert_eq!(closes_at(&[0, 10], Completeness::Unknown).0, 10 + 1000);
    }

    #[test]
    fn a_closed_window_stays_closed() {
        let mut window = window();
        assert_eq!(
            window.decide(Timestamp(5), Completeness::Complete),
            Decision::Closed
        );
    }
}
