//! A lower bound on the price of the planned nodes.

use millwright_model::{ClusterSnapshot, NanoDollarsPerHour, Plan, ResourceName, Resources};

/// No set of instances that holds the pods of the plan's new nodes costs less per hour.
///
/// For each resource: what the pods ask for, times the best price per unit that any type of any pool
/// has; the largest of these. Daemons, constraints and whole nodes are left out, so the bound is weak but
/// true. Cost: linear in pods and offerings.
pub(crate) fn lower_bound(snapshot: &ClusterSnapshot, plan: &Plan) -> NanoDollarsPerHour {
    let mut demand = Resources::new();
    for index in plan.node_claims.iter().flat_map(|claim| &claim.pods) {
        if let Some(pod) = snapshot.pods.get(index.0 as usize) {
            demand.add(&pod.spec.requests);
        }
    }
    let bound = demand.iter().map(|(name, amount)| {
        u64::try_from(cheapest_amount(snapshot, name, amount)).unwrap_or(u64::MAX)
    });
    NanoDollarsPerHour(bound.max().unwrap_or(0))
}

/// The best price of an amount of one resource, rounded down.
fn cheapest_amount(snapshot: &ClusterSnapshot, name: &ResourceName, amount: i64) -> u128 {
    let types = snapshot
        .node_pools
        .iter()
        .flat_map(|pool| pool.instance_types.iter());
    types
        .filter_map(|t| {
            let room = u128::try_from(t.allocatable().get(name))
                .ok()
                .filter(|room| *room > 0)?;
            let price = t
                .offerings
                .iter()
                .filter(|o| o.available)
                .map(|o| o.price)
                .min()?;
            let amount = u128::try_from(amount).unwrap_or(0);
            Some(u128::from(price.0) * amount / room)
        })
        .min()
        .unwrap_or(0)
}
