//! What holds of every decision, on random fleets.

use std::collections::{BTreeMap, BTreeSet};

use millwright_lifecycle::budget::Reason;
use millwright_model::{NanoDollarsPerHour, NodeName, PodKey};
use proptest::prelude::*;

use super::fixtures::{World, budget, world};
use crate::Decision;

/// Nodes as (cores, cores of pods in thousandths).
fn fleets() -> impl Strategy<Value = (Vec<(i64, Vec<i64>)>, u32)> {
    let cores = prop::sample::select(vec![2_i64, 4, 8, 16]);
    let node = (cores, prop::collection::vec(100_i64..1_900, 0..5));
    (prop::collection::vec(node, 1..9), 0_u32..9)
}

fn build(nodes: &[(i64, Vec<i64>)], allowed: u32) -> World {
    let names: Vec<String> = (0..nodes.len()).map(|at| format!("n{at}")).collect();
    let cut: Vec<(i64, Vec<i64>)> = nodes
        .iter()
        .map(|(cores, pods)| {
            let mut left = cores * 1000;
            let fits = pods.iter().copied().filter(|pod| {
                left -= pod;
                left >= 0
            });
            (*cores, fits.collect())
        })
        .collect();
    let listed: Vec<(&str, i64, &[i64])> = names
        .iter()
        .zip(&cut)
        .map(|(name, (cores, pods))| (name.as_str(), *cores, pods.as_slice()))
        .collect();
    let mut world = world(&listed);
    world.rules().budgets = vec![budget(&allowed.to_string())];
    world
}

/// Budgets hold at every prefix, every pod of a candidate has one place that exists after the
/// command, and the fleet costs less.
fn holds(world: &World, decision: &Decision) -> Result<(), TestCaseError> {
    let fleet = world.fleet();
    let allowed = fleet.budgets(Reason::Underutilized)[&"default".into()];
    let mut gone: BTreeSet<NodeName> = BTreeSet::new();
    let mut received: BTreeSet<NodeName> = BTreeSet::new();
    for command in &decision.commands {
        for candidate in &command.candidates {
            prop_assert!(gone.insert(candidate.node.clone()), "disrupted twice");
            prop_assert!(!received.contains(&candidate.node), "pods move twice");
        }
        prop_assert!(gone.len() <= allowed as usize, "above the budget");
        let mut places: BTreeMap<&PodKey, usize> = BTreeMap::new();
        for pod in command.replacements.iter().flat_map(|r| &r.pods) {
            *places.entry(pod).or_default() += 1;
        }
        for (node, pods) in &command.to_existing_nodes {
            prop_assert!(!gone.contains(node), "moved to a node that goes");
            received.insert(node.clone());
            pods.iter()
                .for_each(|pod| *places.entry(pod).or_default() += 1);
        }
        let moving = command.candidates.iter().flat_map(|candidate| {
            let node = world.nodes.iter().find(|n| n.state.name == candidate.node);
            node.into_iter().flat_map(|node| &node.pods)
        });
        for pod in moving {
            prop_assert_eq!(places.get(&pod.key), Some(&1), "{} is lost", pod.key);
        }
        let before = command.price();
        let worst = command.replacements.iter().flat_map(|replacement| {
            let types = replacement.instance_types.iter();
            types.filter_map(|t| crate::price::worst_launch(t, &replacement.requirements))
        });
        prop_assert!(worst.max().unwrap_or(NanoDollarsPerHour::ZERO) < before);
    }
    Ok(())
}

fn text(decision: &Decision) -> String {
    format!("{decision:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn commands_keep_budgets_lose_no_pod_and_never_raise_the_cost((nodes, allowed) in fleets()) {
        let world = build(&nodes, allowed);
        holds(&world, &world.decide())?;
    }

    #[test]
    fn the_search_keeps_the_same_and_saves_no_less((nodes, allowed) in fleets()) {
        let world = build(&nodes, allowed);
        let searched = world.search();
        holds(&world, &searched)?;
        prop_assert!(searched.savings() >= world.decide().savings());
    }

    #[test]
    fn the_order_of_the_input_decides_nothing((nodes, allowed) in fleets(), turn in 0_usize..8) {
        let mut world = build(&nodes, allowed);
        let first = (text(&world.decide()), text(&world.search()));
        let turn = turn % world.nodes.len();
        world.nodes.rotate_left(turn);
        world.nodes.iter_mut().for_each(|node| node.pods.reverse());
        prop_assert_eq!(first, (text(&world.decide()), text(&world.search())));
    }
}
