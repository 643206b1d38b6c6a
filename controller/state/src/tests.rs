//! Incremental state against state built from nothing, under random event sequences.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use millwright_model::{
    ClusterSnapshot, InstanceType, NodeName, Pod, PodKey, Requirements, ResourceName, Resources,
    Timestamp,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{ClusterState, Prospect};

#[derive(Clone, Debug)]
enum Event {
    Pod {
        name: u8,
        node: Option<u8>,
        phase: u8,
        marked: bool,
    },
    DeletePod(u8),
    Node {
        name: u8,
        managed: bool,
        registered: bool,
    },
    DeleteNode(u8),
    Claim {
        name: u8,
        launched: bool,
        deleting: bool,
    },
    DeleteClaim(u8),
    /// A plan gave a pod a place on a NodeClaim, or on a Node.
    Plan {
        pod: u8,
        claim: bool,
        name: u8,
    },
    /// A PodDisruptionBudget over the pods with odd names, or its end.
    Budget {
        exists: bool,
        blocks: bool,
    },
    /// The watch was lost: these pods, Nodes and NodeClaims were deleted unseen (bits by name).
    Relist(u8),
    Snapshot,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_u8..6, prop::option::of(0_u8..4), 0_u8..4, any::<bool>())
            .prop_map(|(name, node, phase, marked)| Event::Pod { name, node, phase, marked }),
        1 => (0_u8..6).prop_map(Event::DeletePod),
        3 => (0_u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(name, managed, registered)| Event::Node { name, managed, registered }),
        1 => (0_u8..4).prop_map(Event::DeleteNode),
        3 => (0_u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(name, launched, deleting)| Event::Claim { name, launched, deleting }),
        1 => (0_u8..4).prop_map(Event::DeleteClaim),
        3 => (0_u8..6, any::<bool>(), 0_u8..4)
            .prop_map(|(pod, claim, name)| Event::Plan { pod, claim, name }),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(exists, blocks)| Event::Budget { exists, blocks }),
        1 => any::<u8>().prop_map(Event::Relist),
        2 => Just(Event::Snapshot),
    ];
    prop::collection::vec(event, 0..60)
}

fn pod(name: u8, node: Option<u8>, phase: u8, marked: bool) -> Value {
    let phase = if phase == 3 { "Succeeded" } else { "Pending" };
    let mut pod = json!({
        "metadata": {"name": format!("p{name}"), "namespace": "d", "uid": format!("u{name}"), "labels": {"odd": (name % 2).to_string()}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{}m", 100 + u32::from(name))}}}]},
        "status": {"phase": phase},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = format!("n{node}").into();
    } else if marked {
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    }
    pod
}

fn node(name: u8, managed: bool, registered: bool) -> Value {
    let mut labels = json!({"node.kubernetes.io/instance-type": "t"});
    if managed {
        labels["karpenter.sh/nodepool"] = "pool".into();
    }
    if registered {
        labels["karpenter.sh/registered"] = "true".into();
    }
    json!({
        "metadata": {"name": format!("n{name}"), "labels": labels},
        "spec": {"providerID": format!("i{name}")},
        "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "1900m"}},
    })
}

fn claim(name: u8, launched: bool, deleting: bool) -> Value {
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("c{name}"), "labels": {"karpenter.sh/nodepool": "pool"}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                 "resources": {"requests": {"cpu": "500m"}}},
        "status": {},
    });
    if launched {
        claim["status"] = json!({"providerID": format!("i{name}"), "capacity": {"cpu": "2"}});
    }
    if deleting {
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    claim
}

fn budget(blocks: bool) -> Value {
    json!({
        "metadata": {"name": "odd", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"odd": "1"}}, "maxUnavailable": i32::from(!blocks)},
    })
}

/// The objects that exist after the events.
#[derive(Default)]
struct World {
    pods: BTreeMap<u8, Value>,
    nodes: BTreeMap<u8, Value>,
    claims: BTreeMap<u8, Value>,
    budget: Option<Value>,
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Publishes, and holds everything that is kept incrementally to a recount.
fn publish(state: &mut ClusterState) -> ClusterSnapshot {
    let (snapshot, errors) = state.snapshot(Timestamp(0), true, |_| [].into());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(state.inconsistencies(), Vec::<String>::new());
    let names: HashSet<&NodeName> = snapshot.nodes.iter().map(|node| &node.name).collect();
    for pod in snapshot.pods.iter() {
        if let Some(node) = &pod.planned_on {
            assert!(
                names.contains(node),
                "{} is planned on {node}, which is not in the snapshot",
                pod.key
            );
        }
    }
    (*snapshot).clone()
}

/// A snapshot without order and generation.
fn normal(snapshot: &ClusterSnapshot) -> (Vec<String>, Vec<String>) {
    // Plans are memory of what was done; a fresh start has none.
    let forgetful = |pod: &Arc<Pod>| Pod {
        planned_on: None,
        ..(**pod).clone()
    };
    let mut pods: Vec<String> = snapshot
        .pods
        .iter()
        .map(|pod| format!("{:?}", forgetful(pod)))
        .collect();
    let mut nodes: Vec<String> = snapshot
        .nodes
        .iter()
        .map(|node| format!("{node:?}"))
        .collect();
    pods.sort_unstable();
    nodes.sort_unstable();
    (pods, nodes)
}

fn play(state: &mut ClusterState, world: &mut World, event: &Event) {
    match *event {
        Event::Pod {
            name,
            node,
            phase,
            marked,
        } => {
            let value = pod(name, node, phase, marked);
            state.apply_pod(&typed(&value));
            world.pods.insert(name, value);
        }
        Event::DeletePod(name) => {
            state.delete_pod(&PodKey::new("d", format!("p{name}")));
            world.pods.remove(&name);
        }
        Event::Node {
            name,
            managed,
            registered,
        } => {
            let value = node(name, managed, registered);
            state.apply_node(&typed(&value)).unwrap();
            world.nodes.insert(name, value);
        }
        Event::DeleteNode(name) => {
            state.delete_node(&format!("n{name}").into());
            world.nodes.remove(&name);
        }
        Event::Claim {
            name,
            launched,
            deleting,
        } => {
            let value = claim(name, launched, deleting);
            state.apply_claim(&typed(&value)).unwrap();
            world.claims.insert(name, value);
        }
        Event::DeleteClaim(name) => {
            state.delete_claim(&format!("c{name}").into());
            world.claims.remove(&name);
        }
        Event::Plan { pod, claim, name } => {
            let target = if claim { 'c' } else { 'n' };
            let exists = if claim {
                world.claims.contains_key(&name)
            } else {
                world.nodes.contains_key(&name)
            };
            // The executor plans on what it has just created, or on what a snapshot showed.
            if exists {
                state.plan_pod(
                    &PodKey::new("d", format!("p{pod}")),
                    &format!("u{pod}").into(),
                    format!("{target}{name}").into(),
                );
            }
        }
        Event::Budget { exists, blocks } => {
            world.budget = exists.then(|| budget(blocks));
            match &world.budget {
                Some(value) => state.apply_disruption_budget(&typed(value)).unwrap(),
                None => state.delete_disruption_budget("d/odd"),
            }
        }
        Event::Relist(gone) => relist(state, world, gone),
        Event::Snapshot => drop(publish(state)),
    }
}

fn relist(state: &mut ClusterState, world: &mut World, gone: u8) {
    let stays = |name: &u8| gone & (1 << name) == 0;
    world.pods.retain(|name, _| stays(name));
    world.nodes.retain(|name, _| stays(name));
    world.claims.retain(|name, _| stays(name));
    state.retain_pods(
        &world
            .pods
            .keys()
            .map(|name| PodKey::new("d", format!("p{name}")))
            .collect(),
    );
    state.retain_nodes(
        &world
            .nodes
            .keys()
            .map(|name| format!("n{name}").into())
            .collect(),
    );
    state.retain_claims(
        &world
            .claims
            .keys()
            .map(|name| format!("c{name}").into())
            .collect(),
    );
}

fn from_scratch(world: &World) -> ClusterState {
    let mut state = ClusterState::default();
    world
        .claims
        .values()
        .for_each(|value| state.apply_claim(&typed(value)).unwrap());
    world
        .nodes
        .values()
        .for_each(|value| state.apply_node(&typed(value)).unwrap());
    world.pods.values().for_each(|value| {
        state.apply_pod(&typed(value));
    });
    if let Some(budget) = &world.budget {
        state.apply_disruption_budget(&typed(budget)).unwrap();
    }
    state
}

proptest! {
    #[test]
    fn any_order_of_events_gives_the_snapshot_that_a_fresh_start_would(events in events()) {
        let mut state = ClusterState::default();
        let mut world = World::default();
        for event in &events {
            play(&mut state, &mut world, event);
        }
        let mut fresh = from_scratch(&world);
        prop_assert_eq!(normal(&publish(&mut state)), normal(&publish(&mut fresh)));
        prop_assert_eq!(state.usage("pool"), fresh.usage("pool"));
        prop_assert_eq!(state.completeness(), fresh.completeness());
        prop_assert_eq!(state.waiting_pods(), fresh.waiting_pods());
    }
}

/// A pod that one caller's snapshot left out must be in the next caller's.
#[test]
fn snapshots_with_and_without_anticipation_do_not_hide_pods_from_each_other() {
    let mut state = ClusterState::default();
    state.apply_pod(&typed(&pod(1, None, 0, false)));
    let pods = |state: &mut ClusterState, anticipate| {
        state
            .snapshot(Timestamp(0), anticipate, |_| [].into())
            .0
            .pods
            .len()
    };
    assert_eq!(pods(&mut state, false), 0);
    assert_eq!(pods(&mut state, true), 1);
    assert_eq!(pods(&mut state, false), 0);
}

/// The snapshot calls a registered node by its own name; a pod planned on the NodeClaim keeps its
/// place under that name, and loses it with the node.
#[test]
fn a_plan_follows_its_nodeclaim_to_the_node_and_ends_with_it() {
    let mut state = ClusterState::default();
    state.apply_claim(&typed(&claim(1, false, false))).unwrap();
    state.apply_pod(&typed(&pod(1, None, 0, true)));
    state.plan_pod(&PodKey::new("d", "p1"), &"u1".into(), "c1".into());
    let planned = |state: &mut ClusterState| {
        let snapshot = publish(state);
        let pod = snapshot.pods.iter().next().map(Arc::clone);
        pod.and_then(|pod| pod.planned_on.clone())
    };
    assert_eq!(planned(&mut state), Some("c1".into()));
    state.apply_claim(&typed(&claim(1, true, false))).unwrap();
    assert_eq!(planned(&mut state), Some("c1".into()));
    state.apply_node(&typed(&node(1, true, true))).unwrap();
    assert_eq!(planned(&mut state), Some("n1".into()));
    assert_eq!(state.planned_nodes(), HashSet::from(["n1".into()]));
    let before = state.arrivals();
    state.delete_claim(&"c1".into());
    state.delete_node(&"n1".into());
    assert_eq!(planned(&mut state), None);
    assert!(state.arrivals() > before, "the pod must be planned again");
}

/// A nomination made before registration must protect the node after it.
#[test]
fn a_nomination_of_a_nodeclaim_holds_for_its_node_until_it_expires() {
    let mut state = ClusterState::default();
    state.apply_claim(&typed(&claim(1, true, false))).unwrap();
    state.nominate(&"c1".into(), Timestamp(100));
    state.apply_node(&typed(&node(1, true, true))).unwrap();
    let until = |state: &mut ClusterState, now| {
        let (snapshot, _) = state.snapshot(Timestamp(now), true, |_| [].into());
        let node = snapshot.nodes.get(0).map(Arc::clone);
        node.and_then(|node| node.nominated_until)
    };
    assert_eq!(until(&mut state, 0), Some(Timestamp(100)));
    assert_eq!(until(&mut state, 100), None);
}

/// Provisioning specification 4.4: what the Eviction API will never let go needs no new place.
#[test]
fn a_pod_that_a_budget_holds_for_ever_is_not_planned_away_from_a_node_that_goes() {
    let on_the_way_out = || {
        let mut state = ClusterState::default();
        state.apply_claim(&typed(&claim(1, true, true))).unwrap();
        state.apply_node(&typed(&node(1, true, true))).unwrap();
        state
    };
    let mut unready = pod(1, Some(1), 0, false);
    unready["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    let mut tolerant = pod(1, Some(1), 0, false);
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let healthy = pod(1, Some(1), 0, false);
    let selector = json!({"matchLabels": {"odd": "1"}});
    let other = json!({"matchExpressions": [{"key": "odd", "operator": "In", "values": ["0"]}]});
    let never = json!({"selector": selector, "maxUnavailable": "0%"});
    let lenient = json!({"selector": selector, "minAvailable": "100%", "unhealthyPodEvictionPolicy": "AlwaysAllow"});
    for (pod, specs, planned) in [
        (
            &healthy,
            vec![json!({"selector": selector, "maxUnavailable": 0})],
            0,
        ),
        (&healthy, vec![never.clone()], 0),
        (&healthy, vec![lenient.clone()], 0),
        (&unready, vec![lenient], 1),
        (&unready, vec![never.clone()], 0),
        (&tolerant, vec![never], 1),
        (
            &healthy,
            vec![json!({"selector": selector, "minAvailable": 5})],
            1,
        ),
        (
            &healthy,
            vec![json!({"selector": selector}), json!({"selector": {}})],
            0,
        ),
        (
            &healthy,
            vec![json!({"selector": other, "maxUnavailable": 0})],
            1,
        ),
        (&healthy, vec![json!({"maxUnavailable": 0})], 1),
    ] {
        let mut state = on_the_way_out();
        state.apply_pod(&typed(pod));
        for (at, spec) in specs.iter().enumerate() {
            let budget =
                json!({"metadata": {"name": at.to_string(), "namespace": "d"}, "spec": spec});
            state.apply_disruption_budget(&typed(&budget)).unwrap();
        }
        assert_eq!(publish(&mut state).pods.len(), planned, "{specs:?}");
    }
    let wrong = json!({"metadata": {"name": "b", "namespace": "d"}, "spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}}});
    let error = on_the_way_out()
        .apply_disruption_budget(&typed(&wrong))
        .unwrap_err();
    assert_eq!(error.path, "spec.selector.matchExpressions[0].operator");
}

/// Claims and pods come from different watches, in any order.
#[test]
fn a_pod_is_judged_again_when_its_volume_claim_comes_binds_and_goes() {
    let mut state = ClusterState::default();
    let mut waiting = pod(1, None, 0, true);
    waiting["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]);
    state.apply_pod(&typed(&waiting));
    let judge = |state: &mut ClusterState| {
        let snapshot = publish(state);
        let pod = snapshot
            .pods
            .iter()
            .next()
            .map(Arc::clone)
            .expect("it waits");
        (pod.rejections.join("; "), pod.volumes.len())
    };
    let (reason, _) = judge(&mut state);
    assert!(
        reason.contains("d/data-0") && reason.contains("does not exist"),
        "{reason}"
    );
    state.apply_storage_class(typed(&json!({
        "metadata": {"name": "ebs"}, "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    })));
    let before = state.arrivals();
    state.apply_volume_claim(typed(&json!({
        "metadata": {"name": "data-0", "namespace": "d"}, "spec": {"storageClassName": "ebs"},
    })));
    assert_eq!(judge(&mut state), (String::new(), 1));
    assert_eq!(
        state.arrivals(),
        before + 1,
        "a pod that became valid is planned at once"
    );
    state.retain_volume_claims(&HashSet::new());
    assert!(judge(&mut state).0.contains("does not exist"));
}

/// A created NodeClaim holds its room until somebody has looked whether it still exists.
#[test]
fn a_created_nodeclaim_that_no_watch_has_shown_asks_to_be_looked_up_and_is_kept_meanwhile() {
    let mut state = ClusterState::default();
    let created = typed(&claim(1, false, false));
    state
        .insert_created(&created, Prospect::default(), Timestamp(0))
        .unwrap();
    state.retain_claims(&HashSet::new());
    assert!(state.unconfirmed_claims(Timestamp(15_000)).is_empty());
    assert_eq!(state.unconfirmed_claims(Timestamp(15_001)), ["c1".into()]);
    let (snapshot, _) = state.snapshot(Timestamp(60_000), true, |_| [].into());
    assert_eq!(snapshot.nodes.len(), 1);
    state.apply_claim(&created).unwrap();
    assert!(state.unconfirmed_claims(Timestamp(60_000)).is_empty());
}

/// A plan that follows at once may fill a node that is not launched yet, up to what every type that
/// it may become has room for: two half plans then need no more nodes than a whole one.
#[test]
fn a_created_nodeclaim_has_the_room_of_its_smallest_type_until_it_is_launched() {
    let of = |cpu: i64, memory: i64| {
        Arc::new(InstanceType {
            name: "t".into(),
            requirements: Requirements::new(),
            capacity: Resources::of(cpu * 1000, memory << 30),
            overhead: Resources::of(500, 0),
            offerings: Vec::new(),
        })
    };
    let mut state = ClusterState::default();
    let created = typed(&claim(1, false, false));
    let prospect = Prospect::of(&[of(8, 16), of(16, 8)]);
    state
        .insert_created(&created, prospect, Timestamp(0))
        .unwrap();
    let node = |state: &mut ClusterState| {
        let (snapshot, _) = state.snapshot(Timestamp(0), true, |_| [].into());
        Arc::clone(snapshot.nodes.iter().next().expect("one node"))
    };
    let unlaunched = node(&mut state);
    assert_eq!(unlaunched.allocatable.get(&ResourceName::Cpu), 7_500);
    assert_eq!(unlaunched.allocatable.get(&ResourceName::Memory), 8 << 30);
    assert_eq!(unlaunched.capacity.get(&ResourceName::Cpu), 16_000);
    state.apply_claim(&typed(&claim(1, true, false))).unwrap();
    let launched = node(&mut state);
    assert!(launched.launched && launched.allocatable != unlaunched.allocatable);
}
