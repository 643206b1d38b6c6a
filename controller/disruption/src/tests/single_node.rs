//! Appendix A.8, A.10, A.11.

use std::collections::BTreeSet;

use millwright_lifecycle::{Change, ConditionType, consolidatable::ConsolidateAfter};
use millwright_model::{CapacityType, Span, Timestamp, labels};

use super::fixtures::{NOW, change, machine, milli, node, settings, world};
use crate::{Method, Settings, decide};

#[test]
fn an_oversized_node_is_replaced_by_a_cheaper_one() {
    for capacity in [CapacityType::OnDemand, CapacityType::Spot] {
        let mut world = world(&[]);
        world.nodes = vec![node("a", 16, capacity, &[1_500])];
        let decision = world.decide();
        let command = &decision.commands[0];
        assert_eq!(command.method, Method::SingleNode);
        let replacement = &command.replacements[0];
        let types: Vec<&str> = replacement
            .instance_types
            .iter()
            .map(|t| &*t.name)
            .collect();
        // c16 itself would not be cheaper; for a spot node at 320, c8 on demand at 400 neither.
        let cheaper = if capacity == CapacityType::OnDemand {
            &["c2", "c4", "c8"][..]
        } else {
            &["c2", "c4"]
        };
        assert_eq!(types, cheaper);
        assert!(command.savings > milli(0));
    }
}

#[test]
fn a_replacement_that_may_be_spot_must_be_spot() {
    let mut world = world(&[("a", 16, &[1_500])]);
    world.requirements = millwright_model::Requirements::new();
    let decision = world.decide();
    let replacement = &decision.commands[0].replacements[0];
    let allows = |capacity: &str| {
        replacement
            .requirements
            .allows(labels::CAPACITY_TYPE, capacity)
    };
    assert!(allows("spot") && !allows("on-demand"));
    assert_eq!(replacement.cheapest.price, milli(40));
    // Every type is cheaper as spot than this node on demand, its own included.
    assert_eq!(replacement.instance_types.len(), 4);
}

#[test]
fn nothing_is_done_when_no_option_is_cheaper() {
    let mut world = world(&[("a", 4, &[3_500])]);
    assert_eq!(world.decided(), "");
    assert_eq!(world.reasons("a"), "Can't replace with a cheaper node");
    world.types = vec![machine(4)];
    assert_eq!(world.decided(), "");
}

#[test]
fn a_node_that_needs_two_others_stays() {
    let mut world = world(&[("a", 16, &[2_000, 2_000])]);
    world.types = vec![machine(2), machine(16)];
    world
        .types
        .retain(|t| &*t.name == "c2" || &*t.name == "c16");
    world.requirements.add(millwright_model::Requirement::label(
        &labels::INSTANCE_TYPE.into(),
        &"c2".into(),
    ));
    assert_eq!(world.decided(), "");
    assert!(world.reasons("a").contains("creating 2 candidates"));
}

#[test]
fn the_node_with_the_best_saving_for_its_disruption_goes_first() {
    let mut world = world(&[("a", 4, &[500, 500]), ("b", 4, &[500])]);
    world.types.clear();
    world.types.push(machine(4));
    assert_eq!(world.decided(), "delete: [b]");
}

#[test]
fn nothing_moves_to_a_node_that_is_not_initialized() {
    let mut world = world(&[("a", 4, &[3_000]), ("b", 4, &[])]);
    let claim = world.node("b").claim.as_mut().unwrap();
    claim.labels.remove("karpenter.sh/nodepool");
    change(world.node("b"), |state| state.initialized = false);
    let node = world.node("b").node.as_mut().unwrap();
    node.labels.remove(labels::INITIALIZED);
    assert_eq!(world.decided(), "");
    let reasons = world.reasons("a");
    assert!(
        reasons.contains("would schedule against uninitialized nodeclaim/b"),
        "{reasons}"
    );
}

#[test]
fn nothing_moves_to_a_node_within_its_consolidate_after() {
    let mut world = world(&[("a", 4, &[500]), ("b", 4, &[500, 500, 500])]);
    world.types = vec![machine(4)];
    world.rules().consolidate_after = ConsolidateAfter::After(Span::from_secs(60));
    let recent = Some(Timestamp(NOW.0 - 30_000));
    let claim = world.node("b").claim.as_mut().unwrap();
    claim.last_pod_event = recent;
    let clear = Change::Clear(ConditionType::Consolidatable);
    claim.conditions.apply(&clear, NOW);
    assert_eq!(world.decided(), "");
    world.rules().consolidate_after = ConsolidateAfter::After(Span::from_secs(20));
    assert_eq!(world.decided(), "delete: [a]");
}

#[test]
fn an_unmanaged_node_takes_pods_but_is_no_candidate() {
    let mut world = world(&[("a", 4, &[500]), ("b", 16, &[500])]);
    let unmanaged = world.node("b");
    unmanaged.claim = None;
    change(unmanaged, |state| {
        state.node_claim = None;
        state.node_pool = None;
    });
    assert_eq!(world.decided(), "delete: [a]");
}

#[test]
fn a_scan_is_bounded_and_goes_on_with_the_pools_it_did_not_reach() {
    let mut world = world(&[("a", 16, &[15_000]), ("b", 16, &[15_500])]);
    let mut other = node("c", 16, CapacityType::OnDemand, &[1_000, 1_000, 14_000]);
    change(&mut other, |state| state.node_pool = Some("other".into()));
    let label = (labels::NODE_POOL.into(), "other".into());
    other.claim.as_mut().unwrap().labels.extend([label]);
    world.nodes.push(other);
    let rules = world.rules[&"default".into()].clone();
    world.rules.insert("other".into(), rules);
    let bounded = Settings {
        scan_max: 1,
        ..settings()
    };
    let first = decide(&world.fleet(), &bounded);
    assert_eq!(first.unseen, BTreeSet::from(["other".into()]));
    assert!(first.skipped.contains_key(&"a".into()));
    let second = decide(
        &world.fleet(),
        &Settings {
            unseen: first.unseen,
            ..bounded
        },
    );
    assert!(second.skipped.contains_key(&"c".into()));
    let whole = decide(&world.fleet(), &settings());
    assert!(whole.unseen.is_empty());
}

#[test]
fn without_a_pool_that_can_open_nodes_nothing_is_simulated() {
    let mut world = world(&[("a", 4, &[500]), ("b", 4, &[500])]);
    world.types = Vec::new();
    assert_eq!(world.decided(), "");
}
