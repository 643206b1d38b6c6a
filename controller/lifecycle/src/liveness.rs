//! Liveness: giving up on NodeClaims that do not launch or register.
//!
//! Source: disruption specification 1.5.

use millwright_model::{Span, Timestamp};

use crate::{condition::ConditionType, launch::DeleteCause, observed::ObservedClaim};

/// How long a launch may take.
pub const LAUNCH_TIMEOUT: Span = Span::from_secs(5 * 60);
/// How long registration may take, counted from creation.
pub const REGISTRATION_TIMEOUT: Span = Span::from_secs(15 * 60);

/// What liveness asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Registered: nothing to watch.
    Alive,
    /// Look again after this long.
    Wait(Span),
    /// Record a failure with the NodePool, then delete.
    GiveUp(DeleteCause),
}

/// Judges a claim. The transition times of the conditions govern, never the creation time itself:
/// they are equal until a condition was decided.
///
/// Differs: where both timeouts have elapsed, the reference counts two failures; here the first
/// ends the judgement, as its specification recommends.
#[must_use]
pub fn judge(claim: &ObservedClaim, launch_timeout: Span, now: Timestamp) -> Liveness {
    if claim.is(ConditionType::Registered) {
        return Liveness::Alive;
    }
    if !claim.is(ConditionType::Launched) {
        let waited = now.since(claim.since(ConditionType::Launched));
        return if waited >= launch_timeout {
            Liveness::GiveUp(DeleteCause::LaunchTimeout)
        } else {
            Liveness::Wait(Span::from_millis(launch_timeout.0 - waited.0))
        };
    }
    let waited = now.since(claim.since(ConditionType::Registered));
    if waited >= REGISTRATION_TIMEOUT {
        Liveness::GiveUp(DeleteCause::RegistrationTimeout)
    } else {
        Liveness::Wait(Span::from_millis(REGISTRATION_TIMEOUT.0 - waited.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        condition::Change,
        fixtures::{T0, at, claim},
    };

    #[test]
    fn a_claim_has_five_minutes_to_launch_and_fifteen_to_register() {
        use ConditionType::{Launched, Registered};
        use Liveness::{Alive, GiveUp, Wait};
        for (holds, seconds, expected) in [
            (&[][..], 0, Wait(LAUNCH_TIMEOUT)),
            (&[], 299, Wait(Span::from_secs(1))),
            (&[], 300, GiveUp(DeleteCause::LaunchTimeout)),
            (&[], 100_000, GiveUp(DeleteCause::LaunchTimeout)),
            (&[Launched], 300, Wait(Span::from_secs(600))),
            (&[Launched], 899, Wait(Span::from_secs(1))),
            (&[Launched], 900, GiveUp(DeleteCause::RegistrationTimeout)),
            (&[Launched, Registered], 100_000, Alive),
        ] {
            let seen = judge(&claim(holds), LAUNCH_TIMEOUT, at(seconds));
            assert_eq!(seen, expected, "{holds:?} {seconds}");
        }
    }

    #[test]
    fn a_custom_launch_timeout_counts() {
        let seen = judge(&claim(&[]), Span::from_secs(60), at(60));
        assert_eq!(seen, Liveness::GiveUp(DeleteCause::LaunchTimeout));
    }

    #[test]
    fn the_transition_times_govern_even_in_the_future() {
        let mut claim = claim(&[ConditionType::Launched]);
        claim.created_at = T0 - Span::from_secs(100_000);
        let failed = Change::fails(ConditionType::Registered, "MultipleNodesFound", "");
        claim.conditions.apply(&failed, at(50));
        assert_eq!(
            judge(&claim, LAUNCH_TIMEOUT, at(0)),
            Liveness::Wait(REGISTRATION_TIMEOUT)
        );
        assert_eq!(
            judge(&claim, LAUNCH_TIMEOUT, at(949)),
            Liveness::Wait(Span::from_secs(1))
        );
    }
}
