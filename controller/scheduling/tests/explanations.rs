//! P9: who has no place is told why, NodePool by NodePool, with the nearest miss.

use std::sync::Arc;

use millwright_model::{
    CapacityType, ClusterSnapshot, Effect, NodePool, PodSpec, Requirement, ResourceName, Resources,
    StateNode, Taint, labels,
    plan::RefusalKind,
    snapshot::BoundPod,
    topology::{LabelSelector, PodAffinityTerm, TopologySpread, WhenUnsatisfiable},
};
use millwright_scheduling::{SolveSettings, check, solve};
use millwright_testkit::world;

fn pool() -> NodePool {
    let types = [
        world::instance_type("a.2", "amd64", 2, 8, 100_000_000),
        world::instance_type("b.16", "amd64", 16, 64, 800_000_000),
    ];
    world::node_pool("batch", types.map(Arc::new).into())
}

fn world_of(pools: Vec<NodePool>, spec: PodSpec, nodes: Vec<StateNode>) -> ClusterSnapshot {
    ClusterSnapshot {
        pods: [Arc::new(world::pod("p", Arc::new(spec), 0))]
            .into_iter()
            .collect(),
        node_pools: pools.into_iter().map(Arc::new).collect(),
        nodes: nodes.into_iter().map(Arc::new).collect(),
        ..ClusterSnapshot::default()
    }
}

/// The only refusal of the only pod.
fn refusal(snapshot: &ClusterSnapshot) -> (RefusalKind, String) {
    let plan = solve(snapshot, &SolveSettings::default()).plan;
    assert_eq!(check(snapshot, &plan), Ok(()));
    assert_eq!(plan.unschedulable.len(), 1, "the pod is refused");
    let [reason] = plan.unschedulable[0].reasons.as_slice() else {
        panic!("one reason expected: {:?}", plan.unschedulable[0].reasons)
    };
    (reason.kind, reason.to_string())
}

fn expect(pool: NodePool, spec: PodSpec, kind: RefusalKind, text: &str) {
    let (got, detail) = refusal(&world_of(vec![pool], spec, Vec::new()));
    assert_eq!(got, kind, "{detail}");
    assert!(detail.contains(text), "{detail:?} should contain {text:?}");
}

fn selecting(key: &str, value: &str) -> PodSpec {
    PodSpec {
        node_selector: vec![(key.into(), value.into())],
        ..world::spec(100, 100)
    }
}

#[test]
fn a_request_that_is_too_large_names_the_largest_type() {
    expect(
        pool(),
        world::spec(100, 96 << 10),
        RefusalKind::Resources,
        "nodepool \"batch\": needs 96Gi memory; the largest type allowed by NodePool batch, b.16, \
         has 63.8Gi allocatable to pods",
    );
}

#[test]
fn a_slip_of_the_unit_is_suspected() {
    let text = "needs 100000000 cpu (was the suffix m meant, not M?)";
    expect(
        pool(),
        world::spec(100_000_000_000, 100),
        RefusalKind::Resources,
        text,
    );
}

#[test]
fn a_taint_is_named() {
    let tainted = NodePool {
        taints: vec![Taint::new("gpu", "yes", Effect::NoSchedule)],
        ..pool()
    };
    let text = "taint gpu=yes:NoSchedule is not tolerated";
    expect(tainted, world::spec(100, 100), RefusalKind::Taint, text);
}

#[test]
fn a_misspelt_label_is_answered_with_the_label_that_was_meant() {
    let text = "did you mean \"topology.kubernetes.io/zone\"?";
    expect(
        pool(),
        selecting("zone", "z-a"),
        RefusalKind::Requirements,
        text,
    );
}

#[test]
fn a_value_that_no_type_has_is_a_matter_of_requirements_and_offerings() {
    let (key, value) = (labels::ARCH, "arm64");
    expect(
        pool(),
        selecting(key, value),
        RefusalKind::Requirements,
        "arch In [arm64]",
    );
    let text = "label kubernetes.io/arch";
    let mut contradictory = selecting(key, "amd64");
    contradictory.required_terms = vec![vec![Requirement::label(&key.into(), &value.into())]];
    expect(pool(), contradictory, RefusalKind::Requirements, text);
}

#[test]
fn capacity_that_nobody_has_is_a_matter_of_offerings() {
    let mut pool = pool();
    let sold_out = pool.instance_types.iter().map(|t| {
        let mut t = (**t).clone();
        let spot = |o: &&mut millwright_model::Offering| o.capacity_type == CapacityType::Spot;
        t.offerings
            .iter_mut()
            .filter(spot)
            .for_each(|o| o.available = false);
        Arc::new(t)
    });
    pool.instance_types = sold_out.collect();
    let spot = selecting(labels::CAPACITY_TYPE, "spot");
    expect(
        pool,
        spot,
        RefusalKind::Offering,
        "no instance type is offered",
    );
}

#[test]
fn limits_say_what_is_left() {
    let limited = |limits| NodePool {
        limits: Some(limits),
        ..pool()
    };
    let cpu: Resources = [(ResourceName::Cpu, 1000)].into_iter().collect();
    let text = "2 more cpu would be needed for a.2, the smallest type with room; 1 is left";
    expect(
        limited(cpu),
        world::spec(100, 100),
        RefusalKind::Limits,
        text,
    );
    let none = Resources::new().with(ResourceName::Nodes, 0);
    expect(
        limited(none),
        world::spec(100, 100),
        RefusalKind::Limits,
        "nodes are exhausted",
    );
}

#[test]
fn every_nodepool_gives_its_own_reason() {
    let mut other = pool();
    other.name = "other".into();
    other.taints = vec![Taint::new("gpu", "", Effect::NoSchedule)];
    let world = world_of(vec![pool(), other], world::spec(100_000, 100), Vec::new());
    let plan = solve(&world, &SolveSettings::default()).plan;
    let kinds: Vec<RefusalKind> = plan.unschedulable[0]
        .reasons
        .iter()
        .map(|r| r.kind)
        .collect();
    assert_eq!(kinds, [RefusalKind::Resources, RefusalKind::Taint]);
}

#[test]
fn without_a_nodepool_the_pod_is_told_so_but_existing_nodes_are_tried() {
    let nothing = world_of(Vec::new(), world::spec(100, 100), Vec::new());
    assert_eq!(refusal(&nothing).0, RefusalKind::NoNodePool);
    let node = world::node("n0", &pool().instance_types[0], "z-a");
    let with_node = world_of(Vec::new(), world::spec(100, 100), vec![node]);
    assert_eq!(
        solve(&with_node, &SolveSettings::default())
            .report
            .scheduled,
        1
    );
}

#[test]
fn minimum_values_keep_a_nodepool_out_of_use() {
    let zones = Requirement::exists(&labels::ZONE.into()).with_min_values(Some(2));
    let mut demanding = pool();
    demanding.requirements.add(zones);
    expect(
        demanding,
        world::spec(100, 100),
        RefusalKind::Unsupported,
        "minValues",
    );
}

/// A rule about every pod of the namespace, by zone.
fn everybody() -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: labels::ZONE.into(),
        selector: Some(LabelSelector::default()),
        namespaces: Vec::new(),
        namespace_selector: None,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

#[test]
fn rules_that_are_not_planned_for_are_refused_by_name() {
    let plain = || world::spec(100, 100);
    let term = |change: fn(&mut PodAffinityTerm)| {
        let mut term = everybody();
        change(&mut term);
        PodSpec {
            affinity: vec![term],
            ..plain()
        }
    };
    let alias = term(|t| t.topology_key = "failure-domain.beta.kubernetes.io/zone".into());
    let labelled = term(|t| {
        t.namespace_selector = Some(LabelSelector {
            match_labels: vec![("team".into(), "a".into())],
            match_expressions: Vec::new(),
        });
    });
    let volumes = PodSpec {
        claim_volumes: 1,
        ..plain()
    };
    let devices = PodSpec {
        uses_resource_claims: true,
        ..plain()
    };
    for (spec, text) in [
        (alias, "topologyKey"),
        (labelled, "namespaceSelector"),
        (volumes, "persistentVolumeClaim"),
        (devices, "resourceClaims"),
    ] {
        expect(pool(), spec, RefusalKind::Unsupported, text);
    }
}

#[test]
fn a_rule_that_no_node_satisfies_is_named() {
    let nowhere = |topology_key: &str| TopologySpread {
        max_skew: 1,
        topology_key: topology_key.into(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(LabelSelector::default()),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    let spread = PodSpec {
        topology_spread: vec![nowhere("example.com/rack")],
        ..world::spec(100, 100)
    };
    let rack = "satisfies topology spread over example.com/rack (maxSkew 1)";
    expect(pool(), spread, RefusalKind::Topology, rack);
    let follower = PodSpec {
        affinity: vec![PodAffinityTerm {
            namespaces: vec!["elsewhere".into()],
            ..everybody()
        }],
        ..world::spec(100, 100)
    };
    let zone = "satisfies pod affinity over topology.kubernetes.io/zone";
    expect(pool(), follower, RefusalKind::Topology, zone);
}

#[test]
fn a_pod_that_runs_already_may_keep_others_away() {
    let nodes = world::ZONES.iter().enumerate().map(|(nth, zone)| {
        let mut node = world::node(&format!("n{nth}"), &pool().instance_types[0], zone);
        let loner = PodSpec {
            anti_affinity: vec![everybody()],
            ..world::spec(100, 100)
        };
        node.pods = [BoundPod {
            key: millwright_model::PodKey::new("default", format!("loner-{nth}")),
            spec: Arc::new(loner),
            is_daemon: false,
            is_terminating: false,
        }]
        .into();
        node
    });
    let (kind, detail) = refusal(&world_of(
        vec![pool()],
        world::spec(100, 100),
        nodes.collect(),
    ));
    assert_eq!(kind, RefusalKind::Topology);
    assert!(detail.contains("anti-affinity of other pods"), "{detail}");
}

#[test]
fn invalid_pods_are_refused_with_what_is_wrong_with_them() {
    let mut pod = world::pod("p", Arc::new(world::spec(100, 100)), 0);
    pod.rejections = ["label x is restricted".to_owned()].into();
    let mut world = world_of(vec![pool()], world::spec(100, 100), Vec::new());
    world.pods = [Arc::new(pod)].into_iter().collect();
    assert_eq!(
        refusal(&world),
        (RefusalKind::Rejected, "label x is restricted".to_owned())
    );
}
