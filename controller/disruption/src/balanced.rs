//! The policy `Balanced`: is the saving worth the disruption?
//!
//! A move is approved when its share of the pool's cost is at least half of its share of the
//! pool's disruption. Integers only: `2 * savings / cost >= disruption / total` is compared by
//! cross multiplication.
//!
//! Source: disruption specification 3.11.

use std::collections::BTreeMap;

use millwright_lifecycle::{ConsolidationPolicy, candidate::Candidate};
use millwright_model::{CapacityType, NanoDollarsPerHour, NodePoolName, labels};

use crate::{
    candidates::{Candidates, undisturbed_cost},
    fleet::{Fleet, FleetNode},
    price,
};

/// The reciprocal of the score that a move needs.
const K: u128 = 2;

/// What a pool costs, and what disrupting all of it would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    cost: NanoDollarsPerHour,
    disruption: u128,
}

/// Totals of the pools with the policy `Balanced`; moves of other pools are not scored.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    pools: BTreeMap<NodePoolName, Totals>,
}

impl Balance {
    /// From all candidates, before any method has filtered them.
    pub(crate) fn new(fleet: &Fleet, candidates: &Candidates) -> Self {
        let is_balanced = |pool: &NodePoolName| {
            fleet.rules.get(pool).map(|rules| rules.policy) == Some(ConsolidationPolicy::Balanced)
        };
        let members: BTreeMap<_, &Candidate> = candidates
            .members
            .iter()
            .map(|member| (&member.candidate.node, &member.candidate))
            .collect();
        let mut pools: BTreeMap<NodePoolName, Totals> = BTreeMap::new();
        for node in &fleet.nodes {
            let Some(pool) = node
                .state
                .node_pool
                .as_ref()
                .filter(|pool| is_balanced(pool))
            else {
                continue;
            };
            let totals = pools.entry(pool.clone()).or_default();
            totals.cost = totals.cost + tracked_price(fleet, node);
            let cost = match members.get(&node.state.name) {
                Some(candidate) => candidate.reschedule_cost,
                None => undisturbed_cost(node),
            };
            totals.disruption += u128::from(cost.unsigned_abs());
        }
        for (name, totals) in &mut pools {
            if totals.cost == NanoDollarsPerHour::ZERO {
                let of_pool = members.values().filter(|c| c.node_pool == *name);
                totals.cost = of_pool.map(|candidate| candidate.price).sum();
            }
        }
        Self { pools }
    }

    /// Whether a move of these candidates with these savings is worth it for every `Balanced` pool
    /// among them. Savings of several pools are shared by price.
    pub(crate) fn approves<'c>(
        &self,
        candidates: impl IntoIterator<Item = &'c Candidate>,
        savings: NanoDollarsPerHour,
    ) -> bool {
        let mut by_pool: BTreeMap<&NodePoolName, (u128, u128)> = BTreeMap::new();
        let mut price: u128 = 0;
        for candidate in candidates {
            let (own, disruption) = by_pool.entry(&candidate.node_pool).or_default();
            *own += u128::from(candidate.price.0);
            *disruption += u128::from(candidate.reschedule_cost.unsigned_abs());
            price += u128::from(candidate.price.0);
        }
        by_pool.into_iter().all(|(pool, (own, disruption))| {
            let Some(totals) = self.pools.get(pool) else {
                return true;
            };
            let savings = u128::from(savings.0);
            let share = (savings * own).checked_div(price).unwrap_or(savings);
            totals.approves(share, disruption)
        })
    }

    /// Whether even the best outcome, a deletion without replacement, could be approved.
    pub(crate) fn may_approve(&self, candidate: &Candidate) -> bool {
        let unpriced = |totals: &Totals| totals.cost == NanoDollarsPerHour::ZERO;
        self.pools.get(&candidate.node_pool).is_none_or(unpriced)
            || self.approves([candidate], candidate.price)
    }
}

impl Totals {
    fn approves(&self, savings: u128, disruption: u128) -> bool {
        if savings == 0 || self.cost == NanoDollarsPerHour::ZERO || self.disruption == 0 {
            return false;
        }
        // Both sides stay below 2^127 for fleets of a million nodes at 100 $/h.
        K * savings * self.disruption >= u128::from(self.cost.0) * disruption
    }
}

/// The price of a node by the labels of its NodeClaim; zero while one is missing.
fn tracked_price(fleet: &Fleet, node: &FleetNode) -> NanoDollarsPerHour {
    let price = || {
        let claim = node.claim.as_ref()?;
        let label = |key: &str| claim.labels.get(key);
        let name = label(labels::INSTANCE_TYPE)?;
        let pool = fleet.pool(label(labels::NODE_POOL)?)?;
        let instance_type = pool.instance_types.iter().find(|t| t.name == *name)?;
        let capacity_type = CapacityType::parse(label(labels::CAPACITY_TYPE)?)?;
        price::of_node(instance_type, label(labels::ZONE)?, capacity_type)
    };
    price().unwrap_or(NanoDollarsPerHour::ZERO)
}

#[cfg(test)]
mod tests {
    use millwright_lifecycle::candidate::COST_ONE;

    use super::*;

    /// Dollars with two decimals.
    const fn dollars(cents: u64) -> NanoDollarsPerHour {
        NanoDollarsPerHour(cents * 10_000_000)
    }

    fn balance(pools: &[(&str, u64, u128)]) -> Balance {
        let totals = |(name, cents, disruption): &(&str, u64, u128)| {
            let cost = dollars(*cents);
            let disruption = disruption * u128::from(COST_ONE.unsigned_abs());
            ((*name).into(), Totals { cost, disruption })
        };
        Balance {
            pools: pools.iter().map(totals).collect(),
        }
    }

    fn candidate(pool: &str, cents: u64, disruption: i64) -> Candidate {
        Candidate {
            node: "n".into(),
            provider_id: "id".into(),
            node_pool: pool.into(),
            price: dollars(cents),
            reschedule_cost: disruption * COST_ONE,
        }
    }

    #[test]
    fn a_move_needs_half_of_its_share_of_the_disruption_as_share_of_the_cost() {
        for (cost, total, savings, disruption, approved) in [
            (5808, 90, 726, 4, true),
            (5808, 90, 484, 5, true),
            (5808, 90, 242, 9, false),
            (5808, 90, 0, 11, false),
            (4840, 90, 242, 9, true),
            (5808, 117, 484, 5, true),
            (5808, 117, 484, 32, false),
            (58080, 900, 7260, 40, true),
            (5808, 90, 1, 0, true),
            (0, 90, 1, 1, false),
        ] {
            let balance = balance(&[("p", cost, total)]);
            let moved = candidate("p", 1000, disruption);
            let got = balance.approves([&moved], dollars(savings));
            assert_eq!(got, approved, "{cost} {total} {savings} {disruption}");
        }
    }

    #[test]
    fn other_pools_are_not_scored_and_one_pool_that_rejects_rejects_all() {
        let balance = balance(&[("a", 1000, 10), ("b", 1000, 10)]);
        let (a, b, c) = (
            candidate("a", 100, 1),
            candidate("b", 100, 9),
            candidate("c", 100, 50),
        );
        assert!(balance.approves([&c], dollars(1)));
        assert!(balance.approves([&a, &c], dollars(200)));
        assert!(!balance.approves([&a, &b], dollars(200)));
    }

    #[test]
    fn a_node_is_not_looked_at_when_even_its_deletion_would_be_rejected() {
        let balance = balance(&[("a", 1000, 10), ("free", 0, 10)]);
        assert!(balance.may_approve(&candidate("a", 100, 2)));
        assert!(!balance.may_approve(&candidate("a", 100, 3)));
        assert!(balance.may_approve(&candidate("free", 0, 3)));
    }
}
