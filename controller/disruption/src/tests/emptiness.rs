//! Appendix A.4.

use millwright_lifecycle::{Change, ConditionType};

use super::fixtures::{NOW, budget, rules, world};

#[test]
fn empty_nodes_go_together_as_far_as_budgets_permit() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let nodes: Vec<(&str, i64, &[i64])> = names.iter().map(|n| (*n, 4, &[][..])).collect();
    for (budgets, gone) in [("100%", 10), ("0%", 0), ("30%", 3)] {
        let mut world = world(&nodes);
        world.rules().budgets = vec![budget(budgets)];
        let decision = world.decide();
        let disrupted = decision.commands.iter().map(|c| c.candidates.len()).sum();
        assert_eq!((disrupted, decision.commands.len()), (gone, gone.min(1)));
    }
}

#[test]
fn budgets_of_each_pool_bound_its_empty_nodes() {
    let mut world = world(&[]);
    world.rules.clear();
    for pool in 0..10 {
        let name = format!("pool-{pool}");
        let mut own = rules();
        own.budgets = vec![budget("50%")];
        world.rules.insert(name.as_str().into(), own);
        for at in 0..3 {
            let mut node = super::fixtures::node(
                &format!("{name}-{at}"),
                4,
                millwright_model::CapacityType::OnDemand,
                &[],
            );
            let label = (
                millwright_model::labels::NODE_POOL.into(),
                name.as_str().into(),
            );
            node.claim.as_mut().unwrap().labels.extend([label]);
            super::fixtures::change(&mut node, |s| s.node_pool = Some(name.as_str().into()));
            world.nodes.push(node);
        }
    }
    assert_eq!(world.decide().commands[0].candidates.len(), 20);
}

#[test]
fn only_a_consolidatable_node_goes() {
    let mut world = world(&[("a", 4, &[])]);
    let claim = world.node("a").claim.as_mut().unwrap();
    let clear = Change::Clear(ConditionType::Consolidatable);
    claim.conditions.apply(&clear, NOW);
    assert_eq!(world.decided(), "");
    assert!(world.reasons("a").contains("isn't consolidatable yet"));
}

#[test]
fn daemons_and_leaving_pods_do_not_hold_a_node_but_a_leaving_stateful_pod_does() {
    let mut world = world(&[("a", 4, &[100])]);
    world.node("a").pods[0].is_daemon = true;
    assert_eq!(world.decided(), "delete: [a]");
    let pod = &mut world.node("a").pods[0];
    pod.is_daemon = false;
    pod.deleting_at = Some(NOW);
    assert_eq!(world.decided(), "delete: [a]");
    world.node("a").pods[0].is_stateful = true;
    assert!(!world.decided().contains("delete"));
}

#[test]
fn a_node_whose_pods_cost_nothing_is_empty() {
    let mut world = world(&[("a", 4, &[100]), ("b", 4, &[3500])]);
    world.node("a").pods[0].deletion_cost = Some(-(1 << 27));
    let decision = world.decide();
    assert_eq!(decision.commands[0].method, crate::Method::Emptiness);
    assert_eq!(decision.commands[0].to_string(), "delete: [a]");
}
