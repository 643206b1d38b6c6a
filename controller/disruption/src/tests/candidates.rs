//! Appendix A.2 and A.9: who is a candidate, and what is said of the others.

use std::sync::Arc;

use millwright_lifecycle::{
    ConsolidationPolicy, consolidatable::ConsolidateAfter, pdb::ObservedPdb, pod::DoNotDisrupt,
};
use millwright_model::{labels, topology::LabelSelector};

use super::fixtures::{change, world};

/// Two half-empty nodes: `a` would go to `b` if nothing forbids it.
fn two() -> super::fixtures::World {
    world(&[("a", 4, &[500]), ("b", 4, &[500, 500])])
}

#[test]
fn a_do_not_disrupt_pod_keeps_its_node_and_is_named() {
    let mut world = two();
    world.node("a").pods[0].do_not_disrupt = DoNotDisrupt::Always;
    assert!(world.reasons("a").contains("default/a-0"));
    assert_eq!(world.decided(), "delete: [b]");
}

#[test]
fn a_do_not_disrupt_pod_that_is_finished_or_leaving_keeps_nothing() {
    for terminal in [true, false] {
        let mut world = two();
        let pod = &mut world.node("a").pods[0];
        pod.do_not_disrupt = DoNotDisrupt::Always;
        pod.terminal = terminal;
        pod.deleting_at = (!terminal).then_some(super::fixtures::NOW);
        assert_eq!(world.decided(), "delete: [a]", "terminal: {terminal}");
    }
}

#[test]
fn an_annotated_node_stays() {
    let mut world = two();
    let node = world.node("a").node.as_mut().unwrap();
    node.annotations
        .insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    assert!(world.reasons("a").contains("karpenter.sh/do-not-disrupt"));
    assert_eq!(world.decided(), "delete: [b]");
}

#[test]
fn a_pod_disruption_budget_without_room_keeps_the_node_and_is_named() {
    let mut world = two();
    world.node("a").pods[0].labels = Arc::new([("app".into(), "web".into())].into());
    world.pdbs.push(ObservedPdb {
        namespace: "default".into(),
        name: "web".into(),
        selector: Some(LabelSelector {
            match_labels: vec![("app".into(), "web".into())],
            match_expressions: Vec::new(),
        }),
        disruptions_allowed: 0,
        fully_blocking: false,
        unhealthy_always_allowed: false,
    });
    assert!(world.reasons("a").contains("default/web"));
    world.pdbs[0].namespace = "other".into();
    assert_eq!(world.decided(), "replace: [a, b] -> [1 replacement]");
}

#[test]
fn nominated_deleting_uninitialized_and_queued_nodes_are_no_candidates() {
    type Case = (&'static str, fn(&mut crate::FleetNode));
    let cases: [Case; 5] = [
        ("nominated", |node| {
            change(node, |state| {
                state.nominated_until = Some(millwright_model::Timestamp(i64::MAX));
            });
        }),
        ("deleting", |node| {
            change(node, |state| state.deleting = true);
        }),
        ("initialized", |node| {
            let labels = &mut node.node.as_mut().unwrap().labels;
            labels.remove(labels::INITIALIZED);
        }),
        ("being disrupted", |node| node.queued = true),
        ("NodeClaim", |node| node.claim = None),
    ];
    for (cause, spoil) in cases {
        let mut world = two();
        spoil(world.node("a"));
        let reasons = world.reasons("a");
        assert!(reasons.contains(cause), "{cause}: {reasons:?}");
        let decision = world.decide();
        let eligible = &decision.eligible.single_node;
        assert!(eligible.iter().all(|node| node.as_str() != "a"), "{cause}");
    }
}

#[test]
fn consolidation_wants_type_capacity_type_and_zone() {
    for (key, cause) in [
        (labels::INSTANCE_TYPE, "Instance Type \"\" not found"),
        (labels::CAPACITY_TYPE, labels::CAPACITY_TYPE),
        (labels::ZONE, labels::ZONE),
    ] {
        let mut world = two();
        change(world.node("a"), |state| {
            let mut labels = (*state.labels).clone();
            labels.remove(key);
            state.labels = Arc::new(labels);
        });
        assert!(world.reasons("a").contains(cause), "{}", world.reasons("a"));
    }
}

#[test]
fn the_policy_when_empty_and_consolidate_after_never_are_told() {
    let mut world = two();
    world.rules().policy = ConsolidationPolicy::WhenEmpty;
    assert!(
        world
            .reasons("a")
            .contains("non-empty consolidation disabled")
    );
    world.rules().consolidate_after = ConsolidateAfter::Never;
    assert_eq!(
        world.reasons("a"),
        "NodePool \"default\" has consolidation disabled"
    );
    assert_eq!(world.decided(), "");
}

#[test]
fn nodes_of_static_pools_are_not_consolidated() {
    let mut world = world(&[("a", 4, &[500]), ("b", 4, &[])]);
    world.rules().is_static = true;
    assert_eq!(world.decided(), "");
    let eligible = world.decide().eligible;
    assert_eq!(eligible, crate::Eligible::default());
}

#[test]
fn a_pod_that_planning_does_not_know_keeps_its_node() {
    let mut world = two();
    world.node("a").displaced.clear();
    assert!(world.reasons("a").contains("default/a-0"));
    assert_eq!(world.decided(), "delete: [b]");
}
