//! Whether a Node has the shape that its NodeClaim promised. Informational: nothing acts on it.
//!
//! Source: disruption specification 1.9.

use millwright_model::Span;

use crate::{
    condition::{Change, ConditionType},
    observed::{ObservedClaim, ObservedNode},
};

/// Shortest time between two checks of one claim.
pub const SCAN_EVERY: Span = Span::from_secs(10 * 60);

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consistency {
    /// One text per resource that is below 90 % of what was promised.
    pub issues: Vec<String>,
    /// The change of `ConsistentStateFound`, if there is one.
    pub change: Option<Change>,
}

/// Compares the capacity of requested resources.
#[must_use]
pub fn check(claim: &ObservedClaim, node: &ObservedNode) -> Consistency {
    let kind = ConditionType::ConsistentStateFound;
    if claim.deleting_since.is_some() || !claim.is(ConditionType::Initialized) {
        return Consistency {
            issues: Vec::new(),
            change: None,
        };
    }
    let mut issues = Vec::new();
    for (name, requested) in claim.requests.iter() {
        let expected = claim.capacity.get(name);
        let found = node.capacity.get(name);
        if requested == 0 || expected == 0 {
            continue;
        }
        // Integers: tenths of a percent, rounded down.
        let permille = i128::from(found) * 1_000 / i128::from(expected);
        if permille < 900 {
            issues.push(format!(
                "expected {} of resource {name}, but found {} ({}.{}% of expected)",
                name.format(expected),
                name.format(found),
                permille / 10,
                permille % 10,
            ));
        }
    }
    let change = match (issues.is_empty(), claim.is(kind)) {
        (true, true) => None,
        (true, false) => Some(Change::holds(kind)),
        (false, _) => Some(Change::fails(
            kind,
            "ConsistencyCheckFailed",
            "Consistency Check Failed",
        )),
    };
    Consistency { issues, change }
}

#[cfg(test)]
mod tests {
    use millwright_model::{ResourceName, Resources};

    use super::*;
    use crate::fixtures::{T0, claim, node};

    fn promised(memory_gib: i64) -> ObservedClaim {
        ObservedClaim {
            requests: Resources::of(0, 100 << 30),
            capacity: Resources::of(8_000, memory_gib << 30),
            ..claim(&[ConditionType::Initialized])
        }
    }

    #[test]
    fn half_of_the_memory_is_an_issue_that_names_both_amounts() {
        let node = ObservedNode {
            capacity: Resources::of(0, 64 << 30),
            ..node()
        };
        let found = check(&promised(128), &node);
        assert_eq!(found.issues.len(), 1);
        for part in ["expected 128Gi", "memory", "64Gi", "50.0%"] {
            assert!(found.issues[0].contains(part), "{}", found.issues[0]);
        }
        assert!(
            matches!(found.change, Some(Change::Set { reason, .. }) if reason == "ConsistencyCheckFailed")
        );
    }

    #[test]
    fn ninety_percent_is_enough_and_what_was_not_requested_does_not_count() {
        let node = ObservedNode {
            capacity: Resources::of(0, 90 << 30),
            ..node()
        };
        let found = check(&promised(100), &node);
        assert_eq!(found.issues, Vec::<String>::new());
        assert_eq!(
            found.change,
            Some(Change::holds(ConditionType::ConsistentStateFound))
        );
        assert_eq!(node.capacity.get(&ResourceName::Cpu), 0);
    }

    #[test]
    fn deleting_and_uninitialized_claims_are_skipped() {
        let deleting = ObservedClaim {
            deleting_since: Some(T0),
            ..promised(128)
        };
        let young = ObservedClaim {
            conditions: Default::default(),
            ..promised(128)
        };
        for claim in [deleting, young] {
            assert_eq!(
                check(&claim, &node()),
                Consistency {
                    issues: Vec::new(),
                    change: None
                }
            );
        }
    }
}
