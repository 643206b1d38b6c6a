//! A checker that accepts everything would pass every other test: here it must refuse.

use std::{collections::BTreeMap, sync::Arc};

use millwright_model::{
    ClusterSnapshot, Effect, Name, NanoDollarsPerHour, NodePool, Plan, Pod, PodIndex, PodSpec,
    Requirement, ResourceName, Resources, Taint, labels,
    pod::HostPort,
    topology::{LabelSelector, PodAffinityTerm, TopologySpread, WhenUnsatisfiable},
};
use millwright_testkit::world;

use super::{Property, check};
use crate::{Packing, SolveSettings, solve};

/// Two big pods on two new nodes (limits allow three), a small one on the existing node.
fn snapshot(change: impl Fn(&mut NodePool, &mut Vec<PodSpec>)) -> ClusterSnapshot {
    let small = world::instance_type("a.2", "amd64", 2, 8, 100_000_000);
    let types = [
        small.clone(),
        world::instance_type("a.4", "amd64", 4, 16, 190_000_000),
    ];
    let mut pool = world::node_pool("default", types.map(Arc::new).into());
    pool.limits = Some(Resources::of(12_000, 1 << 40).with(ResourceName::Nodes, 3));
    let mut specs = vec![
        world::spec(3000, 4096),
        world::spec(3000, 4097),
        world::spec(500, 512),
    ];
    change(&mut pool, &mut specs);
    let pods = specs.into_iter().enumerate();
    ClusterSnapshot {
        generation: 7,
        pods: pods
            .map(|(nth, spec)| Arc::new(world::pod(&format!("p{nth}"), Arc::new(spec), 0)))
            .collect(),
        nodes: [Arc::new(world::node("n0", &small, "z-a"))]
            .into_iter()
            .collect(),
        node_pools: [Arc::new(pool)].into(),
        ..ClusterSnapshot::default()
    }
}

fn plan(snapshot: &ClusterSnapshot) -> Plan {
    let settings = SolveSettings {
        packing: Packing::Karpenter,
        ..SolveSettings::default()
    };
    solve(snapshot, &settings).plan
}

/// Breaks a good plan and says which property the checker finds broken.
fn broken(change: impl Fn(&mut Plan)) -> Vec<Property> {
    let snapshot = snapshot(|_, _| {});
    let mut plan = plan(&snapshot);
    assert_eq!(
        check(&snapshot, &plan),
        Ok(()),
        "the plan is good before it is broken"
    );
    change(&mut plan);
    properties(&snapshot, &plan)
}

/// Checks a good plan against a snapshot with other rules.
fn overtaken(change: impl Fn(&mut NodePool, &mut Vec<PodSpec>)) -> Vec<Property> {
    let mut plan = plan(&snapshot(|_, _| {}));
    let changed = snapshot(change);
    for claim in &mut plan.node_claims {
        claim.node_pool = changed.node_pools[0].clone();
        let renewed = |t: &Arc<millwright_model::InstanceType>| {
            let listed = claim
                .node_pool
                .instance_types
                .iter()
                .find(|own| own.name == t.name);
            listed.unwrap().clone()
        };
        claim.instance_types = claim.instance_types.iter().map(renewed).collect();
    }
    properties(&changed, &plan)
}

fn properties(snapshot: &ClusterSnapshot, plan: &Plan) -> Vec<Property> {
    let violations = check(snapshot, plan).expect_err("the plan is broken");
    let mut properties: Vec<Property> = violations.iter().map(|v| v.property).collect();
    properties.sort_unstable();
    properties.dedup();
    properties
}

#[test]
fn the_good_plan_is_what_the_breaking_tests_take_it_for() {
    let plan = plan(&snapshot(|_, _| {}));
    assert_eq!(plan.node_claims.len(), 2);
    assert_eq!(plan.nominations.len(), 1);
    assert!(plan.unschedulable.is_empty());
}

#[test]
fn a_pod_that_is_lost_or_placed_twice_is_found() {
    assert_eq!(
        broken(|plan| drop(plan.nominations.pop())),
        [Property::Explanation]
    );
    let twice = broken(|plan| plan.nominations.push(plan.nominations[0].clone()));
    assert!(twice.contains(&Property::Explanation));
    let unknown = broken(|plan| plan.node_claims[0].pods.push(PodIndex(99)));
    assert_eq!(unknown, [Property::Explanation]);
}

/// NodeClaims that are alike are looked at once: what makes the second unlike must be seen.
#[test]
fn of_two_equal_nodeclaims_the_second_is_checked_when_it_is_changed() {
    let equal = snapshot(|_, specs| specs[1] = specs[0].clone());
    let good = plan(&equal);
    assert!(good.node_claims[0].is_like(&good.node_claims[1]));
    assert_eq!(check(&equal, &good), Ok(()));
    let change = |change: fn(&mut millwright_model::NodeClaimProposal)| {
        let mut plan = good.clone();
        change(&mut plan.node_claims[1]);
        properties(&equal, &plan)
    };
    assert_eq!(
        change(|claim| claim.requests = Resources::of(1, 1)),
        [Property::Fit]
    );
    let too_small = |claim: &mut millwright_model::NodeClaimProposal| {
        let small = claim.node_pool.instance_types[0].clone();
        claim.instance_types.push(small);
    };
    assert_eq!(change(too_small), [Property::Fit, Property::Price]);
    let cheaper = |claim: &mut millwright_model::NodeClaimProposal| {
        claim.cheapest.price = NanoDollarsPerHour(1);
    };
    assert_eq!(change(cheaper), [Property::Price]);
}

#[test]
fn a_node_that_is_too_small_is_found() {
    let heaped = broken(|plan| {
        let more = plan.node_claims.pop().unwrap();
        plan.node_claims[0].pods.extend(more.pods);
        plan.node_claims[0].pods.sort_unstable();
    });
    assert_eq!(heaped, [Property::Fit]);
    let crowded = broken(|plan| {
        let claim = plan.node_claims.pop().unwrap();
        plan.nominations[0].pods.extend(claim.pods);
        plan.nominations[0].pods.sort_unstable();
    });
    assert_eq!(crowded, [Property::Fit]);
    let small = broken(|plan| {
        let pool = plan.node_claims[0].node_pool.clone();
        plan.node_claims[0].instance_types = pool.instance_types.to_vec();
    });
    assert!(small.contains(&Property::Fit));
    assert!(
        broken(|plan| plan.node_claims[0].requests = Resources::new()).contains(&Property::Fit)
    );
    assert!(broken(|plan| plan.node_claims[0].instance_types.clear()).contains(&Property::Fit));
}

#[test]
fn a_wrong_price_is_found() {
    let wrong = broken(|plan| plan.node_claims[0].cheapest.price = NanoDollarsPerHour(1));
    assert_eq!(wrong, [Property::Price]);
}

#[test]
fn limits_that_a_nodeclaim_may_exceed_are_found() {
    let nodes = overtaken(|pool, _| {
        pool.limits = Some(Resources::new().with(ResourceName::Nodes, 1));
    });
    assert_eq!(nodes, [Property::Limits]);
    let cpu = overtaken(|pool, _| pool.usage = Resources::of(5000, 0));
    assert_eq!(cpu, [Property::Limits]);
}

#[test]
fn pods_where_they_may_not_run_are_found() {
    let arm: Vec<(Name, Name)> = vec![(labels::ARCH.into(), "arm64".into())];
    let selective = |at: usize| {
        let arm = arm.clone();
        move |_: &mut NodePool, specs: &mut Vec<PodSpec>| specs[at].node_selector = arm.clone()
    };
    assert_eq!(overtaken(selective(0)), [Property::Requirements]);
    assert_eq!(overtaken(selective(2)), [Property::Requirements]);
    let tainted = overtaken(|pool, _| {
        pool.taints = vec![Taint::new("dedicated", "", Effect::NoSchedule)];
    });
    assert_eq!(tainted, [Property::Requirements]);
    let hosted = overtaken(|_, specs| {
        specs[0].node_selector = vec![(labels::HOSTNAME.into(), "n0".into())];
    });
    assert_eq!(hosted, [Property::Requirements]);
    let outgrown = overtaken(|pool, _| {
        pool.requirements
            .add(Requirement::label(&labels::ZONE.into(), &"z-a".into()));
    });
    assert!(outgrown.contains(&Property::Requirements));
}

#[test]
fn nodepools_and_nodes_that_are_out_of_use_are_found() {
    assert_eq!(
        overtaken(|pool, _| pool.ready = false),
        [Property::Requirements]
    );
    let mut going = snapshot(|_, _| {});
    let plan = plan(&going);
    let mut node = (**going.nodes.get(0).unwrap()).clone();
    node.deleting = true;
    going.nodes.replace(0, Arc::new(node.clone()));
    assert_eq!(properties(&going, &plan), [Property::Fit]);
    node.deleting = false;
    node.labels = Arc::new(BTreeMap::new());
    node.taints = [Taint::new("gpu", "", Effect::NoExecute)].into();
    going.nodes.replace(0, Arc::new(node));
    assert_eq!(properties(&going, &plan), [Property::Requirements]);
}

fn everybody(topology_key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: topology_key.into(),
        selector: Some(LabelSelector::default()),
        namespaces: Vec::new(),
        namespace_selector: None,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

/// A plan made without a rule breaks it: the pods under the rule are on two new nodes that may be
/// in any zone, a third pod is on the existing node.
#[test]
fn broken_rules_between_pods_are_found() {
    let apart = overtaken(|_, specs| specs[0].anti_affinity.push(everybody(labels::ZONE)));
    assert_eq!(apart, [Property::Topology]);
    let together = overtaken(|_, specs| {
        specs[2].labels.insert("app".into(), "web".into());
        specs[0].affinity.push(everybody(labels::HOSTNAME));
        let selector = specs[0].affinity[0].selector.get_or_insert_default();
        selector.match_labels.push(("app".into(), "web".into()));
    });
    assert_eq!(together, [Property::Topology]);
    let even = overtaken(|_, specs| {
        specs[0].topology_spread.push(TopologySpread {
            max_skew: 1,
            topology_key: labels::ZONE.into(),
            when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
            selector: Some(LabelSelector::default()),
            min_domains: None,
            match_label_keys: Vec::new(),
            honor_node_affinity: true,
            honor_node_taints: false,
        });
    });
    assert_eq!(even, [Property::Topology]);
}

#[test]
fn two_pods_with_one_port_on_a_node_are_found() {
    let port = HostPort {
        ip: "0.0.0.0".into(),
        port: 80,
        protocol: "TCP".into(),
    };
    let with_port = |snapshot: &mut ClusterSnapshot| {
        let change = |pod: &Arc<Pod>| {
            let mut pod = (**pod).clone();
            Arc::make_mut(&mut pod.spec).host_ports.push(port.clone());
            Arc::new(pod)
        };
        snapshot.pods = snapshot.pods.iter().map(change).collect();
    };
    let mut snapshot = snapshot(|_, specs| {
        for spec in specs {
            *spec = world::spec(100, 128);
        }
    });
    let plan = plan(&snapshot);
    with_port(&mut snapshot);
    let found = properties(&snapshot, &plan);
    assert_eq!(found, [Property::Topology]);
}

#[test]
fn a_plan_for_another_snapshot_is_found() {
    assert_eq!(broken(|plan| plan.generation = 8), [Property::Explanation]);
}
