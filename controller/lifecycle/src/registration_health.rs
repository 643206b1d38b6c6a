//! The registration health of a NodePool: how its last launches ended.
//!
//! Source: disruption specification 1.6, provisioning specification 8.5.

use std::collections::VecDeque;

use crate::condition::Status;

/// Outcomes that are remembered.
pub const CAPACITY: usize = 4;
/// Failures among them that make a NodePool unhealthy: half of the capacity, however full it is.
const FAILURES_UNHEALTHY: usize = CAPACITY / 2;

/// The last outcomes, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationHealth {
    outcomes: VecDeque<bool>,
}

impl RegistrationHealth {
    /// True: healthy, False: unhealthy, Unknown: nothing is remembered.
    #[must_use]
    pub fn status(&self) -> Status {
        let failures = self
            .outcomes
            .iter()
            .filter(|registered| !**registered)
            .count();
        match self.outcomes.len() {
            0 => Status::Unknown,
            _ if failures >= FAILURES_UNHEALTHY => Status::False,
            _ => Status::True,
        }
    }

    /// The status if one more outcome were recorded.
    #[must_use]
    pub fn status_with(&self, registered: bool) -> Status {
        let mut next = self.clone();
        next.record(registered);
        next.status()
    }

    /// Records an outcome: true for a registration, false for a timeout.
    pub fn record(&mut self, registered: bool) {
        if self.outcomes.len() == CAPACITY {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(registered);
    }

    /// Forgets everything: the NodePool or its class changed.
    pub fn reset(&mut self) {
        self.outcomes.clear();
    }

    /// Starts from the stored condition if nothing is remembered (after a restart).
    pub fn prime(&mut self, stored: Status) {
        if !self.outcomes.is_empty() {
            return;
        }
        match stored {
            Status::True => self.record(true),
            Status::False => {
                self.record(false);
                self.record(false);
            }
            Status::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(outcomes: &[bool]) -> RegistrationHealth {
        let mut health = RegistrationHealth::default();
        outcomes.iter().for_each(|outcome| health.record(*outcome));
        health
    }

    #[test]
    fn two_failures_among_the_last_four_are_unhealthy_however_full_the_memory_is() {
        for (outcomes, status) in [
            (&[][..], Status::Unknown),
            (&[true], Status::True),
            (&[false], Status::True),
            (&[false, false], Status::False),
            (&[true, true, false, false], Status::False),
            (&[false, false, true], Status::False),
            (&[false, false, true, true], Status::False),
            (&[false, false, true, true, true], Status::True),
        ] {
            assert_eq!(after(outcomes).status(), status, "{outcomes:?}");
        }
    }

    #[test]
    fn a_restart_starts_from_the_condition() {
        for (stored, status) in [
            (Status::True, Status::True),
            (Status::False, Status::False),
            (Status::Unknown, Status::Unknown),
        ] {
            let mut health = RegistrationHealth::default();
            health.prime(stored);
            assert_eq!(health.status(), status);
        }
        let mut known = after(&[true]);
        known.prime(Status::False);
        assert_eq!(known, after(&[true]), "what is remembered wins");
        assert_eq!(after(&[false]).status_with(false), Status::False);
    }
}
