//! Properties P1 to P9 over random worlds, and agreement with the naive reference.
//!
//! A failing case prints its shrunk world and is kept in `proptest-regressions`; more cases with
//! `PROPTEST_CASES`.

use std::{collections::BTreeMap, sync::Arc};

use millwright_model::{
    ClusterSnapshot, NodePool, Plan, PodIndex, PodUid, Requirement, ResourceName, Resources,
    StateNode, Timestamp,
    plan::{NodeClaimProposal, RefusalKind},
};
use millwright_scheduling::{Packing, PreferencePolicy, Solution, SolveSettings, check, solve};
use millwright_testkit::{
    reference,
    rules::ruled_world,
    world::{World, world},
};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

fn settings(packing: Packing) -> SolveSettings {
    SolveSettings {
        packing,
        step_budget: 20_000,
        ..SolveSettings::default()
    }
}

fn uids(snapshot: &ClusterSnapshot, pods: &[PodIndex]) -> Vec<PodUid> {
    let uid = |at: &PodIndex| snapshot.pods.get(at.0 as usize).map(|pod| pod.uid.clone());
    let mut uids: Vec<PodUid> = pods.iter().filter_map(uid).collect();
    uids.sort_unstable();
    uids
}

/// A plan without what carries no meaning: names of NodeClaims, wording of reasons, order.
#[derive(Debug, PartialEq)]
struct Essence {
    claims: Vec<(String, Vec<PodUid>, Vec<String>, u64)>,
    nodes: BTreeMap<String, Vec<PodUid>>,
    failed: Vec<PodUid>,
}

fn essence(snapshot: &ClusterSnapshot, plan: &Plan) -> Essence {
    let claim = |claim: &NodeClaimProposal| {
        let mut types: Vec<String> = claim
            .instance_types
            .iter()
            .map(|t| t.name.to_string())
            .collect();
        types.sort_unstable();
        let pods = uids(snapshot, &claim.pods);
        (
            claim.node_pool.name.to_string(),
            pods,
            types,
            claim.cheapest.price.0,
        )
    };
    let mut claims: Vec<_> = plan.node_claims.iter().map(claim).collect();
    claims.sort();
    let failed: Vec<PodIndex> = plan
        .unschedulable
        .iter()
        .flat_map(|u| u.pods.clone())
        .collect();
    let nodes = plan
        .nominations
        .iter()
        .map(|n| (n.node.to_string(), uids(snapshot, &n.pods)));
    Essence {
        claims,
        nodes: nodes.collect(),
        failed: uids(snapshot, &failed),
    }
}

/// The same world with every list in another order.
fn shuffled(snapshot: &ClusterSnapshot, turn: usize) -> ClusterSnapshot {
    let mut pods: Vec<_> = snapshot.pods.iter().cloned().collect();
    let by = turn % pods.len().max(1);
    pods.rotate_left(by);
    pods.reverse();
    let mut nodes: Vec<_> = snapshot.nodes.iter().cloned().collect();
    nodes.reverse();
    let mut node_pools = snapshot.node_pools.to_vec();
    node_pools.reverse();
    ClusterSnapshot {
        pods: pods.into_iter().collect(),
        nodes: nodes.into_iter().collect(),
        node_pools: node_pools.into(),
        ..snapshot.clone()
    }
}

/// The NodeClaim as the next snapshot shows it: not launched, with exactly the room it was made for.
fn in_flight(claim: &NodeClaimProposal) -> StateNode {
    let mut labels = claim.node_pool.node_labels();
    let single = |r: &Requirement| Some((r.key().clone(), r.single()?.clone()));
    labels.extend(claim.requirements.iter().filter_map(single));
    StateNode {
        name: claim.name.to_string().as_str().into(),
        provider_id: None,
        node_claim: Some(claim.name.to_string().as_str().into()),
        node_pool: Some(claim.node_pool.name.clone()),
        launched: false,
        registered: false,
        initialized: false,
        deleting: false,
        nominated_until: None,
        created_at: Timestamp(1),
        labels: Arc::new(labels),
        taints: claim.node_pool.taints.clone().into(),
        hostname: claim.name.clone(),
        capacity: largest(claim),
        allocatable: claim.requests.clone(),
        requested: Resources::new(),
        daemon_requested: Resources::new(),
        workload_pods: 0,
        pods: Arc::new([]),
        price: Some(claim.cheapest.price),
    }
}

fn largest(claim: &NodeClaimProposal) -> Resources {
    let mut largest = Resources::new().with(ResourceName::Nodes, 1);
    claim
        .instance_types
        .iter()
        .for_each(|t| largest.raise_to(&t.capacity));
    largest
}

/// The snapshot after the plan was carried out and before anything was launched. Pods that limits
/// refused are left out: a NodeClaim is booked at the largest type it may become when it is
/// opened, which pods that join later may make smaller.
fn applied(snapshot: &ClusterSnapshot, plan: &Plan) -> ClusterSnapshot {
    let mut on: BTreeMap<PodIndex, &str> = BTreeMap::new();
    for nomination in &plan.nominations {
        on.extend(
            nomination
                .pods
                .iter()
                .map(|pod| (*pod, nomination.node.as_str())),
        );
    }
    for claim in &plan.node_claims {
        on.extend(claim.pods.iter().map(|pod| (*pod, &*claim.name)));
    }
    let limited: Vec<PodIndex> = plan
        .unschedulable
        .iter()
        .filter(|u| {
            u.reasons
                .iter()
                .any(|reason| reason.kind == RefusalKind::Limits)
        })
        .flat_map(|u| u.pods.clone())
        .collect();
    let pods = (0..).map(PodIndex).zip(snapshot.pods.iter());
    let pods = pods
        .filter(|(at, _)| !limited.contains(at))
        .map(|(at, pod)| {
            let mut pod = (**pod).clone();
            pod.planned_on = on.get(&at).map(|node| (*node).into());
            Arc::new(pod)
        });
    let used = |pool: &Arc<NodePool>| {
        let mut pool = (**pool).clone();
        for claim in plan
            .node_claims
            .iter()
            .filter(|c| c.node_pool.name == pool.name)
        {
            pool.usage.add(&largest(claim));
        }
        Arc::new(pool)
    };
    let flying = plan
        .node_claims
        .iter()
        .map(|claim| Arc::new(in_flight(claim)));
    ClusterSnapshot {
        generation: snapshot.generation + 1,
        pods: pods.collect(),
        nodes: snapshot.nodes.iter().cloned().chain(flying).collect(),
        node_pools: snapshot.node_pools.iter().map(used).collect(),
        ..snapshot.clone()
    }
}

fn placed(solution: &Solution) -> usize {
    let claims: usize = solution
        .plan
        .node_claims
        .iter()
        .map(|claim| claim.pods.len())
        .sum();
    let nodes: usize = solution.plan.nominations.iter().map(|n| n.pods.len()).sum();
    claims + nodes
}

fn cases(cases: u32) -> ProptestConfig {
    let seeds = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/properties.proptest-regressions"
    );
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn karpenter_packing_agrees_with_the_reference_claim_by_claim(
        World(world) in world(), respect in any::<bool>(),
    ) {
        let preference_policy =
            if respect { PreferencePolicy::Respect } else { PreferencePolicy::Ignore };
        let ours = solve(&world, &SolveSettings { preference_policy, ..settings(Packing::Karpenter) });
        let theirs = reference::solve(&world, respect);
        prop_assert_eq!(essence(&world, &ours.plan), essence(&world, &theirs));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn plans_pass_the_checker_and_cost_packing_is_never_dearer(
        World(world) in prop_oneof![world().boxed(), ruled_world().boxed()],
    ) {
        let karpenter = solve(&world, &settings(Packing::Karpenter));
        let cost = solve(&world, &settings(Packing::Cost));
        for (name, solution) in [("karpenter", &karpenter), ("cost", &cost)] {
            let violations = check(&world, &solution.plan).err().unwrap_or_default();
            let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
            prop_assert!(texts.is_empty(), "{}: {:#?}", name, texts);
            prop_assert_eq!(placed(solution), solution.report.scheduled);
            prop_assert!(solution.report.lower_bound_per_hour <= solution.report.price_per_hour);
        }
        prop_assert!(cost.report.price_per_hour <= karpenter.report.price_per_hour);
        prop_assert_eq!(
            essence(&world, &cost.plan).failed,
            essence(&world, &karpenter.plan).failed
        );
    }

    #[test]
    fn a_plan_depends_neither_on_workers_nor_on_the_order_of_lists(
        World(world) in prop_oneof![world().boxed(), ruled_world().boxed()], turn in 0_usize..40,
    ) {
        for packing in [Packing::Karpenter, Packing::Cost] {
            let one = solve(&world, &settings(packing));
            for workers in [2, 3, 8] {
                let many = solve(&world, &SolveSettings { workers, ..settings(packing) });
                prop_assert_eq!(one.report.plan_hash, many.report.plan_hash, "{} workers", workers);
            }
            let other = shuffled(&world, turn);
            let same = solve(&other, &settings(packing));
            prop_assert_eq!(essence(&world, &one.plan), essence(&other, &same.plan));
            prop_assert_eq!(one.report.plan_hash, same.report.plan_hash);
        }
    }

    #[test]
    fn a_plan_that_was_carried_out_is_not_made_again(World(world) in world()) {
        for packing in [Packing::Karpenter, Packing::Cost] {
            let first = solve(&world, &settings(packing));
            let next = applied(&world, &first.plan);
            let second = solve(&next, &settings(packing));
            let ours = essence(&next, &second.plan);
            prop_assert_eq!(&ours.claims, &Vec::new());
            for claim in &first.plan.node_claims {
                let kept = ours.nodes.get(&*claim.name);
                prop_assert_eq!(kept, Some(&uids(&world, &claim.pods)));
            }
            for nomination in &first.plan.nominations {
                let kept = ours.nodes.get(nomination.node.as_str());
                prop_assert_eq!(kept, Some(&uids(&world, &nomination.pods)));
            }
            prop_assert!(check(&next, &second.plan).is_ok());
        }
    }
}
