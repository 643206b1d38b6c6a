//! Cost packing, first slice: a portfolio over node sizes, with Karpenter's plan as the floor.
//!
//! Karpenter's rule lets a NodeClaim grow until only the largest types still hold it, and large types are
//! seldom the best fit for the last pods of a plan. So the same rules are applied again with types of at
//! most 4, 8, 16, ... vCPU, and the cheapest plan that places as many pods wins. Never worse than the
//! first plan, the same constraints, the same checker, no randomness. Duals and column generation come
//! with the next slice (decision D-013).

use std::{collections::BTreeSet, sync::Arc};

use millwright_model::{
    CapacityType, ClusterSnapshot, NanoDollarsPerHour, NodePool, Plan, ResourceName,
};

use crate::{Solution, pass, settings::SolveSettings};

/// A Spot NodeClaim should be launchable as at least so many types: one pool of capacity may vanish.
const SPOT_TYPES: usize = 15;
/// Steps that one pass costs per pod; the default budget stands for about 100 ms.
const STEPS_PER_POD: u64 = 20;

/// The cheapest of the first plan and the plans for bounded node sizes.
pub(crate) fn improve(
    snapshot: &ClusterSnapshot,
    settings: &SolveSettings,
    first: Solution,
) -> Solution {
    if first.plan.node_claims.is_empty() {
        return first;
    }
    let floor = first.report.price_per_hour;
    let flexible = spot_types_min(&first.plan).min(SPOT_TYPES);
    let cost_of_pass =
        STEPS_PER_POD.saturating_mul(u64::try_from(snapshot.pods.len()).unwrap_or(u64::MAX));
    let mut best = first;
    let mut steps = 0_u64;
    let mut exhausted = false;
    for cap in sizes(snapshot) {
        if steps.saturating_add(cost_of_pass) > settings.step_budget {
            exhausted = true;
            break;
        }
        steps += cost_of_pass;
        let mut candidate = pass(&bounded(snapshot, cap), settings);
        let places_as_many = candidate.report.scheduled >= best.report.scheduled;
        if places_as_many
            && charged(&candidate, settings) < charged(&best, settings)
            && candidate.report.price_per_hour <= floor
            && spot_types_min(&candidate.plan) >= flexible
        {
            restore_pools(snapshot, &mut candidate.plan);
            best = candidate;
        }
    }
    best.report.incumbent_price_per_hour = floor;
    best.report.steps_used = steps;
    best.report.budget_exhausted = exhausted;
    best
}

/// Price with the charge for each node.
fn charged(solution: &Solution, settings: &SolveSettings) -> NanoDollarsPerHour {
    let nodes = u64::try_from(solution.report.new_nodes).unwrap_or(u64::MAX);
    let charge = settings.per_node_charge.0.saturating_mul(nodes);
    solution.report.price_per_hour + NanoDollarsPerHour(charge)
}

/// Fewest types of any NodeClaim whose cheapest offering is Spot.
fn spot_types_min(plan: &Plan) -> usize {
    let spot = plan
        .node_claims
        .iter()
        .filter(|c| c.cheapest.capacity_type == CapacityType::Spot);
    spot.map(|claim| claim.instance_types.len())
        .min()
        .unwrap_or(usize::MAX)
}

/// Sizes worth bounding nodes at: distinct vCPU counts, in thousandths, without the largest (that is the
/// first plan).
fn sizes(snapshot: &ClusterSnapshot) -> Vec<i64> {
    let types = snapshot
        .node_pools
        .iter()
        .flat_map(|pool| pool.instance_types.iter());
    let all: BTreeSet<i64> = types.map(|t| t.capacity.get(&ResourceName::Cpu)).collect();
    let largest = all.last().copied();
    all.into_iter()
        .filter(|size| Some(*size) != largest)
        .collect()
}

/// The snapshot with pools that offer only types up to a size.
fn bounded(snapshot: &ClusterSnapshot, cap: i64) -> ClusterSnapshot {
    let bound = |pool: &Arc<NodePool>| {
        let fits =
            |t: &&Arc<millwright_model::InstanceType>| t.capacity.get(&ResourceName::Cpu) <= cap;
        Arc::new(NodePool {
            instance_types: pool.instance_types.iter().filter(fits).cloned().collect(),
            ..(**pool).clone()
        })
    };
    ClusterSnapshot {
        node_pools: snapshot.node_pools.iter().map(bound).collect(),
        ..snapshot.clone()
    }
}

/// Proposals name the pools of the snapshot they are for.
fn restore_pools(snapshot: &ClusterSnapshot, plan: &mut Plan) {
    for claim in &mut plan.node_claims {
        if let Some(pool) = snapshot
            .node_pools
            .iter()
            .find(|pool| pool.name == claim.node_pool.name)
        {
            claim.node_pool = Arc::clone(pool);
        }
    }
}
