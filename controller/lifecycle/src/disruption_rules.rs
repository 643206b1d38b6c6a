//! `spec.disruption` of a NodePool, as observed.
//!
//! Source: disruption specification 3.4 and 3.5.

use crate::{budget::Budget, consolidatable::ConsolidateAfter};

/// Which of a NodePool's nodes are consolidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods that would have to move.
    WhenEmpty,
    /// Also nodes whose pods fit elsewhere, or on something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
    /// As the former, where the saving is worth the disruption.
    Balanced,
}

/// What a NodePool says about the disruption of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionRules {
    /// Whether `spec.replicas` is set: such pools are not consolidated.
    pub is_static: bool,
    /// `consolidateAfter`.
    pub consolidate_after: ConsolidateAfter,
    /// `consolidationPolicy`.
    pub policy: ConsolidationPolicy,
    /// `budgets`; an empty list lifts every bound.
    pub budgets: Vec<Budget>,
}
