//! What the whole-fleet search finds beyond Karpenter's walk.

use millwright_lifecycle::ConsolidationPolicy;

use super::fixtures::{budget, machine, text, world};

/// `a` saves most for its disruption and cannot go; `b` and `c` fit on `d`.
fn blocked_at_the_head() -> super::fixtures::World {
    let mut world = world(&[
        ("a", 16, &[15_900]),
        ("b", 4, &[500]),
        ("c", 4, &[500]),
        ("d", 8, &[1_000, 1_000, 1_000, 1_000]),
    ]);
    world.types = vec![machine(16), machine(8), machine(4)];
    world.requirements.add(millwright_model::Requirement::label(
        &millwright_model::labels::INSTANCE_TYPE.into(),
        &"c16".into(),
    ));
    world
}

#[test]
fn sets_that_are_no_prefix_are_found() {
    let world = blocked_at_the_head();
    assert_eq!(world.decided(), "delete: [b]");
    assert_eq!(text(&world.search()), "delete: [b, c]");
}

#[test]
fn sets_stay_within_budgets() {
    let mut world = blocked_at_the_head();
    world.rules().budgets = vec![budget("1")];
    assert_eq!(text(&world.search()), "delete: [b]");
    world.rules().budgets = vec![budget("0")];
    assert_eq!(text(&world.search()), "");
}

#[test]
fn empty_nodes_and_others_go_in_one_pass_under_one_budget() {
    let mut world = blocked_at_the_head();
    let empty = super::fixtures::node("e", 4, millwright_model::CapacityType::OnDemand, &[]);
    world.nodes.push(empty);
    assert_eq!(text(&world.search()), "delete: [e]; delete: [b, c]");
    world.rules().budgets = vec![budget("2")];
    assert_eq!(text(&world.search()), "delete: [e]; delete: [b]");
}

#[test]
fn a_balanced_pool_rejects_sets_too() {
    let pods = [100; 20];
    let mut world = world(&[("a", 4, &pods), ("b", 16, &[15_000]), ("c", 16, &[12_000])]);
    assert_eq!(text(&world.search()), "delete: [a]");
    world.rules().policy = ConsolidationPolicy::Balanced;
    assert_eq!(text(&world.search()), "");
}

#[test]
fn nodes_that_receive_pods_stay_and_say_so() {
    let decision = blocked_at_the_head().search();
    let reasons = &decision.skipped[&"d".into()];
    assert!(reasons[0].contains("receives pods"), "{reasons:?}");
}

#[test]
fn a_small_set_does_not_hide_the_single_node_that_karpenter_would_replace() {
    let mut world = world(&[("a", 2, &[674]), ("b", 8, &[1_767, 687]), ("c", 4, &[873])]);
    world.rules().budgets = vec![budget("2")];
    assert!(world.search().savings() >= world.decide().savings());
}
