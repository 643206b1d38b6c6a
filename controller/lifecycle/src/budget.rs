//! Disruption budgets: how many nodes of a NodePool may be disrupted now.
//!
//! Source: disruption specification 3.5.

use std::cmp::Ordering;

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
    time::{CivilDateTime, CronDateTime, Resolution, Weekday},
};
use millwright_model::{Span, Timestamp};

/// No limit.
pub const UNLIMITED: u32 = i32::MAX.unsigned_abs();

/// Why a node is disrupted voluntarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Another arrangement is cheaper.
    Underutilized,
    /// No pod needs it.
    Empty,
    /// It differs from its template.
    Drifted,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Underutilized, Self::Empty, Self::Drifted];

    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
        }
    }
}

/// One entry of `spec.disruption.budgets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// A count (`5`) or a share (`10%`).
    pub nodes: String,
    /// Reasons it applies to; `None` applies to all.
    pub reasons: Option<Vec<Reason>>,
    /// When it becomes active, as five cron fields or a descriptor, in UTC.
    pub schedule: Option<String>,
    /// How long it stays active after each hit.
    pub duration: Option<Span>,
}

/// A budget that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `nodes` is neither a count nor a share.
    #[error("budget nodes {0:?} is neither a number nor a percentage")]
    Nodes(String),
    /// The schedule is no cron expression.
    #[error("budget schedule {schedule:?} is not a cron expression: {cause}")]
    Schedule {
        /// The text.
        schedule: String,
        /// What the parser says.
        cause: String,
    },
    /// Only one of schedule and duration is set.
    #[error("budget has a schedule without a duration, or a duration without a schedule")]
    Incomplete,
}

/// How many of `nodes` counted nodes may be disrupted for `reason` at the same time.
///
/// # Errors
/// If any budget cannot be evaluated, also one for another reason. Callers take that as zero: a
/// budget that nobody can read must not be ignored.
pub fn allowed(
    budgets: &[Budget],
    reason: Reason,
    nodes: u32,
    now: Timestamp,
) -> Result<u32, BudgetError> {
    let mut allowed = UNLIMITED;
    for budget in budgets {
        let value = evaluate(budget, nodes, now)?;
        if budget
            .reasons
            .as_ref()
            .is_none_or(|reasons| reasons.contains(&reason))
        {
            allowed = allowed.min(value);
        }
    }
    Ok(allowed)
}

fn evaluate(budget: &Budget, nodes: u32, now: Timestamp) -> Result<u32, BudgetError> {
    // The number is read even while the budget sleeps, so that a bad one is found at once.
    let value = scaled(&budget.nodes, nodes)?;
    Ok(if is_active(budget, now)? {
        value
    } else {
        UNLIMITED
    })
}

/// A count as it is, a share of `nodes` rounded up.
fn scaled(text: &str, nodes: u32) -> Result<u32, BudgetError> {
    let bad = || BudgetError::Nodes(text.to_owned());
    let Some(percent) = text.strip_suffix('%') else {
        return text
            .parse::<u32>()
            .map(|count| count.min(UNLIMITED))
            .map_err(|_| bad());
    };
    let percent = percent
        .parse::<u64>()
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(bad)?;
    let share = (percent * u64::from(nodes)).div_ceil(100);
    Ok(u32::try_from(share).unwrap_or(UNLIMITED))
}

/// Active if the next hit strictly after `now - duration` is not after `now`: a hit exactly
/// `duration` ago is outside, one exactly now is inside.
fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, BudgetError> {
    let (schedule, duration) = match (&budget.schedule, budget.duration) {
        (None, None) => return Ok(true),
        (Some(schedule), Some(duration)) => (schedule, duration),
        (Some(_), None) | (None, Some(_)) => return Err(BudgetError::Incomplete),
    };
    let cron = parse(schedule)?;
    match cron.find_next_occurrence(&Utc(now - duration), false) {
        Ok(hit) => Ok(hit.0 <= now),
        // The 30th of February never comes.
        Err(CronError::TimeSearchLimitExceeded) => Ok(false),
        Err(error) => Err(schedule_error(schedule, &error)),
    }
}

/// Parses a schedule. Five fields only: no seconds, no years.
fn parse(schedule: &str) -> Result<Cron, BudgetError> {
    let pattern = match schedule.trim() {
        "@midnight" => "@daily",
        // Extensions that Kubernetes' schedules do not have.
        other if other.contains(['#', '+']) => {
            let cause = "illegal character".to_owned();
            return Err(BudgetError::Schedule {
                schedule: schedule.to_owned(),
                cause,
            });
        }
        other => other,
    };
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .sloppy_ranges(true)
        .build()
        .parse(pattern)
        .map_err(|error| schedule_error(schedule, &error))
}

fn schedule_error(schedule: &str, error: &CronError) -> BudgetError {
    BudgetError::Schedule {
        schedule: schedule.to_owned(),
        cause: error.to_string(),
    }
}

/// A point in time on the wall clock of UTC, which has no jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Utc(Timestamp);

impl Utc {
    fn seconds(self) -> i64 {
        self.0.0.div_euclid(1_000)
    }
}

impl CronDateTime for Utc {
    fn to_civil(&self) -> CivilDateTime {
        let time = jiff::Timestamp::from_second(self.seconds()).unwrap_or_default();
        let civil = jiff::tz::TimeZone::UTC.to_datetime(time);
        let part = |value: i8| u32::from(value.unsigned_abs());
        CivilDateTime::from_ymd_hms_opt(
            i32::from(civil.year()),
            part(civil.month()),
            part(civil.day()),
            part(civil.hour()),
            part(civil.minute()),
            part(civil.second()),
        )
        .expect("a date of jiff is a date")
    }

    fn civil_weekday(&self) -> Weekday {
        // The epoch was a Thursday, the fourth day counted from Sunday.
        let days = (self.seconds().div_euclid(86_400) + 4).rem_euclid(7);
        Weekday::from_days_from_sunday(u32::try_from(days).unwrap_or(0))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |value: u32| i8::try_from(value).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let second = jiff::civil::DateTime::new(
            year,
            part(civil.month())?,
            part(civil.day())?,
            part(civil.hour())?,
            part(civil.minute())?,
            part(civil.second())?,
            0,
        )
        .and_then(|civil| jiff::tz::TimeZone::UTC.to_timestamp(civil))
        .map_err(|_| CronError::InvalidDate)?
        .as_second();
        Ok(Resolution::Single(Self(Timestamp(
            second.saturating_mul(1_000),
        ))))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        let millis = seconds.checked_mul(1_000)?;
        self.0.0.checked_add(millis).map(|at| Self(Timestamp(at)))
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// The counted nodes of one NodePool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Managed, initialized, and not terminating their instance.
    pub nodes: u32,
    /// Those of them that are not Ready or are marked for deletion, for whatever reason.
    pub consuming: u32,
}

/// What one node contributes to [`Counted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Has a NodeClaim.
    pub managed: bool,
    /// Is initialized.
    pub initialized: bool,
    /// `InstanceTerminating` is True.
    pub instance_terminating: bool,
    /// Its `Ready` condition is True.
    pub ready: bool,
    /// Marked for deletion.
    pub deleting: bool,
}

impl Counted {
    /// Counts a node.
    pub fn count(&mut self, node: NodeFacts) {
        if !node.managed || !node.initialized || node.instance_terminating {
            return;
        }
        self.nodes += 1;
        self.consuming += u32::from(!node.ready || node.deleting);
    }
}

/// What is left of a NodePool's budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Before consumers are subtracted.
    pub allowed: u32,
    /// After.
    pub remaining: u32,
}

/// Evaluates a NodePool's budgets; one that cannot be read allows nothing.
#[must_use]
pub fn remaining(
    budgets: &[Budget],
    reason: Reason,
    counted: Counted,
    now: Timestamp,
) -> Remaining {
    let allowed = allowed(budgets, reason, counted.nodes, now).unwrap_or(0);
    Remaining {
        allowed,
        remaining: allowed.saturating_sub(counted.consuming),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(nodes: &str) -> Budget {
        Budget {
            nodes: nodes.into(),
            reasons: None,
            schedule: None,
            duration: None,
        }
    }

    fn scheduled(schedule: &str, minutes: i64) -> Budget {
        Budget {
            schedule: Some(schedule.into()),
            duration: Some(Span::from_secs(minutes * 60)),
            ..budget("0")
        }
    }

    fn time(text: &str) -> Timestamp {
        Timestamp(
            text.parse::<jiff::Timestamp>()
                .expect("a time")
                .as_millisecond(),
        )
    }

    #[test]
    fn counts_are_taken_as_they_are_and_shares_are_rounded_up() {
        for (nodes, counted, expected) in [
            ("5", 100, 5),
            ("0", 100, 0),
            ("5%", 10, 1),
            ("50%", 3, 2),
            ("10%", 0, 0),
            ("100%", 7, 7),
            ("0%", 7, 0),
            ("99999999", 7, 99_999_999),
        ] {
            let seen = allowed(&[budget(nodes)], Reason::Empty, counted, Timestamp(0));
            assert_eq!(seen, Ok(expected), "{nodes} of {counted}");
        }
    }

    #[test]
    fn the_smallest_budget_of_the_reason_counts_and_no_budget_means_no_limit() {
        let drift = Budget {
            reasons: Some(vec![Reason::Drifted]),
            ..budget("1")
        };
        let budgets = [budget("10"), drift, budget("4")];
        let now = Timestamp(0);
        assert_eq!(allowed(&budgets, Reason::Empty, 100, now), Ok(4));
        assert_eq!(allowed(&budgets, Reason::Drifted, 100, now), Ok(1));
        assert_eq!(allowed(&[], Reason::Empty, 100, now), Ok(UNLIMITED));
    }

    #[test]
    fn a_budget_that_cannot_be_read_allows_nothing_even_for_other_reasons() {
        let drift = |budget| Budget {
            reasons: Some(vec![Reason::Drifted]),
            ..budget
        };
        for bad in [
            budget("ten"),
            budget("101%"),
            budget("-1"),
            scheduled("* * * *", 1),
            scheduled("61 * * * *", 1),
            scheduled("0 0 * * MON#2", 1),
            scheduled("0 0 0 * * *", 1),
            scheduled("@never", 1),
            Budget {
                duration: None,
                ..scheduled("@daily", 1)
            },
        ] {
            let budgets = [budget("5"), drift(bad)];
            assert!(
                allowed(&budgets, Reason::Empty, 10, Timestamp(0)).is_err(),
                "{budgets:?}"
            );
            let left = remaining(
                &budgets,
                Reason::Empty,
                Counted {
                    nodes: 10,
                    consuming: 0,
                },
                Timestamp(0),
            );
            assert_eq!(left.remaining, 0);
        }
    }

    #[test]
    fn a_window_begins_at_the_hit_and_ends_before_the_duration_is_over() {
        for (schedule, minutes, now, active) in [
            ("0 9 * * *", 60, "2024-01-10T08:59:59Z", false),
            ("0 9 * * *", 60, "2024-01-10T09:00:00Z", true),
            ("0 9 * * *", 60, "2024-01-10T09:59:59Z", true),
            ("0 9 * * *", 60, "2024-01-10T09:59:59.5Z", true),
            ("0 9 * * *", 60, "2024-01-10T10:00:00Z", false),
            ("0 9 * * 1-5", 60, "2024-01-13T09:30:00Z", false),
            ("0 9 * * sat", 60, "2024-01-13T09:30:00Z", true),
            ("*/15 * * * *", 10, "2024-01-10T09:20:00Z", true),
            ("*/15 * * * *", 10, "2024-01-10T09:25:00Z", false),
            ("5/10 * * * *", 1, "2024-01-10T09:15:30Z", true),
            ("@hourly", 120, "2024-01-10T09:30:00Z", true),
            ("@midnight", 30, "2024-01-10T00:29:00Z", true),
            ("@daily", 30, "2024-01-10T00:30:00Z", false),
            ("@weekly", 30, "2024-01-07T00:10:00Z", true),
            ("@monthly", 30, "2024-02-01T00:10:00Z", true),
            ("@yearly", 30, "2024-01-01T00:10:00Z", true),
            ("@annually", 30, "2024-01-02T00:10:00Z", false),
            ("0 0 29 2 *", 30, "2024-02-29T00:10:00Z", true),
            ("0 0 30 2 *", 30, "2024-02-29T00:10:00Z", false),
            // Day of month and day of week are alternatives when both are given.
            ("0 0 13 * fri", 30, "2024-01-12T00:10:00Z", true),
        ] {
            let budgets = [scheduled(schedule, minutes)];
            let expected = if active { 0 } else { UNLIMITED };
            let seen = allowed(&budgets, Reason::Empty, 10, time(now));
            assert_eq!(seen, Ok(expected), "{schedule} for {minutes}m at {now}");
        }
    }

    #[test]
    fn unmanaged_uninitialized_and_terminating_nodes_do_not_count() {
        let good = NodeFacts {
            managed: true,
            initialized: true,
            instance_terminating: false,
            ready: true,
            deleting: false,
        };
        let mut counted = Counted::default();
        for node in [
            good,
            NodeFacts {
                managed: false,
                ..good
            },
            NodeFacts {
                initialized: false,
                ..good
            },
            NodeFacts {
                instance_terminating: true,
                ..good
            },
            NodeFacts {
                ready: false,
                ..good
            },
            NodeFacts {
                deleting: true,
                ..good
            },
        ] {
            counted.count(node);
        }
        assert_eq!(
            counted,
            Counted {
                nodes: 3,
                consuming: 2
            }
        );
        let left = remaining(&[budget("1")], Reason::Empty, counted, Timestamp(0));
        assert_eq!(
            left,
            Remaining {
                allowed: 1,
                remaining: 0
            }
        );
    }
}
