//! Cost packing against plans whose best price is known by construction.

use std::sync::Arc;

use millwright_model::{ClusterSnapshot, InstanceType, NodePool, ResourceName, Resources};
use millwright_testkit::world;

use crate::{Packing, Solution, SolveSettings, check, solve};

fn pods(count: usize, cpu: i64, memory: i64) -> Vec<Arc<millwright_model::Pod>> {
    let spec = Arc::new(world::spec(cpu, memory));
    (0..count)
        .map(|nth| Arc::new(world::pod(&format!("p{cpu}-{nth}"), spec.clone(), 0)))
        .collect()
}

fn snapshot(pool: NodePool, pods: Vec<Arc<millwright_model::Pod>>) -> ClusterSnapshot {
    ClusterSnapshot {
        pods: pods.into_iter().collect(),
        node_pools: [Arc::new(pool)].into(),
        ..ClusterSnapshot::default()
    }
}

fn both(snapshot: &ClusterSnapshot) -> (Solution, Solution) {
    let with = |packing| {
        let solution = solve(
            snapshot,
            &SolveSettings {
                packing,
                ..SolveSettings::default()
            },
        );
        assert_eq!(check(snapshot, &solution.plan), Ok(()));
        solution
    };
    (with(Packing::Karpenter), with(Packing::Cost))
}

/// Only sold on demand, so that the rule about Spot plays no part.
fn on_demand(name: &str, cpu: i64, memory: i64, price: u64) -> Arc<InstanceType> {
    let mut built = world::instance_type(name, "amd64", cpu, memory, price);
    built
        .offerings
        .retain(|o| o.capacity_type == millwright_model::CapacityType::OnDemand);
    built.overhead = Resources::new();
    Arc::new(built)
}

#[test]
fn a_large_type_at_a_premium_is_not_grown_into() {
    // 16 cores at three times the price per core: Karpenter's rule fills the one large node.
    let types = [
        on_demand("s.4", 4, 16, 400_000_000),
        on_demand("l.16", 16, 64, 4_800_000_000),
    ];
    let pool = world::node_pool("default", types.into());
    let (karpenter, cost) = both(&snapshot(pool, pods(16, 1000, 1024)));
    assert_eq!(karpenter.report.price_per_hour.0, 4_800_000_000);
    assert_eq!(cost.report.price_per_hour.0, 4 * 400_000_000);
    // The bound is rounded down for each pod.
    let bound = cost.report.lower_bound_per_hour.0;
    assert!((1_599_999_900..=1_600_000_000).contains(&bound), "{bound}");
    assert_eq!(cost.report.incumbent_price_per_hour.0, 4_800_000_000);
}

#[test]
fn pods_that_fill_a_node_together_are_put_together() {
    // 3 + 1 cores fill the node exactly, 2 + 2 as well: eight nodes for the 32 cores there are.
    let types = [on_demand("s.4", 4, 64, 10_000_000)];
    let pool = world::node_pool("default", types.into());
    let all = [pods(4, 3000, 512), pods(8, 2000, 512), pods(4, 1000, 512)].concat();
    let (_, cost) = both(&snapshot(pool, all));
    assert_eq!(cost.report.new_nodes, 8);
}

#[test]
fn limits_bind_cheaper_plans_too() {
    let types = [
        on_demand("s.4", 4, 16, 400_000_000),
        on_demand("l.16", 16, 64, 4_800_000_000),
    ];
    let mut pool = world::node_pool("default", types.into());
    // One large node is allowed, four small ones are not.
    pool.limits = Some(Resources::of(16_000, 64 << 30).with(ResourceName::Nodes, 1));
    let (karpenter, cost) = both(&snapshot(pool, pods(16, 1000, 1024)));
    assert_eq!(karpenter.report.scheduled, 16);
    assert_eq!(cost.report.price_per_hour, karpenter.report.price_per_hour);
}

#[test]
fn spot_nodes_stay_launchable_as_fifteen_types() {
    // The type of 32 cores is the best bargain, but a node filled to its brim fits only two types.
    // Karpenter's rule grows into the dear one of 64.
    let mut types: Vec<Arc<InstanceType>> = (0..20)
        .map(|nth| {
            let name = format!("m{nth}.8");
            Arc::new(world::instance_type(
                &name,
                "amd64",
                8,
                32,
                80_000_000 + nth * 1000,
            ))
        })
        .collect();
    types.push(Arc::new(world::instance_type(
        "x.32",
        "amd64",
        32,
        128,
        100_000_000,
    )));
    types.push(Arc::new(world::instance_type(
        "y.64",
        "amd64",
        64,
        256,
        4_000_000_000,
    )));
    let pool = world::node_pool("default", types.into());
    let (karpenter, cost) = both(&snapshot(pool, pods(60, 1000, 2048)));
    assert!(cost.report.price_per_hour < karpenter.report.price_per_hour);
    for claim in &cost.plan.node_claims {
        assert!(claim.instance_types.len() >= 15, "{:?}", claim.cheapest);
    }
}

#[test]
fn a_budget_that_ends_is_reported_and_leaves_the_first_plan() {
    let types = [
        on_demand("s.4", 4, 16, 400_000_000),
        on_demand("l.16", 16, 64, 4_800_000_000),
    ];
    let pool = world::node_pool("default", types.into());
    let world = snapshot(pool, pods(16, 1000, 1024));
    let solution = solve(
        &world,
        &SolveSettings {
            step_budget: 0,
            ..SolveSettings::default()
        },
    );
    assert!(solution.report.budget_exhausted);
    assert_eq!(solution.report.price_per_hour.0, 4_800_000_000);
    assert_eq!(check(&world, &solution.plan), Ok(()));
}
