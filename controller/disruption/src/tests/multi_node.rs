//! Appendix A.13 and the rules of 3.10.2 and 3.10.3.

use millwright_lifecycle::ConsolidationPolicy;
use millwright_model::{CapacityType, pod::Intake};

use super::fixtures::{budget, machine, milli, node, pod, world};

#[test]
fn three_nodes_become_one_smaller_one() {
    let world = world(&[("a", 8, &[500]), ("b", 8, &[500]), ("c", 8, &[500])]);
    let decision = world.decide();
    let command = &decision.commands[0];
    assert_eq!(command.to_string(), "replace: [a, b, c] -> [1 replacement]");
    assert_eq!(&*command.replacements[0].cheapest.instance_type, "c2");
    assert_eq!(command.savings, milli(3 * 400 - 100));
    assert_eq!(
        (command.pods_moved, command.replacements[0].pods.len()),
        (3, 3)
    );
}

#[test]
fn of_two_nodes_of_the_cheapest_type_one_is_deleted_and_none_created() {
    let world = world(&[("a", 2, &[500]), ("b", 2, &[500])]);
    assert_eq!(world.decided(), "delete: [a]");
}

#[test]
fn nodes_are_not_replaced_by_one_of_their_own_types() {
    // Both together fit on one more c8, which is what deleting one of them gives, too.
    let world = world(&[("a", 8, &[2500]), ("b", 8, &[2500])]);
    assert_eq!(world.decided(), "delete: [a]");
}

#[test]
fn budgets_cut_the_list_of_candidates() {
    let mut world = world(&[
        ("a", 8, &[500]),
        ("b", 8, &[500]),
        ("c", 8, &[500]),
        ("d", 8, &[500]),
    ]);
    world.rules().budgets = vec![budget("2")];
    assert_eq!(world.decide().commands[0].candidates.len(), 2);
    world.rules().budgets = vec![budget("0")];
    let decision = world.decide();
    assert!(decision.commands.is_empty());
    assert!(world.reasons("a").contains("blocking budget"));
}

#[test]
fn nodes_that_are_not_ready_or_leaving_consume_the_budget() {
    let mut world = world(&[("a", 8, &[500]), ("b", 8, &[500]), ("c", 8, &[500])]);
    world.rules().budgets = vec![budget("1")];
    world.node("c").node.as_mut().unwrap().ready = false;
    assert_eq!(world.decided(), "");
}

#[test]
fn a_pod_that_waits_is_planned_with_the_others_but_does_not_block() {
    let mut world = world(&[("a", 4, &[500]), ("b", 4, &[500])]);
    world.types = vec![machine(4)];
    world.waiting.push(pod("giant", 64_000, Intake::Marked));
    assert_eq!(world.decided(), "delete: [a]");
    // It takes the only room there is, so a running pod would have none.
    world.waiting[0] = pod("large", 3_500, Intake::Marked);
    assert_eq!(world.decided(), "");
}

#[test]
fn a_balanced_pool_rejects_what_is_not_worth_the_disruption() {
    let pods = [100; 20];
    let mut world = world(&[("a", 4, &pods), ("b", 16, &[15_000]), ("c", 16, &[12_000])]);
    assert_eq!(world.decided(), "delete: [a]");
    world.rules().policy = ConsolidationPolicy::Balanced;
    assert_eq!(world.decided(), "");
    assert!(world.reasons("a").contains("Balanced"));
}

#[test]
fn spot_nodes_are_deleted_but_not_replaced_by_spot_unless_the_gate_is_on() {
    let mut world = world(&[]);
    world.requirements = millwright_model::Requirements::new();
    world.nodes = vec![
        node("a", 8, CapacityType::Spot, &[500]),
        node("b", 8, CapacityType::Spot, &[7_900]),
    ];
    assert_eq!(world.decided(), "");
    assert!(
        world
            .reasons("a")
            .contains("SpotToSpotConsolidation is disabled")
    );
    let settings = crate::Settings {
        spot_to_spot: true,
        ..super::fixtures::settings()
    };
    let decision = crate::decide(&world.fleet(), &settings);
    let reasons = &decision.skipped[&"a".into()];
    assert!(reasons[0].contains("requires 15 cheaper"), "{reasons:?}");
}
