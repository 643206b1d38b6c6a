//! Emptiness: deleting nodes that no pod needs.
//!
//! Decided, held back for the validation delay, judged again on fresh observations, then carried
//! out; every part is a function, the waiting belongs to the caller.
//!
//! Source: disruption specification 3.3, 3.7 and 3.12.

use std::collections::{BTreeMap, BTreeSet};

use millwright_model::{NodeName, NodePoolName, Span};

use crate::{candidate::Candidate, consolidatable::ConsolidateAfter};

/// How long a command is held back before it is validated.
pub const VALIDATION_DELAY: Span = Span::from_secs(15);
/// How often emptiness looks when nothing happens.
pub const POLL: Span = Span::from_secs(10);

/// What the method filter reads of a candidate beyond the candidate itself.
#[derive(Clone, Copy, Debug)]
pub struct Eligibility {
    /// Its NodePool is static.
    pub is_static: bool,
    /// Its NodePool's `consolidateAfter`.
    pub consolidate_after: ConsolidateAfter,
    /// Its condition `Consolidatable` is True.
    pub consolidatable: bool,
}

/// Why a candidate is not eligible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Nobody is told.
    Silent,
    /// The cause for the `Unconsolidatable` event.
    Told(String),
}

/// Whether emptiness may take a candidate; its consolidation policy plays no part.
///
/// # Errors
/// The first reason against it.
pub fn eligible(candidate: &Candidate, with: Eligibility) -> Result<(), Ineligible> {
    if with.is_static {
        return Err(Ineligible::Silent);
    }
    if with.consolidate_after == ConsolidateAfter::Never {
        let cause = format!(
            "NodePool \"{}\" has consolidation disabled",
            candidate.node_pool
        );
        return Err(Ineligible::Told(cause));
    }
    if candidate.is_empty() && with.consolidatable {
        Ok(())
    } else {
        Err(Ineligible::Silent)
    }
}

/// The command of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nodes to delete together, dearest first; may be of several NodePools.
    pub chosen: Vec<Candidate>,
    /// NodePools whose budget excluded a node.
    pub constrained: BTreeSet<NodePoolName>,
}

/// Takes eligible candidates while their NodePool's budget lasts. A pool without an entry in
/// `remaining` has no budget left.
#[must_use]
pub fn select(mut eligible: Vec<Candidate>, remaining: &BTreeMap<NodePoolName, u32>) -> Selection {
    eligible.sort_by(Candidate::by_savings);
    let mut left = remaining.clone();
    let mut selection = Selection::default();
    for candidate in eligible {
        match left.get_mut(&candidate.node_pool) {
            Some(budget) if *budget > 0 => {
                *budget -= 1;
                selection.chosen.push(candidate);
            }
            _ => {
                selection.constrained.insert(candidate.node_pool);
            }
        }
    }
    selection
}

/// Result of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// Nodes that are still to be deleted, in the order of the proposal.
    pub valid: Vec<Candidate>,
    /// Nodes that are not, for `karpenter_voluntary_disruption_failed_validations_total`.
    pub failed: usize,
}

/// Judges a proposal again after [`VALIDATION_DELAY`]: keeps what is eligible still (`eligible`
/// is computed anew; nominated nodes are no candidates) and within budgets that are computed anew.
#[must_use]
pub fn validate(
    proposed: &[Candidate],
    eligible: &[Candidate],
    remaining: &BTreeMap<NodePoolName, u32>,
) -> Validated {
    let fresh: BTreeMap<&NodeName, &Candidate> = eligible
        .iter()
        .map(|candidate| (&candidate.node, candidate))
        .collect();
    let mut left = remaining.clone();
    let mut valid = Vec::new();
    for old in proposed {
        // The provider id tells a node from a successor with the same name.
        let same = |new: &&&Candidate| new.provider_id == old.provider_id;
        let Some(candidate) = fresh.get(&old.node).filter(same) else {
            continue;
        };
        if let Some(budget) = left
            .get_mut(&candidate.node_pool)
            .filter(|budget| **budget > 0)
        {
            *budget -= 1;
            valid.push((*candidate).clone());
        }
    }
    Validated {
        failed: proposed.len() - valid.len(),
        valid,
    }
}

#[cfg(test)]
mod tests {
    use millwright_model::NanoDollarsPerHour;

    use super::*;
    use crate::candidate::COST_ONE;

    fn node(name: &str, pool: &str, price: u64) -> Candidate {
        Candidate {
            node: name.into(),
            provider_id: format!("id-{name}").into(),
            node_pool: pool.into(),
            price: NanoDollarsPerHour(price),
            reschedule_cost: COST_ONE,
        }
    }

    fn budgets(entries: &[(&str, u32)]) -> BTreeMap<NodePoolName, u32> {
        entries
            .iter()
            .map(|(pool, left)| ((*pool).into(), *left))
            .collect()
    }

    fn names(candidates: &[Candidate]) -> Vec<&str> {
        candidates
            .iter()
            .map(|candidate| candidate.node.as_str())
            .collect()
    }

    #[test]
    fn empty_consolidatable_nodes_of_dynamic_pools_are_eligible() {
        let good = Eligibility {
            is_static: false,
            consolidate_after: ConsolidateAfter::After(Span::from_secs(0)),
            consolidatable: true,
        };
        let empty = node("a", "p", 1);
        let full = Candidate {
            reschedule_cost: 2 * COST_ONE,
            ..empty.clone()
        };
        assert_eq!(eligible(&empty, good), Ok(()));
        let silent = Err(Ineligible::Silent);
        assert_eq!(eligible(&full, good), silent);
        assert_eq!(
            eligible(
                &empty,
                Eligibility {
                    consolidatable: false,
                    ..good
                }
            ),
            silent
        );
        assert_eq!(
            eligible(
                &empty,
                Eligibility {
                    is_static: true,
                    ..good
                }
            ),
            silent
        );
        let never = Eligibility {
            consolidate_after: ConsolidateAfter::Never,
            ..good
        };
        assert!(
            matches!(eligible(&full, never), Err(Ineligible::Told(cause)) if cause.contains("\"p\""))
        );
    }

    #[test]
    fn budgets_limit_each_pool_and_the_dearest_nodes_go_first() {
        let all = vec![
            node("a", "p", 1),
            node("b", "p", 3),
            node("c", "p", 2),
            node("d", "q", 1),
        ];
        let selection = select(all, &budgets(&[("p", 2), ("q", 0)]));
        assert_eq!(names(&selection.chosen), ["b", "c"]);
        assert_eq!(selection.constrained, ["p".into(), "q".into()].into());
    }

    #[test]
    fn ten_pools_of_three_nodes_at_two_each_give_twenty() {
        let pools: Vec<String> = (0..10).map(|pool| format!("p{pool}")).collect();
        let mut all = Vec::new();
        for pool in &pools {
            all.extend((0..3).map(|n| node(&format!("{pool}-{n}"), pool, 1)));
        }
        let remaining = pools
            .iter()
            .map(|pool| (NodePoolName::from(pool.as_str()), 2))
            .collect();
        assert_eq!(select(all, &remaining).chosen.len(), 20);
    }

    #[test]
    fn validation_drops_what_is_no_longer_eligible_replaced_or_over_budget() {
        let proposed = [
            node("a", "p", 1),
            node("b", "p", 1),
            node("c", "p", 1),
            node("d", "p", 1),
        ];
        let successor = Candidate {
            provider_id: "other".into(),
            ..node("b", "p", 1)
        };
        let eligible = [
            node("d", "p", 1),
            successor,
            node("a", "p", 1),
            node("new", "p", 1),
        ];
        let result = validate(&proposed, &eligible, &budgets(&[("p", 9)]));
        assert_eq!((names(&result.valid), result.failed), (vec!["a", "d"], 2));
        let result = validate(&proposed, &eligible, &budgets(&[("p", 1)]));
        assert_eq!((names(&result.valid), result.failed), (vec!["a"], 3));
        assert_eq!(validate(&proposed, &[], &budgets(&[("p", 9)])).failed, 4);
    }
}
