//! The `Consolidatable` condition and the pod events that it counts from.
//!
//! Source: disruption specification 1.12 and 1.13.

use millwright_model::{Span, Timestamp};

use crate::{
    condition::{Change, ConditionType},
    observed::ObservedClaim,
};

/// Pod events that follow the stored one this closely are not stored: shorter than the 15 s
/// validation delay, so that churn during a validation is noticed.
pub const POD_EVENT_DEDUPE: Span = Span::from_secs(10);

/// `spec.disruption.consolidateAfter` of the NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsolidateAfter {
    /// Not at all.
    Never,
    /// After this long without pod events.
    After(Span),
}

/// What to do about the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marking {
    /// The change, if the condition is not what it should be.
    pub change: Option<Change>,
    /// Look again after this long.
    pub again_after: Option<Span>,
}

/// Judges a claim of a dynamic NodePool. Its consolidation policy plays no part.
#[must_use]
pub fn mark(claim: &ObservedClaim, consolidate_after: ConsolidateAfter, now: Timestamp) -> Marking {
    let kind = ConditionType::Consolidatable;
    let clear = |again_after| Marking {
        change: claim.conditions.get(kind).map(|_| Change::Clear(kind)),
        again_after,
    };
    let ConsolidateAfter::After(after) = consolidate_after else {
        return clear(None);
    };
    if !claim.is(ConditionType::Initialized) {
        return clear(None);
    }
    let reference = claim
        .last_pod_event
        .unwrap_or_else(|| claim.since(ConditionType::Initialized));
    if after > Span::from_millis(0) && now.since(reference) < after {
        return clear(Some((reference + after).since(now)));
    }
    Marking {
        change: (!claim.is(kind)).then(|| Change::holds(kind)),
        again_after: None,
    }
}

/// Whether a pod event now must be stored as the claim's `status.lastPodEventTime`.
#[must_use]
pub fn stores_pod_event(stored: Option<Timestamp>, now: Timestamp) -> bool {
    stored.is_none_or(|at| now.since(at) >= POD_EVENT_DEDUPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, claim};
    use ConditionType::{Consolidatable, Initialized};

    const MINUTE: ConsolidateAfter = ConsolidateAfter::After(Span::from_secs(60));

    #[test]
    fn a_claim_turns_consolidatable_after_the_time_since_its_last_pod_event() {
        let set = Some(Change::holds(Consolidatable));
        let clear = Some(Change::Clear(Consolidatable));
        for (holds, last, after, seconds, change, again) in [
            (&[Initialized][..], None, MINUTE, 60, set.clone(), None),
            (&[Initialized], None, MINUTE, 59, None, Some(1)),
            (&[Initialized], Some(30), MINUTE, 60, None, Some(30)),
            (&[Initialized], Some(30), MINUTE, 90, set.clone(), None),
            (
                &[Initialized, Consolidatable],
                Some(30),
                MINUTE,
                60,
                clear.clone(),
                Some(30),
            ),
            (
                &[Initialized, Consolidatable],
                Some(0),
                MINUTE,
                60,
                None,
                None,
            ),
            (
                &[Initialized, Consolidatable],
                None,
                ConsolidateAfter::Never,
                90,
                clear.clone(),
                None,
            ),
            (&[Consolidatable], None, MINUTE, 90, clear, None),
            (&[], None, MINUTE, 90, None, None),
            (
                &[Initialized],
                Some(60),
                ConsolidateAfter::After(Span(0)),
                60,
                set,
                None,
            ),
        ] {
            let claim = ObservedClaim {
                last_pod_event: last.map(at),
                ..claim(holds)
            };
            let marking = mark(&claim, after, at(seconds));
            let again_after = again.map(Span::from_secs);
            assert_eq!(
                marking,
                Marking {
                    change,
                    again_after
                },
                "{holds:?} {last:?} {seconds}"
            );
        }
    }

    #[test]
    fn pod_events_are_stored_at_most_every_ten_seconds() {
        assert!(stores_pod_event(None, T0));
        assert!(!stores_pod_event(Some(T0), at(9)));
        assert!(stores_pod_event(Some(T0), at(10)));
    }
}
